package flow

import (
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Stop stops a workflow instance and what is nested in it; false if it is not in memory.
func (f *Flow) Stop(now int64, id int64, why string) bool {
	return f.order(now, id, func(x *execution) { f.stop(x, why) })
}

// Pause lets no further node of a workflow instance start, nor of what is nested in it; what
// runs or waits goes on, and so does its timeout. False if it is not in memory.
func (f *Flow) Pause(now int64, id int64) bool { return f.order(now, id, f.pause) }

// Resume ends a pause; false if the workflow instance is not in memory.
func (f *Flow) Resume(now int64, id int64) bool { return f.order(now, id, f.resume) }

func (f *Flow) order(now int64, id int64, do func(*execution)) bool {
	f.now = max(f.now, now)
	x := f.live[id]
	if x != nil {
		do(x)
	}
	return x != nil
}

func (f *Flow) stop(x *execution, why string) {
	if x.p.Ending().Status != 0 {
		return
	}
	x.Row.Reason, x.Row.Error, x.dirty = reasonStopping, engine.CutText(why, engine.MaxError), true
	f.drop(x, ofWorkflow)
	f.act(x, x.p.Stop(why))
	f.flush(x)
}

func (f *Flow) pause(x *execution) {
	if x.Row.Status != engine.StatusRunning || x.p.Ending().Status != 0 {
		return
	}
	x.Row.Status, x.Row.Reason, x.dirty = engine.StatusPaused, engine.ReasonPaused, true
	x.p.Pause()
	f.sink.Ended(x.Row)
	f.flush(x)
	f.children(x, f.pause)
}

func (f *Flow) resume(x *execution) {
	if x.Row.Status != engine.StatusPaused || x.p.Ending().Status != 0 {
		return
	}
	x.Row.Status, x.Row.Reason, x.dirty = engine.StatusRunning, "", true
	f.sink.Ended(x.Row)
	f.children(x, f.resume)
	f.act(x, x.p.Resume())
	f.flush(x)
}

// children calls do for every live workflow instance nested in x.
func (f *Flow) children(x *execution, do func(*execution)) {
	for i, r := range x.rows {
		if r == nil || !x.p.State(i).Status.Active() {
			continue
		}
		if child := f.live[r.Child]; child != nil {
			do(child)
		}
	}
}

// Retry begins a further attempt of a workflow instance that is final without success: what
// has succeeded stays. It reports whether the row was the newest; if not it must be read
// again. A second retry of the same attempt changes nothing. The error says why there is no
// further attempt, such as that there is nothing to retry.
func (f *Flow) Retry(now int64, e Execution) (newest bool, err error) {
	f.now = max(f.now, now)
	if f.live[e.Row.ID] != nil || f.sink.Pending(e.Row.Shard) == nil {
		return true, nil
	}
	if f.past.stale(&e.Row) {
		return false, nil
	}
	if e.Row.Parent != 0 {
		return true, fmt.Errorf("it is nested in workflow instance %d", e.Row.Parent)
	}
	return true, f.retry(e)
}

func (f *Flow) retry(e Execution) error {
	if e.Err != nil {
		return e.Err
	}
	x := newExecution(e)
	x.signals = nil // those of the attempt before are gone
	states, err := x.ended()
	if err != nil {
		return err
	}
	next, again, err := workflow.RetryStates(x.Graph, states)
	if err != nil {
		return err
	}
	if x.p, err = workflow.Restore(x.Graph, next, workflow.Ending{}); err != nil {
		return err
	}
	if err := x.Row.Retry(f.now); err != nil {
		return err
	}
	f.add(x)
	x.dirty = true
	for _, i := range again {
		child := int64(0)
		if old := x.rows[i]; old != nil {
			child = old.Child
		}
		x.rows[i] = nil
		x.row(i).Child = child
		f.moved(x, i)
	}
	f.sink.Ended(x.Row)
	f.goOn(x)
	return nil
}

// ended takes in the rows of a final workflow instance. A node without a row, or whose row
// is not final, was not reached, or given up when the workflow could not go on.
func (x *execution) ended() ([]workflow.NodeState, error) {
	states := make([]workflow.NodeState, x.Graph.Len())
	for i := range states {
		states[i] = workflow.NodeState{Status: workflow.NodeCanceled, Reason: workflow.ReasonEnding}
	}
	for _, n := range x.Nodes {
		i, newest, err := x.takeRow(n)
		if err != nil {
			return nil, err
		}
		if !newest {
			continue
		}
		if n.Status.Terminal() {
			states[i] = workflow.NodeState{
				Status: nodeStatus(n.Status), Reason: workflow.NodeReason(n.Reason), Choice: workflow.Choice(n.Choice), Error: n.Error,
			}
		}
		if n.Status == engine.StatusSucceeded {
			x.keep(i, n.Result)
		}
	}
	return states, nil
}
