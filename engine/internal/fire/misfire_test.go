package fire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/workflow"
)

// A25: a job that fires every 10 s, and a server that is away for 65 s.
func TestMisfireAfterDowntime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		misfire workflow.Misfire
		max     int
		want    string
	}{
		"once":        {workflow.MisfireOnce, 0, "run 10s, misfire 20s-1m10s x6, run 1m20s+5s, run 1m30s"},
		"the default": {"", 0, "run 10s, misfire 20s-1m10s x6, run 1m20s+5s, run 1m30s"},
		"skip":        {workflow.MisfireSkip, 0, "run 10s, misfire 20s-1m20s x7, run 1m30s"},
		"all":         {workflow.MisfireAll, 0, "run 10s, run 20s+1m5s, run 30s+55s, run 40s+45s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"all, capped": {workflow.MisfireAll, 2, "run 10s, misfire 20s-1m0s x5, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(10 * time.Second)
				s.Misfire, s.MisfireMax, s.Overlap = c.misfire, c.max, workflow.OverlapAllow
				j := w.job("j", s, 0)
				o := w.start(calm, long)
				w.pass(20*time.Second - time.Millisecond)
				o.stop()
				w.pass(65*time.Second + time.Millisecond)
				o = w.start(calm, long)
				w.pass(10 * time.Second)
				require.Equal(t, c.want, j.ledger())
				j.whole()
				o.stop()
			})
		})
	}
}

// What was due while a schedule was paused is for its misfire policy, and says why it did not
// run.
func TestMisfireAfterPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		misfire workflow.Misfire
		want    string
	}{
		"once": {workflow.MisfireOnce, "run 10s, paused 20s-1m10s x6, run 1m20s+5s, run 1m30s"},
		"skip": {workflow.MisfireSkip, "run 10s, paused 20s-1m20s x7, run 1m30s"},
		"all":  {workflow.MisfireAll, "run 10s, paused 20s-1m0s x5, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(10 * time.Second)
				s.Misfire, s.MisfireMax, s.Overlap = c.misfire, 2, workflow.OverlapAllow
				j := w.job("j", s, 0)
				o := w.start(calm, long)
				w.pass(15 * time.Second)
				j.pause()
				w.pass(70 * time.Second)
				require.Equal(t, "run 10s", j.ledger())
				j.resume(o)
				w.pass(10 * time.Second)
				require.Equal(t, c.want, j.ledger())
				j.whole()
				o.stop()
			})
		})
	}
}

// A schedule that is saved while it is paused: what the version before would have fired is in
// the ledger, and only the new one is for the misfire policy.
func TestSavedWhilePaused(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(10*time.Second), 0)
		o := w.start(calm, long)
		w.pass(15 * time.Second)
		j.pause()
		w.pass(30 * time.Second)
		j.save(o, func(r *engine.Job) { r.Schedule.Every = workflow.Duration(20 * time.Second) })
		w.pass(50 * time.Second)
		require.Equal(t, "run 10s", j.ledger())
		j.resume(o)
		w.pass(15 * time.Second)
		// The old one until 45 s, the new one counts from there.
		require.Equal(t, "run 10s, paused 20s-1m5s x4, run 1m25s+10s, run 1m45s", j.ledger())
		o.stop()
	})
}

// A year of a paused job of 100 ms is a handful of rows, at once.
func TestYearOfPause(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(100*time.Millisecond), 0)
		o := w.start(fire.Config{}, long)
		w.pass(250 * time.Millisecond)
		j.pause()
		w.pass(time.Second)
		o.stop()
		w.step.Add((365 * 24 * time.Hour).Milliseconds())
		o = w.start(fire.Config{}, long)
		j.resume(o)
		w.pass(time.Second)
		skips, err := w.store.Skips(t.Context(), engine.KindJob, j.id, 1, 1<<50, 0, 1000)
		require.NoError(t, err)
		require.LessOrEqual(t, len(skips), 3)
		require.Equal(t, engine.SkipPaused, skips[0].Reason)
		require.Greater(t, skips[0].Count, int64(365*24*36000-100))
		j.whole()
		o.stop()
	})
}

// A26: what was not due because the job was disabled is not made up for.
func TestDisabledIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, misfire := range []workflow.Misfire{workflow.MisfireOnce, workflow.MisfireSkip, workflow.MisfireAll} {
		t.Run(string(misfire), func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				j := w.job("j", workflow.Schedule{Cron: "*/1 * * * *", Misfire: misfire}, 0)
				o := w.start(calm, long)
				w.pass(90 * time.Second)
				j.enable(o, false)
				w.pass(10 * time.Minute)
				j.enable(o, true)
				w.pass(time.Minute)
				require.Equal(t, "run 1m0s, run 12m0s", j.ledger())
				o.stop()
			})
		})
	}
}

// A22: the clock is put forward by an hour.
func TestClockForward(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(5*time.Second), 0)
		o := w.start(fire.Config{}, long)
		w.pass(11 * time.Second)
		w.step.Add(time.Hour.Milliseconds())
		w.pass(12 * time.Second)
		require.Equal(t, "run 5s, run 10s, misfire 15s-1h0m5s x719, run 1h0m10s+2s, run 1h0m15s, run 1h0m20s", j.ledger())
		j.whole()
		o.stop()
	})
}

// A23: the clock is put back. What was decided is not decided again, what is due then runs at
// its time, and so does what is saved now.
func TestClockBack(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(time.Minute), 0)
		daily := w.job("daily", workflow.Schedule{Cron: "5 0 * * *"}, 0)
		o := w.start(calm, long)
		w.pass(3*time.Minute + 30*time.Second)
		w.step.Add(-3 * time.Minute.Milliseconds()) // half a minute past midnight
		w.pass(30 * time.Second)
		fresh := w.job("fresh", every(time.Minute), 0)
		o.fire.LookAt(engine.KindJob, fresh.id)
		w.pass(4*time.Minute + 10*time.Second)
		// The times of the minutes that come twice were decided the first time.
		require.Equal(t, "run 1m0s, run 2m0s, run 3m0s, run 4m0s, run 5m0s", j.ledger())
		require.Equal(t, "run 5m0s", daily.ledger())
		require.Equal(t, "run 2m0s, run 3m0s, run 4m0s, run 5m0s", fresh.ledger())
		j.whole()
		o.stop()
	})
}
