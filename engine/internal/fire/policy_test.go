package fire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// calm is for long stories: what is saved is told to the scheduler, so it need not look often.
var calm = fire.Config{Every: 10 * time.Second, Ahead: 20 * time.Second}

// What a fire does that finds as many runs under way as may be.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlap    workflow.Overlap
		max, queue int
		took       []time.Duration // by run; the last one for all further ones
		until      time.Duration
		want       string
		most       int
	}{
		"A29: a tick that finds one running is skipped, and counted": {
			"", 1, 0,
			[]time.Duration{9500 * time.Millisecond},
			25 * time.Second,
			"run 1s, overlap 2s-10s x9, run 11s, overlap 12s-20s x9, run 21s, overlap 22s-25s x4", 1,
		},
		"A32: one run is slow": {
			workflow.OverlapSkip, 0, 0,
			[]time.Duration{0, 4500 * time.Millisecond, 0},
			9 * time.Second,
			"run 1s, run 2s, overlap 3s-6s x4, run 7s, run 8s, run 9s", 1,
		},
		"two may run": {
			workflow.OverlapSkip, 2, 0,
			[]time.Duration{2500 * time.Millisecond},
			8 * time.Second,
			"run 1s, run 2s, overlap 3s, run 4s, run 5s, overlap 6s, run 7s, run 8s", 2,
		},
		"allow": {
			workflow.OverlapAllow, 0, 0,
			[]time.Duration{3500 * time.Millisecond},
			6 * time.Second,
			"run 1s, run 2s, run 3s, run 4s, run 5s, run 6s", 4,
		},
		"queue": {
			workflow.OverlapQueue, 1, 2,
			[]time.Duration{5400 * time.Millisecond},
			15 * time.Second,
			"run 1s, run 2s, run 3s, queue_full 4s-6s x3, run 7s, queue_full 8s-11s x4, run 12s, queue_full 13s-15s x3", 1,
		},
		"replace": {
			workflow.OverlapReplace, 1, 0,
			[]time.Duration{3500 * time.Millisecond},
			4 * time.Second,
			"run 1s, run 2s, run 3s, run 4s", 1,
		},
		"fail": {
			workflow.OverlapFail, 1, 0,
			[]time.Duration{2500 * time.Millisecond},
			6 * time.Second,
			"run 1s, failed 2s, failed 3s, run 4s, failed 5s, failed 6s", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(time.Second)
				s.Overlap, s.QueueMax = c.overlap, c.queue
				j := w.job("j", s, c.max)
				j.took = func(n int) time.Duration { return c.took[min(n, len(c.took)-1)] }
				o := w.start(fire.Config{}, long)
				w.pass(c.until + 100*time.Millisecond)
				require.Equal(t, c.want, j.ledger())
				require.Equal(t, c.most, j.most)
				j.whole()
				o.stop()
			})
		})
	}
}

// Without a worker fires wait, no more of them than the overlap policy lets; a worker that
// comes runs those and no others.
func TestNoWorkerForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlap workflow.Overlap
		want    string
		waiting int
	}{
		"skip":  {workflow.OverlapSkip, "run 10s, overlap 20s-10m0s x59, run 10m10s", 1},
		"queue": {workflow.OverlapQueue, "run 10s, run 20s, run 30s, queue_full 40s-10m0s x57, run 10m10s", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(10 * time.Second)
				s.Overlap, s.QueueMax = c.overlap, 2
				j := w.job("j", s, 1)
				j.idle = true
				o := w.start(calm, long)
				w.pass(10*time.Minute + time.Second)
				require.EqualValues(t, c.waiting, j.row().Open)
				j.work(o, true)
				w.pass(10 * time.Second)
				require.Equal(t, c.want, j.ledger())
				require.Zero(t, j.row().Open)
				j.whole()
				o.stop()
			})
		})
	}
}

// The pause of a fixed_delay counts from the end of its run, however that ended.
func TestFixedDelay(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		ends := []engine.Status{
			engine.StatusSucceeded, engine.StatusFailed, engine.StatusTimedOut, engine.StatusStopped, engine.StatusCanceled, engine.StatusSucceeded,
		}
		j := w.job("j", workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)}, 0)
		j.took = func(n int) time.Duration { return time.Duration(n+1) * time.Second }
		j.status = func(n int) engine.Status { return ends[min(n, len(ends)-1)] }
		o := w.start(fire.Config{}, long)
		w.pass(85 * time.Second)
		// Each begins ten seconds after the end of the one before.
		require.Equal(t, "run 10s, run 21s, run 33s, run 46s, run 1m0s, run 1m15s", j.ledger())
		row := j.row()
		require.EqualValues(t, 6, row.Runs)
		require.EqualValues(t, 2, row.Succeeded)
		require.EqualValues(t, 2, row.Failed)
		o.stop()
	})
}

// Whatever is done to a fixed_delay while a run of it is under way, it goes on afterwards.
func TestFixedDelayGoesOn(t *testing.T) {
	t.Parallel()
	other := func(j *job, o *owner) {
		j.save(o, func(r *engine.Job) { r.Schedule.Every = workflow.Duration(20 * time.Second) })
	}
	for name, c := range map[string]struct {
		during, after func(j *job, o *owner) // at 12s, while it runs from 10s to 15s, and at 17s
		want          string
	}{
		"another pause is saved":      {other, nil, "run 10s, run 35s"},
		"saved twice":                 {func(j *job, o *owner) { other(j, o); other(j, o) }, nil, "run 10s, run 35s"},
		"saved when it was over":      {nil, other, "run 10s, run 37s"},
		"paused and resumed":          {func(j *job, o *owner) { j.pause(); j.resume(o) }, nil, "run 10s, run 25s, run 40s"},
		"paused, resumed when over":   {func(j *job, _ *owner) { j.pause() }, func(j *job, o *owner) { j.resume(o) }, "run 10s, run 17s, run 32s"},
		"disabled and enabled":        {func(j *job, o *owner) { j.enable(o, false); j.enable(o, true) }, nil, "run 10s, run 25s, run 40s"},
		"disabled, enabled when over": {func(j *job, o *owner) { j.enable(o, false) }, func(j *job, o *owner) { j.enable(o, true) }, "run 10s, run 27s, run 42s"},
		"another title":               {func(j *job, o *owner) { j.save(o, func(r *engine.Job) { r.Title = "x" }) }, nil, "run 10s, run 25s, run 40s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				j := w.job("j", workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)}, 0)
				j.took = func(int) time.Duration { return 5 * time.Second }
				o := w.start(fire.Config{}, long)
				w.pass(12 * time.Second)
				if c.during != nil {
					c.during(j, o)
				}
				w.pass(5 * time.Second)
				if c.after != nil {
					c.after(j, o)
				}
				w.pass(27 * time.Second)
				require.Equal(t, c.want, j.ledger())
				o.stop()
			})
		})
	}
}

// A fixed_delay that finds as many runs by call as may be tries again after its pause.
func TestFixedDelayBesideCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlap workflow.Overlap
		want    string
	}{
		"skip": {workflow.OverlapSkip, "run 10s, overlap 20s-30s x2, run 40s, run 50s"},
		"fail": {workflow.OverlapFail, "run 10s, failed 20s, failed 30s, run 40s, run 50s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				j := w.job("j", workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second), Overlap: c.overlap}, 1)
				o := w.start(fire.Config{}, long)
				w.pass(15 * time.Second)
				j.hold(o, false)
				w.pass(20 * time.Second)
				j.hold(o, true)
				w.pass(20 * time.Second)
				require.Equal(t, c.want, j.ledger())
				o.stop()
			})
		})
	}
}

// A fixed_delay whose end the server did not live to see goes on with the next one.
func TestFixedDelayOverARestart(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)}, 0)
		j.took = func(int) time.Duration { return 5 * time.Second }
		o := w.start(fire.Config{}, long)
		w.pass(12 * time.Second)
		o.stop()
		w.pass(time.Minute)
		require.Equal(t, "run 10s", j.ledger())
		o = w.start(fire.Config{}, long)
		w.pass(12 * time.Second)
		require.EqualValues(t, 1, j.row().Runs)
		o.stop()
	})
}

// A28: a long interval goes on over restarts that are more frequent than it.
func TestFixedRateOverRestarts(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(time.Minute), 0)
		for range 15 {
			o := w.start(calm, long)
			w.pass(23 * time.Second)
			o.stop()
			w.pass(time.Second)
		}
		o := w.start(calm, long)
		w.pass(time.Second)
		require.Equal(t, "run 1m0s, run 2m0s, run 3m0s, run 4m0s, run 5m0s, run 6m0s", j.ledger())
		o.stop()
	})
}

// A31: a cron of seconds fires each of them.
func TestSecondsOfCron(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", workflow.Schedule{Cron: "0/5 * * * * ?"}, 0)
		o := w.start(calm, long)
		w.pass(2*time.Minute + 500*time.Millisecond)
		fired := j.fired()
		require.Len(t, fired, 24)
		for i, f := range fired {
			require.Equal(t, w.at(time.Duration(i+1)*5*time.Second), f.At)
			require.Equal(t, f.At, f.FiredAt)
		}
		o.stop()
	})
}

func TestBoundsOfASchedule(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return epoch.Add(d).Format(time.RFC3339) }
	bounded := func(start, end time.Duration) workflow.Schedule {
		s := every(time.Minute)
		s.Start, s.End = at(start), at(end)
		return s
	}
	window := workflow.Schedule{From: "18:00", To: "18:05", Every: workflow.Duration(2 * time.Minute)}
	for name, c := range map[string]struct {
		s    workflow.Schedule
		days []time.Duration // the clock is put to five minutes before each in turn
		want string
	}{
		"validity": {bounded(-time.Hour, 2*time.Minute), []time.Duration{0}, "run -4m0s, run -3m0s, run -2m0s, run -1m0s, run 0s, run 1m0s, run 2m0s"},
		"later":    {bounded(150*time.Second, time.Hour), []time.Duration{0}, "run 2m30s, run 3m30s, run 4m30s"},
		"once":     {workflow.Schedule{At: at(90 * time.Second)}, []time.Duration{0}, "run 1m30s"},
		"none":     {workflow.Schedule{}, []time.Duration{0}, ""},
		"a window of the day": {
			window, []time.Duration{18 * time.Hour, 42 * time.Hour}, "run 18h0m0s, run 18h2m0s, run 18h4m0s, run 42h0m0s, run 42h2m0s, run 42h4m0s",
		},
		"a day that a calendar excludes": {
			workflow.Schedule{Cron: "*/10 * * * *", Calendars: []string{"tuesday"}},
			[]time.Duration{24 * time.Hour, 48 * time.Hour},
			// Between the two nobody was awake; that is no matter for what would not have run.
			"calendar 24h0m0s-47h50m0s x144, run 48h0m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				w.calendars["tuesday"] = &schedule.Calendar{Off: []schedule.Day{{Date: epoch.AddDate(0, 0, 1).Format(time.DateOnly)}}}
				w.step.Add((c.days[0] - 5*time.Minute).Milliseconds())
				j := w.job("j", c.s, 0)
				o := w.start(calm, long)
				for i, day := range c.days {
					if i > 0 {
						o.stop()
						w.step.Add((day - 5*time.Minute).Milliseconds() + epoch.UnixMilli() - w.now())
						o = w.start(calm, long)
					}
					w.pass(10*time.Minute - 100*time.Millisecond)
				}
				require.Equal(t, c.want, j.ledger())
				o.stop()
			})
		})
	}
}
