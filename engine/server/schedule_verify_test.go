package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
	"github.com/fanjet/fanjet/workflow"
)

// quickly registers a processor that is over at once.
func quickly(p *processor.Worker) { p.Register("quick", who("w")) }

// beat waits until so many more runs of each have ended.
func (w *world) beat(n int64, all ...server.Definition) {
	w.t.Helper()
	first := map[server.Definition]int64{}
	for _, d := range all {
		first[d] = w.standing(d).Runs
	}
	for _, d := range all {
		require.Eventually(w.t, func() bool { return w.standing(d).Runs >= first[d]+n }, eventually, 20*time.Millisecond, "%s does not run", d)
	}
}

// halt pauses it, and waits until nothing of it is under way.
func (w *world) halt(d server.Definition) {
	w.t.Helper()
	require.NoError(w.t, w.server.PauseSchedule(w.ctx, d))
	require.Eventually(w.t, func() bool { return w.standing(d).Open == 0 }, eventually, 20*time.Millisecond)
}

func (w *world) verify(d server.Definition) *server.Verification {
	w.t.Helper()
	v, err := w.server.Verify(w.ctx, d, 0, 0)
	require.NoError(w.t, err)
	return v
}

// A run under several versions is verified clean; a row that is taken away is missed, and one
// that is doubled the database refuses.
func TestVerify(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		if url == "" {
			url = "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db")
		}
		w := newWorld(t, url)
		w.worker("w", 4, quickly)
		spec := workflow.Spec{Processor: "quick"}
		d := w.scheduled("j", spec, workflow.Schedule{Every: every(200 * time.Millisecond), Overlap: workflow.OverlapAllow})
		second := w.scheduled("second", spec, workflow.Schedule{Cron: "* * * * * ?", Overlap: workflow.OverlapAllow})
		w.beat(3, d)
		w.scheduled("j", spec, workflow.Schedule{Every: every(300 * time.Millisecond), Overlap: workflow.OverlapAllow})
		w.beat(3, d)
		require.NoError(t, w.server.SetEnabled(w.ctx, d, false))
		require.NoError(t, w.server.SetEnabled(w.ctx, d, true))
		w.beat(2, d)
		w.beat(1, second)
		w.halt(d)
		w.halt(second)
		require.EqualValues(t, 4, w.standing(d).Version)
		v := w.verify(d)
		require.True(t, v.Clean(), "%+v", v)
		require.GreaterOrEqual(t, v.Fired, int64(8))
		require.Equal(t, v.Expected, v.Fired+v.Skipped)
		require.GreaterOrEqual(t, v.MaxLate, v.P99Late)
		v = w.verify(second)
		require.True(t, v.Clean(), "%+v", v)
		require.Positive(t, v.Fired)

		fired, _ := w.ledger(d)
		gone := fired[len(fired)-1] // of the version in force
		db := raw(t, url)
		doubled := fmt.Sprintf("UPDATE instances SET fire_key = (SELECT fire_key FROM (SELECT fire_key FROM instances WHERE id = %d) x) WHERE id = %d", fired[0].Instance, fired[1].Instance)
		_, err := db.ExecContext(t.Context(), doubled)
		require.Error(t, err, "the database lets no scheduled time in twice")
		res, err := db.ExecContext(t.Context(), fmt.Sprintf("DELETE FROM instances WHERE id = %d", gone.Instance))
		require.NoError(t, err)
		n, err := res.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		v = w.verify(d)
		require.False(t, v.Clean())
		require.EqualValues(t, 1, v.MissingCount)
		require.Equal(t, []int64{gone.At}, v.Missing)
		require.Zero(t, v.DoubledCount+v.UnexpectedCount)

		// One that no version names.
		_, err = db.ExecContext(t.Context(), fmt.Sprintf("UPDATE instances SET fire_at = fire_at + 1 WHERE id = %d", fired[0].Instance))
		require.NoError(t, err)
		v = w.verify(d)
		require.Equal(t, []int64{fired[0].At + 1}, v.Unexpected)
		require.EqualValues(t, 1, v.MissingCount, "right before another version was saved its fire may not have been decided")
	})
}

// stepped is a world over a store whose clock is the test's to set.
func stepped(t *testing.T) (*world, *atomic.Int64) {
	t.Helper()
	step := new(atomic.Int64)
	db, err := storage.Open(t.Context(), storage.Config{
		URL:   "sqlite:" + filepath.Join(t.TempDir(), "stepped.db"),
		Clock: func() time.Time { return time.Now().Add(time.Duration(step.Load())) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	w := newWorldWith(t, "", server.Config{Store: db})
	w.store = db
	return w, step
}

// The server is replaced, and an hour has passed: what was missed is in the ledger, and what
// the policy says runs.
func TestScheduleOverARestart(t *testing.T) {
	t.Parallel()
	w, step := stepped(t)
	stop := w.worker("w", 4, quickly)
	spec := workflow.Spec{Processor: "quick"}
	beat := func(m workflow.Misfire) workflow.Schedule {
		return workflow.Schedule{Every: every(10 * time.Minute), Misfire: m, Overlap: workflow.OverlapAllow}
	}
	once := w.scheduled("once", spec, beat(workflow.MisfireOnce))
	skip := w.scheduled("skip", spec, beat(workflow.MisfireSkip))
	all := w.scheduled("all", spec, beat(workflow.MisfireAll))
	off := w.scheduled("off", spec, beat(workflow.MisfireAll))
	paused := w.scheduled("paused", spec, beat(workflow.MisfireAll))
	require.Eventually(t, func() bool { return w.standing(paused).NextAt > 0 }, eventually, 20*time.Millisecond)
	require.NoError(t, w.server.SetEnabled(w.ctx, off, false))
	require.NoError(t, w.server.PauseSchedule(w.ctx, paused))
	stop()
	w.stopServer()
	step.Store(int64(65 * time.Minute))
	w.again()
	w.worker("w2", 4, quickly)
	require.Eventually(t, func() bool {
		return w.standing(all).Runs == 6 && w.standing(once).Runs == 1 && w.standing(skip).HandledAt > w.standing(skip).AnchorAt
	}, eventually, 20*time.Millisecond)
	count := func(d server.Definition) (fired, skipped int64, last int64) {
		runs, skips := w.ledger(d)
		for _, k := range skips {
			require.Equal(t, engine.SkipMisfire, k.Reason)
			skipped += k.Count
		}
		for _, f := range runs {
			last = max(last, f.At-w.standing(d).AnchorAt)
		}
		return int64(len(runs)), skipped, last / 60_000
	}
	fired, skipped, last := count(once)
	require.Equal(t, []int64{1, 5, 60}, []int64{fired, skipped, last}, "the newest runs")
	fired, skipped, _ = count(skip)
	require.Equal(t, []int64{0, 6}, []int64{fired, skipped})
	fired, skipped, _ = count(all)
	require.Equal(t, []int64{6, 0}, []int64{fired, skipped})
	for _, d := range []server.Definition{once, skip, all} {
		v := w.verify(d)
		require.True(t, v.Clean(), "%+v", v)
		require.EqualValues(t, 6, v.Expected)
	}
	require.NoError(t, w.server.SetEnabled(w.ctx, off, true))
	require.NoError(t, w.server.ResumeSchedule(w.ctx, paused))
	require.Eventually(t, func() bool { return w.standing(paused).Runs == 6 && w.standing(off).NextAt > 0 }, eventually, 20*time.Millisecond)
	fired, skipped, _ = count(off)
	require.Equal(t, []int64{0, 0}, []int64{fired, skipped}, "A26: it was not due")
}

// A schedule that is changed while it is paused leaves no gap in the ledger.
func TestSavedWhilePaused(t *testing.T) {
	t.Parallel()
	w, step := stepped(t)
	w.worker("w", 4, quickly)
	spec := workflow.Spec{Processor: "quick"}
	d := w.scheduled("j", spec, workflow.Schedule{Every: every(10 * time.Minute)})
	require.Eventually(t, func() bool { return w.standing(d).NextAt > 0 }, eventually, 20*time.Millisecond)
	begin := w.standing(d).AnchorAt
	pass := func(by time.Duration) {
		t.Helper()
		to := w.verify(d).To
		step.Add(int64(by))
		// The server hears of it with the next renewal of its lease.
		require.Eventually(t, func() bool { return w.verify(d).To >= to+by.Milliseconds() }, eventually, 20*time.Millisecond)
	}
	require.NoError(t, w.server.PauseSchedule(w.ctx, d))
	pass(35 * time.Minute)
	w.scheduled("j", spec, workflow.Schedule{Every: every(time.Hour)})
	require.NoError(t, w.server.ResumeSchedule(w.ctx, d))
	require.Eventually(t, func() bool { _, skips := w.ledger(d); return len(skips) == 1 }, eventually, 20*time.Millisecond)
	_, skips := w.ledger(d)
	require.Equal(t, engine.SkipPaused, skips[0].Reason)
	require.EqualValues(t, 3, skips[0].Count)
	require.Equal(t, []int64{begin + 600_000, begin + 1_800_000}, []int64{skips[0].From, skips[0].To})
	pass(time.Hour)
	require.Eventually(t, func() bool { return w.standing(d).Runs == 1 }, eventually, 20*time.Millisecond)
	v := w.verify(d)
	require.True(t, v.Clean(), "%+v", v)
	require.EqualValues(t, 4, v.Expected)
}

// What is disabled while it fires fires no more from the answer on, and is none the worse for it.
func TestDisablingWhileFiring(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		w.worker("w", 8, quickly)
		s := workflow.Schedule{Every: every(100 * time.Millisecond), Overlap: workflow.OverlapAllow}
		other := w.scheduled("other", workflow.Spec{Processor: "quick"}, s)
		var all []server.Definition
		for i := range 4 {
			all = append(all, w.scheduled(fmt.Sprint("j", i), workflow.Spec{Processor: "quick"}, s))
		}
		for range 2 {
			w.beat(1, all...)
			for i, d := range all {
				if i%2 == 0 {
					require.NoError(t, w.server.SetEnabled(w.ctx, d, false))
				} else {
					require.NoError(t, w.server.PauseSchedule(w.ctx, d))
				}
				fired, _ := w.ledger(d)
				w.beat(2, other)
				after, _ := w.ledger(d)
				require.Len(t, after, len(fired), "%s fires on", d)
			}
			for i, d := range all {
				if i%2 == 0 {
					require.NoError(t, w.server.SetEnabled(w.ctx, d, true))
				} else {
					require.NoError(t, w.server.ResumeSchedule(w.ctx, d))
				}
			}
		}
		for _, d := range append(all, other) {
			w.halt(d)
			v := w.verify(d)
			require.True(t, v.Clean(), "%s: %+v", d, v)
			require.Positive(t, v.Fired)
		}
	})
}

// A workflow fires by its schedule, knows its scheduled time, and keeps to its limit.
func TestScheduledWorkflow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		c := newCounted()
		w.worker("w", 8, c.register)
		require.NoError(t, w.save(`
kind: Workflow
name: flow
app: test
max_running: 1
schedule: {every: 100ms, overlap: skip}
nodes:
  - {id: first, processor: count, params: "${ trigger.scheduled_at }"}
  - {id: wait, type: wait, for: 250ms, needs: [first]}
`))
		d := server.Definition{App: "test", Workflow: "flow"}
		w.beat(3, d)
		w.halt(d)
		v := w.verify(d)
		require.True(t, v.Clean(), "%+v", v)
		require.Positive(t, v.Skipped)
		runs, err := w.store.WorkflowInstances(w.ctx, w.standing(d).App, w.standing(d).ID, 0, 100)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(runs), 3)
		slices.Reverse(runs)
		for i := range runs {
			r := &runs[i]
			require.Equal(t, engine.StatusSucceeded, r.Status, r.Error)
			require.JSONEq(t, fmt.Sprint(r.FireAt), string(w.node(r.ID, "first").Result), "the processor was told the scheduled time")
			if i > 0 {
				require.GreaterOrEqual(t, r.CreatedAt, runs[i-1].FinishedAt, "one at a time")
			}
		}
	})
}

// The database is away for some seconds: fires go on by themselves when it is back.
func TestScheduleOverAnOutage(t *testing.T) {
	t.Parallel()
	db := storagetest.StartMariaDB(t)
	w := newWorld(t, db.Database(t))
	w.worker("w", 4, quickly)
	spec := workflow.Spec{Processor: "quick"}
	d := w.scheduled("j", spec, workflow.Schedule{Every: every(200 * time.Millisecond), Overlap: workflow.OverlapAllow, Misfire: workflow.MisfireAll, MisfireMax: 1000})
	delay := w.scheduled("delay", spec, workflow.Schedule{Type: workflow.ScheduleDelay, Every: every(200 * time.Millisecond)})
	w.beat(3, d)
	db.Kill(t)
	_, err := w.server.Schedule(w.ctx, d)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	db.Start(t)
	require.Eventually(t, func() bool { _, err := w.server.Schedule(w.ctx, d); return err == nil }, eventually, 50*time.Millisecond)
	w.beat(5, d)
	w.beat(2, delay)
	w.halt(d)
	v := w.verify(d)
	require.True(t, v.Clean(), "%+v", v)
	require.Zero(t, v.Skipped, "all of them ran")
	w.halt(delay)
	require.Zero(t, w.standing(delay).Failed)
}

// beside starts another server on the same database and broker.
func (w *world) beside(url string, c server.Config) *server.Server {
	w.t.Helper()
	db, err := storage.Open(w.t.Context(), storage.Config{URL: url, Logger: brokertest.Quiet()})
	require.NoError(w.t, err)
	c.Store, c.Broker, c.Log = db, w.broker.Broker(w.t, broker.Config{AckWait: c.AckWait}), brokertest.Quiet()
	s, err := server.New(c)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
		require.NoError(w.t, db.Close())
	})
	return s
}

// Two servers on one database: one is stopped, and the other goes on at once.
func TestScheduleRollsOver(t *testing.T) {
	t.Parallel()
	url := storagetest.MariaDB(t)
	w := newWorldWith(t, url, quick)
	w.ctx = t.Context() // of the worker too, which outlives the first server
	w.worker("w", 8, quickly)
	var all []server.Definition
	for i := range 12 {
		all = append(all, w.scheduled(fmt.Sprint("j", i), workflow.Spec{Processor: "quick"}, workflow.Schedule{Every: every(200 * time.Millisecond), Overlap: workflow.OverlapAllow}))
	}
	w.beat(1, all...)
	first := w.stopServer
	second := w.beside(url, quick)
	owners := func() map[int16]int {
		shards, err := w.store.ShardOwners(t.Context())
		require.NoError(t, err)
		out := map[int16]int{}
		for _, s := range shards {
			out[s.Owner]++
		}
		return out
	}
	require.Eventually(t, func() bool { return len(owners()) == 2 }, eventually, 20*time.Millisecond, "the two do not share")
	w.beat(2, all...)
	w.server = second
	first()
	require.Eventually(t, func() bool { left := owners(); return len(left) == 1 && left[0] == 0 }, eventually, 20*time.Millisecond, "a clean stop hands over")
	w.beat(2, all...)
	for _, d := range all {
		w.halt(d)
		v := w.verify(d)
		require.True(t, v.Clean(), "%s: %+v", d, v)
		require.LessOrEqual(t, v.MaxLate, int64(10_000))
	}
}
