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

// queue says in its row why the workflow instance waits. It begins when it is read again.
func (f *Flow) queue(e *Execution) {
	if e.Row.Reason == engine.ReasonQueued {
		return
	}
	if c := f.sink.Pending(e.Row.Shard); c != nil {
		row := e.Row
		row.Reason = engine.ReasonQueued
		c.Workflows = append(c.Workflows, row)
	}
}
