package flow

import "github.com/fanjet/fanjet/engine"

func (f *Flow) add(x *execution) {
	f.live[x.Row.ID] = x
	if x.Row.Parent == 0 {
		f.roots[x.Row.Workflow]++
	}
}

func (f *Flow) remove(x *execution) {
	if f.live[x.Row.ID] != x {
		return
	}
	delete(f.live, x.Row.ID)
	if x.Row.Parent != 0 {
		return
	}
	if f.roots[x.Row.Workflow]--; f.roots[x.Row.Workflow] <= 0 {
		delete(f.roots, x.Row.Workflow)
	}
	if d := x.Graph; d != nil && d.Definition().MaxRunning > 0 {
		f.sink.Room()
	}
}

// full tells whether as many runs of the workflow are under way as may be. All of them lie in
// one shard, so that this owner sees them all; nested ones do not count.
func (f *Flow) full(e *Execution) bool {
	if e.Row.Status != engine.StatusWaiting || e.Row.Parent != 0 || e.Err != nil || e.Graph == nil {
		return false
	}
	most := e.Graph.Definition().MaxRunning
	return most > 0 && f.roots[e.Row.Workflow] >= most
}

// CancelQueued ends a workflow instance that waits for others of its workflow. It is false if
// that has begun meanwhile, or is not the newest that is known of it.
func (f *Flow) CancelQueued(now int64, e Execution, why string) bool {
	f.now = max(f.now, now)
	if f.live[e.Row.ID] != nil || f.sink.Pending(e.Row.Shard) == nil || f.past.stale(&e.Row) || e.Row.Status != engine.StatusWaiting {
		return false
	}
	x := newExecution(e)
	x.Row.Status, x.Row.Reason, x.Row.FinishedAt, x.Row.Error = engine.StatusCanceled, "", f.now, why
	f.past.add(&x.Row)
	f.store(x)
	f.over(x)
	return true
}

// queue says in its row why the workflow instance waits. It begins when it is read again.
func (f *Flow) queue(e *Execution) {
	if e.Row.Reason == engine.ReasonQueued {
		return
	}
	if c := f.sink.Pending(e.Row.Shard); c != nil {
		row := e.Row
		row.Reason = engine.ReasonQueued
		put(&c.NewWorkflows, &c.Workflows, row, false, sameWorkflow)
	}
}
