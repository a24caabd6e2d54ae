package fire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// What is done to a schedule at the very moment it fires wins: the decision is on its way to
// the store when the order is stored before it.
func TestOrdersAtTheMoment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order func(j *job)
		later func(j *job, o *owner) // at 45s
		want  string
	}{
		"saved with another period": {
			func(j *job) {
				j.save(nil, func(r *engine.Job) { r.Schedule.Every = workflow.Duration(7 * time.Second) })
			}, nil, "run 10s, run 27s, run 34s, run 41s, run 48s, run 55s",
		},
		"saved with another title": {
			func(j *job) { j.save(nil, func(r *engine.Job) { r.Title = "other" }) }, nil,
			"run 10s, run 20s, run 30s, run 40s, run 50s",
		},
		"paused": {
			func(j *job) { j.pause() }, func(j *job, o *owner) { j.resume(o) }, "run 10s, paused 20s-30s x2, run 40s+5s, run 50s",
		},
		"disabled": {
			func(j *job) { j.enable(nil, false) }, func(j *job, o *owner) { j.enable(o, true) }, "run 10s, run 55s",
		},
		"it fires no more": {
			func(j *job) { j.save(nil, func(r *engine.Job) { r.Schedule = workflow.Schedule{} }) }, nil, "run 10s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				j := w.job("j", every(10*time.Second), 0)
				ordered := false
				w.fault = func(change engine.Change) fault {
					if len(change.Firings) > 0 && len(change.Firings[0].Runs) > 0 && w.now() == w.at(20*time.Second) && !ordered {
						ordered = true
						c.order(j)
					}
					return stored
				}
				o := w.start(fire.Config{}, long)
				w.pass(45 * time.Second)
				require.True(t, ordered)
				if c.later != nil {
					c.later(j, o)
				}
				w.pass(14 * time.Second)
				require.Equal(t, c.want, j.ledger())
				require.Positive(t, o.fire.Stats().Moved)
				o.stop()
			})
		})
	}
}

// Two schedulers that take the same schedules for theirs: each fire is stored once.
func TestTwoSchedulers(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		var jobs []*job
		for i := range 20 {
			jobs = append(jobs, w.job(fmt.Sprint("j", i), every(time.Second), 0))
		}
		old := w.start(fire.Config{}, 5*time.Second)
		w.pass(6500 * time.Millisecond) // its lease has ended, it does not know it
		fresh := w.start(fire.Config{}, long)
		w.pass(10 * time.Second)
		for _, j := range jobs {
			fired := j.fired()
			require.Len(t, fired, 16)
			for _, f := range fired {
				require.Zero(t, f.FiredAt-f.At)
			}
			j.whole()
		}
		require.Positive(t, old.lost)
		for _, f := range old.Fences() {
			for _, j := range jobs {
				require.NotEqual(t, f.Shard, engine.ShardOf(j.id), "where it tried to fire it has found out")
			}
		}
		require.Zero(t, fresh.lost)
		old.kill()
		fresh.stop()
	})
}

// A commit that was refused, or of which nobody knows: when the database is back each fire is
// there, once.
func TestCommitIsLost(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]fault{"refused": refused, "unknown": unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(time.Second)
				s.Overlap = workflow.OverlapAllow
				j := w.job("j", s, 0)
				delay := w.job("delay", workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(time.Second)}, 0)
				n := 0
				w.fault = func(engine.Change) fault {
					if n++; n%3 == 0 {
						return outcome
					}
					return stored
				}
				o := w.start(fire.Config{}, long)
				w.pass(20 * time.Second)
				w.mu.Lock()
				w.fault = nil
				w.mu.Unlock()
				w.pass(10500 * time.Millisecond)
				fired := j.fired()
				require.Len(t, fired, 30)
				j.whole()
				require.Positive(t, o.lost)
				require.Greater(t, len(delay.fired()), 15)
				require.LessOrEqual(t, delay.most, 1)
				o.stop()
			})
		})
	}
}

// The database is away for a while: then everything goes on as the misfire policy says.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("j", every(10*time.Second), 0)
		once := w.job("once", workflow.Schedule{At: epoch.Add(25 * time.Second).Format(time.RFC3339)}, 0)
		o := w.start(fire.Config{}, long)
		w.pass(15 * time.Second)
		w.gone(true)
		w.pass(30 * time.Second)
		w.gone(false)
		w.pass(20 * time.Second)
		fired := j.fired()
		require.Len(t, fired, 4)
		// The last missed one runs within a second of the database's return.
		require.Equal(t, w.at(40*time.Second), fired[1].At)
		require.LessOrEqual(t, fired[1].FiredAt, w.at(46*time.Second))
		require.Len(t, once.fired(), 1)
		j.whole()
		o.stop()
	})
}

// A fire whose instance is there already, for somebody backfilled it, is passed over.
func TestExisting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s        workflow.Schedule
		existing []time.Duration
		want     string
	}{
		"one of one": {every(10 * time.Second), []time.Duration{20 * time.Second}, "run 10s, run 20s+-5s, run 30s, run 40s"},
		"of a fixed delay": {
			workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)},
			[]time.Duration{20 * time.Second},
			"run 10s, run 20s+-5s, run 30s, run 40s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				j := w.job("j", c.s, 0)
				o := w.start(fire.Config{}, long)
				w.pass(15 * time.Second)
				for _, at := range c.existing {
					j.backfill(at)
				}
				w.pass(30 * time.Second)
				require.Equal(t, c.want, j.ledger())
				require.Positive(t, o.fire.Stats().Existing)
				o.stop()
			})
		})
	}
}

// Several fires are due at once, one of them is there already.
func TestExistingAmongMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max      int
		existing time.Duration
		want     string
	}{
		"first":   {100, 20 * time.Second, "run 10s, run 20s+1m5s, run 30s+55s, run 40s+45s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"middle":  {100, 50 * time.Second, "run 10s, run 20s+1m5s, run 30s+55s, run 40s+45s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"last":    {100, 80 * time.Second, "run 10s, run 20s+1m5s, run 30s+55s, run 40s+45s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"capped":  {4, 60 * time.Second, "run 10s, misfire 20s-40s x3, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"skipped": {4, 30 * time.Second, "run 10s, misfire 20s-40s x3, run 30s+55s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(10 * time.Second)
				s.Misfire, s.MisfireMax, s.Overlap = workflow.MisfireAll, c.max, workflow.OverlapAllow
				j := w.job("j", s, 0)
				o := w.start(fire.Config{}, long)
				w.pass(15 * time.Second)
				o.stop()
				w.pass(70 * time.Second)
				j.backfill(c.existing)
				o = w.start(fire.Config{}, long)
				w.pass(10 * time.Second)
				require.Equal(t, c.want, j.ledger())
				o.stop()
			})
		})
	}
}

// A day off between the missed fires is counted once, though the fire before it was there.
func TestExistingBeforeADayOff(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		w.calendars["tuesday"] = &schedule.Calendar{Off: []schedule.Day{{Date: epoch.AddDate(0, 0, 1).Format(time.DateOnly)}}}
		w.step.Add((22*time.Hour + 30*time.Minute).Milliseconds())
		j := w.job("j", workflow.Schedule{
			Cron: "0 * * * *", Calendars: []string{"tuesday"}, Misfire: workflow.MisfireAll, Overlap: workflow.OverlapAllow,
		}, 0)
		w.step.Add((26 * time.Hour).Milliseconds())
		j.backfill(23 * time.Hour)
		o := w.start(fire.Config{}, long)
		w.pass(time.Second)
		require.Equal(t, "run 23h0m0s+25h30m0s, calendar 24h0m0s-47h0m0s x24, run 48h0m0s+30m0s", j.ledger())
		o.stop()
	})
}

// More is due than may be in memory: all of it fires, in turn.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		s := workflow.Schedule{At: epoch.Add(20 * time.Second).Format(time.RFC3339), Misfire: workflow.MisfireOnce}
		var jobs []*job
		for i := range 600 {
			jobs = append(jobs, w.job(fmt.Sprint("j", i), s, 0))
		}
		beat := w.job("beat", every(5*time.Second), 0)
		o := w.start(fire.Config{Most: 100}, long)
		w.pass(28 * time.Second)
		for _, j := range jobs {
			require.Len(t, j.fired(), 1)
		}
		require.Equal(t, "run 5s, run 10s, run 15s, run 20s, run 25s", beat.ledger())
		require.LessOrEqual(t, w.most, 500, "a page at a time")
		o.stop()
	})
}

// Jitter puts fires off, keeps their order, and makes none of them a misfire.
func TestJitter(t *testing.T) {
	t.Parallel()
	for name, misfire := range map[string]workflow.Misfire{"once": workflow.MisfireOnce, "skip": workflow.MisfireSkip} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				s := every(20 * time.Second)
				s.Jitter, s.Misfire, s.Overlap = workflow.Duration(15*time.Second), misfire, workflow.OverlapAllow
				j := w.job("j", s, 0)
				o := w.start(calm, long)
				w.pass(3*time.Minute - time.Second)
				fired := j.fired()
				require.GreaterOrEqual(t, len(fired), 7)
				apart := map[int64]bool{}
				for i, f := range fired {
					require.Equal(t, w.at(time.Duration(i+1)*20*time.Second), f.At)
					late := f.FiredAt - f.At
					require.True(t, late >= 0 && late <= 15_000, "%d", late)
					apart[late] = true
				}
				require.Greater(t, len(apart), 4, "they are spread")
				j.whole()
				o.stop()
				w.pass(65 * time.Second)
				n := len(j.fired())
				o = w.start(calm, long)
				w.pass(100 * time.Millisecond)
				made := len(j.fired()) - n
				require.LessOrEqual(t, made, 1)
				w.pass(time.Minute)
				j.whole()
				o.stop()
			})
		})
	}
}
