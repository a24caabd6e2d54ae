package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// The figures of the architecture, with stock settings: server, broker and worker share
// this machine's cores. Run with -benchtime=1x: each benchmark does its whole work once.
//
//	go test ./engine/server -run '^$' -bench . -benchtime 1x

// on runs a benchmark on SQLite with synchronous=FULL and, where a MariaDB is installed, on
// a private one that flushes at each commit.
func on(b *testing.B, f func(b *testing.B, url string)) {
	b.Run("sqlite", func(b *testing.B) { f(b, "") })
	b.Run("mariadb", func(b *testing.B) { f(b, storagetest.MariaDB(b)) })
}

// BenchmarkFsync is the disk beneath: one 4 KiB write and fsync.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "fsync"))
	require.NoError(b, err)
	defer f.Close()
	page := make([]byte, 4096)
	for b.Loop() {
		_, err := f.WriteAt(page, 0)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
}

// BenchmarkMap maps, runs and reduces empty sub-tasks with JSON items and values.
func BenchmarkMap(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		w := newWorld(b, url)
		w.worker("w", 100, func(p *processor.Worker) { p.Register("sum", sum()) })
		w.job("sum", workflow.Spec{Processor: "sum", Mode: workflow.MapReduce})
		w.run("sum", `{"N":1000}`)
		for _, n := range []int{10_000, 1_000_000} {
			b.Run(strconv.Itoa(n), func(b *testing.B) {
				stop, peak := watchHeap()
				for b.Loop() {
					in := w.run("sum", fmt.Sprintf(`{"N":%d}`, n))
					require.Equal(b, engine.StatusSucceeded, in.Status, in.Error)
					require.Equal(b, strconv.Itoa(n*(n+1)), string(in.Result))
				}
				stop()
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
				b.ReportMetric(float64(peak.Load())/(1<<20), "heapMB")
				b.ReportMetric(rss(), "rssMB")
			})
		}
	})
}

// watchHeap samples the live and not yet collected heap of the whole process.
func watchHeap() (stop func(), peak *atomic.Uint64) {
	peak = &atomic.Uint64{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(done); wg.Wait() }, peak
}

// rss is the process's high-water mark in MB, where the system tells.
func rss() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}

const benchJobs = 50

// standalone is a world with 50 jobs and a processor that counts.
func standalone(b *testing.B, url string, slots int, started bool) (w *world, ran *atomic.Int64, start func()) {
	w = newWorld(b, url)
	ran = &atomic.Int64{}
	for i := range benchJobs {
		w.job("job"+strconv.Itoa(i), workflow.Spec{Processor: "count"})
	}
	start = func() {
		w.worker("w", slots, func(p *processor.Worker) {
			p.Register("count", processor.Func(func(context.Context, *processor.Task) (any, error) {
				ran.Add(1)
				return nil, nil
			}))
		})
	}
	if started {
		start()
		trigger(b, w, 500)
		w.allFinal(b, ran, 500)
	}
	return w, ran, start
}

func trigger(b *testing.B, w *world, n int) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		err := w.server.TriggerAsync(w.ctx, server.Trigger{App: "test", Job: "job" + strconv.Itoa(i%benchJobs)}, func(_ int64, err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		})
		require.NoError(b, err)
	}
	wg.Wait()
}

// allFinal waits until n instances ran, and then until all are final, as SQL has it: the
// count scans, so it is not taken while work is going on.
func (w *world) allFinal(b *testing.B, ran *atomic.Int64, n int64) {
	app, err := w.store.AppByName(w.ctx, "test")
	require.NoError(b, err)
	for ran.Load() < n {
		select {
		case <-w.ctx.Done():
			require.FailNow(b, "stopped")
		case <-time.After(time.Millisecond):
		}
	}
	for {
		counts, err := w.store.CountInstances(w.ctx, app.ID)
		require.NoError(b, err)
		if counts[engine.StatusSucceeded] >= n {
			require.Equal(b, n, counts[engine.StatusSucceeded])
			return
		}
		select {
		case <-w.ctx.Done():
			require.FailNow(b, "stopped")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// BenchmarkBulk triggers 50 000 instances over 50 jobs as fast as it can, and waits for all
// of them to be final.
func BenchmarkBulk(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		const n = 50_000
		w, ran, _ := standalone(b, url, 100, true)
		for b.Loop() {
			before := ran.Load()
			trigger(b, w, n)
			w.allFinal(b, ran, before+n)
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "instances/s")
	})
}

// BenchmarkOneByOne has 8 callers, each of which triggers, waits for the row to be stored,
// and triggers again.
func BenchmarkOneByOne(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		const n, callers = 40_000, 8
		w, ran, _ := standalone(b, url, 100, true)
		for b.Loop() {
			before := ran.Load()
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range n / callers {
						_, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "job" + strconv.Itoa((c+i*callers)%benchJobs)})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			w.allFinal(b, ran, before+n)
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "instances/s")
	})
}

// BenchmarkBurnDown stores a backlog while no worker is there, and measures from the moment
// the worker is known.
func BenchmarkBurnDown(b *testing.B) {
	for _, slots := range []int{100, 10} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			on(b, func(b *testing.B, url string) {
				const n = 50_000
				w, ran, start := standalone(b, url, slots, false)
				trigger(b, w, n)
				for b.Loop() {
					start()
					b.ResetTimer()
					w.allFinal(b, ran, n)
				}
				b.ReportMetric(n/b.Elapsed().Seconds(), "instances/s")
			})
		})
	}
}

// BenchmarkLatency is the time from the call of Trigger to the entry of the handler, at 100
// a second.
func BenchmarkLatency(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		const n = 500
		w := newWorld(b, url)
		var mu sync.Mutex
		var took []time.Duration
		begun := sync.Map{}
		w.worker("w", 16, func(p *processor.Worker) {
			p.Register("lat", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
				if at, ok := begun.Load(task.Key()); ok {
					mu.Lock()
					took = append(took, time.Since(at.(time.Time)))
					mu.Unlock()
				}
				return nil, nil
			}))
		})
		w.job("lat", workflow.Spec{Processor: "lat"})
		for b.Loop() {
			var wg sync.WaitGroup
			tick := time.NewTicker(10 * time.Millisecond)
			for i := range n {
				<-tick.C
				wg.Go(func() {
					key := strconv.Itoa(i)
					begun.Store(key, time.Now())
					id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "lat", Key: key})
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := w.server.WaitInstance(w.ctx, id); err != nil {
						b.Error(err)
					}
				})
			}
			tick.Stop()
			wg.Wait()
		}
		slices.Sort(took)
		require.Len(b, took, n*b.N)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99ms")
	})
}

// BenchmarkWorkflow runs a chain of 40 nodes, and 1 000 nodes in 10 layers.
func BenchmarkWorkflow(b *testing.B) {
	var chain strings.Builder
	chain.WriteString("kind: Workflow\nname: chain\napp: test\nnodes:\n")
	for i := range 40 {
		fmt.Fprintf(&chain, "  - {id: n%d, processor: echo", i)
		if i > 0 {
			fmt.Fprintf(&chain, ", needs: [n%d]", i-1)
		}
		chain.WriteString("}\n")
	}
	on(b, func(b *testing.B, url string) {
		w := newWorld(b, url)
		w.worker("w", 100, func(p *processor.Worker) {
			p.Register("echo", processor.Func(func(context.Context, *processor.Task) (any, error) { return json.RawMessage("1"), nil }))
		})
		for _, c := range []struct{ name, doc string }{{"chain40", chain.String()}, {"layers1000", layers(10, 100)}} {
			b.Run(c.name, func(b *testing.B) {
				w.waitWorkflow(w.workflow(c.doc, nil))
				for b.Loop() {
					wi := w.waitWorkflow(w.workflow(c.doc, nil))
					require.Equal(b, engine.StatusSucceeded, wi.Status, wi.Error)
				}
			})
		}
	})
}
