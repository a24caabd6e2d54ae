package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// randomDefinition draws a workflow of every type of node; those below may be nested in it.
func randomDefinition(t *rapid.T, name string, below []string) *workflow.Definition {
	d := &workflow.Definition{Kind: workflow.KindWorkflow, Name: name, App: "a"}
	if rapid.IntRange(0, 5).Draw(t, "timed") == 0 {
		d.Timeout = workflow.Duration(500 * time.Millisecond)
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := workflow.Node{
			ID:        fmt.Sprint("n", i),
			Join:      rapid.SampledFrom([]workflow.Join{"", workflow.JoinAllDone, workflow.JoinOneSuccess}).Draw(t, "join"),
			OnFailure: rapid.SampledFrom([]workflow.OnFailure{workflow.FailureFail, workflow.FailureContinue, workflow.FailureSkip}).Draw(t, "failure"),
		}
		switch kind := rapid.IntRange(0, 6).Draw(t, "type"); {
		case kind <= 1 && len(below) > 0:
			n.Type, n.Workflow = workflow.TypeWorkflow, rapid.SampledFrom(below).Draw(t, "nested")
			if rapid.Bool().Draw(t, "timed node") {
				limit := workflow.Duration(300 * time.Millisecond)
				n.Timeout = &limit
			}
		case kind == 2:
			n.Type, n.For = workflow.TypeWait, workflow.Duration(100*time.Millisecond)
		case kind == 3:
			n.Type, n.Signal = workflow.TypeSignal, "go"
			if rapid.Bool().Draw(t, "expires") {
				n.Expires = workflow.Duration(200 * time.Millisecond)
			}
		case kind == 4:
			n.Type, n.Signal = workflow.TypeApproval, "ok"
		default:
			n.Spec.Processor = "p"
		}
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				n.Needs = append(n.Needs, workflow.Need{Node: fmt.Sprint("n", j)})
			}
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

// Whatever happens in whatever order, with crashes that lose what was not committed: every
// workflow ends, nothing final moves, nothing succeeds twice, and nothing is left behind.
func TestFlow_EndsWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t, func(what string) bool { return rapid.Bool().Draw(t, what) })
		r.define(randomDefinition(t, "leaf", nil))
		r.define(randomDefinition(t, "middle", []string{"leaf"}))
		r.define(randomDefinition(t, "root", []string{"middle", "leaf"}))
		to := r.defs["root"]
		root := engine.WorkflowInstance{
			ID: r.NextID(), App: 1, Shard: shard, Workflow: to.Workflow, Version: 1, Status: engine.StatusWaiting, Attempt: 1, CreatedAt: r.now,
		}
		r.workflows[root.ID] = root
		r.event(func() { r.f.Begin(r.now, r.execution(root)) })
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			r.step(t, root.ID)
		}
		r.finish(root.ID)

		require.Zero(t, r.f.Active(), "nothing is in memory")
		require.Zero(t, r.f.NextWake(), "no timer is left")
		require.Empty(t, r.signals, "no signal is kept")
		require.Empty(t, r.jobs, "no job runs")
		for _, w := range r.workflows {
			require.True(t, w.Status.Terminal(), "workflow instance %d is %s", w.ID, w.Status)
		}
		for k, n := range r.nodes {
			require.True(t, n.Status.Terminal(), "node %v is %s", k, n.Status)
		}
	})
}

// step is one thing that may happen.
func (r *rig) step(t *rapid.T, root int64) {
	switch rapid.IntRange(0, 13).Draw(t, "step") {
	case 0, 1, 2:
		if jobs := r.running(); len(jobs) > 0 {
			r.end(rapid.SampledFrom(jobs).Draw(t, "job"), rapid.IntRange(0, 3).Draw(t, "fails") > 0)
		}
	case 3, 4, 5:
		r.commit()
	case 6:
		r.crash()
	case 7:
		r.now += rapid.Int64Range(1, 150).Draw(t, "ms")
		r.event(func() { r.f.Tick(r.now) })
	case 8, 9:
		live := r.unended()
		if len(live) == 0 {
			return
		}
		r.signal(rapid.SampledFrom(live).Draw(t, "to"), rapid.Bool().Draw(t, "approval"), rapid.Bool().Draw(t, "approved"))
	case 10:
		live := r.unended()
		if len(live) == 0 {
			return
		}
		id := rapid.SampledFrom(live).Draw(t, "which")
		r.event(func() {
			switch rapid.IntRange(0, 3).Draw(t, "order") {
			case 0:
				r.f.Stop(r.now, id, "asked")
			case 1, 2:
				r.f.Pause(r.now, id)
			default:
				r.f.Resume(r.now, id)
			}
		})
	case 11: // something is read, and will be brought late
		if all := slices.Sorted(maps.Keys(r.workflows)); len(all) > 0 {
			r.read = append(r.read, r.execution(r.workflows[rapid.SampledFrom(all).Draw(t, "read")]))
		}
	case 12:
		if len(r.read) > 0 {
			e := rapid.SampledFrom(r.read).Draw(t, "late")
			r.event(func() {
				if e.Row.Status.Terminal() && e.Row.Parent == 0 {
					_, _ = r.f.Retry(r.now, e) // it may have been retried
				} else {
					r.f.Begin(r.now, e)
				}
			})
		}
	default:
		r.commit()
		if w := r.workflows[root]; w.Status.Terminal() && w.Status != engine.StatusSucceeded {
			r.event(func() { _, _ = r.f.Retry(r.now, r.execution(w)) }) // there may be nothing to retry
		}
	}
}

// unended are the workflow instances that are stored and not final.
func (r *rig) unended() []int64 {
	var out []int64
	for _, id := range slices.Sorted(maps.Keys(r.workflows)) {
		if !r.workflows[id].Status.Terminal() {
			out = append(out, id)
		}
	}
	return out
}

func (r *rig) signal(to int64, approval, approved bool) {
	s := engine.Signal{ID: r.NextID(), Workflow: to, Name: "go", Payload: []byte(`"x"`), At: r.now}
	if approval {
		s.Name, s.Approval = "ok", true
		var err error
		s.Payload, err = json.Marshal(Verdict{Approved: approved})
		require.NoError(r.t, err)
	}
	r.event(func() { r.f.Signal(r.now, s) })
}

// finish lets everything that is on its way succeed, until nothing is.
func (r *rig) finish(root int64) {
	for range 400 {
		r.commit()
		if r.workflows[root].Status.Terminal() && len(r.unended()) == 0 && len(r.after) == 0 && r.change.Rows() == 0 && len(r.running()) == 0 {
			return
		}
		r.event(func() { r.f.Resume(r.now, root) })
		for _, id := range r.unended() {
			r.event(func() { r.f.Resume(r.now, id) })
		}
		for _, in := range r.running() {
			r.end(in, true)
		}
		r.commit()
		r.now += 1000
		r.event(func() { r.f.Tick(r.now) })
		r.commit()
		for _, k := range r.waiting() {
			r.signal(k.workflow, k.approval, true)
		}
	}
	require.Fail(r.t, "it does not end")
}

type waitingKey struct {
	workflow int64
	approval bool
}

// waiting are the nodes that wait for a signal.
func (r *rig) waiting() []waitingKey {
	var out []waitingKey
	for k, n := range r.nodes {
		g := r.graphs[r.workflows[k.workflow].Workflow]
		i, _ := g.Index(n.Node)
		if node := g.Node(i); n.Status == engine.StatusRunning && (node.Type == workflow.TypeSignal || node.Type == workflow.TypeApproval) {
			out = append(out, waitingKey{k.workflow, node.Type == workflow.TypeApproval})
		}
	}
	slices.SortFunc(out, func(a, b waitingKey) int {
		return int(a.workflow-b.workflow)*2 + boolInt(a.approval) - boolInt(b.approval)
	})
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
