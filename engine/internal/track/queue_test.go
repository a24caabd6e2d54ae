package track_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

func (r *rig) count(status engine.Status) (n int) {
	for _, in := range r.rows {
		if in.Status == status {
			n++
		}
	}
	return n
}

// The window bounds what is on its way; the backlog stays in SQL and is worked off in the
// order in which it became due.
func TestWindowAndBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for id := int64(1); id <= 300; id++ {
		r.trigger(id, workflow.Spec{})
	}
	window := 24 // twice 3 workers with 4 slots
	require.Equal(t, window, r.count(engine.StatusDispatched))
	require.EqualValues(t, window, r.o.Stats().Active)
	var order []int64
	for i := 0; i < 300; i++ {
		c := r.chunks()[i]
		order = append(order, c.Instance)
		rep := succeeded(c, "1")
		rep.Duration = time.Second // slow: the window stays small
		r.says("a", started(c), rep)
		require.LessOrEqual(t, r.count(engine.StatusDispatched), window)
	}
	require.Equal(t, 300, r.count(engine.StatusSucceeded))
	require.True(t, slices.IsSorted(order))
	require.Zero(t, r.o.Stats().Active)
}

// Rows that a limit holds back do not keep others from running, however many they are.
func TestRowsHeldBackArePassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for id := int64(1); id <= 1500; id++ {
		in := r.instance(id, workflow.Spec{Concurrency: 1})
		if id > 1200 {
			in.Job = 10
			r.specs[id] = &workflow.Spec{Processor: "p"}
		}
		r.rows[id] = in
	}
	r.event("", track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny), DueAt: r.now}}})
	require.Equal(t, 24, r.count(engine.StatusDispatched), "one of the limited job, the others behind it")
	for i := 0; i < 1500; i++ {
		if i >= len(r.chunks()) {
			r.wait(1100 * time.Millisecond) // the sweep looks at the head again
		}
		c := r.chunks()[i]
		rep := succeeded(c, "1")
		rep.Duration = time.Second
		r.says("a", started(c), rep)
		limited := 0
		for _, in := range r.rows {
			if in.Job == 9 && in.Status == engine.StatusDispatched {
				limited++
			}
		}
		require.LessOrEqual(t, limited, 1)
	}
	require.Equal(t, 1500, r.count(engine.StatusSucceeded))
}

func TestDelayedInstanceStartsWhenDue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.instance(1, workflow.Spec{})
	in.DueAt = r.now + 7500
	r.event("", track.Triggered{Row: r.row(in)})
	require.Equal(t, "waiting", r.status(1))
	r.wait(7400 * time.Millisecond)
	require.Equal(t, "waiting", r.status(1))
	r.wait(150 * time.Millisecond)
	require.Equal(t, "dispatched", r.status(1))
}

func TestDispatchTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.names = nil
	r.trigger(1, workflow.Spec{DispatchTimeout: workflow.Duration(3 * time.Second)})
	r.trigger(2, workflow.Spec{})
	r.wait(2 * time.Second)
	require.Equal(t, "waiting", r.status(1))
	r.wait(3 * time.Second)
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, `no live worker of pool "any" has processor "p"`)
	require.Equal(t, "waiting", r.status(2))
	r.crew.names = []string{"a"}
	r.event("", track.WorkerNews{App: "acme"})
	require.Equal(t, "dispatched", r.status(2))
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Timeout: workflow.Duration(10 * time.Second), Retry: retries(1)})
	r.wait(20 * time.Second)
	require.Equal(t, "dispatched", r.status(1), "only what has started times out")
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.wait(11 * time.Second)
	require.EqualValues(t, 2, r.rows[1].Attempt)
	require.Equal(t, engine.StatusTimedOut, r.tries[0].Status)
	require.Contains(t, r.log.String(), "order kind 1 instance 1 attempt 1")
	c = r.sent(1, root, 0)
	r.says("a", started(c))
	r.begin() // a new owner counts from the same start
	r.wait(11 * time.Second)
	require.Equal(t, "timed_out", r.status(1))

	// A task: the worker says it, or the owner does ten seconds later.
	r.trigger(2, workflow.Spec{TaskTimeout: workflow.Duration(5 * time.Second)})
	c = r.sent(2, root, 0)
	r.says("a", started(c))
	r.wait(14 * time.Second)
	require.Equal(t, "running", r.status(2))
	r.wait(2 * time.Second)
	require.Equal(t, "timed_out", r.status(2))
	r.trigger(3, workflow.Spec{TaskTimeout: workflow.Duration(5 * time.Second)})
	c = r.sent(3, root, 0)
	r.says("a", started(c), failed(c, 0, broker.ErrorTimeout, "too slow"))
	require.Equal(t, "timed_out", r.status(3))

	// What was given back and waits in its lane again is nobody's, and not late.
	r.trigger(4, workflow.Spec{TaskTimeout: workflow.Duration(5 * time.Second)})
	c = r.sent(4, root, 0)
	r.says("a", started(c), broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportReturned, Phase: root, Emitted: -1})
	r.wait(25 * time.Second)
	require.Equal(t, "running", r.status(4))
}

func TestRate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, Rate: 10})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 60)...)
	r.says("a", mapped(succeeded(c, "", 0), 60, 7))
	fed, done := int64(0), 0
	begin := r.now
	for fed < 60 {
		all := r.chunks()
		for ; done < len(all); done++ {
			if c := all[done]; c.Phase == subs {
				fed += int64(len(c.Tasks))
				r.says("a", started(c), succeeded(c, ""))
			}
		}
		require.LessOrEqual(t, fed, 11+(r.now-begin)*10/1000)
		r.wait(20 * time.Millisecond)
		require.Less(t, r.now-begin, int64(8000))
	}
	require.Equal(t, "succeeded", r.status(1))
}

func TestConcurrencyOfAMap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, Concurrency: 3})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 30)...)
	require.Len(t, r.chunks(), 3, "the root and two")
	r.says("a", mapped(succeeded(c, "", 0), 30, 7))
	for i := 1; r.status(1) == "running"; i++ {
		require.LessOrEqual(t, len(r.chunks())-i, 3)
		c := r.chunks()[i]
		r.says("a", started(c), succeeded(c, ""))
	}
	require.Equal(t, "succeeded", r.status(1))
}

// While many sub-tasks of a run wait for a further attempt, it is fed nothing new.
func TestRetryingHoldsTheFeedBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.MaxRetrying = 5
	r.begin()
	r.trigger(1, workflow.Spec{Mode: workflow.Map, TaskRetry: workflow.Retry{Max: 1, Delay: workflow.Duration(time.Hour), MaxDelay: workflow.Duration(time.Hour)}})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 200)...)
	fed := 0
	for i := 1; i < len(r.chunks()); i++ {
		c := r.chunks()[i]
		fed += len(c.Tasks)
		for _, task := range c.Tasks {
			r.says("a", failed(c, task.Number, broker.ErrorFailed, "x"))
		}
	}
	require.Less(t, fed, 60)
	require.Len(t, r.tasks, fed)
}

// Final failures keep a row each up to a bound, beyond it the bitmap alone.
func TestFailedRowsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.MaxFailedRows = 120
	r.begin()
	r.trigger(1, workflow.Spec{Mode: workflow.Map, MaxFailed: workflow.Budget{Percent: 100}})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 300)...)
	r.says("a", mapped(succeeded(c, "", 0), 300, 7))
	for i := 1; i < len(r.chunks()); i++ {
		c := r.chunks()[i]
		for _, task := range c.Tasks {
			r.says("a", failed(c, task.Number, broker.ErrorPermanent, "x"))
		}
	}
	require.Equal(t, "succeeded", r.status(1))
	require.EqualValues(t, 300, r.runs[1].Failed)
	require.Len(t, r.tasks, 120)
}

// C13: nothing in memory or in a row grows with the number of sub-tasks.
func TestNothingGrowsWithN(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	const total, batch = 200_000, 500
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	result, most, state := uint64(0), 0, 0
	var before uint64
	at := int64(0)
	for r.runs[1].Succeeded < total {
		for at < total && at-r.runs[1].Succeeded < 4*batch {
			r.emits(c, 0, 7, at, slices.Repeat([]string{"x"}, batch)...)
			at += batch
		}
		if at == total {
			r.says("a", mapped(succeeded(c, "", 0), total, 7))
			at++
		}
		open := r.fresh
		r.fresh = nil
		most = max(most, len(open))
		var reps []broker.Report
		for _, e := range open {
			if p, ok := e.(track.Publish); ok && p.Chunk.Phase == subs {
				result++
				rep := stored(succeeded(p.Chunk, ""), result)
				rep.Duration = time.Duration(len(p.Chunk.Tasks)) * 20 * time.Microsecond
				reps = append(reps, started(p.Chunk), rep)
			}
		}
		state = max(state, len(r.runs[1].State))
		require.NotEmpty(t, reps, "%d of %d", r.runs[1].Succeeded, total)
		r.says("b", reps...)
		// What the test itself keeps is let go.
		r.done = nil
		r.log.Reset()
		r.stage[1] = slices.DeleteFunc(r.stage[1], func(s broker.Staged) bool { return s.First+int64(len(s.Items)) < r.runs[1].Succeeded-10*batch })
		if before == 0 && r.runs[1].Succeeded > 20_000 {
			before = heap()
		}
	}
	after := heap()
	require.Less(t, after, before+8<<20, "heap at 20 000 and at %d", total)
	require.Less(t, state, 16<<10, "bytes of the stored run")
	require.Less(t, most, 5000)
	require.EqualValues(t, total, r.runs[1].Total)
}
