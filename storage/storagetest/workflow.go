package storagetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func workflowInstance(shard uint8, status engine.Status) engine.WorkflowInstance {
	w := engine.WorkflowInstance{
		ID: newID(), App: 7, Shard: shard, Workflow: 80, Version: 2, Status: status, Attempt: 1, Key: "k", Params: []byte(`{"p":1}`),
		Context: []byte(`{}`), DueAt: base, CreatedAt: base,
		Parent: 44, ParentNode: "sub", Depth: 3,
	}
	if status != engine.StatusWaiting {
		w.StartedAt = base + 1
	}
	if status.Terminal() {
		w.FinishedAt = base + 2
	}
	return w
}

func exerciseWorkflowInstances(t *testing.T, s engine.Store) {
	ctx := t.Context()
	o := own(t, s, 1)
	c := o.change()
	for range 4 {
		c.NewWorkflows = append(c.NewWorkflows, workflowInstance(1, engine.StatusWaiting))
	}
	c.NewWorkflows[2].DueAt = base + 100
	o.must(c)
	other := workflowInstance(2, engine.StatusWaiting)
	require.NoError(t, one(t, s, engine.Change{Shard: 2, NewWorkflows: []engine.WorkflowInstance{other}}))

	due, err := s.NewWorkflows(ctx, []uint8{1}, base, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkflowInstance{c.NewWorkflows[0], c.NewWorkflows[1], c.NewWorkflows[3]}, due)
	due, err = s.NewWorkflows(ctx, []uint8{1, 2}, base+100, 2)
	require.NoError(t, err)
	require.Equal(t, c.NewWorkflows[:2], due)
	due, err = s.NewWorkflows(ctx, nil, base+100, 2)
	require.NoError(t, err)
	require.Empty(t, due)

	u := o.change()
	for _, w := range c.NewWorkflows {
		w.Status, w.Reason, w.Attempt, w.Context, w.StartedAt, w.DueAt = engine.StatusPaused, engine.ReasonPaused, 2, []byte(`{"x":"💥"}`), base+1, base+9
		u.Workflows = append(u.Workflows, w)
	}
	u.Workflows[0].Status, u.Workflows[0].FinishedAt = engine.StatusFailed, base+9
	u.Workflows[0].Error, u.Workflows[0].Result = "no", []byte(`{}`)
	n := engine.Node{Workflow: u.Workflows[1].ID, Index: 1, Node: "load", Attempt: 1, Status: engine.StatusRunning, Reason: "because", Instance: 5, Child: 6, DueAt: base + 7, StartedAt: base}
	next := n
	next.Attempt, next.Index = 2, 1
	second := n
	second.Node, second.Index = "save", 0
	u.NewNodes = []engine.Node{n, next, second}
	o.must(u)
	for _, w := range u.Workflows {
		got, err := s.WorkflowInstance(ctx, w.ID)
		require.NoError(t, err)
		require.Equal(t, w, *got)
	}
	due, err = s.NewWorkflows(ctx, []uint8{1}, base+1000, 10)
	require.NoError(t, err)
	require.Empty(t, due)

	n.Status, n.FinishedAt, n.Choice, n.Result, n.Error, n.Reason, n.Instance = engine.StatusFailed, base+3, []byte(`["a"]`), []byte(`1`), "no", "r", 6
	n.Child, n.DueAt = 8, base+8
	f := o.change()
	f.Nodes = []engine.Node{n}
	o.must(f)
	nodes, err := s.Nodes(ctx, n.Workflow)
	require.NoError(t, err)
	require.Equal(t, []engine.Node{second, n, next}, nodes)
	require.ErrorIs(t, one(t, s, engine.Change{NewNodes: []engine.Node{n}}), engine.ErrConflict)

	_, err = s.WorkflowInstance(ctx, newID())
	require.ErrorIs(t, err, engine.ErrNotFound)
	page, err := s.WorkflowInstances(ctx, 7, 80, 0, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkflowInstance{other, u.Workflows[3]}, page)
	page, err = s.WorkflowInstances(ctx, 7, 0, page[1].ID, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkflowInstance{u.Workflows[2], u.Workflows[1]}, page)
	exerciseQueued(t, s, o)
}

// exerciseQueued: however many workflow instances are queued, they do not keep others from
// being read.
func exerciseQueued(t *testing.T, s engine.Store, o *owner) {
	t.Helper()
	c := o.change()
	for n := range 6 {
		w := workflowInstance(1, engine.StatusWaiting)
		w.Reason, w.Workflow, w.Version = engine.ReasonQueued, 77, 1
		if n > 2 {
			w.Version = 2
		}
		c.NewWorkflows = append(c.NewWorkflows, w)
	}
	fresh := &c.NewWorkflows[5]
	fresh.Reason, fresh.Workflow = engine.ReasonDue, 78
	o.must(c)
	due, err := s.NewWorkflows(t.Context(), []uint8{1}, base, 3)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkflowInstance{*fresh, c.NewWorkflows[0], c.NewWorkflows[3]}, due)
}

func exerciseCommands(t *testing.T, s engine.Store) {
	ctx := t.Context()
	command := func(shard uint8, request string) engine.Command {
		return engine.Command{ID: newID(), Shard: shard, Kind: engine.CommandStop, Target: 5, Request: request, Payload: []byte(`{}`), CreatedAt: base}
	}
	a, b, c := command(1, "r1"), command(2, ""), command(1, "")
	require.NoError(t, one(t, s, engine.Change{NewCommands: []engine.Command{a, b, c}}))
	require.ErrorIs(t, one(t, s, engine.Change{NewCommands: []engine.Command{command(1, "r1")}}), engine.ErrConflict)

	got, err := s.Commands(ctx, []uint8{1}, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Command{a, c}, got)
	got, err = s.Commands(ctx, []uint8{1, 2}, a.ID, 1)
	require.NoError(t, err)
	require.Equal(t, []engine.Command{b}, got)

	o := own(t, s, 1)
	answer := o.change()
	answer.GoneCommands = []int64{a.ID, newID()}
	o.must(answer)
	pending, err := s.CommandPending(ctx, a.ID)
	require.NoError(t, err)
	require.False(t, pending)
	pending, err = s.CommandPending(ctx, b.ID)
	require.NoError(t, err)
	require.True(t, pending)
}

// A workflow instance that is final goes on only as a further attempt, alone and among many.
func exerciseRetries(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	for _, n := range []int{1, 5} {
		c := o.change()
		for range n {
			w := workflowInstance(1, engine.StatusFailed)
			w.Error, w.Result = "no", []byte(`1`)
			c.NewWorkflows = append(c.NewWorkflows, w)
		}
		o.must(c)
		u := o.change()
		for _, w := range c.NewWorkflows {
			require.NoError(t, w.Retry(base+50))
			u.Workflows = append(u.Workflows, w)
		}
		same := o.change()
		for _, w := range u.Workflows {
			w.Attempt--
			same.Workflows = append(same.Workflows, w)
		}
		o.must(same)
		requireWorkflows(t, s, c.NewWorkflows)
		o.must(u)
		requireWorkflows(t, s, u.Workflows)
		for i := range u.Workflows {
			u.Workflows[i].Status, u.Workflows[i].FinishedAt = engine.StatusSucceeded, base+60
		}
		o.must(u)
		requireWorkflows(t, s, u.Workflows)
		o.must(same)
		requireWorkflows(t, s, u.Workflows)
	}
}

func requireWorkflows(t *testing.T, s engine.Store, want []engine.WorkflowInstance) {
	t.Helper()
	for _, w := range want {
		got, err := s.WorkflowInstance(t.Context(), w.ID)
		require.NoError(t, err)
		require.Equal(t, w, *got)
	}
}

// Signals are kept until they are taken, and loaded with the workflow instances they are for.
func exerciseSignals(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	w, done := workflowInstance(1, engine.StatusRunning), workflowInstance(1, engine.StatusFailed)
	signal := func(workflow int64) engine.Signal {
		return engine.Signal{ID: newID(), Workflow: workflow, Name: "go", Approval: true, Payload: []byte(`{"a":"💥"}`), At: base}
	}
	a, b := signal(w.ID), signal(w.ID)
	b.Approval, b.Payload = false, nil
	c := o.change()
	c.NewWorkflows = []engine.WorkflowInstance{w, done}
	c.NewSignals = []engine.Signal{a, b, signal(done.ID)}
	o.must(c)
	load := func() []engine.Signal {
		st, err := s.LoadShard(t.Context(), 1, o.shard.Owner, o.shard.Epoch)
		require.NoError(t, err)
		return st.Signals
	}
	require.Equal(t, []engine.Signal{a, b}, load())
	require.ErrorIs(t, one(t, s, engine.Change{Shard: 1, GoneSignals: []int64{a.ID}}), engine.ErrInvalid)
	c = o.change()
	c.GoneSignals = []int64{a.ID, newID()}
	o.must(c)
	require.Equal(t, []engine.Signal{b}, load())
}
