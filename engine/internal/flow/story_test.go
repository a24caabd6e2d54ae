package flow

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

var update = flag.Bool("update", false, "write the golden stories; commit only what you understand")

// A story is workflows and events; the golden file holds what is stored after each event.
// Nodes and nested workflow instances are named by their path from the root.
//
//	workflow NAME, then its nodes in YAML, one a line
//	> start NAME | ok PATH | fail PATH | signal PATH NAME JSON | approve PATH NAME | reject PATH NAME TEXT
//	> pass MS | stop PATH | pause PATH | resume PATH | retry | crash
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(f)
			require.NoError(t, err)
			var out []string
			for _, text := range strings.Split(strings.TrimSpace(string(want)), "\n\n") {
				out = append(out, tell(t, text))
			}
			got := strings.Join(out, "\n")
			if *update {
				require.NoError(t, os.WriteFile(f, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
}

// story is a rig that says what changes.
type story struct {
	*rig
	root  int64
	shown map[string]string
}

func tell(t *testing.T, text string) string {
	s := &story{rig: newRig(t, func(string) bool { return true }), shown: map[string]string{}}
	var out strings.Builder
	var name string
	var nodes []string
	save := func() {
		if name == "" {
			return
		}
		d, err := workflow.Parse(name, []byte("kind: Workflow\nname: "+name+"\napp: a\n"+strings.Join(nodes, "\n")+"\n"))
		require.NoError(t, err, text)
		s.define(d)
		name, nodes = "", nil
	}
	for _, line := range strings.Split(text, "\n") {
		event, isEvent := strings.CutPrefix(line, "> ")
		switch {
		case isEvent:
			save()
			out.WriteString(line + "\n")
			s.play(strings.Fields(event))
			s.commit()
			s.commit() // what was begun after the first
			out.WriteString(s.changes())
		case strings.HasPrefix(line, "workflow "):
			save()
			name = strings.TrimPrefix(line, "workflow ")
			out.WriteString(line + "\n")
		case strings.HasPrefix(line, "  ") && name != "":
			nodes = append(nodes, line[2:])
			out.WriteString(line + "\n")
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func (s *story) play(words []string) {
	words = append(words, "", "", "")
	switch words[0] {
	case "start":
		to := s.defs[words[1]]
		w := engine.WorkflowInstance{ID: s.NextID(), App: 1, Shard: shard, Workflow: to.Workflow, Version: 1, Status: engine.StatusWaiting, Attempt: 1, CreatedAt: s.now}
		s.root, s.workflows[w.ID] = w.ID, w
		s.event(func() { s.f.Begin(s.now, s.execution(w)) })
	case "ok", "fail":
		for _, in := range s.running() {
			if s.path(in.Workflow)+"/"+in.Node == "root/"+words[1] {
				s.end(in, words[0] == "ok")
				return
			}
		}
		require.Fail(s.t, "no job runs for "+words[1])
	case "signal":
		s.event(func() {
			s.f.Signal(s.now, engine.Signal{ID: s.NextID(), Workflow: s.find(words[1]), Name: words[2], Payload: []byte(words[3]), At: s.now})
		})
	case "approve", "reject":
		payload := fmt.Sprintf(`{"approved":%v,"by":"ann","comment":%q}`, words[0] == "approve", words[3])
		s.event(func() {
			s.f.Signal(s.now, engine.Signal{ID: s.NextID(), Workflow: s.find(words[1]), Name: words[2], Approval: true, Payload: []byte(payload), At: s.now})
		})
	case "pass":
		ms, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(s.t, err)
		s.now += ms
		s.event(func() { s.f.Tick(s.now) })
	case "stop":
		s.event(func() { s.f.Stop(s.now, s.find(words[1]), "asked") })
	case "pause":
		s.event(func() { s.f.Pause(s.now, s.find(words[1])) })
	case "resume":
		s.event(func() { s.f.Resume(s.now, s.find(words[1])) })
	case "retry":
		s.event(func() {
			_, err := s.f.Retry(s.now, s.execution(s.workflows[s.root]))
			require.NoError(s.t, err)
		})
	case "crash":
		s.crash()
	default:
		require.Fail(s.t, "unknown event in a story: "+words[0])
	}
}

// path names a workflow instance from the root.
func (s *story) path(id int64) string {
	w := s.workflows[id]
	if w.Parent == 0 {
		return "root"
	}
	return s.path(w.Parent) + "/" + w.ParentNode
}

func (s *story) find(path string) int64 {
	for id := range s.workflows {
		if p := s.path(id); p == path || p == "root/"+path {
			return id
		}
	}
	require.Fail(s.t, "there is no workflow instance "+path)
	return 0
}

// changes are what is stored otherwise than before.
func (s *story) changes() string {
	now := map[string]string{}
	for id, w := range s.workflows {
		text := w.Status.String()
		if w.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", w.Attempt)
		}
		if w.Error != "" {
			text += ": " + w.Error
		}
		now[s.path(id)] = text
	}
	for k, n := range s.nodes {
		text := n.Status.String()
		if n.Reason != "" {
			text += " (" + n.Reason + ")"
		}
		if n.DueAt > s.now && !n.Status.Terminal() {
			text += fmt.Sprintf(" for %d ms", n.DueAt-s.now)
		}
		if len(n.Result) > 0 {
			text += " = " + string(n.Result)
		}
		if n.Error != "" {
			text += ": " + n.Error
		}
		name := s.path(k.workflow) + "/" + n.Node
		if n.Attempt > 1 {
			name += fmt.Sprintf(" attempt %d", n.Attempt)
		}
		now[name+" node"] = text
	}
	if len(s.signals) > 0 {
		now["signals kept"] = strconv.Itoa(len(s.signals))
	}
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if s.shown[k] != now[k] && !strings.Contains(s.shown[k], " for ") || s.shown[k] == "" ||
			strings.Split(s.shown[k], " for ")[0] != strings.Split(now[k], " for ")[0] {
			fmt.Fprintf(&out, "  %s %s\n", strings.TrimSuffix(k, " node"), now[k])
		}
	}
	if _, kept := s.shown["signals kept"]; kept && now["signals kept"] == "" {
		out.WriteString("  signals kept 0\n")
	}
	s.shown = now
	if out.Len() == 0 {
		return "  nothing\n"
	}
	return out.String()
}
