package fire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// A fixed_delay that is resumed is due at once, and follows its jobs all the same.
func TestDependencyOfOneThatIsResumed(t *testing.T) {
	t.Parallel()
	tell(t, func(t *testing.T, w *world) {
		delay := workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)}
		child := w.job("child", after(delay, false, "parent"), 0)
		child.took = func(int) time.Duration { return 2 * time.Second }
		parent := w.job("parent", every(20*time.Second), 0)
		parent.took = func(int) time.Duration { return 5 * time.Second }
		parent.status = func(int) engine.Status { return engine.StatusSucceeded }
		o := w.start(calm, long)
		w.pass(11 * time.Second)
		child.pause() // while it runs, so that it has no next time
		w.pass(11 * time.Second)
		child.resume(o) // while the parent runs
		w.pass(time.Second)
		require.Equal(t, "run 10s", child.ledger())
		w.pass(5 * time.Second)
		require.Len(t, child.fired(), 2, child.ledger())
		require.GreaterOrEqual(t, child.fired()[1].FiredAt, w.at(25*time.Second))
		o.stop()
	})
}
