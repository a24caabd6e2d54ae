package storagetest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func task(instance int64, kind engine.TaskKind, number int64) engine.Task {
	return engine.Task{
		TaskKey: engine.TaskKey{Instance: instance, Run: 1, Kind: kind, Number: number}, Status: engine.TaskWaiting, Attempt: 1,
		NextTryAt: base, StageSeq: 1<<63 + 1, StageOff: 3,
	}
}

func exerciseTasks(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	i := newID()
	c := o.change()
	for n := range int64(6) {
		c.NewTasks = append(c.NewTasks, task(i, engine.TaskSub, n), task(i, engine.TaskShare, n))
	}
	o.must(c)
	got, err := s.TasksOf(t.Context(), i, 1, engine.TaskSub, 2, 3)
	require.NoError(t, err)
	require.Equal(t, []engine.Task{c.NewTasks[4], c.NewTasks[6], c.NewTasks[8]}, got)

	u := o.change()
	for _, x := range c.NewTasks[:8] {
		x.Status, x.Attempt, x.Lost, x.Worker, x.Incarnation, x.NextTryAt = engine.TaskFailed, 3, 2, "w-1", 1<<63+9, 0
		x.StageSeq, x.StageOff, x.Error, x.Result, x.Checkpoint, x.StartedAt, x.FinishedAt = 8, 9, "no", []byte(`1`), []byte{0, 1, 255}, base, base+1
		u.Tasks = append(u.Tasks, x)
	}
	u.GoneTasks = []engine.TaskKey{c.NewTasks[10].TaskKey, c.NewTasks[11].TaskKey, {Instance: i, Run: 9, Kind: engine.TaskSub}}
	o.must(u)
	got, err = s.TasksOf(t.Context(), i, 1, engine.TaskSub, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Task{u.Tasks[0], u.Tasks[2], u.Tasks[4], u.Tasks[6], c.NewTasks[8]}, got)
	require.ErrorIs(t, one(t, s, c), engine.ErrConflict)

	// Keys that look alike when written one after the other are not mixed up.
	a, b := task(i+1, engine.TaskSub, 11), task(i+1, engine.TaskSub, 1)
	c = o.change()
	c.NewTasks = []engine.Task{a}
	o.must(c)
	c = o.change()
	a.Attempt, b.Attempt = 2, 2
	c.Tasks = []engine.Task{b, a, task(i+11, engine.TaskSub, 1)}
	o.must(c)
	got, err = s.TasksOf(t.Context(), i+1, 1, engine.TaskSub, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Task{a}, got)
}

func exerciseMapRuns(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	i := newID()
	m := engine.MapRun{Instance: i, Run: 1, Total: 1 << 40, State: bytes.Repeat([]byte{0, '\'', '\\', 255}, 100_000), UpdatedAt: base}
	c := o.change()
	c.NewRuns = []engine.MapRun{m}
	o.must(c)
	got, err := s.RunOf(t.Context(), i, 1)
	require.NoError(t, err)
	require.Equal(t, m, *got)
	m.Closed, m.Succeeded, m.Failed, m.State = true, 1<<40-1, 1, nil
	second := engine.MapRun{Instance: i, Run: 2, UpdatedAt: base}
	c = o.change()
	c.Runs, c.NewRuns = []engine.MapRun{m}, []engine.MapRun{second}
	o.must(c)
	runs, err := s.MapRuns(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, []engine.MapRun{m, second}, runs)
	second.State = bytes.Repeat([]byte{'\'', 0}, 3<<20)
	c = o.change()
	c.Runs = []engine.MapRun{second, m, m}
	o.must(c)
	got, err = s.RunOf(t.Context(), i, 2)
	require.NoError(t, err)
	require.Equal(t, second, *got)
	second.State = append(second.State, 1)
	c.Runs = []engine.MapRun{second}
	require.ErrorIs(t, one(t, s, c), engine.ErrTooLarge)
	_, err = s.RunOf(t.Context(), i, 3)
	require.ErrorIs(t, err, engine.ErrNotFound)
}

func exerciseDeadLetters(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	c := o.change()
	for range 3 {
		c.DeadLetters = append(c.DeadLetters, engine.DeadLetter{ID: newID(), Shard: 1, Subject: "report.a.1", Seq: 1<<63 + 1, Payload: []byte{0, 255}, Reason: "odd", At: base})
	}
	c.DeadLetters[2].Payload = bytes.Repeat([]byte{7}, 65<<10)
	o.must(c)
	got, err := s.DeadLetters(t.Context(), 0, 2)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Len(t, got[0].Payload, 64<<10)
	require.Equal(t, c.DeadLetters[1], got[1])
	got, err = s.DeadLetters(t.Context(), got[1].ID, 2)
	require.NoError(t, err)
	require.Equal(t, c.DeadLetters[:1], got)
}
