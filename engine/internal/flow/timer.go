package flow

import (
	"cmp"
	"container/heap"

	"github.com/fanjet/fanjet/workflow"
)

// ofWorkflow stands for a node in the timer of a whole workflow instance.
const ofWorkflow = -1

// timer is when something ends that waits for the time: a wait, a signal that expires, a
// workflow instance.
type timer struct {
	at    int64
	x     *execution
	node  int
	index int // in the heap
}

// timers is a heap of them, the earliest first.
type timers []*timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool {
	a, b := t[i], t[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.x.Row.ID, b.x.Row.ID), cmp.Compare(a.node, b.node)) < 0
}

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(v any) {
	e := v.(*timer)
	e.index = len(*t)
	*t = append(*t, e)
}

func (t *timers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	return e
}

// timer sets the timer of a node, or of the whole workflow instance.
func (f *Flow) timer(x *execution, node int, at int64) {
	f.drop(x, node)
	t := &timer{at: at, x: x, node: node}
	x.timers[node] = t
	heap.Push(&f.timers, t)
}

// drop takes a timer away, if there is one.
func (f *Flow) drop(x *execution, node int) {
	if t := x.timers[node]; t != nil {
		heap.Remove(&f.timers, t.index)
		delete(x.timers, node)
	}
}

// untime takes all timers of a workflow instance away.
func (f *Flow) untime(x *execution) {
	for node := range x.timers {
		f.drop(x, node)
	}
}

// watch sets the timer of a workflow instance that has a timeout: its own, or that of the
// node it is nested in, whichever is sooner.
func (f *Flow) watch(x *execution) {
	limit := x.Graph.Definition().Timeout.Milliseconds()
	if parent, i := f.waitsFor(&x.Row); parent != nil {
		if t := parent.Graph.Node(i).Timeout; t != nil && *t > 0 && (limit == 0 || t.Milliseconds() < limit) {
			limit = t.Milliseconds()
		}
	}
	if limit > 0 && x.p.Ending().Status == 0 {
		f.timer(x, ofWorkflow, x.Row.StartedAt+limit)
	}
}

// NextWake is when Tick must be called, 0 if never.
func (f *Flow) NextWake() int64 {
	if len(f.timers) == 0 {
		return 0
	}
	return max(f.timers[0].at, 1)
}

// Tick ends what is over its time.
func (f *Flow) Tick(now int64) {
	f.now = max(f.now, now)
	for len(f.timers) > 0 && f.timers[0].at <= f.now {
		t := f.timers[0]
		f.drop(t.x, t.node)
		if t.node == ofWorkflow {
			f.timeOut(t.x)
		} else {
			f.act(t.x, f.due(t.x, t.node))
		}
		f.flush(t.x)
	}
}

// timeOut ends a workflow instance that ran over its timeout.
func (f *Flow) timeOut(x *execution) {
	if x.p.Ending().Status != 0 {
		return
	}
	x.Row.Reason, x.dirty = reasonTimingOut, true
	f.act(x, x.p.TimeOut())
}

// wait begins a wait.
func (f *Flow) wait(x *execution, i int, env workflow.Env) []workflow.Action {
	at, err := x.Graph.Until(i, f.now, env)
	if err != nil {
		return f.failed(x, i, err)
	}
	x.row(i).DueAt = at
	f.start(x, i)
	if at <= f.now {
		return f.due(x, i)
	}
	f.timer(x, i, at)
	return nil
}

// due ends a node whose time has come.
func (f *Flow) due(x *execution, i int) []workflow.Action {
	n := x.Graph.Node(i)
	if n.Kind() == workflow.TypeWait {
		return f.succeeded(x, i, nil)
	}
	return f.expired(x, i, n)
}
