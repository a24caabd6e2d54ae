package workflow

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden stories")

// Every pair of statuses is either in the table or refused; a final status leads nowhere.
func TestNodeMoves(t *testing.T) {
	t.Parallel()
	all := NodeMoves.Statuses()
	require.Len(t, all, 9)
	for _, from := range all {
		require.Equal(t, from.Terminal(), NodeMoves.Terminal(from), "%s", from)
		word, err := ParseNodeStatus(from.String())
		require.NoError(t, err)
		require.Equal(t, from, word)
		for _, to := range all {
			err := NodeMoves.Check(from, to)
			if NodeMoves.Can(from, to) {
				require.NoError(t, err)
				continue
			}
			var te *TransitionError
			require.ErrorAs(t, err, &te)
			require.Equal(t, fmt.Sprintf("node cannot move from %s to %s", from, to), err.Error())
		}
	}
	_, err := ParseNodeStatus("paused")
	require.Error(t, err)
	require.Contains(t, NodeMoves.Mermaid(), "    waiting --> dispatched\n")
}

// A story is a graph and events; the golden file holds what is decided after each event.
//
//	node ID [needs=a,b:true] [join=J] [on_failure=F] [disabled]
//	decision ID [needs=…]
//	> start | ok ID [CHOICE] | fail ID [TEXT] | timeout ID | stopped ID | canceled ID
//	> running ID | stop TEXT | expire | pause | resume | restore | retry
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
			got := tell(t, string(want))
			if *update {
				require.NoError(t, os.WriteFile(f, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
}

// tell runs the stories of a file and returns the file with its decisions.
func tell(t *testing.T, text string) string {
	var out strings.Builder
	for _, story := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		d := &Definition{Kind: KindWorkflow, Name: "story", App: "a"}
		var p *Progress
		for _, line := range strings.Split(story, "\n") {
			event, isEvent := strings.CutPrefix(line, "> ")
			switch {
			case strings.HasPrefix(line, "#"):
				out.WriteString(line + "\n")
			case isEvent:
				if p == nil {
					g, err := Build(d)
					require.NoError(t, err, story)
					p = NewProgress(g)
				}
				out.WriteString(line + "\n")
				p = play(t, p, event, &out)
			case strings.HasPrefix(line, "node "), strings.HasPrefix(line, "decision "):
				out.WriteString(line + "\n")
				d.Nodes = append(d.Nodes, storyNode(t, line))
			}
		}
		out.WriteString("  states:")
		for i, s := range p.States() {
			out.WriteString(" " + p.g.Node(i).ID + "=" + s.Status.String())
			if s.Reason != "" {
				out.WriteString("(" + string(s.Reason) + ")")
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

func storyNode(t *testing.T, line string) Node {
	words := strings.Fields(line)
	n := Node{ID: words[1], Spec: Spec{Processor: "p"}}
	if words[0] == "decision" {
		n = Node{ID: words[1], Type: TypeDecision, Expr: "context.x"}
	}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "needs":
			for _, need := range strings.Split(value, ",") {
				id, when, _ := strings.Cut(need, ":")
				n.Needs = append(n.Needs, Need{Node: id, When: storyChoice(when)})
			}
		case "join":
			n.Join = Join(value)
		case "on_failure":
			n.OnFailure = OnFailure(value)
		case "disabled":
			n.Disabled = true
		default:
			require.Fail(t, "unknown word in a story: "+w)
		}
	}
	return n
}

func storyChoice(s string) Choice {
	if s == "" || s == "true" || s == "false" {
		return Choice(s)
	}
	return quoteChoice(s)
}

func play(t *testing.T, p *Progress, event string, out *strings.Builder) *Progress {
	words := append(strings.Fields(event), "", "")
	node, _ := p.g.Index(words[1])
	var actions []Action
	var err error
	finish := func(s NodeStatus) {
		o := Outcome{Status: s, Error: words[2]}
		if s == NodeSucceeded {
			o = Outcome{Status: s, Choice: storyChoice(words[2])}
		}
		actions, err = p.Finish(node, o)
	}
	switch words[0] {
	case "start":
		actions = p.Start()
	case "ok":
		finish(NodeSucceeded)
	case "fail":
		finish(NodeFailed)
	case "timeout":
		finish(NodeTimedOut)
	case "stopped":
		finish(NodeStopped)
	case "canceled":
		finish(NodeCanceled)
	case "running":
		err = p.Running(node)
	case "stop":
		actions = p.Stop(words[1])
	case "expire":
		actions = p.TimeOut()
	case "pause":
		p.Pause()
	case "resume":
		actions = p.Resume()
	case "retry":
		var states []NodeState
		var next *Progress
		if states, _, err = RetryStates(p.g, p.States()); err == nil {
			if next, err = Restore(p.g, states, Ending{}); err == nil {
				p = next
				actions = p.Start()
			}
		}
	case "restore":
		p, err = Restore(p.g, p.States(), p.Ending())
		if err == nil {
			actions = p.Start()
		}
	default:
		require.Fail(t, "unknown event in a story: "+event)
	}
	if err != nil {
		out.WriteString("  error: " + err.Error() + "\n")
	}
	for _, a := range actions {
		out.WriteString("  " + sayAction(p.g, a) + "\n")
	}
	if err == nil && len(actions) == 0 {
		out.WriteString("  nothing\n")
	}
	return p
}

func sayAction(g *Graph, a Action) string {
	switch a.Kind {
	case RunNode:
		return "run " + g.Node(a.Node).ID
	case SkipNode:
		return "skip " + g.Node(a.Node).ID + " (" + string(a.Reason) + ")"
	case StopNode:
		return "stop " + g.Node(a.Node).ID
	case CancelWaiting:
		return "cancel waiting"
	case FinishWorkflow:
		return strings.TrimSuffix("finish "+a.Status.String()+": "+a.Error, ": ")
	}
	return "unknown action"
}

// randomGraph draws a DAG of every kind of node, in a random file order.
func randomGraph(t *rapid.T) *Definition {
	n := rapid.IntRange(1, 12).Draw(t, "nodes")
	d := &Definition{Kind: KindWorkflow, Name: "w", App: "a"}
	for i := range n {
		node := Node{
			ID:        fmt.Sprint("n", i),
			Join:      rapid.SampledFrom([]Join{"", JoinNoneFailed, JoinOneSuccess, JoinAllDone}).Draw(t, "join"),
			OnFailure: rapid.SampledFrom([]OnFailure{FailureContinue, FailureContinue, FailureSkip, FailureFail}).Draw(t, "failure"),
		}
		if rapid.IntRange(0, 3).Draw(t, "decision") == 0 {
			node.Type, node.Expr = TypeDecision, "context.x"
		} else {
			node.Spec.Processor = "p"
			node.Disabled = rapid.IntRange(0, 4).Draw(t, "disabled") == 0
		}
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") > 0 {
				continue
			}
			need := Need{Node: fmt.Sprint("n", j)}
			if d.Nodes[j].Decision() {
				need.When = rapid.SampledFrom([]Choice{"true", "false"}).Draw(t, "when")
			}
			node.Needs = append(node.Needs, need)
		}
		d.Nodes = append(d.Nodes, node)
	}
	for i := range d.Nodes { // a decision has a way out
		followed := slices.ContainsFunc(d.Nodes, func(n Node) bool {
			return slices.ContainsFunc(n.Needs, func(need Need) bool { return need.Node == d.Nodes[i].ID })
		})
		if d.Nodes[i].Decision() && !followed {
			d.Nodes[i].Type, d.Nodes[i].Expr, d.Nodes[i].Spec.Processor = "", "", "p"
		}
	}
	return d
}

// outcomes fixes how every node will end, so that orders of events can be compared.
func outcomes(t *rapid.T, d *Definition) map[string]Outcome {
	m := map[string]Outcome{}
	for _, n := range d.Nodes {
		o := Outcome{Status: rapid.SampledFrom([]NodeStatus{NodeSucceeded, NodeSucceeded, NodeSucceeded, NodeFailed, NodeTimedOut}).Draw(t, "outcome")}
		if n.Decision() && o.Status == NodeSucceeded {
			o.Choice = rapid.SampledFrom([]Choice{"true", "false"}).Draw(t, "choice")
		}
		m[n.ID] = o
	}
	return m
}

// run plays a workflow to its end, drawing which active node ends next, and checks what must
// hold at every step. With restore every step is taken by a restored copy as well.
func run(t *rapid.T, d *Definition, ends map[string]Outcome, restore bool, label string) (map[string]NodeState, NodeStatus) {
	g, err := Build(d)
	require.NoError(t, err)
	p := NewProgress(g)
	decided := make([]int, g.Len())
	active := map[int]bool{}
	finished := 0
	apply := func(actions []Action) {
		for _, a := range actions {
			require.Zero(t, finished, "nothing is decided after the end")
			switch a.Kind {
			case RunNode:
				decided[a.Node]++
				active[a.Node] = true
				for _, e := range g.Parents(a.Node) {
					require.True(t, p.State(e.From).Status.Terminal(), "a node runs only when all its parents are final")
				}
			case SkipNode:
				decided[a.Node]++
			case StopNode, CancelWaiting:
			case FinishWorkflow:
				finished++
				require.Empty(t, active, "a workflow is final only when no node is active")
				require.Equal(t, a.Status == NodeSucceeded, a.Error == "")
			}
		}
	}
	apply(p.Start())
	for finished == 0 {
		require.NotEmpty(t, active, "a workflow that is not final has something to wait for")
		require.Equal(t, len(active), p.Active())
		var choices []int
		for i := range g.Len() {
			if active[i] {
				choices = append(choices, i)
			}
		}
		i := rapid.SampledFrom(choices).Draw(t, label)
		o := ends[g.Node(i).ID]
		if p.Ending().Status != 0 {
			o = Outcome{Status: NodeStopped}
		}
		before := p.States()
		var twin *Progress
		if restore {
			twin, err = Restore(g, before, p.Ending())
			require.NoError(t, err)
			require.Empty(t, twin.Start(), "stored states leave nothing undecided")
		}
		delete(active, i)
		actions, err := p.Finish(i, o)
		require.NoError(t, err)
		if twin != nil {
			same, err := twin.Finish(i, o)
			require.NoError(t, err)
			require.Equal(t, actions, same)
			require.Equal(t, p.States(), twin.States())
		}
		for k, s := range before {
			if s.Status.Terminal() {
				require.Equal(t, s, p.State(k), "a final status never changes")
			}
		}
		apply(actions)
		again, err := p.Finish(i, Outcome{Status: NodeSucceeded, Choice: "true"})
		require.NoError(t, err)
		require.Empty(t, again, "a second end of a node is a no-op")
	}
	states := map[string]NodeState{}
	for i, s := range p.States() {
		require.True(t, s.Status.Terminal())
		require.LessOrEqual(t, decided[i], 1, "a join is decided once")
		states[g.Node(i).ID] = s
	}
	status, text, ok := p.Final()
	require.True(t, ok)
	r, err := Restore(g, p.States(), p.Ending())
	require.NoError(t, err)
	require.Empty(t, r.Start())
	status2, text2, ok := r.Final()
	require.True(t, ok)
	require.Equal(t, status, status2)
	require.Equal(t, text, text2)
	return states, status
}

// Every DAG ends, whatever its nodes do, in every order; a restored copy does the same.
func TestProgress_AlwaysEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := randomGraph(t)
		run(t, d, outcomes(t, d), true, "next")
	})
}

// B01: neither the order of the file nor that of the events changes how a workflow ends,
// as long as no failure cuts the others short.
func TestProgress_B01_OrderHasNoMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := randomGraph(t)
		for i := range d.Nodes {
			if d.Nodes[i].OnFailure == FailureFail {
				d.Nodes[i].OnFailure = FailureContinue
			}
		}
		ends := outcomes(t, d)
		states, status := run(t, d, ends, false, "first")
		shuffled := *d
		shuffled.Nodes = rapid.Permutation(d.Nodes).Draw(t, "file order")
		again, status2 := run(t, &shuffled, ends, false, "second")
		require.Equal(t, states, again)
		require.Equal(t, status, status2)
	})
}

// A stop or a timeout at any point ends every workflow with that status.
func TestProgress_StopAtAnyPoint(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := randomGraph(t)
		for i := range d.Nodes {
			if d.Nodes[i].OnFailure == FailureFail {
				d.Nodes[i].OnFailure = FailureContinue
			}
		}
		ends := outcomes(t, d)
		g, err := Build(d)
		require.NoError(t, err)
		p := NewProgress(g)
		steps := rapid.IntRange(0, 12).Draw(t, "steps")
		if steps > 0 {
			p.Start()
		}
		finishOne := func() {
			for i := range g.Len() {
				if p.State(i).Status.Active() {
					_, err := p.Finish(i, ends[g.Node(i).ID])
					require.NoError(t, err)
					return
				}
			}
		}
		for range steps {
			finishOne()
		}
		if _, _, final := p.Final(); final {
			require.Empty(t, p.Stop("late"))
			return
		}
		want := NodeStopped
		if rapid.Bool().Draw(t, "expire") {
			want = NodeTimedOut
			p.TimeOut()
		} else {
			p.Stop("asked")
		}
		require.Zero(t, p.Waiting())
		require.Empty(t, p.Stop("again"))
		for p.Active() > 0 {
			p, err = Restore(g, p.States(), p.Ending())
			require.NoError(t, err)
			require.Empty(t, p.Start())
			finishOne()
		}
		status, text, ok := p.Final()
		require.True(t, ok)
		require.Equal(t, want, status)
		require.NotEmpty(t, text)
	})
}

func TestRestore_Refuses(t *testing.T) {
	t.Parallel()
	g := mustBuild(t, quick("a: []; b: [a]"))
	_, err := Restore(g, make([]NodeState, 1), Ending{})
	require.ErrorContains(t, err, "1 node states for 2 nodes")
	_, err = Restore(g, make([]NodeState, 2), Ending{})
	require.ErrorContains(t, err, `node "a" has no status`)
	p := NewProgress(g)
	_, err = p.Finish(7, Outcome{Status: NodeSucceeded})
	require.ErrorContains(t, err, "no node with index 7")
	p.Start()
	_, err = p.Finish(0, Outcome{Status: NodeRunning})
	require.ErrorContains(t, err, "is no end")
}

// B20: the cost of one step is that of the degree of the node, not of the whole graph.
func BenchmarkProgressStep(b *testing.B) {
	for _, n := range []int{1_000, 20_000} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			g, err := Build(largeDefinition(n, 1))
			require.NoError(b, err)
			var p *Progress
			next := n
			for b.Loop() {
				if next >= n-1 {
					p, next = NewProgress(g), 0
					p.Start()
				}
				if _, err := p.Finish(next, Outcome{Status: NodeSucceeded}); err != nil {
					b.Fatal(err)
				}
				next++
			}
		})
	}
}

// A further attempt never runs again what succeeded, and ends whatever its nodes do.
func TestRetry_NeverRunsWhatSucceeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := randomGraph(t)
		states, status := run(t, d, outcomes(t, d), false, "first")
		g, err := Build(d)
		require.NoError(t, err)
		stored := make([]NodeState, g.Len())
		for i := range stored {
			stored[i] = states[g.Node(i).ID]
		}
		next, again, err := RetryStates(g, stored)
		if err != nil {
			require.Equal(t, NodeSucceeded, status, "what failed has something to retry: %v", err)
			return
		}
		p, err := Restore(g, next, Ending{})
		require.NoError(t, err)
		ran := map[int]bool{}
		take := func(actions []Action) {
			for _, a := range actions {
				if a.Kind == RunNode {
					require.NotEqual(t, NodeSucceeded, stored[a.Node].Status)
					require.Contains(t, again, a.Node)
					require.False(t, ran[a.Node])
					ran[a.Node] = true
				}
			}
		}
		take(p.Start())
		for range g.Len() {
			for i := range g.Len() {
				if p.State(i).Status.Active() {
					o := Outcome{Status: NodeSucceeded}
					if g.Node(i).Decision() {
						o.Choice = rapid.SampledFrom([]Choice{"true", "false"}).Draw(t, "choice")
					}
					actions, err := p.Finish(i, o)
					require.NoError(t, err)
					take(actions)
				}
			}
		}
		got, text, final := p.Final()
		require.True(t, final)
		require.Equal(t, NodeSucceeded, got, "every node that ran has succeeded: %s", text)
		for i, s := range stored {
			if s.Status == NodeSucceeded {
				require.Equal(t, s, p.State(i))
			}
		}
	})
}
