package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// C01, C25: a worker that is cut off is given up and its task runs elsewhere; when it comes
// back, its copy is ended and its word changes nothing.
func TestCutOffWorker(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, "", quick)
	p := newProxy(t, w.broker.URL())
	begun := make(chan string, 16)
	ended := make(chan error, 16)
	register := func(name string, finish bool) func(*processor.Worker) {
		return func(x *processor.Worker) {
			x.Register("long", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
				begun <- name
				if finish {
					return name, nil
				}
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}))
		}
	}
	w.workerWith(processor.Config{Name: "cut", Slots: 1, URL: p.url()}, register("cut", false))
	w.job("long", workflow.Spec{Processor: "long"})
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "long"})
	require.NoError(t, err)
	require.Equal(t, "cut", <-begun)
	p.set(true)
	w.worker("other", 1, register("other", true))
	require.Equal(t, "other", <-begun)
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, in.Status)
	require.Equal(t, `"other"`, string(in.Result))
	require.EqualValues(t, 1, in.Attempt, "a lost run costs no attempt")
	p.set(false)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, processor.ErrStopped)
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the old copy still runs")
	}
	again, err := w.store.Instance(w.ctx, id)
	require.NoError(t, err)
	require.Equal(t, in.Status, again.Status)
	require.Equal(t, in.Result, again.Result)
}

// C08: the worker of the root task is cut off in the middle of the map: one reduce, and the
// counts are right.
func TestCutOffMapper(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, "", quick)
	p := newProxy(t, w.broker.URL())
	half := make(chan struct{})
	goOn := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(goOn) }) })
	mr := func(blocks bool) processor.MapReduce[sumParams, int, int] {
		m := sum()
		split := m.Split
		m.Split = func(ctx context.Context, task *processor.Task, p sumParams, emit func(int) error) error {
			if !blocks {
				return split(ctx, task, p, emit)
			}
			for i := range p.N {
				if i == p.N/2 {
					close(half)
					select {
					case <-goOn:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				if err := emit(i + 1); err != nil {
					return err
				}
			}
			return nil
		}
		return m
	}
	w.workerWith(processor.Config{Name: "cut", Slots: 1, URL: p.url()}, func(x *processor.Worker) { x.Register("sum", mr(true)) })
	w.job("sum", workflow.Spec{Processor: "sum", Mode: workflow.MapReduce})
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "sum", Params: []byte(`{"N":3000}`)})
	require.NoError(t, err)
	<-half
	p.set(true)
	w.worker("other", 2, func(x *processor.Worker) { x.Register("sum", mr(false)) })
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.Equal(t, fmt.Sprint(3000*3001), string(in.Result))
	once.Do(func() { close(goOn) })
	p.set(false)
	runs, err := w.store.MapRuns(w.ctx, id)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.EqualValues(t, 3000, runs[0].Total)
	require.EqualValues(t, 3000, runs[0].Succeeded)
}

// C26: a task that kills its worker each time fails for good after three, and leaves
// nothing in the broker.
func TestPoison(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, "", quick)
	w.job("poison", workflow.Spec{Processor: "poison"})
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "poison"})
	require.NoError(t, err)
	var runs atomic.Int64
	var cut []*proxy
	final := func() *engine.Instance {
		in, err := w.store.Instance(w.ctx, id)
		require.NoError(t, err)
		return in
	}
	for i := 0; !final().Status.Terminal(); i++ {
		p := newProxy(t, w.broker.URL())
		cut = append(cut, p)
		hit := make(chan struct{})
		w.workerWith(processor.Config{Name: fmt.Sprintf("victim%d", i), Slots: 1, URL: p.url()}, func(x *processor.Worker) {
			x.Register("poison", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
				runs.Add(1)
				close(hit)
				<-ctx.Done()
				return nil, ctx.Err()
			}))
		})
		require.Eventually(t, func() bool {
			select {
			case <-hit:
				return true
			default:
				return final().Status.Terminal()
			}
		}, 30*time.Second, 5*time.Millisecond)
		p.set(true) // as dead as a worker can be without ending this process
	}
	in := final()
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "the worker died 3 times while running it")
	// Of the very first run the owner may never have heard.
	require.Contains(t, []int64{3, 4}, runs.Load())
	for _, p := range cut {
		p.set(false)
	}
	b := w.broker.Broker(t, broker.Config{})
	require.Eventually(t, func() bool {
		_, _, tasks, err := b.RunCounts(w.ctx, "test", "", id)
		return err == nil && tasks == 0
	}, 20*time.Second, 20*time.Millisecond)
}

// C29, C44: an app whose tasks hang and pile up does not hold up another one.
func TestOneAppHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.workerWith(processor.Config{App: "stuck", Name: "w", Slots: 4, DrainTimeout: 100 * time.Millisecond}, func(x *processor.Worker) {
		x.Register("hang", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	})
	w.worker("w", 4, func(x *processor.Worker) { x.Register("echo", who("w")) })
	_, err := w.server.SaveJob(w.ctx, "stuck", "hang", "", workflow.Spec{Processor: "hang"})
	require.NoError(t, err)
	w.job("echo", workflow.Spec{Processor: "echo"})
	var wg sync.WaitGroup
	for range 2000 {
		wg.Add(1)
		require.NoError(t, w.server.TriggerAsync(w.ctx, server.Trigger{App: "stuck", Job: "hang"}, func(_ int64, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		}))
	}
	wg.Wait()
	for range 50 {
		in := w.run("echo", "null")
		require.Equal(t, engine.StatusSucceeded, in.Status)
	}
}

// C32: what fails while a dependency is down for a moment succeeds by its retries, which
// wait in the store and not in the broker.
func TestRetriesOutlastAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	up := time.Now().Add(500 * time.Millisecond)
	w.worker("w", 2, func(x *processor.Worker) {
		x.Register("needs", processor.Func(func(context.Context, *processor.Task) (any, error) {
			if time.Now().Before(up) {
				return nil, errors.New("dependency is down")
			}
			return "ok", nil
		}))
	})
	w.job("needs", workflow.Spec{Processor: "needs", Retry: workflow.Retry{Max: 5, Delay: workflow.Duration(100 * time.Millisecond)}})
	in := w.run("needs", "null")
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.LessOrEqual(t, in.Attempt, int32(6))
}

// C37: a worker that reports success and is gone in the same moment has succeeded.
func TestSuccessThenSilence(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, "", quick)
	w.job("last", workflow.Spec{Processor: "last", Retry: workflow.Retry{Max: 1}})
	for i := range 3 {
		p := newProxy(t, w.broker.URL())
		stop := w.workerWith(processor.Config{Name: fmt.Sprintf("w%d", i), Slots: 1, URL: p.url()}, func(x *processor.Worker) {
			x.Register("last", who("done"))
		})
		id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "last"})
		require.NoError(t, err)
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		p.set(true)
		require.Equal(t, engine.StatusSucceeded, in.Status)
		// The worker is found out dead; the instance stays as it is.
		require.Eventually(t, func() bool { return len(w.server.Workers("test")) == 0 }, 20*time.Second, 10*time.Millisecond)
		after, err := w.store.Instance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, in, after)
		p.set(false)
		stop()
	}
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

// D10: a worker whose clock is ten minutes off lives and works; the skew is said once.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	var said lines
	c := quick
	c.Log = slog.New(slog.NewTextHandler(&said, nil))
	w := newWorldWith(t, "", c)
	client := w.broker.Client(t)
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		b := broker.Beat{App: "test", Worker: fmt.Sprintf("off%d", off), Incarnation: 7, Slots: 1, SentAt: time.Now().Add(off).UnixMilli()}
		b.Worker = strings.ReplaceAll(b.Worker, "-", "m")
		reg, err := client.Register(w.ctx, b)
		require.NoError(t, err)
		require.Empty(t, reg.Error)
		name := b.Worker
		require.Eventually(t, func() bool {
			b.Seq++
			require.NoError(t, client.Beat(&b))
			return said.contains("clock is off") && said.contains("worker="+name)
		}, 20*time.Second, 20*time.Millisecond)
	}
	require.NotEmpty(t, w.server.Workers("test"), "judged by when it is heard")
}

// slow is a store that takes its time.
type slow struct {
	engine.Store
	by time.Duration
}

func (s slow) Commit(ctx context.Context, changes []engine.Change) ([]error, error) {
	t := time.NewTimer(s.by)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return s.Store.Commit(ctx, changes)
}

// D13: a database that is slow, not down, makes things late; nothing is lost or doubled.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	base := newWorld(t, "") // only for its store
	base.stopServer()
	c := server.Config{Store: slow{base.store, 300 * time.Millisecond}}
	w := newWorldWith(t, "", c)
	w.store = base.store
	var ran atomic.Int64
	w.worker("w", 8, func(x *processor.Worker) {
		x.Register("count", processor.Func(func(context.Context, *processor.Task) (any, error) { return ran.Add(1), nil }))
	})
	w.job("count", workflow.Spec{Processor: "count"})
	const n = 100
	var wg sync.WaitGroup
	ids := make([]int64, n)
	for i := range n {
		wg.Add(1)
		require.NoError(t, w.server.TriggerAsync(w.ctx, server.Trigger{App: "test", Job: "count"}, func(id int64, err error) {
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
			wg.Done()
		}))
	}
	wg.Wait()
	for _, id := range ids {
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	}
	require.EqualValues(t, n, ran.Load())
}

// D11: concurrent first saves of one app and one job make one of each.
func TestSameNameAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[int64]int{}
	for range 50 {
		wg.Go(func() {
			job, err := w.server.SaveJob(w.ctx, "fresh", "one", "", workflow.Spec{Processor: "p"})
			if err != nil {
				if !errors.Is(err, engine.ErrConflict) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			ids[job.ID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	require.Len(t, ids, 1)
	apps, err := w.store.Apps(w.ctx)
	require.NoError(t, err)
	require.Len(t, apps, 1)
}
