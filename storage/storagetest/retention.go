package storagetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func exerciseKeys(t *testing.T, s engine.Store) {
	ctx := t.Context()
	o := own(t, s, 1)
	c := o.change()
	for n := range 6 {
		i := instance(1, engine.StatusWaiting)
		if n%2 == 1 {
			i = instance(1, engine.StatusSucceeded)
			i.FinishedAt = i.StartedAt + int64(n)
		}
		i.Key = "bestellung-ü💥"
		c.NewInstances = append(c.NewInstances, i)
	}
	c.NewInstances[5].Status = engine.StatusFailed
	another, keyless, upper := instance(1, engine.StatusWaiting), instance(1, engine.StatusWaiting), instance(1, engine.StatusWaiting)
	another.Job, another.Key, keyless.Key, upper.Key = 71, "bestellung-ü💥", "", "BESTELLUNG-ü💥"
	c.NewInstances = append(c.NewInstances, another, keyless, upper)
	o.must(c)
	x := c.NewInstances
	got, err := s.ByKey(ctx, 70, "bestellung-ü💥", false, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Instance{x[5], x[4], x[3], x[2], x[1], x[0]}, got)
	got, err = s.ByKey(ctx, 70, "bestellung-ü💥", true, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.Instance{x[4], x[2]}, got)
	for _, key := range []string{"", "none"} {
		got, err = s.ByKey(ctx, 70, key, false, 10)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	// An update does not lose the key.
	moved := x[0]
	moved.Status, moved.Reason, moved.Key = engine.StatusDispatched, "", ""
	u := o.change()
	u.Instances = []engine.Instance{moved, moved, moved}
	o.must(u)
	got, err = s.ByKey(ctx, 70, "bestellung-ü💥", true, 10)
	require.NoError(t, err)
	require.Len(t, got, 3)

	durations, err := s.Durations(ctx, engine.KindJob, 70, 10)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, durations)
	durations, err = s.Durations(ctx, engine.KindJob, 70, 1)
	require.NoError(t, err)
	require.Empty(t, durations, "the newest four did not succeed")
	w := workflowInstance(1, engine.StatusSucceeded)
	c = o.change()
	c.NewWorkflows = []engine.WorkflowInstance{w}
	o.must(c)
	durations, err = s.Durations(ctx, engine.KindWorkflow, w.Workflow, 10)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, durations)
}

// Retention takes what is final with all that hangs on it, in pages, and nothing else.
func exerciseDeleteHistory(t *testing.T, s engine.Store) {
	ctx := t.Context()
	o := own(t, s, 1)
	c := o.change()
	hang := func(i engine.Instance) engine.Instance {
		c.NewInstances = append(c.NewInstances, i)
		c.NewAttempts = append(c.NewAttempts, engine.Attempt{Instance: i.ID, Attempt: 2, Status: engine.StatusFailed})
		c.NewTasks = append(c.NewTasks, task(i.ID, engine.TaskSub, 1))
		c.NewRuns = append(c.NewRuns, engine.MapRun{Instance: i.ID, Run: 1, UpdatedAt: base})
		if i.Job != 0 {
			c.Permits = append(c.Permits, engine.Permit{Job: i.Job, Instance: i.ID, Max: 1000})
		}
		return i
	}
	family := func(status engine.Status, parent int64, of engine.Status) (engine.WorkflowInstance, engine.Instance) {
		w := workflowInstance(1, status)
		w.Parent = parent
		c.NewWorkflows = append(c.NewWorkflows, w)
		i := instance(1, of)
		i.Workflow, i.Node, i.Job = w.ID, "n", 0
		hang(i)
		c.NewNodes = append(c.NewNodes, engine.Node{Workflow: w.ID, Node: "n", Attempt: 1, Status: engine.StatusRunning, Instance: i.ID})
		c.NewSignals = append(c.NewSignals, engine.Signal{ID: newID(), Workflow: w.ID, Name: "go", At: base})
		if parent != 0 {
			c.NewNodes = append(c.NewNodes, engine.Node{Workflow: parent, Node: "sub", Attempt: 1, Status: engine.StatusRunning, Child: w.ID})
		}
		return w, i
	}
	const done, live = engine.StatusSucceeded, engine.StatusRunning
	after := newID()
	var goes, stays []engine.Instance
	var goesW, staysW []engine.WorkflowInstance
	for range 5 {
		goes = append(goes, hang(instance(1, done)))
		stays = append(stays, hang(instance(1, live)))
	}
	keep := func(w engine.WorkflowInstance, i engine.Instance) int64 {
		staysW, stays = append(staysW, w), append(stays, i)
		return w.ID
	}
	lose := func(w engine.WorkflowInstance, i engine.Instance) int64 {
		goesW, goes = append(goesW, w), append(goes, i)
		return w.ID
	}
	// A whole family that is final; families with one living member each: the root, the last
	// child, an instance of the root, an instance of a child. Who has it above or below stays.
	root := lose(family(done, 0, done))
	lose(family(done, lose(family(done, root, done)), done))
	root = keep(family(live, 0, done))
	keep(family(done, keep(family(done, root, done)), done))
	root = keep(family(done, 0, done))
	middle := keep(family(done, root, done))
	keep(family(live, middle, done))
	root = keep(family(done, 0, live))
	lose(family(done, root, done))
	root = keep(family(done, 0, done))
	keep(family(done, root, live))
	orphan := instance(1, done) // its workflow instance is gone already
	orphan.Workflow, orphan.Node = newID(), "n"
	goes = append(goes, hang(orphan))
	// A child whose parent is gone.
	lose(family(done, newID(), done))
	before := newID()
	young := hang(instance(1, done))
	stays = append(stays, young)
	o.must(c)
	for _, limit := range []int{3, 2, 100} {
		passes := 0
		for pos := after; ; passes++ {
			require.Less(t, passes, 100)
			last, _, err := s.DeleteHistory(ctx, pos, before, limit)
			require.NoError(t, err)
			if last == 0 {
				break
			}
			require.Greater(t, last, pos)
			pos = last
		}
	}
	for _, i := range goes {
		_, err := s.Instance(ctx, i.ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
		requireHanging(t, s, i, 0)
	}
	for _, i := range stays {
		require.Equal(t, i, stored(t, s, i.ID))
		requireHanging(t, s, i, 1)
	}
	for _, w := range goesW {
		_, err := s.WorkflowInstance(ctx, w.ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
		nodes, err := s.Nodes(ctx, w.ID)
		require.NoError(t, err)
		require.Empty(t, nodes)
	}
	requireWorkflows(t, s, staysW)
	for _, w := range staysW {
		nodes, err := s.Nodes(ctx, w.ID)
		require.NoError(t, err)
		require.NotEmpty(t, nodes)
	}
	last, rows, err := s.DeleteHistory(ctx, after, before, 1000)
	require.NoError(t, err)
	require.Zero(t, last)
	require.Zero(t, rows)
	last, rows, err = s.DeleteHistory(ctx, after, young.ID+1, 1000)
	require.NoError(t, err)
	require.Zero(t, last)
	require.EqualValues(t, 4, rows, "an instance, its attempt, task and map run")
	_, _, err = s.DeleteHistory(ctx, after, before, 0)
	require.ErrorIs(t, err, engine.ErrInvalid)

	// A workflow instance with more instances than the limit goes at once, the rest of its
	// instances when they are looked at.
	c = o.change()
	big := workflowInstance(1, done)
	big.Parent = 0
	c.NewWorkflows = []engine.WorkflowInstance{big}
	for range 25 {
		i := instance(1, done)
		i.Workflow, i.Node, i.Job = big.ID, "n", 0
		hang(i)
	}
	o.must(c)
	total := int64(0)
	for pos := big.ID - 1; ; {
		last, rows, err := s.DeleteHistory(ctx, pos, newID(), 10)
		require.NoError(t, err)
		require.LessOrEqual(t, rows, int64(10*2*4+1))
		total += rows
		if last == 0 {
			break
		}
		pos = last
	}
	require.EqualValues(t, 25*4+1, total)
}

func requireHanging(t *testing.T, s engine.Store, i engine.Instance, want int) {
	t.Helper()
	attempts, err := s.Attempts(t.Context(), i.ID)
	require.NoError(t, err)
	require.Len(t, attempts, want)
	runs, err := s.MapRuns(t.Context(), i.ID)
	require.NoError(t, err)
	require.Len(t, runs, want)
	tasks, err := s.TasksOf(t.Context(), i.ID, 1, engine.TaskSub, 0, 10)
	require.NoError(t, err)
	require.Len(t, tasks, want)
	if i.Job == 0 {
		return
	}
	permits, err := s.Permits(t.Context(), i.Job, 1000)
	require.NoError(t, err)
	found := 0
	for _, p := range permits {
		if p.Instance == i.ID {
			found++
		}
	}
	require.Equal(t, want, found)
}
