package storagetest

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func exerciseHistory(t *testing.T, s engine.Store) {
	ctx := t.Context()
	c := engine.Change{}
	for n := range 9 {
		i := instance(1, engine.StatusSucceeded)
		i.Job = int64(70 + n%3)
		if n%3 == 2 {
			i.App = 8
		}
		if n < 2 {
			i.Workflow, i.Node = 55, "n"
		}
		c.NewInstances = append(c.NewInstances, i)
	}
	require.NoError(t, one(t, s, c))
	x := c.NewInstances
	got, err := s.Instances(ctx, 7, 70, 0, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.Instance{x[6], x[3]}, got)
	got, err = s.Instances(ctx, 7, 70, x[3].ID, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.Instance{x[0]}, got)
	got, err = s.Instances(ctx, 7, 0, x[6].ID, 3)
	require.NoError(t, err)
	require.Equal(t, []engine.Instance{x[4], x[3], x[1]}, got)
	got, err = s.InstancesOfWorkflow(ctx, 55)
	require.NoError(t, err)
	require.Equal(t, x[:2], got)
	counts, err := s.CountInstances(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, map[engine.Status]int64{engine.StatusSucceeded: 6}, counts)
}

// D07: every bound at limit-1, limit and limit+1, with a character across the cut.
func exerciseBounds(t *testing.T, s engine.Store) {
	text := func(n int) string { // n bytes that end in the middle of 4-byte characters
		return strings.Repeat("a", n%4) + strings.Repeat("💥", n/4)
	}
	o := own(t, s, 1)
	for name, c := range map[string]struct {
		bound int
		set   func(i *engine.Instance, v string)
	}{
		"params": {engine.MaxParams, func(i *engine.Instance, v string) { i.Params = []byte(v) }},
		"key":    {engine.MaxKey, func(i *engine.Instance, v string) { i.Key = v }},
		"node":   {engine.MaxNodeID, func(i *engine.Instance, v string) { i.Node = v }},
		"pool":   {engine.MaxName, func(i *engine.Instance, v string) { i.Pool = v }},
	} {
		for _, d := range []int{-1, 0, 1, 4, 16 << 20} {
			i := instance(1, engine.StatusDispatched)
			c.set(&i, text(c.bound+d))
			change := o.change()
			change.NewInstances = []engine.Instance{i}
			beside := o.change()
			beside.NewInstances = []engine.Instance{instance(1, engine.StatusDispatched)}
			errs, err := s.Commit(t.Context(), []engine.Change{change, beside})
			require.NoError(t, err)
			require.NoError(t, errs[1])
			if d <= 0 {
				require.NoError(t, errs[0], "%s %+d", name, d)
				require.Equal(t, i, stored(t, s, i.ID))
			} else {
				require.ErrorIs(t, errs[0], engine.ErrTooLarge, "%s %+d", name, d)
			}
		}
	}
	// What a run produced never keeps it from its final state.
	for _, d := range []int{-1, 0, 1, 2, 3, 4, 16 << 20} {
		i := instance(1, engine.StatusRunning)
		c := o.change()
		c.NewInstances = []engine.Instance{i}
		o.must(c)
		i.Status, i.FinishedAt, i.Error, i.Reason = engine.StatusFailed, base+9, text(engine.MaxError+d), engine.Reason(text(engine.MaxText+d))
		i.Result, i.Worker = []byte(`"`+strings.Repeat("x", engine.MaxResult-2+d)+`"`), text(255+d)
		c = o.change()
		c.Instances = []engine.Instance{i}
		c.NewAttempts = []engine.Attempt{{Instance: i.ID, Attempt: 2, Status: engine.StatusFailed, Error: i.Error}}
		k := task(i.ID, engine.TaskSub, 1)
		k.Error, k.Result = i.Error, i.Result
		c.NewTasks = []engine.Task{k}
		o.must(c)
		got := stored(t, s, i.ID)
		require.Equal(t, engine.StatusFailed, got.Status)
		require.True(t, utf8.ValidString(got.Error))
		if d <= 0 {
			require.Equal(t, i, got)
			continue
		}
		require.LessOrEqual(t, len(got.Error), engine.MaxError)
		require.Contains(t, got.Error, "[cut, ")
		require.Contains(t, string(got.Reason), "[cut, ")
		require.Contains(t, string(got.Result), "[cut: ")
		require.LessOrEqual(t, len(got.Result), engine.MaxResult)
	}
	k := task(newID(), engine.TaskSub, 1)
	k.Checkpoint = make([]byte, engine.MaxCheckpoint+1)
	c := o.change()
	c.NewTasks = []engine.Task{k}
	require.ErrorIs(t, one(t, s, c), engine.ErrTooLarge)
	w := workflowInstance(1, engine.StatusRunning)
	w.Context = make([]byte, engine.MaxContext+1)
	require.ErrorIs(t, one(t, s, engine.Change{NewWorkflows: []engine.WorkflowInstance{w}}), engine.ErrTooLarge)
	_, err := s.SaveJob(t.Context(), engine.Job{ID: newID(), App: 7, Name: "a", Title: text(engine.MaxTitle + 1)})
	require.ErrorIs(t, err, engine.ErrTooLarge)
	_, err = s.SaveJob(t.Context(), engine.Job{ID: newID(), App: 7, Name: "a", Title: text(engine.MaxTitle)})
	require.NoError(t, err)
}

// D08: emoji, letters beyond the basic plane, NUL, broken UTF-8, and all that SQL quotes.
func exerciseAnyText(t *testing.T, s engine.Store) {
	o := own(t, s, 1)
	for _, text := range []string{"💥", "\U00010343", "日本語 ümlaut", `'; DROP TABLE instances; -- \' \\ " ? %s`, "?", "line\r\n\ttab\x1a\b"} {
		i := instance(1, engine.StatusDispatched)
		i.Key, i.Node, i.Params, i.Worker = text, text, []byte(text), text
		w := workflowInstance(1, engine.StatusRunning)
		w.Key, w.Context, w.Error, w.Result = text, []byte(text), text, []byte(text)
		n := engine.Node{Workflow: w.ID, Node: text, Attempt: 1, Status: engine.StatusFailed, Reason: text, Choice: []byte(text), Result: []byte(text), Error: text, FinishedAt: base}
		c := o.change()
		c.NewInstances, c.NewWorkflows, c.NewNodes = []engine.Instance{i}, []engine.WorkflowInstance{w}, []engine.Node{n}
		o.must(c)
		i.Status, i.StartedAt, i.FinishedAt, i.Error, i.Result, i.Late = engine.StatusFailed, base, base, text, []byte(text), []byte(text)
		c = o.change()
		c.Instances = []engine.Instance{i, i, i}
		o.must(c)
		require.Equal(t, i, stored(t, s, i.ID))
		got, err := s.WorkflowInstance(t.Context(), w.ID)
		require.NoError(t, err)
		require.Equal(t, w, *got)
		nodes, err := s.Nodes(t.Context(), w.ID)
		require.NoError(t, err)
		require.Equal(t, []engine.Node{n}, nodes)
		id := newID()
		j, err := s.SaveJob(t.Context(), engine.Job{ID: id, App: id, Name: "a", Title: text})
		require.NoError(t, err)
		require.Equal(t, text, j.Title)
		j, err = s.Job(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, text, j.Title)
	}
	for _, text := range []string{"a\x00b", "a\xff", "\xf0\x9f\x92"} {
		i := instance(1, engine.StatusDispatched)
		i.Key = text
		c := o.change()
		c.NewInstances = []engine.Instance{i}
		require.ErrorIs(t, one(t, s, c), engine.ErrInvalid, "%q", text)
		i.Key, i.Params = "", []byte(text) // bytes are bytes
		o.must(withInstances(o.change(), i))
		i.Status, i.StartedAt, i.FinishedAt, i.Error, i.Result, i.Worker = engine.StatusFailed, base, base, text, []byte(text), text
		c = o.change()
		c.Instances = []engine.Instance{i}
		o.must(c)
		got := stored(t, s, i.ID)
		require.Equal(t, engine.CutText(text, 100), got.Error)
		require.True(t, utf8.ValidString(got.Error))
		require.Equal(t, []byte(text), got.Result)
		_, err := s.SaveJob(t.Context(), engine.Job{ID: newID(), App: 7, Name: "a", Title: text})
		require.ErrorIs(t, err, engine.ErrInvalid)
	}
}

func withInstances(c engine.Change, i ...engine.Instance) engine.Change {
	c.NewInstances = i
	return c
}

// Rows that no bug may store. The database is asked directly, so the CHECK must refuse.
func exerciseImpossible(t *testing.T, s engine.Store) {
	raw, ok := s.(Raw)
	require.True(t, ok, "the store of a dialect's test must offer RawExec")
	o := own(t, s, 1)
	waiting, running, final := instance(1, engine.StatusWaiting), instance(1, engine.StatusRunning), instance(1, engine.StatusSucceeded)
	w := workflowInstance(1, engine.StatusRunning)
	c := o.change()
	c.NewInstances, c.NewWorkflows = []engine.Instance{waiting, running, final}, []engine.WorkflowInstance{w}
	c.NewTasks = []engine.Task{task(running.ID, engine.TaskSub, 1)}
	c.NewRuns = []engine.MapRun{{Instance: running.ID, Run: 1, Total: 5}}
	c.NewNodes = []engine.Node{{Workflow: w.ID, Node: "n", Attempt: 1, Status: engine.StatusRunning}}
	o.must(c)
	ctx := context.WithoutCancel(t.Context())
	ok1, err := raw.RawExec(ctx, "UPDATE instances SET error = 'x' WHERE id = ?", running.ID)
	require.NoError(t, err)
	n, err := ok1.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	for _, bad := range []struct {
		text string
		id   any
	}{
		{"UPDATE instances SET status = 0 WHERE id = ?", running.ID},
		{"UPDATE instances SET status = 11 WHERE id = ?", final.ID},
		{"UPDATE instances SET status = 5 WHERE id = ?", running.ID},
		{"UPDATE instances SET finished_at = 5 WHERE id = ?", running.ID},
		{"UPDATE instances SET finished_at = 0 WHERE id = ?", final.ID},
		{"UPDATE instances SET feed_key = NULL WHERE id = ?", waiting.ID},
		{"UPDATE instances SET feed_key = 1 WHERE id = ?", running.ID},
		{"UPDATE instances SET active_key = NULL WHERE id = ?", running.ID},
		{"UPDATE instances SET active_key = 1 WHERE id = ?", final.ID},
		{"UPDATE instances SET started_at = 0 WHERE id = ?", running.ID},
		{"UPDATE instances SET attempt = 0 WHERE id = ?", running.ID},
		{"UPDATE instances SET shard = 64 WHERE id = ?", running.ID},
		{"UPDATE instances SET fire_at = 5 WHERE id = ?", running.ID},
		{"UPDATE instances SET late = 'x' WHERE id = ?", running.ID},
		{"UPDATE instances SET error = NULL WHERE id = ?", running.ID},
		{"UPDATE workflow_instances SET finished_at = 5 WHERE id = ?", w.ID},
		{"UPDATE workflow_instances SET status = 2 WHERE id = ?", w.ID},
		{"UPDATE workflow_instances SET wait_key = 5 WHERE id = ?", w.ID},
		{"UPDATE workflow_instances SET active_key = NULL WHERE id = ?", w.ID},
		{"UPDATE tasks SET status = 8 WHERE instance_id = ?", running.ID},
		{"UPDATE tasks SET attempt = 0 WHERE instance_id = ?", running.ID},
		{"UPDATE tasks SET finished_at = 7 WHERE instance_id = ?", running.ID},
		{"UPDATE tasks SET kind = 7 WHERE instance_id = ?", running.ID},
		{"UPDATE map_runs SET succeeded = 3, failed = 3 WHERE instance_id = ?", running.ID},
		{"UPDATE map_runs SET failed = -1 WHERE instance_id = ?", running.ID},
		{"UPDATE nodes SET attempt = 0 WHERE workflow_id = ?", w.ID},
		{"UPDATE nodes SET finished_at = 9 WHERE workflow_id = ?", w.ID},
		{"UPDATE shards SET owner = -1 WHERE shard = ?", 1},
		{"UPDATE shards SET epoch = -1 WHERE shard = ?", 1},
		{"UPDATE servers SET number = 1024 WHERE number = ?", o.server.Number},
	} {
		_, err := raw.RawExec(ctx, bad.text, bad.id)
		require.Error(t, err, bad.text)
	}
	// Through Commit, an impossible row drops its Change alone.
	odd, fine := o.change(), o.change()
	i := instance(1, engine.StatusRunning)
	i.StartedAt = 0
	odd.NewInstances, fine.NewInstances = []engine.Instance{i}, []engine.Instance{instance(1, engine.StatusWaiting)}
	errs, err := s.Commit(ctx, []engine.Change{odd, fine})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], engine.ErrInvalid)
	require.NoError(t, errs[1])
}
