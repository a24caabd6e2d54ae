package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// who is a processor that says which worker runs it.
func who(name string) processor.Processor {
	return processor.Func(func(context.Context, *processor.Task) (any, error) { return name, nil })
}

func TestRouting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	start := func(name string, tags []string, labels map[string]string, more ...string) {
		w.workerWith(processor.Config{Name: name, Slots: 2, Tags: tags, Labels: labels}, func(p *processor.Worker) {
			p.Register("who", who(name))
			for _, m := range more {
				p.Register(m, who(name))
			}
		})
	}
	start("a", nil, map[string]string{"zone": "x"})
	start("b", []string{"gpu"}, map[string]string{"zone": "y"})
	start("c", nil, map[string]string{"zone": "y"}, "rare")

	ask := func(spec workflow.Spec, n int) map[string]int {
		name := fmt.Sprintf("j%d", time.Now().UnixNano())
		w.job(name, spec)
		got := map[string]int{}
		for range n {
			in := w.run(name, "null")
			require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
			got[strings.Trim(string(in.Result), `"`)]++
		}
		return got
	}
	require.Equal(t, map[string]int{"b": 3}, ask(workflow.Spec{Processor: "who", Pool: "gpu"}, 3), "a pool is its tag")
	require.Equal(t, map[string]int{"c": 3}, ask(workflow.Spec{Processor: "rare"}, 3), "C22: only who has the processor")
	require.Equal(t, map[string]int{"a": 3}, ask(workflow.Spec{Processor: "who", Labels: map[string]string{"zone": "x"}}, 3))
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingRoundRobin}, 6))
	require.Equal(t, map[string]int{"b": 3}, ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingDesignated, Designated: []string{"b"}}, 3))
	require.Len(t, ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingHash, RoutingKey: "k"}, 4), 1, "one key, one worker")
	require.Equal(t, 4, sumOf(ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingRandom}, 4)))
	require.Equal(t, 4, sumOf(ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingLeast}, 4)))
	require.Equal(t, 2, sumOf(ask(workflow.Spec{Processor: "who", MinCPU: 0.000001, MinMemory: 1, MinDisk: 1}, 2)))

	t.Run("nobody fits", func(t *testing.T) {
		w.job("nobody", workflow.Spec{Processor: "unknown", DispatchTimeout: workflow.Duration(50 * time.Millisecond)})
		in := w.run("nobody", "null")
		require.Equal(t, engine.StatusFailed, in.Status)
		require.Contains(t, in.Error, `has processor "unknown"`)
		w.job("toomuch", workflow.Spec{Processor: "who", MinMemory: 1 << 60, DispatchTimeout: workflow.Duration(50 * time.Millisecond)})
		in = w.run("toomuch", "null")
		require.Equal(t, engine.StatusFailed, in.Status, string(in.Result))
	})
	t.Run("maintenance gets nothing new", func(t *testing.T) {
		require.NoError(t, w.server.SetMaintenance(w.ctx, "test", "a", true))
		require.Equal(t, 0, ask(workflow.Spec{Processor: "who"}, 6)["a"])
		require.Equal(t, 0, ask(workflow.Spec{Processor: "who", Routing: workflow.RoutingRoundRobin}, 6)["a"])
	})
}

func sumOf(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// C40: a stop reaches a processor that honours its context in under a second, and it stays
// stopped.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	running := make(chan int64, 64)
	ended := make(chan error, 64)
	hang := func(ctx context.Context, task *processor.Task) (any, error) {
		running <- task.Number()
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	w.worker("w", 4, func(p *processor.Worker) {
		p.Register("hang", processor.Func(hang))
		p.Register("map", processor.Func(func(ctx context.Context, task *processor.Task) (any, error) {
			if task.IsRoot() {
				return nil, task.Map("x", []int{1, 2, 3})
			}
			return hang(ctx, task)
		}))
	})
	for name, spec := range map[string]workflow.Spec{
		"hang":  {Processor: "hang", Retry: workflow.Retry{Max: 3}},
		"hangd": {Processor: "hang", Routing: workflow.RoutingRandom},
		"map":   {Processor: "map", Mode: workflow.Map},
		"bc":    {Processor: "hang", Mode: workflow.Broadcast},
	} {
		w.job(name, spec)
		id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: name})
		require.NoError(t, err)
		<-running
		begun := time.Now()
		require.NoError(t, w.server.StopInstance(w.ctx, id))
		require.ErrorIs(t, <-ended, processor.ErrStopped)
		t.Logf("%s: the processor heard of the stop after %v", name, time.Since(begun))
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, engine.StatusStopped, in.Status)
		require.EqualValues(t, 1, in.Attempt)
		for len(running) > 0 {
			<-running
		}
	}
	t.Run("before it is dispatched", func(t *testing.T) {
		w.job("later", workflow.Spec{Processor: "hang"})
		id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "later", Delay: time.Hour})
		require.NoError(t, err)
		require.NoError(t, w.server.StopInstance(w.ctx, id))
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, engine.StatusCanceled, in.Status)
		require.NoError(t, w.server.StopInstance(w.ctx, id), "a second stop changes nothing")
	})
}

// C11 and the failure budget.
func TestMapFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	var runs sync.Map // number → runs
	w.worker("w", 4, func(p *processor.Worker) {
		p.Register("odd", oddFails{&runs})
		p.Register("rootfails", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			if !task.IsRoot() {
				return nil, nil
			}
			if err := task.Map("x", []int{1, 2, 3}); err != nil {
				return nil, err
			}
			return nil, errors.New("after all")
		}))
	})
	w.job("strict", workflow.Spec{Processor: "odd", Mode: workflow.MapReduce})
	in := w.run("strict", "null")
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "sub-tasks failed, 0 may")

	w.job("bears", workflow.Spec{Processor: "odd", Mode: workflow.MapReduce, MaxFailed: workflow.Budget{Percent: 50}})
	in = w.run("bears", "null")
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"total":10,"failed":5,"sum":20,"first":"1 is odd"}`, string(in.Result))

	runs.Clear()
	w.job("retries", workflow.Spec{Processor: "odd", Mode: workflow.MapReduce, Params: []byte(`{"times":2}`), TaskRetry: workflow.Retry{Max: 2, Delay: workflow.Duration(time.Millisecond)}})
	in = w.run("retries", `{"times":2}`)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"total":10,"failed":0,"sum":45,"first":""}`, string(in.Result))
	n, _ := runs.Load(int64(2))
	require.EqualValues(t, 3, n.(*atomic.Int64).Load(), "the second number failed twice")

	w.job("rootfails", workflow.Spec{Processor: "rootfails", Mode: workflow.Map})
	in = w.run("rootfails", "null")
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "after all")
	run, err := w.store.MapRuns(w.ctx, in.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, run[0].Succeeded, "what it had emitted still ran")
}

// oddFails maps 0..9; odd ones fail, for ever or as often as the params say.
type oddFails struct{ runs *sync.Map }

func (o oddFails) Process(_ context.Context, task *processor.Task) (any, error) {
	if task.IsRoot() {
		return nil, task.Map("n", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	}
	var p struct{ Times int64 }
	if err := task.Params(&p); err != nil {
		return nil, err
	}
	var i int
	if err := task.Item(&i); err != nil {
		return nil, err
	}
	n, _ := o.runs.LoadOrStore(task.Number(), &atomic.Int64{})
	if k := n.(*atomic.Int64).Add(1); i%2 == 1 && (p.Times == 0 || k <= p.Times) {
		return nil, fmt.Errorf("%d is odd", i)
	}
	return i, nil
}

func (o oddFails) Reduce(_ context.Context, _ *processor.Task, r *processor.Results) (any, error) {
	sum, first := 0, ""
	for v := range processor.ValuesOf[int](r).All() {
		sum += v
	}
	errs := slices.Clone(r.Errors())
	slices.SortFunc(errs, func(a, b processor.Failure) int { return int(a.Number - b.Number) })
	if len(errs) > 0 {
		first = errs[0].Message
	}
	return map[string]any{"total": r.Total(), "failed": r.Failed(), "sum": sum, "first": first}, nil
}

// Sub-tasks may map further, and an atomic root is fed only after its success.
func TestNestedAndAtomic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 4, func(p *processor.Worker) {
		p.Register("tree", tree{})
	})
	for _, emit := range []workflow.Emit{workflow.EmitStream, workflow.EmitAtomic} {
		w.job("tree", workflow.Spec{Processor: "tree", Mode: workflow.MapReduce, Emit: emit})
		in := w.run("tree", "null")
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
		require.Equal(t, "1111", string(in.Result), "1 + 10 + 100 + 1000 leaves and inner nodes")
	}
}

type tree struct{}

func (tree) Process(_ context.Context, task *processor.Task) (any, error) {
	depth := 3
	if !task.IsRoot() {
		if err := task.Item(&depth); err != nil {
			return nil, err
		}
	}
	if depth == 0 {
		return 1, nil
	}
	n := 10
	if task.IsRoot() {
		n = 1
		depth++
	}
	return 1, task.Map("level", slices.Repeat([]int{depth - 1}, n))
}

func (tree) Reduce(_ context.Context, _ *processor.Task, r *processor.Results) (any, error) {
	n := 0
	for v := range processor.ValuesOf[int](r).All() {
		n += v
	}
	return n, nil
}

// A checkpoint survives the attempt, and the log lines of a task can be read.
func TestCheckpointAndLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 2, func(p *processor.Worker) {
		p.Register("resume", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			var at int
			found, err := task.Checkpointed(&at)
			if err != nil {
				return nil, err
			}
			task.Logger().Info("begin 💥", "from", at)
			if !found {
				if err := task.Checkpoint(41); err != nil {
					return nil, err
				}
				return nil, errors.New("try again")
			}
			return at + 1, nil
		}))
		p.Register("slow", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}))
		p.Register("panics", processor.Func(func(context.Context, *processor.Task) (any, error) { panic("oh no") }))
		p.Register("cancel", processor.Func(func(context.Context, *processor.Task) (any, error) {
			return nil, processor.Cancel(errors.New("no use"))
		}))
	})
	retry := workflow.Retry{Max: 3, Delay: workflow.Duration(time.Millisecond)}
	w.job("resume", workflow.Spec{Processor: "resume", Retry: retry})
	in := w.run("resume", "null")
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.Equal(t, "42", string(in.Result))
	var lines []string
	require.NoError(t, w.server.Logs(w.ctx, in.ID, func(l *broker.LogBatch) error {
		for _, x := range l.Lines {
			lines = append(lines, x.Text)
		}
		return nil
	}))
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "begin 💥")
	attempts, err := w.store.Attempts(w.ctx, in.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	require.Contains(t, attempts[0].Error, "try again")

	w.job("tasktimeout", workflow.Spec{Processor: "slow", TaskTimeout: workflow.Duration(50 * time.Millisecond)})
	in = w.run("tasktimeout", "null")
	require.Equal(t, engine.StatusTimedOut, in.Status, in.Error)
	w.job("timeout", workflow.Spec{Processor: "slow", Timeout: workflow.Duration(50 * time.Millisecond)})
	in = w.run("timeout", "null")
	require.Equal(t, engine.StatusTimedOut, in.Status, in.Error)
	require.Contains(t, in.Error, "ran longer than 50ms")

	w.job("panics", workflow.Spec{Processor: "panics"})
	in = w.run("panics", "null")
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "oh no")
	require.Contains(t, in.Error, "features_test.go", "with its stack")

	w.job("cancel", workflow.Spec{Processor: "cancel", Retry: retry})
	in = w.run("cancel", "null")
	require.Equal(t, engine.StatusFailed, in.Status)
	require.EqualValues(t, 1, in.Attempt, "processor.Cancel is not retried")
}

// Broadcast with its frame: PreProcess, shares, PostProcess.
func TestBroadcast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	var pre atomic.Int64
	for _, name := range []string{"a", "b", "c"} {
		w.worker(name, 1, func(p *processor.Worker) {
			p.Register("frame", frame{name, &pre})
			p.Register("some", processor.Func(func(context.Context, *processor.Task) (any, error) {
				if name == "b" {
					return nil, errors.New("not here")
				}
				return name, nil
			}))
		})
	}
	w.job("frame", workflow.Spec{Processor: "frame", Mode: workflow.Broadcast})
	in := w.run("frame", "null")
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `["a:0/3","b:1/3","c:2/3"]`, string(in.Result))
	require.EqualValues(t, 1, pre.Load())

	for rule, want := range map[string]engine.Status{"all": engine.StatusFailed, "any": engine.StatusSucceeded, "66%": engine.StatusSucceeded, "67%": engine.StatusFailed} {
		in = w.run(w.named("rule", workflow.Spec{Processor: "some", Mode: workflow.Broadcast, Rule: rule}), "null")
		require.Equal(t, want, in.Status, "%s: %s", rule, in.Error)
	}
	in = w.run(w.named("waves", workflow.Spec{Processor: "frame", Mode: workflow.Broadcast, Waves: []int{10, 50, 100}}), "null")
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
}

type frame struct {
	name string
	pre  *atomic.Int64
}

func (f frame) PreProcess(context.Context, *processor.Task) error { f.pre.Add(1); return nil }

func (f frame) Process(_ context.Context, task *processor.Task) (any, error) {
	i, n := task.Shard()
	return fmt.Sprintf("%s:%d/%d", f.name, i, n), nil
}

func (f frame) PostProcess(_ context.Context, _ *processor.Task, shares *processor.Shares) (any, error) {
	var all []string
	for s := range shares.All() {
		var v string
		if err := s.Decode(&v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return all, nil
}

// A job's concurrency holds over all its instances and workers.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	var now, most atomic.Int64
	gate := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		w.worker(name, 8, func(p *processor.Worker) {
			p.Register("limited", processor.Func(func(context.Context, *processor.Task) (any, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-gate
				return nil, nil
			}))
		})
	}
	w.job("limited", workflow.Spec{Processor: "limited", Concurrency: 3})
	w.job("free", workflow.Spec{Processor: "limited"})
	var ids []int64
	for range 20 {
		id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "limited"})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	require.Eventually(t, func() bool { return now.Load() == 3 }, 20*time.Second, time.Millisecond)
	free, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "free"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return now.Load() == 4 }, 20*time.Second, time.Millisecond, "what is limited holds nobody else back")
	close(gate)
	for _, id := range append(ids, free) {
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	}
	require.LessOrEqual(t, most.Load(), int64(4))
}
