package engine_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

var update = flag.Bool("update", false, "write states.md from the transition tables")

// status is what the tables are made of.
type status interface {
	cmp.Ordered
	fmt.Stringer
	Terminal() bool
}

const statesHead = `# The states

Every status moves only along these arrows; the same tables refuse all other moves in the code.
This page is written by ` + "`go test ./engine -update`" + ` from the tables, and a test fails where the two differ.
`

func statesPage() string {
	var b strings.Builder
	b.WriteString(statesHead)
	draw := func(title, text, mermaid string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```mermaid\n%s```\n", title, text, mermaid)
	}
	draw("Instance", "One firing of a job, or one run of a job node. It goes back to waiting for a further attempt, or for a further run when a worker was lost.", engine.InstanceMoves.Mermaid())
	draw("Workflow instance", "One execution of a workflow.", engine.WorkflowMoves.Mermaid())
	draw("Node", "One node of a workflow instance.", workflow.NodeMoves.Mermaid())
	draw("Task", "A task that needs a row: a share of a broadcast, a directed task, a sub-task that waits for its next attempt or failed for good.", engine.TaskMoves.Mermaid())
	return b.String()
}

func TestStatesPageIsDrawnFromTheTables(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile("states.md", []byte(statesPage()), 0o644))
	}
	page, err := os.ReadFile("states.md")
	require.NoError(t, err)
	require.Equal(t, statesPage(), string(page), "run: go test ./engine -update")
}

// The page is read by people before it is accepted, so it can stand as the other witness:
// what it draws is legal, and every other pair is refused.
func TestMoves(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("states.md")
	require.NoError(t, err)
	t.Run("instance", func(t *testing.T) {
		t.Parallel()
		checkMoves(t, "instance", engine.InstanceMoves, drawn(t, string(page), "Instance"), statuses())
	})
	t.Run("workflow instance", func(t *testing.T) {
		t.Parallel()
		checkMoves(t, "workflow instance", engine.WorkflowMoves, drawn(t, string(page), "Workflow instance"), statuses())
	})
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		var all []workflow.NodeStatus
		for s := range workflow.NodeStatus(20) {
			all = append(all, s)
		}
		checkMoves(t, "node", workflow.NodeMoves, drawn(t, string(page), "Node"), all)
	})
	t.Run("task", func(t *testing.T) {
		t.Parallel()
		var all []engine.TaskStatus
		for s := range engine.TaskStatus(20) {
			all = append(all, s)
		}
		checkMoves(t, "task", engine.TaskMoves, drawn(t, string(page), "Task"), all)
	})
}

// statuses are all the numbers that a status could be, the unknown ones too.
func statuses() (all []engine.Status) {
	for s := range engine.Status(20) {
		all = append(all, s)
	}
	return all
}

// drawn reads the arrows of one diagram of the page.
func drawn(t *testing.T, page, title string) map[[2]string]bool {
	t.Helper()
	_, section, ok := strings.Cut(page, "\n## "+title+"\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	arrows := map[[2]string]bool{}
	for line := range strings.Lines(section) {
		if from, to, ok := strings.Cut(strings.TrimSpace(line), " --> "); ok && to != "[*]" {
			arrows[[2]string{from, to}] = true
		}
	}
	require.NotEmpty(t, arrows)
	return arrows
}

func checkMoves[S status](t *testing.T, noun string, table workflow.Table[S], arrows map[[2]string]bool, all []S) {
	t.Helper()
	known := table.Statuses()
	legal := 0
	for _, from := range all {
		for _, to := range all {
			err := table.Check(from, to)
			require.Equal(t, err == nil, table.Can(from, to))
			if arrows[[2]string{from.String(), to.String()}] {
				require.NoError(t, err)
				legal++
				continue
			}
			var te *workflow.TransitionError
			require.ErrorAs(t, err, &te, "%s: %s -> %s must be refused", noun, from, to)
			require.Equal(t, workflow.TransitionError{Noun: noun, From: from.String(), To: to.String()}, *te)
			require.EqualError(t, err, fmt.Sprintf("%s cannot move from %s to %s", noun, from, to))
		}
	}
	require.Equal(t, len(arrows), legal, "the page draws a status that is none")

	// Final is final, by the table as by the status itself; and all that is known can happen.
	reached := map[S]bool{known[0]: true}
	for range known {
		for _, from := range known {
			for _, to := range known {
				if reached[from] && table.Can(from, to) {
					reached[to] = true
				}
			}
		}
	}
	for _, s := range known {
		require.Equal(t, s.Terminal(), table.Terminal(s), "%s", s)
		require.True(t, reached[s], "nothing leads to %s", s)
	}
}

func TestInstanceEndsTellWhetherItWasDispatched(t *testing.T) {
	t.Parallel()
	m := engine.InstanceMoves
	require.True(t, m.Can(engine.StatusWaiting, engine.StatusCanceled))
	require.False(t, m.Can(engine.StatusWaiting, engine.StatusStopped), "stopped is for what was dispatched")
	require.False(t, m.Can(engine.StatusWaiting, engine.StatusTimedOut), "only what started can time out")
	for _, from := range []engine.Status{engine.StatusDispatched, engine.StatusRunning} {
		require.False(t, m.Can(from, engine.StatusCanceled), "canceled is for what was not dispatched")
		require.False(t, m.Can(from, engine.StatusSkipped))
	}
}

func TestNodeAndEngineStatusesHaveTheSameNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range workflow.NodeMoves.Statuses() {
		require.Equal(t, n.String(), engine.Status(n).String())
	}
}

func TestStatusWords(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for s := engine.StatusWaiting; s <= engine.StatusSkipped; s++ {
		require.NotContains(t, words, s.String())
		words[s.String()] = true
		back, err := engine.ParseStatus(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.JSONEq(t, `"`+s.String()+`"`, string(b))
		var read engine.Status
		require.NoError(t, json.Unmarshal(b, &read))
		require.Equal(t, s, read)
	}
	for _, s := range []engine.Status{0, engine.StatusSkipped + 1, 255} {
		require.Equal(t, fmt.Sprintf("status(%d)", uint8(s)), s.String())
	}
	for _, word := range []string{"", "Waiting", "cancelled", "status(0)", "waiting "} {
		_, err := engine.ParseStatus(word)
		require.ErrorIs(t, err, engine.ErrInvalid, "%q", word)
	}
	for s := engine.TaskWaiting; s <= engine.TaskStopped; s++ {
		b, err := s.MarshalText()
		require.NoError(t, err)
		require.Equal(t, s.String(), string(b))
		require.NotContains(t, s.String(), "(")
	}
	for _, s := range []engine.TaskStatus{0, engine.TaskStopped + 1, 255} {
		require.Equal(t, fmt.Sprintf("task(%d)", uint8(s)), s.String())
	}
}
