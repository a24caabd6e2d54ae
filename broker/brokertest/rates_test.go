package brokertest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// benchEnds are both ends with an app "shop", for the rates.
func benchEnds(b *testing.B) (*broker.Broker, *broker.Client) {
	b.Helper()
	s := Run(b)
	e := s.Broker(b, broker.Config{})
	require.NoError(b, e.EnsureReports(b.Context()))
	require.NoError(b, e.EnsureApp(b.Context(), "shop", "", []string{"any"}))
	return e, s.Client(b)
}

func publishMany(b *testing.B, e *broker.Broker, n int) {
	b.Helper()
	var wg sync.WaitGroup
	wg.Add(n)
	for i := range n {
		c := chunkOf("shop", int64(i+1), 1, "an item of some bytes")
		e.PublishChunk("", broker.LaneNormal, "any", c, func(err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
}

func BenchmarkPublishChunk(b *testing.B) {
	e, _ := benchEnds(b)
	b.ReportAllocs()
	b.ResetTimer()
	publishMany(b, e, b.N)
}

// BenchmarkPullAck pulls and acks stored chunks with 100 slots, a want for each.
func BenchmarkPullAck(b *testing.B) {
	e, w := benchEnds(b)
	publishMany(b, e, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan bool)
	n := 0
	var p *broker.Puller
	ready := make(chan bool)
	p, err := w.Puller("shop", "", broker.LaneNormal, "any", 2*time.Second, func(d *broker.Delivery) {
		<-ready
		if err := d.Ack(); err != nil {
			b.Error(err)
		}
		if n++; n == b.N {
			close(done)
			return
		}
		if err := p.Want(1); err != nil {
			b.Error(err)
		}
	}, func(int) {})
	require.NoError(b, err)
	close(ready)
	require.NoError(b, p.Want(100))
	<-done
	b.StopTimer()
	p.Close()
}

// BenchmarkThrough publishes, pulls and acks at the same time.
func BenchmarkThrough(b *testing.B) {
	e, w := benchEnds(b)
	done := make(chan bool)
	n := 0
	var p *broker.Puller
	p, err := w.Puller("shop", "", broker.LaneNormal, "any", 2*time.Second, func(d *broker.Delivery) {
		if err := d.Ack(); err != nil {
			b.Error(err)
		}
		if n++; n == b.N {
			close(done)
			return
		}
		if err := p.Want(1); err != nil {
			b.Error(err)
		}
	}, func(n int) {})
	require.NoError(b, err)
	require.NoError(b, p.Want(100))
	b.ReportAllocs()
	b.ResetTimer()
	publishMany(b, e, b.N)
	<-done
	b.StopTimer()
	p.Close()
}

// BenchmarkReadReports reads stored reports of 8 shards.
func BenchmarkReadReports(b *testing.B) {
	e, w := benchEnds(b)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := g; i < b.N; i += 16 {
				if _, err := w.PublishReports(b.Context(), uint8(i%8), batchOf(int64(i))); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cursors := map[uint8]uint64{}
	for s := range uint8(8) {
		cursors[s] = 0
	}
	done := make(chan bool)
	n := 0
	b.ReportAllocs()
	b.ResetTimer()
	stop, err := e.Reports(b.Context(), cursors, func(uint8, uint64, *broker.ReportBatch, []byte, error) {
		if n++; n == b.N {
			close(done)
		}
	})
	require.NoError(b, err)
	<-done
	b.StopTimer()
	stop()
}

// BenchmarkStoreReport stores one report at a time.
func BenchmarkStoreReport(b *testing.B) {
	_, w := benchEnds(b)
	b.ResetTimer()
	for i := range b.N {
		if _, err := w.PublishReports(b.Context(), 1, batchOf(int64(i))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStage stores and reads 2000 batches of 512 items, a million in all.
func BenchmarkStage(b *testing.B) {
	e, w := benchEnds(b)
	const batches = 2000
	items := make([][]byte, broker.MaxStageItems)
	for i := range items {
		items[i] = fmt.Appendf(nil, "%08d", i)
	}
	b.Run("write", func(b *testing.B) {
		for n := range b.N {
			var wg sync.WaitGroup
			wg.Add(batches)
			for i := range batches {
				err := w.Stage("shop", "", &broker.StageBatch{Instance: 1 + int64(n), Run: 1, First: int64(i), Items: items}, func(_ uint64, err error) {
					if err != nil {
						b.Error(err)
					}
					wg.Done()
				})
				require.NoError(b, err)
			}
			wg.Wait()
			b.StopTimer()
			if n > 0 {
				require.NoError(b, e.PurgeRun(b.Context(), "shop", "", 1+int64(n), 1))
			}
			b.StartTimer()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			got, err := e.ReadStage(b.Context(), "shop", "", 1, 1, 0, batches)
			require.NoError(b, err)
			require.Len(b, got, batches)
		}
	})
}

// BenchmarkReadResults reads 1000 result messages of 1000 values.
func BenchmarkReadResults(b *testing.B) {
	_, w := benchEnds(b)
	values := make([][]byte, 1000)
	for i := range values {
		values[i] = fmt.Appendf(nil, "%08d", i)
	}
	var last uint64
	for range 1000 {
		seq, err := w.PublishResult(b.Context(), "shop", "", &broker.ResultBatch{Instance: 1, Run: 1, Values: values})
		require.NoError(b, err)
		last = seq
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		n := 0
		err := w.ReadResults(b.Context(), "shop", "", 1, 1, []broker.Range{{First: 1, Last: last}}, func(r *broker.ResultBatch) error {
			n += len(r.Values)
			return nil
		})
		require.NoError(b, err)
		require.Equal(b, 1_000_000, n)
	}
}

// BenchmarkLatency is one chunk from publish to handler, with nothing else under way.
func BenchmarkLatency(b *testing.B) {
	e, w := benchEnds(b)
	got := make(chan *broker.Delivery, 1)
	p, err := w.Puller("shop", "", broker.LaneNormal, "any", 30*time.Second, func(d *broker.Delivery) { got <- d }, func(int) {})
	require.NoError(b, err)
	defer p.Close()
	b.ResetTimer()
	for i := range b.N {
		if err := p.Want(1); err != nil {
			b.Fatal(err)
		}
		e.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", int64(i+1), 1, "x"), func(err error) {
			if err != nil {
				b.Error(err)
			}
		})
		if err := (<-got).Ack(); err != nil {
			b.Fatal(err)
		}
	}
}
