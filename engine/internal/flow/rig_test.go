package flow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

const shard = 3

type nodeKey struct {
	workflow int64
	node     string
	attempt  int32
}

// rig is a Flow with a database that keeps what is committed and loses the rest in a crash,
// and workers that end instances when they are told.
type rig struct {
	t      require.TestingT
	coin   func(what string) bool // what may be one way or the other
	defs   map[string]*Nested     // saved workflows
	graphs map[int64]*workflow.Graph
	f      *Flow
	now    int64
	ids    int64

	// What is stored.
	workflows map[int64]engine.WorkflowInstance
	nodes     map[nodeKey]engine.Node
	signals   map[int64]engine.Signal
	jobs      map[int64]engine.Instance // not final

	// What the next commit stores, and does after it.
	change   engine.Change
	admitted []engine.Instance
	ended    []int64
	after    []func()

	read    []Execution       // by this server, at some time
	stopped []engine.Instance // to be told to the flow when it is done with the event
	runs    map[string]int    // how often a node was run with success, by workflow instance and node
}

func newRig(t require.TestingT, coin func(string) bool) *rig {
	r := &rig{
		t: t, coin: coin, defs: map[string]*Nested{}, graphs: map[int64]*workflow.Graph{}, now: 1000, workflows: map[int64]engine.WorkflowInstance{},
		nodes: map[nodeKey]engine.Node{}, signals: map[int64]engine.Signal{}, jobs: map[int64]engine.Instance{}, runs: map[string]int{},
	}
	r.f = New(r)
	return r
}

func (r *rig) define(d *workflow.Definition) {
	g, err := workflow.Build(d)
	require.NoError(r.t, err)
	id := r.NextID()
	r.defs[d.Name] = &Nested{Workflow: id, Version: 1, Definition: d}
	r.graphs[id] = g
}

// The sink.

func (r *rig) Pending(s uint8) *engine.Change {
	require.EqualValues(r.t, shard, s)
	return &r.change
}

func (r *rig) Admit(_ *engine.App, n Node) { r.admitted = append(r.admitted, n.Instance) }

func (r *rig) Stop(_ uint8, id int64, _ string) {
	for _, in := range r.running() {
		if in.ID == id {
			in.Status = engine.StatusStopped
			r.ended = append(r.ended, id)
			r.stopped = append(r.stopped, in)
		}
	}
}

func (r *rig) Child(w *engine.WorkflowInstance, node string, child int64, row *engine.WorkflowInstance) {
	parent := *w
	r.after = append(r.after, func() {
		stored, ok := r.workflows[child]
		if row != nil && r.coin("as it was made") {
			stored, ok = *row, true
		}
		e := Execution{Row: stored}
		if !ok {
			e.Row = engine.WorkflowInstance{ID: child, Shard: shard, Parent: parent.ID, ParentNode: node, Status: engine.StatusFailed}
			e.Err = fmt.Errorf("gone")
		} else {
			e = r.execution(stored)
		}
		r.event(func() { r.f.Begin(r.now, e) })
	})
}

func (r *rig) Room()                                           {}
func (r *rig) NextID() int64                                   { r.ids++; return r.ids }
func (r *rig) Moved(_ *engine.WorkflowInstance, _ engine.Node) {}
func (r *rig) Ended(_ engine.WorkflowInstance)                 {}

func (r *rig) execution(row engine.WorkflowInstance) Execution {
	e := Execution{Row: row, App: &engine.App{ID: 1, Name: "a"}, Graph: r.graphs[row.Workflow], Jobs: map[string]*engine.Job{}, Nested: r.defs}
	newest := map[string]engine.Node{}
	for k, n := range r.nodes {
		if k.workflow == row.ID && n.Attempt >= newest[k.node].Attempt {
			newest[k.node] = n
		}
	}
	for _, k := range slices.Sorted(maps.Keys(newest)) {
		e.Nodes = append(e.Nodes, newest[k])
	}
	for _, id := range slices.Sorted(maps.Keys(r.signals)) {
		if r.signals[id].Workflow == row.ID {
			e.Signals = append(e.Signals, r.signals[id])
		}
	}
	return e
}

// event is one that the flow takes in, with what comes of it at once.
func (r *rig) event(do func()) {
	do()
	for len(r.stopped) > 0 {
		in := r.stopped[0]
		r.stopped = r.stopped[1:]
		r.f.Final(r.now, &in)
	}
}

// running are the instances that have not ended, as far as is known.
func (r *rig) running() []engine.Instance {
	var out []engine.Instance
	for _, id := range slices.Sorted(maps.Keys(r.jobs)) {
		out = append(out, r.jobs[id])
	}
	return slices.DeleteFunc(append(out, r.admitted...), func(in engine.Instance) bool { return slices.Contains(r.ended, in.ID) })
}

func (r *rig) end(in engine.Instance, ok bool) {
	in.Status, in.Result, in.StartedAt = engine.StatusFailed, nil, r.now
	if ok {
		in.Status, in.Result = engine.StatusSucceeded, []byte(`1`)
	}
	r.ended = append(r.ended, in.ID)
	r.event(func() { r.f.Final(r.now, &in) })
	if r.coin("told twice") {
		r.event(func() { r.f.Final(r.now, &in) })
	}
}

// commit stores what was decided and does what waits for it.
func (r *rig) commit() {
	c := r.change
	r.change = engine.Change{}
	for _, w := range c.NewWorkflows {
		require.NotContains(r.t, r.workflows, w.ID)
		r.workflows[w.ID] = w
	}
	for _, w := range c.Workflows {
		old, ok := r.workflows[w.ID]
		require.True(r.t, ok, "an update of what is not there")
		if old.Status.Terminal() {
			require.Greater(r.t, w.Attempt, old.Attempt, "workflow instance %d moved from %s to %s", w.ID, old.Status, w.Status)
		}
		require.GreaterOrEqual(r.t, w.Attempt, old.Attempt)
		r.workflows[w.ID] = w
	}
	for _, n := range c.NewNodes {
		k := nodeKey{n.Workflow, n.Node, n.Attempt}
		require.NotContains(r.t, r.nodes, k)
		r.nodes[k] = n
		r.ran(engine.Node{}, n)
	}
	for _, n := range c.Nodes {
		k := nodeKey{n.Workflow, n.Node, n.Attempt}
		old, ok := r.nodes[k]
		require.True(r.t, ok, "an update of a node that is not there")
		if old.Status.Terminal() {
			require.Equal(r.t, old, n, "a final node never changes")
		}
		r.nodes[k] = n
		r.ran(old, n)
	}
	for _, s := range c.NewSignals {
		r.signals[s.ID] = s
	}
	for _, id := range c.GoneSignals {
		require.Contains(r.t, r.signals, id)
		delete(r.signals, id)
	}
	require.Empty(r.t, c.DeadLetters)
	for _, in := range r.admitted {
		r.jobs[in.ID] = in
	}
	for _, id := range r.ended {
		delete(r.jobs, id)
	}
	r.admitted, r.ended = nil, nil
	after := r.after
	r.after = nil
	for _, f := range after {
		f()
	}
}

func (r *rig) ran(old, n engine.Node) {
	if n.Status == engine.StatusSucceeded && old.Status != engine.StatusSucceeded {
		k := fmt.Sprint(n.Workflow, n.Node)
		r.runs[k]++
		require.Equal(r.t, 1, r.runs[k], "node %s of %d succeeded twice", n.Node, n.Workflow)
	}
}

// crash loses what was not committed; another server goes on from what was.
func (r *rig) crash() {
	r.change, r.admitted, r.ended, r.after, r.stopped, r.read = engine.Change{}, nil, nil, nil, nil, nil
	r.f = New(r)
	var rows []engine.WorkflowInstance
	for _, id := range slices.Sorted(maps.Keys(r.workflows)) {
		if w := r.workflows[id]; !w.Status.Terminal() {
			rows = append(rows, w)
		}
	}
	slices.SortStableFunc(rows, func(a, b engine.WorkflowInstance) int { return cmp.Compare(a.Depth, b.Depth) })
	for _, w := range rows {
		e := r.execution(w)
		r.event(func() { r.f.Begin(r.now, e) })
	}
}
