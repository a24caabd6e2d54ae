package storagetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

func exerciseInstances(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	i := engine.Instance{
		ID: newID(), App: 7, Shard: 1, Job: 70, JobVersion: 3, Workflow: 9, Node: "load", Status: engine.StatusWaiting, Reason: engine.ReasonRetry,
		Attempt: 2, Run: 1, Lane: workflow.LaneHigh, Pool: "gpu", Key: "order-1", Params: []byte(`{"a":"ü"}`), Items: []byte(`[1]`), FireAt: base, DueAt: base + 1,
		CreatedAt: base + 2, Worker: "w-1", LogFrom: 1 << 62, LogTo: 1<<63 + 7,
	}
	c := o.change()
	c.NewInstances = []engine.Instance{i}
	c.NewAttempts = []engine.Attempt{{Instance: i.ID, Attempt: 2, Status: engine.StatusFailed, Error: "no", Worker: "w-0", StartedAt: base, FinishedAt: base + 1}}
	o.must(c)
	require.Equal(t, i, stored(t, s, i.ID))
	attempts, err := s.Attempts(t.Context(), i.ID)
	require.NoError(t, err)
	require.Equal(t, c.NewAttempts, attempts)

	// Every mutable column moves; the others stay, whatever the update says.
	moved := i
	moved.Status, moved.Reason, moved.Attempt, moved.Run, moved.Lane, moved.Pool = engine.StatusRunning, "", 3, 2, workflow.LaneBulk, "any"
	moved.DueAt, moved.StartedAt, moved.Worker, moved.Error, moved.LogFrom, moved.LogTo = base+5, base+6, "w-2", "hm", 5, 6
	u := o.change()
	u.Instances = []engine.Instance{moved}
	o.must(u)
	require.Equal(t, moved, stored(t, s, i.ID))

	done := moved
	done.Status, done.FinishedAt, done.Result = engine.StatusSucceeded, base+9, []byte(`[1]`)
	u.Instances = []engine.Instance{done}
	o.must(u)
	require.Equal(t, done, stored(t, s, i.ID))

	_, err = s.Instance(t.Context(), newID())
	require.ErrorIs(t, err, engine.ErrNotFound)

	// An update never inserts, alone or among others.
	missing := []engine.Instance{instance(1, engine.StatusDispatched), instance(1, engine.StatusDispatched), instance(1, engine.StatusDispatched), moved}
	u.Instances = missing
	o.must(u)
	for _, m := range missing[:3] {
		_, err := s.Instance(t.Context(), m.ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
}

func exerciseLate(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	for _, n := range []int{1, 5} { // alone, and many in one statement
		c := o.change()
		for range n {
			c.NewInstances = append(c.NewInstances, instance(1, engine.StatusTimedOut))
		}
		o.must(c)
		u := o.change()
		for _, i := range c.NewInstances {
			i.Late = []byte(`"late"`)
			u.Instances = append(u.Instances, i)
		}
		o.must(u)
		for _, want := range u.Instances {
			require.Equal(t, want, stored(t, s, want.ID))
		}
	}
}

// What is final stays as it is, also where a bug of the owner says otherwise.
func exerciseTerminal(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	for _, n := range []int{1, 5} {
		c := o.change()
		for range n {
			i := instance(1, engine.StatusFailed)
			i.Error, i.Result = "why", []byte(`1`)
			c.NewInstances = append(c.NewInstances, i)
		}
		o.must(c)
		for _, status := range []engine.Status{engine.StatusWaiting, engine.StatusDispatched, engine.StatusRunning, engine.StatusSucceeded} {
			u := o.change()
			for _, i := range c.NewInstances {
				i.Status, i.Attempt, i.Result, i.Error, i.StartedAt, i.FinishedAt = status, 9, []byte(`2`), "", base+50, 0
				if status.Terminal() {
					i.FinishedAt = base + 99
				}
				u.Instances = append(u.Instances, i)
			}
			o.must(u)
			for _, want := range c.NewInstances {
				require.Equal(t, want, stored(t, s, want.ID), "moved to %s", status)
			}
		}
	}
	w := workflowInstance(1, engine.StatusSucceeded)
	c := o.change()
	c.NewWorkflows = []engine.WorkflowInstance{w}
	o.must(c)
	again := w
	again.Status, again.FinishedAt, again.StartedAt = engine.StatusRunning, 0, base
	c = o.change()
	c.Workflows = []engine.WorkflowInstance{again}
	o.must(c)
	got, err := s.WorkflowInstance(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, w, *got)

	// Two moves in one commit: the first final one wins, in both orders of writing.
	i := instance(1, engine.StatusRunning)
	c = o.change()
	c.NewInstances = []engine.Instance{i}
	o.must(c)
	first, second := o.change(), o.change()
	done, stopped := i, i
	done.Status, done.FinishedAt = engine.StatusSucceeded, base+9
	stopped.Status, stopped.FinishedAt = engine.StatusStopped, base+10
	first.Instances, second.Instances = []engine.Instance{done}, []engine.Instance{stopped}
	o.must(first, second, first)
	require.Equal(t, done, stored(t, s, i.ID))
}

// Conflicts drop their Change alone.
func exerciseConflicts(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	taken := instance(1, engine.StatusWaiting)
	c := o.change()
	c.NewInstances = []engine.Instance{taken}
	o.must(c)

	good, bad, alsoGood := o.change(), o.change(), o.change()
	good.NewInstances = []engine.Instance{instance(1, engine.StatusWaiting), instance(1, engine.StatusDispatched)}
	bad.NewInstances = []engine.Instance{instance(1, engine.StatusWaiting), taken}
	bad.NewTasks = []engine.Task{task(taken.ID, engine.TaskSub, 1)}
	alsoGood.NewInstances = []engine.Instance{instance(1, engine.StatusSucceeded)}
	errs, err := s.Commit(t.Context(), []engine.Change{good, bad, alsoGood})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrConflict)
	require.NoError(t, errs[2])
	for _, i := range append(good.NewInstances, alsoGood.NewInstances...) {
		require.Equal(t, i, stored(t, s, i.ID))
	}
	_, err = s.Instance(t.Context(), bad.NewInstances[0].ID)
	require.ErrorIs(t, err, engine.ErrNotFound, "half a change was stored")
	tasks, err := s.TasksOf(t.Context(), taken.ID, 1, engine.TaskSub, 0, 10)
	require.NoError(t, err)
	require.Empty(t, tasks)

	// The same new row twice in one commit: the first one has it.
	twice := o.change()
	twice.NewInstances = []engine.Instance{instance(1, engine.StatusWaiting)}
	errs, err = s.Commit(t.Context(), []engine.Change{twice, twice})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrConflict)
}

// D11: one fire makes one instance; triggers make as many as there are.
func exerciseFire(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	fired := instance(1, engine.StatusWaiting)
	fired.FireAt = base + 12
	c := o.change()
	c.NewInstances = []engine.Instance{fired}
	o.must(c)
	again := instance(1, engine.StatusDispatched)
	again.FireAt = fired.FireAt
	c.NewInstances = []engine.Instance{again}
	require.ErrorIs(t, one(t, s, c), engine.ErrConflict)
	other := instance(1, engine.StatusDispatched)
	other.FireAt, other.Job = fired.FireAt, 71
	called, calledAgain := instance(1, engine.StatusWaiting), instance(1, engine.StatusWaiting)
	c.NewInstances = []engine.Instance{other, called, calledAgain}
	o.must(c)
}

func exerciseUnfenced(t *testing.T, s engine.Store) {
	i := instance(4, engine.StatusWaiting)
	require.NoError(t, one(t, s, engine.Change{Shard: 4, NewInstances: []engine.Instance{i}}))
	require.Equal(t, i, stored(t, s, i.ID))
	i.Reason = engine.ReasonPaused
	require.ErrorIs(t, one(t, s, engine.Change{Shard: 4, Instances: []engine.Instance{i}}), engine.ErrInvalid)
	require.ErrorIs(t, one(t, s, engine.Change{Shard: 4, GoneCommands: []int64{1}}), engine.ErrInvalid)
	require.NoError(t, one(t, s, engine.Change{}))
	errs, err := s.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, errs)
}

// Changes of one commit follow each other.
func exerciseOrder(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	i := instance(1, engine.StatusDispatched)
	running, done := i, i
	running.Status, running.StartedAt = engine.StatusRunning, base+1
	done.Status, done.StartedAt, done.FinishedAt = engine.StatusSucceeded, base+1, base+2
	a, b, c := o.change(), o.change(), o.change()
	a.NewInstances, b.Instances, c.Instances = []engine.Instance{i}, []engine.Instance{running}, []engine.Instance{done}
	x := task(i.ID, engine.TaskSub, 4)
	a.NewTasks, b.GoneTasks = []engine.Task{x}, []engine.TaskKey{x.TaskKey}
	x.Attempt = 2
	c.NewTasks = []engine.Task{x}
	o.must(a, b, c)
	require.Equal(t, done, stored(t, s, i.ID))
	tasks, err := s.TasksOf(t.Context(), i.ID, 1, engine.TaskSub, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Task{x}, tasks)
}

func exerciseConcurrentCommits(t *testing.T, s engine.Store) {
	const callers, each = 8, 20
	owners := make([]*owner, callers)
	for n := range owners {
		owners[n] = own(t, s, uint8(n))
	}
	fails := make(chan error, callers*each)
	var wg sync.WaitGroup
	for n, o := range owners {
		wg.Go(func() {
			for k := range each {
				c := o.change()
				c.Cursor = uint64(k + 1)
				for range 5 {
					c.NewInstances = append(c.NewInstances, instance(uint8(n), engine.StatusDispatched))
				}
				u := o.change()
				for _, i := range c.NewInstances {
					i.Status, i.StartedAt, i.FinishedAt = engine.StatusSucceeded, base, base+1
					u.Instances = append(u.Instances, i)
				}
				for _, change := range []engine.Change{c, u} {
					errs, err := s.Commit(t.Context(), []engine.Change{change})
					fails <- err
					fails <- errs[0]
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(fails)
	}()
	for err := range fails {
		require.NoError(t, err)
	}
	counts, err := s.CountInstances(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, map[engine.Status]int64{engine.StatusSucceeded: callers * each * 5}, counts)
	shards, err := s.ShardOwners(t.Context())
	require.NoError(t, err)
	for n := range owners {
		require.Equal(t, uint64(each), shards[n].Cursor)
		require.EqualValues(t, 2*each, shards[n].CommitNo)
	}
}

// A commit larger than any statement may be.
func exerciseBigCommit(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	big := make([]byte, engine.MaxParams)
	for i := range big {
		big[i] = byte(i)
	}
	c := o.change()
	for n := range 1000 {
		i := instance(1, engine.StatusDispatched)
		if n%40 == 0 {
			i.Params = big
		}
		c.NewInstances = append(c.NewInstances, i)
	}
	o.must(c)
	u := o.change()
	for n, i := range c.NewInstances {
		i.Status, i.StartedAt, i.FinishedAt = engine.StatusSucceeded, base, base+1
		if n%40 == 1 {
			i.Result = big
		}
		u.Instances = append(u.Instances, i)
	}
	o.must(u)
	for n := range 82 {
		require.Equal(t, u.Instances[n], stored(t, s, u.Instances[n].ID))
	}
	counts, err := s.CountInstances(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, 1000, counts[engine.StatusSucceeded])
}
