package storagetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Two owners, one of them stale: what the stale one says is dropped, the rest is stored.
func exerciseFence(t *testing.T, s engine.Store) {
	ctx := t.Context()
	o, other := own(t, s, 1), own(t, s, 2)
	stale := o.change()
	again, err := s.ClaimShard(ctx, 1, o.server.Number, o.server.Token)
	require.NoError(t, err)
	require.Equal(t, o.shard.Epoch+1, again.Epoch)
	o.shard = *again

	fresh, live, impostor := o.change(), other.change(), other.change()
	impostor.Owner = o.server.Number
	free := engine.Change{Shard: 1, NewInstances: []engine.Instance{instance(1, engine.StatusWaiting)}}
	for _, c := range []*engine.Change{&stale, &fresh} {
		c.NewInstances = []engine.Instance{instance(1, engine.StatusDispatched)}
		c.Cursor = 10
	}
	stale.Cursor = 99
	for _, c := range []*engine.Change{&live, &impostor} {
		c.NewInstances = []engine.Instance{instance(2, engine.StatusDispatched)}
	}
	errs, err := s.Commit(ctx, []engine.Change{impostor, stale, live, free, fresh})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], engine.ErrFenced)
	require.ErrorIs(t, errs[1], engine.ErrFenced)
	for _, err := range errs[2:] {
		require.NoError(t, err)
	}
	for _, c := range []engine.Change{impostor, stale} {
		_, err := s.Instance(ctx, c.NewInstances[0].ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	for _, c := range []engine.Change{live, free, fresh} {
		require.Equal(t, c.NewInstances[0], stored(t, s, c.NewInstances[0].ID))
	}
	state, err := s.LoadShard(ctx, 1, o.shard.Owner, o.shard.Epoch)
	require.NoError(t, err)
	require.EqualValues(t, 10, state.Shard.Cursor)
	require.EqualValues(t, 1, state.Shard.CommitNo)

	// A fence does not cover another shard's rows.
	wrong := o.change()
	wrong.NewInstances = []engine.Instance{instance(2, engine.StatusDispatched)}
	require.ErrorIs(t, one(t, s, wrong), engine.ErrInvalid)

	// A conflict and a lost shard in one commit.
	fresh.NewInstances = append(fresh.NewInstances, instance(1, engine.StatusDispatched))
	live.NewInstances = []engine.Instance{instance(2, engine.StatusDispatched)}
	errs, err = s.Commit(ctx, []engine.Change{stale, fresh, live})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], engine.ErrFenced)
	require.ErrorIs(t, errs[1], engine.ErrConflict)
	require.NoError(t, errs[2])
}

func exerciseCursor(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	cursor := func() engine.Shard {
		shards, err := s.ShardOwners(t.Context())
		require.NoError(t, err)
		return shards[1]
	}
	move := func(to uint64, reset bool) engine.Change {
		c := o.change()
		c.Cursor, c.ResetCursor = to, reset
		return c
	}
	o.must(move(50, false))
	require.EqualValues(t, 50, cursor().Cursor)
	o.must(move(40, false), move(0, false))
	require.EqualValues(t, 50, cursor().Cursor, "a cursor moves forward")
	o.must(move(7, true))
	require.EqualValues(t, 7, cursor().Cursor)
	o.must(move(3, true), move(9, false), move(8, false))
	require.EqualValues(t, 9, cursor().Cursor)
	require.EqualValues(t, 4, cursor().CommitNo)
	o.must(move(0, true))
	require.Zero(t, cursor().Cursor)

	// What was dropped does not move it.
	taken := instance(1, engine.StatusDispatched)
	c := move(20, false)
	c.NewInstances = []engine.Instance{taken}
	o.must(c)
	c.Cursor = 30
	kept := move(25, false)
	errs, err := s.Commit(t.Context(), []engine.Change{kept, c})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrConflict)
	require.EqualValues(t, 25, cursor().Cursor)
}

func exerciseLoadShard(t *testing.T, s engine.Store) {
	ctx := t.Context()
	o, other := own(t, s, 1), own(t, s, 2)
	var want engine.ShardState
	c := o.change()
	c.Cursor = 77
	for n := range 1200 {
		i := instance(1, []engine.Status{engine.StatusDispatched, engine.StatusRunning, engine.StatusWaiting, engine.StatusFailed}[n%4])
		c.NewInstances = append(c.NewInstances, i)
		if n%4 < 2 {
			want.Instances = append(want.Instances, i)
		}
	}
	first := c.NewInstances[0].ID
	open, closed := engine.MapRun{Instance: first, Run: 2, UpdatedAt: base}, engine.MapRun{Instance: first, Run: 1, Closed: true, UpdatedAt: base}
	ofFinal := engine.MapRun{Instance: c.NewInstances[3].ID, Run: 1, UpdatedAt: base}
	c.NewRuns, want.Runs = []engine.MapRun{open, closed, ofFinal}, []engine.MapRun{open}

	waiting, done, share := task(first, engine.TaskSub, 1), task(first, engine.TaskSub, 2), task(first, engine.TaskShare, 1)
	done.Status, done.FinishedAt = engine.TaskSucceeded, base
	share.Status, share.FinishedAt = engine.TaskSucceeded, base
	c.NewTasks, want.Tasks = []engine.Task{done, share, waiting}, []engine.Task{waiting, share}

	running, paused, final := workflowInstance(1, engine.StatusRunning), workflowInstance(1, engine.StatusPaused), workflowInstance(1, engine.StatusStopped)
	fresh := workflowInstance(1, engine.StatusWaiting)
	c.NewWorkflows, want.Workflows = []engine.WorkflowInstance{running, paused, final, fresh}, []engine.WorkflowInstance{running, paused, fresh}
	node := func(w int64, index int32, id string, attempt int32) engine.Node {
		return engine.Node{Workflow: w, Index: index, Node: id, Attempt: attempt, Status: engine.StatusRunning, StartedAt: base}
	}
	c.NewNodes = []engine.Node{node(running.ID, 1, "a", 1), node(running.ID, 1, "a", 2), node(running.ID, 0, "b", 1), node(final.ID, 0, "a", 1), node(paused.ID, 0, "a", 1)}
	want.Nodes = []engine.Node{c.NewNodes[2], c.NewNodes[1], c.NewNodes[4]}
	command := engine.Command{ID: newID(), Shard: 1, Kind: engine.CommandStop, Target: 5, CreatedAt: base}
	c.NewCommands, want.Commands = []engine.Command{command}, []engine.Command{command}
	o.must(c)
	foreign := other.change()
	foreign.NewInstances = []engine.Instance{instance(2, engine.StatusRunning)}
	foreign.NewWorkflows = []engine.WorkflowInstance{workflowInstance(2, engine.StatusRunning)}
	other.must(foreign)

	want.Shard = o.shard
	want.Shard.Cursor, want.Shard.CommitNo = 77, 1
	got, err := s.LoadShard(ctx, 1, o.shard.Owner, o.shard.Epoch)
	require.NoError(t, err)
	require.Equal(t, want, *got)

	_, err = s.LoadShard(ctx, 1, o.shard.Owner, o.shard.Epoch-1)
	require.ErrorIs(t, err, engine.ErrFenced)
	_, err = s.LoadShard(ctx, 1, other.shard.Owner, o.shard.Epoch)
	require.ErrorIs(t, err, engine.ErrFenced)

	// What ends leaves the state.
	u := o.change()
	for _, i := range want.Instances {
		i.Status, i.StartedAt, i.FinishedAt = engine.StatusSucceeded, base, base+1
		u.Instances = append(u.Instances, i)
	}
	o.must(u)
	got, err = s.LoadShard(ctx, 1, o.shard.Owner, o.shard.Epoch)
	require.NoError(t, err)
	require.Empty(t, got.Instances)
	require.Empty(t, got.Tasks)
	require.Empty(t, got.Runs)
}

// 10 000 waiting rows, many due at the same moment, read in pages in the order (due, id).
func exerciseQueue(t *testing.T, s engine.Store) {
	ctx := t.Context()
	q := engine.QueueOf(7, workflow.LaneNormal, workflow.PoolAny)
	var want []engine.Instance
	for part := range 10 {
		c := engine.Change{}
		for n := range 1000 {
			i := instance(uint8(n%3), engine.StatusWaiting)
			i.DueAt = base - int64(part/2)*10
			c.NewInstances = append(c.NewInstances, i)
		}
		require.NoError(t, one(t, s, c))
		if part%2 == 1 { // the later pairs are due earlier
			want = append(append([]engine.Instance{}, c.NewInstances...), want...)
		} else {
			at := 0
			for at < len(want) && want[at].DueAt == c.NewInstances[0].DueAt {
				at++
			}
			want = append(append(append([]engine.Instance{}, want[:at]...), c.NewInstances...), want[at:]...)
		}
	}
	// Sort out by hand what the loop above has in pairs: within a due time ids ascend.
	ordered := make([]engine.Instance, 0, len(want))
	for from := 0; from < len(want); from += 2000 {
		ordered = append(append(ordered, want[from+1000:from+2000]...), want[from:from+1000]...)
	}
	future, dispatched := instance(1, engine.StatusWaiting), instance(1, engine.StatusDispatched)
	future.DueAt = base + 1
	noise := instance(1, engine.StatusWaiting)
	noise.App = 8
	require.NoError(t, one(t, s, engine.Change{NewInstances: []engine.Instance{future, dispatched, noise}}))

	read := func(shards []uint8, limit int) (all []engine.Instance) {
		pos := engine.WaitingPos{}
		for {
			got, err := s.Waiting(ctx, q, shards, base, pos, limit)
			require.NoError(t, err)
			if len(got) == 0 {
				return all
			}
			require.LessOrEqual(t, len(got), limit)
			all = append(all, got...)
			pos = engine.WaitingPos{DueAt: got[len(got)-1].DueAt, ID: got[len(got)-1].ID}
		}
	}
	require.Equal(t, ordered, read([]uint8{0, 1, 2}, 700))
	every := make([]uint8, engine.Shards)
	for n := range every {
		every[n] = uint8(n)
	}
	require.Equal(t, ordered, read(every, 3000))
	var ofOne []engine.Instance
	for _, i := range ordered {
		if i.Shard == 1 {
			ofOne = append(ofOne, i)
		}
	}
	require.Equal(t, ofOne, read([]uint8{1}, 499))
	require.Empty(t, read(nil, 10))

	// One that left the queue is not read again.
	o := own(t, s, ordered[0].Shard)
	sent := ordered[0]
	sent.Status, sent.Reason = engine.StatusDispatched, ""
	c := o.change()
	c.Instances = []engine.Instance{sent}
	o.must(c)
	got, err := s.Waiting(ctx, q, []uint8{0, 1, 2}, base, engine.WaitingPos{}, 1)
	require.NoError(t, err)
	require.Equal(t, ordered[1:2], got)
}

func exerciseQueueHeads(t *testing.T, s engine.Store) {
	ctx := t.Context()
	heads, err := s.QueueHeads(ctx)
	require.NoError(t, err)
	require.Empty(t, heads)
	want := map[engine.Queue]int64{}
	c := engine.Change{}
	for n := range 300 {
		for k := range int64(3) {
			i := instance(uint8(n%64), engine.StatusWaiting)
			i.App, i.Pool, i.DueAt = int64(n+1), fmt.Sprintf("pool-%d", n), base+100-k
			c.NewInstances = append(c.NewInstances, i)
			q := engine.QueueOf(i.App, i.Lane, i.Pool)
			want[q] = base + 98
		}
		c.NewInstances = append(c.NewInstances, instance(uint8(n%64), engine.StatusSucceeded))
	}
	require.NoError(t, one(t, s, c))
	heads, err = s.QueueHeads(ctx)
	require.NoError(t, err)
	got := map[engine.Queue]int64{}
	for _, h := range heads {
		got[h.Queue] = h.DueAt
	}
	require.Equal(t, want, got)
	require.Len(t, heads, len(want))
}
