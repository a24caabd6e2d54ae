package processor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/processor"
)

const testApp, testSet = "shop", "shop"

// owner is a scripted one of all shards on a real broker: it registers workers, keeps the
// reports, and answers questions from what it has accepted.
type owner struct {
	t      *testing.T
	s      *brokertest.Server
	b      *broker.Broker
	events chan broker.Report

	mu       sync.Mutex
	beats    map[string]broker.Beat
	done     map[int64]bool // numbers of the map run
	accepted []broker.Range
	refused  int
	chunks   map[broker.ChunkKey]*broker.Chunk
}

func newOwner(t *testing.T) *owner {
	t.Helper()
	s := brokertest.Run(t)
	o := &owner{
		t: t, s: s, b: s.Broker(t, broker.Config{AckWait: time.Second}), events: make(chan broker.Report, 100_000),
		beats: map[string]broker.Beat{}, done: map[int64]bool{}, chunks: map[broker.ChunkKey]*broker.Chunk{},
	}
	require.NoError(t, o.b.EnsureReports(t.Context()))
	stop, err := o.b.OnRegister(func(bt *broker.Beat, reply func(*broker.Registration)) {
		if err := o.b.EnsureApp(context.Background(), bt.App, testSet, bt.Pools); err != nil {
			reply(&broker.Registration{Error: err.Error(), Retry: true})
			return
		}
		reply(&broker.Registration{Set: testSet, AckWait: time.Second, BeatEvery: 100 * time.Millisecond})
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	stop, err = o.b.OnBeat(func(b *broker.Beat) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.beats[b.Worker] = *b
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	cursors := map[uint8]uint64{}
	for shard := range uint8(broker.Shards) {
		cursors[shard] = 0
		stop, err := o.b.OnAsk(shard, o.answer)
		require.NoError(t, err)
		t.Cleanup(stop)
	}
	stop, err = o.b.Reports(t.Context(), cursors, func(_ uint8, _ uint64, batch *broker.ReportBatch, _ []byte, err error) {
		if err != nil {
			t.Errorf("undecodable report: %v", err)
			return
		}
		for _, r := range batch.Reports {
			o.take(r)
		}
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return o
}

// take accepts a report of sub-tasks as a whole or not at all, as the engine does.
func (o *owner) take(r broker.Report) {
	o.mu.Lock()
	if r.Phase == broker.PhaseSub && r.Kind == broker.ReportSucceeded {
		nums := r.Numbers
		if len(nums) == 0 {
			for _, t := range o.chunks[r.ChunkKey].Tasks {
				nums = append(nums, t.Number)
			}
		}
		if slices.ContainsFunc(nums, func(n int64) bool { return o.done[n] }) {
			o.refused++
			o.mu.Unlock()
			return
		}
		for _, n := range nums {
			o.done[n] = true
		}
		r.Numbers = nums
		if r.ResultSeq > 0 {
			o.accepted = append(o.accepted, broker.Range{First: r.ResultSeq, Last: r.ResultSeq})
		}
	}
	o.mu.Unlock()
	o.events <- r
}

func (o *owner) answer(q *broker.AskRequest, reply func(*broker.AskReply)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := &broker.AskReply{Verdict: broker.VerdictYours}
	if q.Kind == broker.AskResults {
		slices.SortFunc(o.accepted, func(a, b broker.Range) int { return int(a.First) - int(b.First) })
		a.Total = int64(len(o.done))
		part := o.accepted[q.From:min(int(q.From)+10, len(o.accepted))]
		a.Results = slices.Clone(part)
		if next := int(q.From) + len(part); next < len(o.accepted) {
			a.Next = uint64(next)
		}
	} else if c := o.chunks[q.ChunkKey]; c != nil && c.Phase == broker.PhaseSub {
		for _, t := range c.Tasks {
			if o.done[t.Number] {
				a.Done = append(a.Done, t.Number)
			}
		}
		if len(a.Done) == len(c.Tasks) {
			a.Verdict = broker.VerdictDone
		}
	}
	reply(a)
}

// work runs a worker until the test ends and waits for its first beat.
func (o *owner) work(name string, slots int, procs map[string]processor.Processor) (stop func() error, w *processor.Worker) {
	o.t.Helper()
	w = processor.NewWorker(processor.Config{App: testApp, Name: name, URL: o.s.URL(), Slots: slots, Logger: brokertest.Quiet(), DrainTimeout: 5 * time.Second})
	for n, p := range procs {
		w.Register(n, p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	o.t.Cleanup(func() { _ = stop() })
	o.until(func() bool { return o.beats[name].Worker == name })
	return stop, w
}

// until waits for what the owner hears.
func (o *owner) until(cond func() bool) {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return cond()
	}, 20*time.Second, 5*time.Millisecond)
}

func (o *owner) publish(lane string, c *broker.Chunk) {
	o.t.Helper()
	o.mu.Lock()
	o.chunks[c.ChunkKey] = c
	o.mu.Unlock()
	for {
		stored := make(chan error, 1)
		o.b.PublishChunk(testSet, lane, "any", c, func(err error) { stored <- err })
		err := <-stored
		if err == nil {
			return
		}
		require.ErrorIs(o.t, err, broker.ErrUnavailable)
		select {
		case <-o.t.Context().Done():
			o.t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// next waits for a report of the kind.
func (o *owner) next(kind broker.ReportKind, phase broker.Phase) broker.Report {
	o.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case r := <-o.events:
			if r.Kind == kind && r.Phase == phase {
				return r
			}
			if r.Kind == broker.ReportFailed && kind != broker.ReportFailed {
				o.t.Fatalf("failed: %+v", r.Error)
			}
		case <-deadline:
			o.t.Fatalf("no report of kind %d", kind)
		}
	}
}

// empty waits until every chunk is acked.
func (o *owner) empty() {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		counts, err := o.b.TaskCounts(o.t.Context(), testApp, testSet)
		return err == nil && len(counts) == 0
	}, 20*time.Second, 10*time.Millisecond, "everything is acked")
}

func chunk(instance, number int64, phase broker.Phase, mode string) *broker.Chunk {
	return &broker.Chunk{
		ChunkKey: broker.ChunkKey{Instance: instance, Attempt: 1, Run: 1, Chunk: number},
		App:      testApp, Shard: uint8(instance % broker.Shards), Epoch: 1, Phase: phase, Mode: mode, Processor: "p",
		Collect: mode == processor.ModeMapReduce, Tasks: []broker.Task{{Attempt: 1}},
	}
}

func sumOfSquares(combine bool) processor.Processor {
	p := processor.MapReduce[int, int, int64]{
		Split: func(_ context.Context, _ *processor.Task, n int, emit func(int) error) error {
			for i := range n {
				if err := emit(i); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, _ *processor.Task, i int) (int64, error) { return int64(i) * int64(i), nil },
		Reduce: func(_ context.Context, _ *processor.Task, values *processor.Values[int64]) (any, error) {
			var sum int64
			for v := range values.All() {
				sum += v
			}
			return sum, nil
		},
	}
	if combine {
		p.Combine = func(_ context.Context, vs []int64) (sum int64) {
			for _, v := range vs {
				sum += v
			}
			return sum
		}
	}
	return p
}

// A MapReduce over the real broker, by two workers, once undisturbed and once with the broker
// restarted in the middle: every number accepted once, and the sum right.
func TestEndToEnd_map_reduce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		combine, restart bool
	}{{"plain", false, false}, {"combined", true, false}, {"the broker restarts", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const n = 20_000
			o := newOwner(t)
			procs := map[string]processor.Processor{"p": sumOfSquares(tc.combine)}
			o.work("w1", 4, procs)
			o.work("w2", 4, procs)

			root := chunk(9, 1, broker.PhaseRoot, processor.ModeMapReduce)
			root.Params = fmt.Append(nil, n)
			o.publish("normal", root)
			rep := o.next(broker.ReportSucceeded, broker.PhaseRoot)
			require.EqualValues(t, n, rep.Emitted)

			number, sent, from := int64(0), int64(1), rep.StageFirst
			for number < n {
				var batches []broker.Staged
				require.Eventually(t, func() bool {
					var err error
					batches, err = o.b.ReadStage(t.Context(), testApp, testSet, 9, 1, from, 8)
					return err == nil
				}, 20*time.Second, 20*time.Millisecond)
				require.NotEmpty(t, batches)
				for _, b := range batches {
					require.Equal(t, number, b.First)
					sent++
					c := chunk(9, sent, broker.PhaseSub, processor.ModeMapReduce)
					c.Name, c.Tasks = b.Name, nil
					for _, item := range b.Items {
						number++
						c.Tasks = append(c.Tasks, broker.Task{Number: number, Attempt: 1, Item: item})
					}
					o.publish("normal", c)
					from = b.Seq + 1
				}
				if tc.restart && number > n/2 {
					tc.restart = false
					o.s.Restart()
				}
			}
			for finished := 0; finished < n; {
				finished += len(o.next(broker.ReportSucceeded, broker.PhaseSub).Numbers)
			}
			o.publish("high", chunk(9, sent+1, broker.PhaseReduce, processor.ModeMapReduce))
			sum := o.next(broker.ReportSucceeded, broker.PhaseReduce)
			require.Equal(t, fmt.Sprint(int64(n-1)*n*(2*n-1)/6), string(sum.Result))
			o.empty()
		})
	}
}

// Logs, checkpoints, a stop order and a directed chunk over the real broker.
func TestEndToEnd_one_task(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	stopped := make(chan error, 1)
	p := processor.Func(func(ctx context.Context, task *processor.Task) (any, error) {
		task.Logger().Info("at work", "key", task.Key())
		if err := task.Checkpoint(map[string]int{"row": 7}); err != nil {
			return nil, err
		}
		if task.Key() == "long" {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		return strings.ToUpper(task.Key()), nil
	})
	_, w := o.work("w1", 2, map[string]processor.Processor{"p": p})

	short := chunk(1, 1, broker.PhaseRoot, processor.ModeStandalone)
	short.Key = "short 💥"
	o.publish("normal", short)
	require.JSONEq(t, `{"row":7}`, string(o.next(broker.ReportCheckpoint, broker.PhaseRoot).Result))
	rep := o.next(broker.ReportSucceeded, broker.PhaseRoot)
	require.Equal(t, `"SHORT 💥"`, string(rep.Result))
	require.NotZero(t, rep.LogFrom)
	var lines []string
	require.NoError(t, o.b.ReadLogs(t.Context(), testApp, testSet, 1, rep.LogFrom, rep.LogTo, func(_ uint64, l *broker.LogBatch) error {
		for _, x := range l.Lines {
			lines = append(lines, x.Text)
		}
		return nil
	}))
	require.Equal(t, []string{`at work key="short 💥"`}, lines)

	long := chunk(2, 1, broker.PhaseRoot, processor.ModeStandalone)
	long.Key = "long"
	o.publish("high", long)
	o.next(broker.ReportCheckpoint, broker.PhaseRoot)
	o.until(func() bool { return len(o.beats["w1"].Held) == 1 })
	at := time.Now()
	require.NoError(t, o.b.Order(testApp, broker.Control{Kind: broker.ControlStop, Instance: 2, Attempt: 1}))
	require.ErrorIs(t, <-stopped, processor.ErrStopped)
	require.Less(t, time.Since(at), time.Second)
	require.Equal(t, broker.ErrorStopped, o.next(broker.ReportFailed, broker.PhaseRoot).Error.Kind)

	direct := chunk(3, 1, broker.PhaseRoot, processor.ModeStandalone)
	direct.Key, direct.Directed = "direct", true
	for range 3 {
		answer, err := o.b.SendDirected(t.Context(), w.Name(), direct)
		require.NoError(t, err)
		require.Equal(t, broker.DirectedAccepted, answer)
	}
	require.Equal(t, `"DIRECT"`, string(o.next(broker.ReportSucceeded, broker.PhaseRoot).Result))
	require.EqualValues(t, 3, w.Stats().Chunks)

	b := o.beats["w1"]
	require.Positive(t, b.FreeMemory)
	raw, err := json.Marshal(b)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"Name":"p"`)
}

// C38 over the real broker: a drain finishes what runs, gives back the rest, and leaves nothing.
func TestEndToEnd_drain(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	began, let := make(chan struct{}, 10), make(chan struct{})
	p := processor.Func(func(context.Context, *processor.Task) (any, error) {
		began <- struct{}{}
		<-let
		return nil, nil
	})
	stop, _ := o.work("w1", 1, map[string]processor.Processor{"p": p})
	c := chunk(1, 1, broker.PhaseSub, processor.ModeMap)
	c.Tasks = []broker.Task{{Number: 1, Attempt: 1}, {Number: 2, Attempt: 1}}
	o.publish("normal", c)
	<-began
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	require.Equal(t, []int64{2}, o.next(broker.ReportReturned, broker.PhaseSub).Numbers)
	o.until(func() bool { return o.beats["w1"].Draining && len(o.beats["w1"].Held) == 1 })
	close(let)
	require.NoError(t, <-ended)
	require.Equal(t, []int64{1}, o.next(broker.ReportSucceeded, broker.PhaseSub).Numbers)
	o.empty()
}

// A worker died with a chunk: it comes to another one after AckWait, which asks before it runs it.
func TestEndToEnd_redelivery(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	require.NoError(t, o.b.EnsureApp(t.Context(), testApp, testSet, []string{"any"}))
	got := make(chan *broker.Delivery, 1)
	dead := o.s.Client(t)
	pull, err := dead.Puller(testApp, testSet, "normal", "any", 2*time.Second, func(d *broker.Delivery) { got <- d }, func(int) {})
	require.NoError(t, err)
	require.NoError(t, pull.Want(1))
	c := chunk(1, 1, broker.PhaseSub, processor.ModeMap)
	c.Tasks = []broker.Task{{Number: 1, Attempt: 1}, {Number: 2, Attempt: 1}, {Number: 3, Attempt: 1}}
	o.publish("normal", c)
	require.Equal(t, 1, (<-got).Delivered)
	o.mu.Lock()
	o.done[2] = true // it had reported that much
	o.mu.Unlock()
	pull.Close()
	dead.Close()

	_, w := o.work("w1", 2, map[string]processor.Processor{"p": processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, nil })})
	require.Equal(t, []int64{1, 3}, o.next(broker.ReportSucceeded, broker.PhaseSub).Numbers)
	require.EqualValues(t, 1, w.Stats().Asked)
	o.empty()
}

// BenchmarkWorker is a worker of 100 slots on the real broker, all on this machine.
func BenchmarkWorker(b *testing.B) {
	for _, n := range []int{1, 512} {
		b.Run(fmt.Sprintf("chunks of %d", n), func(b *testing.B) {
			s := brokertest.Run(b)
			br := s.Broker(b, broker.Config{})
			require.NoError(b, br.EnsureReports(b.Context()))
			stop, err := br.OnRegister(func(bt *broker.Beat, reply func(*broker.Registration)) {
				err := br.EnsureApp(context.Background(), bt.App, testSet, bt.Pools)
				reply(&broker.Registration{Set: testSet, Retry: err != nil})
			})
			require.NoError(b, err)
			defer stop()
			left := make(chan int, 1)
			open := 0
			cursors := map[uint8]uint64{}
			for shard := range uint8(broker.Shards) {
				cursors[shard] = 0
				stop, err := br.OnAsk(shard, func(_ *broker.AskRequest, reply func(*broker.AskReply)) {
					reply(&broker.AskReply{Verdict: broker.VerdictYours})
				})
				require.NoError(b, err)
				defer stop()
			}
			stop, err = br.Reports(b.Context(), cursors, func(_ uint8, _ uint64, batch *broker.ReportBatch, _ []byte, _ error) {
				for _, r := range batch.Reports {
					if r.Kind == broker.ReportSucceeded {
						if open++; open == b.N {
							left <- open
						}
					}
				}
			})
			require.NoError(b, err)
			defer stop()
			w := processor.NewWorker(processor.Config{App: testApp, Name: "w", URL: s.URL(), Slots: 100, Logger: brokertest.Quiet()}).
				Register("p", processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, nil }))
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			require.NoError(b, br.EnsureApp(b.Context(), testApp, testSet, []string{"any"}))
			go func() { done <- w.Run(ctx) }()
			b.ResetTimer()
			for i := range b.N {
				c := chunk(int64(i), 1, broker.PhaseSub, processor.ModeMap)
				c.Tasks = make([]broker.Task, n)
				for j := range n {
					c.Tasks[j] = broker.Task{Number: int64(j + 1), Attempt: 1}
				}
				br.PublishChunk(testSet, "normal", "any", c, func(err error) {
					if err != nil {
						b.Errorf("publish chunk: %v", err)
					}
				})
			}
			<-left
			b.StopTimer()
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tasks/s")
			st := w.Stats()
			b.ReportMetric(float64(st.Surplus)/float64(b.N), "surplus/chunk")
			cancel()
			require.NoError(b, <-done)
		})
	}
}
