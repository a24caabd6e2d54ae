package fire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// after is a schedule that fires with every, once the jobs are over.
func after(every workflow.Schedule, weak bool, jobs ...string) workflow.Schedule {
	for _, j := range jobs {
		every.After = append(every.After, workflow.Dependency{Job: j, Weak: weak})
	}
	return every
}

// A fire waits for the jobs it follows, those that are due at the same instant too, and does
// not run after one that had to succeed and has not.
func TestDependency(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		weak   bool
		took   time.Duration // of the parent
		status engine.Status
		want   string
	}{
		// It looks again twice a second.
		"at the same instant":  {false, 0, engine.StatusSucceeded, "run 10s+500ms, run 20s+500ms, run 30s+500ms"},
		"a long one":           {false, 3 * time.Second, engine.StatusSucceeded, "run 10s+3.5s, run 20s+3.5s, run 30s+3.5s"},
		"longer than misfires": {false, 8 * time.Second, engine.StatusSucceeded, "run 10s+8.5s, run 20s+8.5s, run 30s+8.5s"},
		"failed":               {false, time.Second, engine.StatusFailed, "dependency 10s-30s x3"},
		"timed out":            {false, time.Second, engine.StatusTimedOut, "dependency 10s-30s x3"},
		"stopped":              {false, time.Second, engine.StatusStopped, "dependency 10s-30s x3"},
		"failed, weak":         {true, time.Second, engine.StatusFailed, "run 10s+1.5s, run 20s+1.5s, run 30s+1.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(t *testing.T, w *world) {
				// The child is the older one, so that it is looked at first.
				j := w.job("child", after(every(10*time.Second), c.weak, "parent"), 0)
				parent := w.job("parent", every(10*time.Second), 0)
				parent.took = func(int) time.Duration { return c.took + 10*time.Millisecond }
				parent.status = func(int) engine.Status { return c.status }
				o := w.start(calm, long)
				w.pass(39 * time.Second)
				require.Equal(t, "run 10s, run 20s, run 30s", parent.ledger())
				require.Equal(t, c.want, j.ledger())
				j.whole()
				o.stop()
			})
		})
	}
}

// A parent that is slower than its child's period holds the child up; what came due meanwhile
// is for the misfire policy.
func TestDependencyOnASlowJob(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		parent := w.job("parent", every(30*time.Second), 0)
		parent.took = func(int) time.Duration { return 25100 * time.Millisecond }
		j := w.job("child", after(every(10*time.Second), false, "parent"), 0)
		j.took = func(int) time.Duration { return time.Second }
		o := w.start(calm, long)
		w.pass(58 * time.Second)
		require.Equal(t, "run 10s, run 20s, run 30s+25.5s, misfire 40s, overlap 50s", j.ledger())
		j.whole()
		o.stop()
	})
}

// A parent that never ran holds nobody up, nor does one that is paused, disabled or only called.
func TestDependencyOnAnIdleJob(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		w.job("called", workflow.Schedule{}, 0)
		off := w.job("off", every(10*time.Second), 0)
		paused := w.job("paused", every(10*time.Second), 0)
		j := w.job("child", after(every(10*time.Second), false, "called", "off", "paused"), 0)
		o := w.start(calm, long)
		off.enable(o, false)
		paused.pause()
		w.pass(21 * time.Second)
		require.Equal(t, "run 10s, run 20s", j.ledger())
		o.stop()
	})
}

// A server that stops while a fire waits for another job leaves the waiting to the next one.
func TestDependencyOverARestart(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		parent := w.job("parent", every(time.Minute), 0)
		parent.took = func(int) time.Duration { return 19900 * time.Millisecond }
		s := after(every(time.Minute), false, "parent")
		j := w.job("child", s, 0)
		s.Misfire = workflow.MisfireSkip
		strict := w.job("strict", s, 0)
		o := w.start(calm, long)
		w.pass(65 * time.Second)
		o.stop()
		w.pass(5 * time.Second)
		require.Empty(t, j.ledger())
		o = w.start(calm, long)
		w.pass(15 * time.Second)
		require.Equal(t, "run 1m0s+20s", j.ledger())
		require.Equal(t, "run 1m0s+20s", strict.ledger(), "it was not missed, it waited")
		o.stop()
	})
}

// A job that was renamed or never was keeps those that follow it from firing, and no others;
// when it is there they go on.
func TestDependencyOnNobody(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		j := w.job("child", after(every(10*time.Second), false, "nobody"), 0)
		other := w.job("other", every(10*time.Second), 0)
		o := w.start(calm, long)
		w.pass(30 * time.Second)
		require.Empty(t, j.ledger())
		require.Equal(t, "run 10s, run 20s, run 30s", other.ledger())
		w.job("nobody", workflow.Schedule{}, 0)
		w.pass(time.Minute)
		require.NotEmpty(t, j.ledger())
		j.whole()
		o.stop()
	})
}
