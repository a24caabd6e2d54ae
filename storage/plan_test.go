package storage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// spy keeps the text of every query.
type spy struct {
	sync.Mutex
	texts []string
}

func (s *spy) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (s *spy) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	s.Lock()
	defer s.Unlock()
	s.texts = append(s.texts, e.Query)
}

// What owners read again and again touches the few rows it wants, however long the history
// is: the plans of both databases name the key.
func TestPlans(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		ctx := t.Context()
		db, err := Open(ctx, cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		c := engine.Change{}
		for n := range int64(5000) {
			i := engine.Instance{ID: n + 1, App: 1, Job: n % 50, Key: fmt.Sprint("k", n), Status: engine.StatusSucceeded, FinishedAt: 1, Attempt: 1, Workflow: n % 1000}
			w := engine.WorkflowInstance{ID: n + 1, App: 1, Workflow: n % 50, Status: engine.StatusSucceeded, FinishedAt: 1, Attempt: 1}
			if n%500 == 0 {
				i.Status, i.FinishedAt, w.Status, w.FinishedAt = engine.StatusWaiting, 0, engine.StatusWaiting, 0
			}
			if n%500 == 1 {
				i.Status, i.FinishedAt, w.Status, w.FinishedAt, w.StartedAt = engine.StatusDispatched, 0, engine.StatusRunning, 0, 1
			}
			c.NewInstances, c.NewWorkflows = append(c.NewInstances, i), append(c.NewWorkflows, w)
		}
		for n := range int64(2000) {
			row := freshSchedule(&engine.Schedule{
				Kind: engine.KindJob, ID: n + 1, App: 1 + n%20, Version: 1, Enabled: true, Spec: workflow.Schedule{Cron: "0 2 * * *"}, WakeAt: 1000 + n,
			}, []byte(`{"cron":"0 2 * * *"}`))
			_, err := db.write.NewInsert().Model(row).Returning("NULL").Exec(ctx)
			require.NoError(t, err)
		}
		errs, err := db.Commit(ctx, []engine.Change{c})
		require.NoError(t, err)
		require.NoError(t, errs[0])
		server, err := db.JoinServer(ctx, "a", 1, 60_000)
		require.NoError(t, err)
		shard, err := db.ClaimShard(ctx, 0, server.Number, 1)
		require.NoError(t, err)
		if !db.singleRows {
			_, err = db.write.ExecContext(ctx, "ANALYZE TABLE instances, workflow_instances, schedules")
			require.NoError(t, err)
		}
		s := &spy{}
		db.read = db.read.WithQueryHook(s)
		shards := []uint8{0, 1, 2}
		for _, read := range []struct {
			key string
			run func() error
		}{
			{"feed_key", func() error {
				_, err := db.Waiting(ctx, engine.QueueOf(1, workflow.Lane(""), ""), shards, 1<<41, engine.WaitingPos{}, 100)
				return err
			}},
			{"feed_key", func() error { _, err := db.QueueHeads(ctx); return err }},
			{"active_key", func() error { _, err := db.LoadShard(ctx, 0, server.Number, shard.Epoch); return err }},
			{"wait_key", func() error { _, err := db.NewWorkflows(ctx, shards, 1<<41, 10); return err }},
			{"job_id", func() error { _, err := db.Instances(ctx, 1, 7, 0, 10); return err }},
			{"workflow_id", func() error { _, err := db.InstancesOfWorkflow(ctx, 7); return err }},
			{"workflow_id", func() error { _, err := db.WorkflowInstances(ctx, 1, 7, 0, 10); return err }},
			{"wake_key", func() error {
				_, err := db.DueSchedules(ctx, shards, 1100, engine.SchedulePos{WakeAt: 1050, Kind: engine.KindJob, ID: 5}, 10)
				return err
			}},
			{"key_hash", func() error { _, err := db.ByKey(ctx, 7, "k7", true, 10); return err }},
			{"job_id", func() error { _, err := db.Fired(ctx, engine.KindJob, 7, 0, 1<<41, 0, 10); return err }},
			{"job_id", func() error { _, err := db.Durations(ctx, engine.KindJob, 7, 10); return err }},
		} {
			s.texts = nil
			require.NoError(t, read.run())
			found := 0
			for _, text := range s.texts {
				if !strings.HasPrefix(text, "SELECT") || !strings.Contains(text, read.key) {
					continue
				}
				found++
				plan := explain(t, db, text)
				require.True(t, strings.Contains(plan, "s_"+read.key) || strings.Contains(plan, "optimized away") || strings.Contains(plan, "No matching min"), "%s\n%s", text, plan)
			}
			require.NotZero(t, found, "no query with %s", read.key)
		}
	})
}

func explain(t *testing.T, db *DB, text string) string {
	t.Helper()
	prefix := "EXPLAIN "
	if db.singleRows {
		prefix = "EXPLAIN QUERY PLAN "
	}
	rows, err := db.write.QueryContext(t.Context(), prefix+text)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var out []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		require.NoError(t, rows.Scan(values...))
		for i, v := range values {
			got := *v.(*any)
			if b, ok := got.([]byte); ok {
				got = string(b)
			}
			if columns[i] != "possible_keys" {
				out = append(out, fmt.Sprint(got))
			}
		}
	}
	require.NoError(t, rows.Err())
	return strings.Join(out, " | ")
}
