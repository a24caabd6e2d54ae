package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// nest gives a nested workflow node its workflow instance: a new one, or in a further attempt
// the one it had, which goes on from what failed in it.
func (f *Flow) nest(x *execution, i int, env workflow.Env) []workflow.Action {
	n := x.Graph.Node(i)
	if old := x.row(i).Child; old != 0 {
		f.start(x, i)
		f.sink.Child(&x.Row, n.ID, old, nil)
		return nil
	}
	row, err := f.nested(x, i, env)
	if err != nil {
		return f.failed(x, i, err)
	}
	x.row(i).Child = row.ID
	f.start(x, i)
	if c := f.sink.Pending(x.Row.Shard); c != nil {
		c.NewWorkflows = append(c.NewWorkflows, *row)
	}
	f.sink.Child(&x.Row, n.ID, row.ID, row)
	return nil
}

// nested is the row of a node's workflow instance.
func (f *Flow) nested(x *execution, i int, env workflow.Env) (*engine.WorkflowInstance, error) {
	n := x.Graph.Node(i)
	to := x.Nested[n.Workflow]
	if to == nil {
		return nil, fmt.Errorf("workflow %q is not in app %q: save it first", n.Workflow, x.App.Name)
	}
	if err := f.unnested(x, to); err != nil {
		return nil, err
	}
	raw, err := x.Graph.Params(i, env)
	if err != nil {
		return nil, err
	}
	var given map[string]json.RawMessage
	if raw != nil {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("the params of nested workflow %q must be an object with its params: %w", n.Workflow, err)
		}
	}
	params, err := to.Definition.BindParams(given)
	if err != nil {
		return nil, fmt.Errorf("params of nested workflow %q: %w", n.Workflow, err)
	}
	return &engine.WorkflowInstance{
		ID: f.sink.NextID(), App: x.Row.App, Shard: x.Row.Shard, Workflow: to.Workflow, Version: to.Version,
		Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Key: x.Row.Key, Params: params,
		DueAt: f.now, CreatedAt: f.now, Parent: x.Row.ID, ParentNode: n.ID, Depth: x.Row.Depth + 1,
	}, nil
}

// unnested refuses a workflow that is nested in itself, and more levels than there may be.
// The definitions were checked when they were saved, but each may have been edited since.
func (f *Flow) unnested(x *execution, to *Nested) error {
	path := []string{to.Definition.Name}
	for a := x; a != nil; a = f.live[a.Row.Parent] {
		path = append(path, a.Graph.Definition().Name)
		if a.Row.Workflow == to.Workflow {
			slices.Reverse(path)
			return fmt.Errorf("workflow %q is nested in itself: %s", to.Definition.Name, strings.Join(path, " -> "))
		}
	}
	if x.Row.Depth+1 >= workflow.MaxDepth {
		return fmt.Errorf("workflow %q would be at level %d of nested workflows, at most %d are allowed",
			to.Definition.Name, x.Row.Depth+2, workflow.MaxDepth)
	}
	return nil
}

// waitsFor is the workflow instance and its node that wait for a nested one.
func (f *Flow) waitsFor(w *engine.WorkflowInstance) (*execution, int) {
	x := f.live[w.Parent]
	if x == nil {
		return nil, 0
	}
	i, ok := x.Graph.Index(w.ParentNode)
	if !ok || x.rows[i] == nil || x.rows[i].Child != w.ID || !x.p.State(i).Status.Active() {
		return nil, 0
	}
	return x, i
}

// beginNested decides about a nested workflow instance that has been read; false if it does
// not begin here.
func (f *Flow) beginNested(e *Execution) bool {
	parent, i := f.waitsFor(&e.Row)
	if parent == nil {
		return false
	}
	ending := parent.p.Ending().Status != 0
	if !e.Row.Status.Terminal() {
		if ending && e.Row.Status == engine.StatusWaiting {
			f.cancel(e)
			return false
		}
		return true
	}
	switch {
	case e.Err != nil:
		f.act(parent, f.failed(parent, i, e.Err))
	case e.Row.Status == engine.StatusSucceeded:
		f.act(parent, f.ended(parent, i, e.Row.Status, e.Row.Result, ""))
	case ending: // it was to be retried
		f.act(parent, f.finished(parent, i, workflow.Outcome{Status: workflow.NodeStopped}))
	default:
		if err := f.retry(*e); err != nil {
			f.act(parent, f.failed(parent, i, err))
		}
	}
	f.flush(parent)
	return false
}

// cancel ends a nested workflow instance that has not begun, because its parent ends.
func (f *Flow) cancel(e *Execution) {
	x := newExecution(*e)
	x.Row.Status, x.Row.Reason, x.Row.FinishedAt, x.Row.Error = engine.StatusCanceled, "", f.now, "the workflow it is nested in ends"
	f.past.add(&x.Row)
	f.store(x)
	f.over(x)
}

// tellParent tells the node that a nested workflow instance is final.
func (f *Flow) tellParent(w *engine.WorkflowInstance) {
	x, i := f.waitsFor(w)
	if x == nil {
		return
	}
	f.act(x, f.ended(x, i, w.Status, w.Result, w.Error))
	f.flush(x)
}
