package server_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage/storagetest"
	"github.com/fanjet/fanjet/workflow"
)

const eventually = 30 * time.Second

// each runs a test on both databases.
func each(t *testing.T, f func(t *testing.T, url string)) {
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); f(t, "") })
	t.Run("MariaDB", func(t *testing.T) { t.Parallel(); f(t, storagetest.MariaDB(t)) })
}

func every(d time.Duration) workflow.Duration { return workflow.Duration(d) }

func (w *world) scheduled(name string, spec workflow.Spec, s workflow.Schedule) server.Definition {
	w.t.Helper()
	_, err := w.server.SaveJobDef(w.ctx, server.JobDef{App: "test", Name: name, Spec: spec, Schedule: s})
	require.NoError(w.t, err)
	return server.Definition{App: "test", Job: name}
}

func (w *world) standing(d server.Definition) *server.Standing {
	w.t.Helper()
	st, err := w.server.Schedule(w.ctx, d)
	require.NoError(w.t, err)
	return st
}

func (w *world) ledger(d server.Definition) (fired []engine.Fired, skips []engine.Skip) {
	w.t.Helper()
	entries, more, err := w.server.Ledger(w.ctx, d, 0, 0, 10_000)
	require.NoError(w.t, err)
	require.False(w.t, more)
	for _, e := range entries {
		if e.Fired != nil {
			fired = append(fired, *e.Fired)
		} else {
			skips = append(skips, *e.Skip)
		}
	}
	return fired, skips
}

// clean asks whether the ledger is as the schedule says, up to the last fire that was decided.
func (w *world) clean(d server.Definition) {
	w.t.Helper()
	v, err := w.server.Verify(w.ctx, d, 0, 0)
	require.NoError(w.t, err)
	require.True(w.t, v.Clean(), "%+v", v)
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		var mu sync.Mutex
		var seen []int64
		w.worker("w", 4, func(p *processor.Worker) {
			p.Register("note", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, task.ScheduledAt().UnixMilli())
				return nil, nil
			}))
		})
		d := w.scheduled("fast", workflow.Spec{Processor: "note"}, workflow.Schedule{Every: every(200 * time.Millisecond), Overlap: workflow.OverlapAllow})
		require.Eventually(t, func() bool { return w.standing(d).Runs >= 10 }, eventually, 20*time.Millisecond)
		require.NoError(t, w.server.PauseSchedule(w.ctx, d))
		require.Eventually(t, func() bool { return w.standing(d).Open == 0 }, eventually, 20*time.Millisecond)
		fired, skips := w.ledger(d)
		st := w.standing(d)
		require.Equal(t, int64(len(fired)), st.Runs)
		require.Equal(t, st.Runs, st.Succeeded)
		require.Equal(t, engine.StatusSucceeded, st.LastStatus)
		require.NotZero(t, st.Window)
		times := map[int64]bool{}
		for _, f := range fired {
			require.Zero(t, (f.At-st.AnchorAt)%200, "%d is not on the beat", f.At)
			require.False(t, times[f.At], "%d fired twice", f.At)
			times[f.At] = true
		}
		for _, k := range skips {
			require.Equal(t, engine.SkipMisfire, k.Reason)
		}
		mu.Lock()
		for _, at := range seen {
			require.True(t, times[at], "a processor saw %d, which is not in the ledger", at)
		}
		mu.Unlock()
		w.clean(d)
	})
}

// A fire that finds its job still running does what the overlap policy says.
func TestScheduleOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	release := make(chan struct{})
	var running, most atomic.Int64
	w.worker("w", 8, func(p *processor.Worker) {
		p.Register("hold", processor.Func(func(ctx context.Context, task *processor.Task) (any, error) {
			if task.Job() == "replace" { // what is replaced may still be on its way out
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil, ctx.Err()
			}
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			select {
			case <-release:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	})
	beat := workflow.Schedule{Every: every(100 * time.Millisecond)}
	with := func(o workflow.Overlap, queue int) workflow.Schedule {
		s := beat
		s.Overlap, s.QueueMax = o, queue
		return s
	}
	skip := w.scheduled("skip", workflow.Spec{Processor: "hold"}, with(workflow.OverlapSkip, 0))
	queue := w.scheduled("queue", workflow.Spec{Processor: "hold"}, with(workflow.OverlapQueue, 3))
	replace := w.scheduled("replace", workflow.Spec{Processor: "hold"}, with(workflow.OverlapReplace, 0))
	fail := w.scheduled("fail", workflow.Spec{Processor: "hold"}, with(workflow.OverlapFail, 0))

	require.Eventually(t, func() bool {
		_, skips := w.ledger(skip)
		return len(skips) == 1 && skips[0].Count >= 5
	}, eventually, 20*time.Millisecond)
	fired, skips := w.ledger(skip)
	require.Len(t, fired, 1)
	require.Len(t, skips, 1, "consecutive skips are one row")
	require.Equal(t, engine.SkipOverlap, skips[0].Reason)

	require.Eventually(t, func() bool {
		fired, skips := w.ledger(queue)
		return len(fired) == 4 && len(skips) == 1 && skips[0].Reason == engine.SkipQueueFull && skips[0].Count > 3
	}, eventually, 20*time.Millisecond)

	require.Eventually(t, func() bool { return w.standing(fail).Failed >= 3 }, eventually, 20*time.Millisecond)
	require.Equal(t, int32(1), w.standing(fail).Open)

	require.Eventually(t, func() bool {
		fired, _ := w.ledger(replace)
		stopped := 0
		for _, f := range fired {
			if f.Status == engine.StatusStopped || f.Status == engine.StatusCanceled {
				stopped++
			}
		}
		return stopped >= 3
	}, eventually, 20*time.Millisecond)

	for _, d := range []server.Definition{skip, queue, replace, fail} {
		require.NoError(t, w.server.PauseSchedule(w.ctx, d))
	}
	close(release)
	for _, d := range []server.Definition{skip, queue, replace, fail} {
		require.Eventually(t, func() bool { return w.standing(d).Open == 0 }, eventually, 20*time.Millisecond, "%s", d)
		w.clean(d)
	}
	require.LessOrEqual(t, most.Load(), int64(3), "one of each job at a time")
}

// The pause of a fixed_delay counts from the end of a run, however it ended.
func TestScheduleFixedDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	var n atomic.Int64
	w.worker("w", 2, func(p *processor.Worker) {
		p.Register("slow", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			select {
			case <-time.After(150 * time.Millisecond): // the work
			case <-ctx.Done():
			}
			if n.Add(1)%2 == 0 {
				return nil, context.DeadlineExceeded
			}
			return nil, nil
		}))
	})
	d := w.scheduled("slow", workflow.Spec{Processor: "slow"}, workflow.Schedule{Type: workflow.ScheduleDelay, Every: every(100 * time.Millisecond)})
	require.Eventually(t, func() bool { return w.standing(d).Runs >= 5 }, eventually, 20*time.Millisecond)
	require.NoError(t, w.server.PauseSchedule(w.ctx, d))
	require.Eventually(t, func() bool { return w.standing(d).Open == 0 }, eventually, 20*time.Millisecond)
	runs, err := w.store.Instances(w.ctx, 1, w.standing(d).ID, 0, 100)
	require.NoError(t, err)
	for i := range len(runs) - 1 { // newest first
		require.GreaterOrEqual(t, runs[i].FireAt, runs[i+1].FinishedAt+100)
	}
	require.NotZero(t, w.standing(d).Failed)
	before := w.standing(d).Runs
	require.NoError(t, w.server.ResumeSchedule(w.ctx, d))
	require.Eventually(t, func() bool { return w.standing(d).Runs > before }, eventually, 20*time.Millisecond)
}

// max_running holds for calls, fires and workflow nodes together, over all shards.
func TestScheduleMaxRunning(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		var running, most, runs atomic.Int64
		w.worker("w", 16, func(p *processor.Worker) {
			p.Register("count", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				defer running.Add(-1)
				runs.Add(1)
				select {
				case <-time.After(20 * time.Millisecond): // the work
				case <-ctx.Done():
				}
				return nil, nil
			}))
		})
		w.scheduled("limited", workflow.Spec{Processor: "count", MaxRunning: 3}, workflow.Schedule{})
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "limited"})
				if err == nil {
					_, err = w.server.WaitInstance(w.ctx, id)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				d := &workflow.Definition{Kind: workflow.KindWorkflow, App: "test", Name: "uses" + string(rune('a'+i))}
				for k := range 5 {
					d.Nodes = append(d.Nodes, workflow.Node{ID: "n" + string(rune('a'+k)), Job: "limited"})
				}
				id, err := w.server.StartWorkflow(w.ctx, server.Start{Definition: d})
				var wi *engine.WorkflowInstance
				if err == nil {
					wi, err = w.server.WaitWorkflow(w.ctx, id)
				}
				if err != nil {
					t.Error(err)
				} else if wi.Status != engine.StatusSucceeded {
					t.Errorf("%s: %s", wi.Status, wi.Error)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(50), runs.Load())
		require.LessOrEqual(t, most.Load(), int64(3))
		require.Equal(t, int64(50), w.standing(server.Definition{App: "test", Job: "limited"}).Runs)
	})
}

// Orders expire after a delay unless they are paid: canceled by job and key.
func TestCancelKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 2, func(p *processor.Worker) {
		p.Register("expire", processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, nil }))
	})
	w.job("expire", workflow.Spec{Processor: "expire"})
	paid, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "expire", Key: "order-1", Delay: time.Hour})
	require.NoError(t, err)
	unpaid, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "expire", Key: "order-2", Delay: 200 * time.Millisecond})
	require.NoError(t, err)
	n, err := w.server.CancelKey(w.ctx, "test", "expire", "order-1")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	in, err := w.server.WaitInstance(w.ctx, paid)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, in.Status)
	in, err = w.server.WaitInstance(w.ctx, unpaid)
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, in.Status)
	n, err = w.server.CancelKey(w.ctx, "test", "expire", "order-1")
	require.NoError(t, err)
	require.Zero(t, n)
}

// max_running of a workflow: what is over it waits, says so, and can be stopped meanwhile.
func TestWorkflowMaxRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	release := make(chan struct{})
	var running, most atomic.Int64
	w.worker("w", 8, func(p *processor.Worker) {
		p.Register("hold", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			n := running.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			defer running.Add(-1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil, nil
		}))
	})
	d := &workflow.Definition{Kind: workflow.KindWorkflow, App: "test", Name: "one", MaxRunning: 1, Nodes: []workflow.Node{{ID: "a", Spec: workflow.Spec{Processor: "hold"}}}}
	var ids []int64
	for range 4 {
		id, err := w.server.StartWorkflow(w.ctx, server.Start{Definition: d})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for _, id := range ids[1:] {
		require.Eventually(t, func() bool {
			wi, err := w.store.WorkflowInstance(w.ctx, id)
			require.NoError(t, err)
			return wi.Status == engine.StatusWaiting && wi.Reason == engine.ReasonQueued
		}, eventually, 10*time.Millisecond)
	}
	require.NoError(t, w.server.StopWorkflow(w.ctx, ids[2]))
	wi, err := w.server.WaitWorkflow(w.ctx, ids[2])
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, wi.Status)
	close(release)
	for _, i := range []int{0, 1, 3} {
		wi, err := w.server.WaitWorkflow(w.ctx, ids[i])
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	}
	require.Equal(t, int64(1), most.Load())
	require.Equal(t, int64(4), w.standing(server.Definition{App: "test", Workflow: "one"}).Runs)
}
