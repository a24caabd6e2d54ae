package processor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// swallow is a link that takes everything and keeps nothing.
type swallow struct{ *fake }

func (s swallow) PublishReports(context.Context, uint8, *broker.ReportBatch) (uint64, error) {
	return 1, nil
}

func (s swallow) PublishResult(context.Context, string, string, *broker.ResultBatch) (uint64, error) {
	return 1, nil
}

type acked chan struct{}

func (a acked) Ack() error            { a <- struct{}{}; return nil }
func (acked) Nak(time.Duration) error { return nil }
func (acked) InProgress() error       { return nil }

// BenchmarkChunk is the worker's own cost of a chunk of 512 tasks that do nothing, from its receipt
// to its ack; ns/task is what counts.
func BenchmarkChunk(b *testing.B) {
	raw := Func(func(context.Context, *Task) (any, error) { return []byte("v"), nil })
	typed := MapReduce[int, int64, int64]{
		Work:   func(_ context.Context, _ *Task, i int64) (int64, error) { return i, nil },
		Reduce: func(context.Context, *Task, *Values[int64]) (any, error) { return nil, nil },
	}
	folding := typed
	folding.Combine = func(_ context.Context, v []int64) (sum int64) {
		for _, x := range v {
			sum += x
		}
		return sum
	}
	for _, bc := range []struct {
		name    string
		p       Processor
		collect bool
		timeout time.Duration
	}{
		{"bytes", raw, false, 0},
		{"bytes/collect", raw, true, 0},
		{"bytes/timeout", raw, false, time.Minute},
		{"typed/collect", typed, true, 0},
		{"typed/combine", folding, true, 0},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f := newFake()
			w := NewWorker(Config{App: "a", Name: "w", Slots: 2, Logger: quietLogger()}).Register("p", bc.p)
			w.dial = func(context.Context, broker.Options) (link, error) { return swallow{f}, nil }
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			for len(w.slotsLanes()) < 3 {
				<-time.After(time.Millisecond)
			}
			c := subChunk(1, 1, 1, 512)
			c.Collect, c.TaskTimeout = bc.collect, bc.timeout
			ack := make(acked, 1)
			b.ReportAllocs()
			for b.Loop() {
				next := *c
				next.Chunk++
				c = &next
				f.pullers["normal/any"].deliver(&delivery{answer: ack, chunk: c, delivered: 1})
				<-ack
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/task")
			stop()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

func (w *Worker) slotsLanes() []*lane {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	return w.slots.lanes
}

// BenchmarkMap is the cost of emitting an item.
func BenchmarkMap(b *testing.B) {
	for _, items := range []any{make([][]byte, 10_000), make([]int, 10_000), make([]string, 10_000)} {
		b.Run(fmt.Sprintf("%T", items), func(b *testing.B) {
			l := &Local{}
			p := Func(func(_ context.Context, t *Task) (any, error) { return nil, t.Map("m", items) })
			c := rootChunk(1)
			c.Mode = ModeMap
			b.ReportAllocs()
			for b.Loop() {
				if o := l.Run(b.Context(), p, c, &c.Tasks[0]); o.Err != nil {
					b.Fatal(o.Err.Message)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/item")
		})
	}
}
