package brokertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

type read struct {
	shard uint8
	seq   uint64
	batch *broker.ReportBatch
	raw   []byte
	err   error
}

func (e *ends) reports(cursors map[uint8]uint64) (<-chan read, func()) {
	e.Helper()
	ch := make(chan read, 1<<16)
	stop, err := e.b.Reports(e.ctx, cursors, func(shard uint8, seq uint64, b *broker.ReportBatch, raw []byte, err error) {
		ch <- read{shard, seq, b, raw, err}
	})
	e.ok(err)
	e.Cleanup(stop)
	return ch, stop
}

func (e *ends) report(shard uint8, chunk int64) uint64 {
	e.Helper()
	seq, err := e.w.PublishReports(e.ctx, shard, batchOf(chunk))
	e.ok(err)
	return seq
}

func batchOf(chunk int64) *broker.ReportBatch {
	return &broker.ReportBatch{App: "shop", Worker: "w", Reports: []broker.Report{{ChunkKey: broker.ChunkKey{Chunk: chunk}, Kind: broker.ReportSucceeded}}}
}

func reportsByCursor(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	last, err := e.b.LastReport(e.ctx, 1)
	e.ok(err)
	require.Zero(t, last)
	for i := range int64(10) { // sequences 1..20, odd ones of shard 1
		e.report(1, i)
		e.report(2, i)
	}
	e.report(7, 99)
	last, err = e.b.LastReport(e.ctx, 2)
	e.ok(err)
	require.Equal(t, uint64(20), last)
	end, err := e.b.ReportsEnd(e.ctx)
	e.ok(err)
	require.Equal(t, uint64(21), end)

	ch, stop := e.reports(map[uint8]uint64{1: 5, 2: 16})
	for _, want := range []uint64{7, 9, 11, 13, 15, 17, 18, 19, 20} {
		r := wait(e, "a report", ch)
		require.Equal(t, want, r.seq)
		require.Equal(t, uint8(2-want%2), r.shard)
		e.ok(r.err)
		require.Equal(t, int64((want-1)/2), r.batch.Reports[0].Chunk)
	}
	// What cannot be decoded is handed out as it is.
	_, err = e.raw().Request("report.shop.2", []byte("garbage"), 5*time.Second)
	e.ok(err)
	r := wait(e, "the garbage", ch)
	require.ErrorIs(t, r.err, broker.ErrUndecodable)
	require.Nil(t, r.batch)
	require.Equal(t, "garbage", string(r.raw))
	// So is what speaks for another app than its subject.
	foreign := batchOf(1)
	foreign.App = "bank"
	data, err := broker.EncodeReports(foreign)
	e.ok(err)
	_, err = e.raw().Request("report.shop.2", data, 5*time.Second)
	e.ok(err)
	r = wait(e, "the foreign report", ch)
	require.ErrorIs(t, r.err, broker.ErrUndecodable)
	require.Nil(t, r.batch)
	stop()
	e.report(1, 1)

	// All shards at once read one filter.
	all := map[uint8]uint64{}
	for s := range uint8(broker.Shards) {
		all[s] = 20
	}
	ch, _ = e.reports(all)
	for _, want := range []uint64{21, 22, 23, 24} {
		require.Equal(t, want, wait(e, "a report", ch).seq)
	}
	e.ok(e.b.PurgeReports(e.ctx, 1, 9))
	ch, _ = e.reports(map[uint8]uint64{1: 0})
	require.Equal(t, uint64(11), wait(e, "the first that was not purged", ch).seq)
	_, err = e.b.Reports(e.ctx, map[uint8]uint64{64: 0}, nil)
	require.Error(t, err)
	none, err := e.b.Reports(e.ctx, nil, nil)
	e.ok(err)
	none()
}

func reportsBeforeStream(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	ch, _ := e.reports(map[uint8]uint64{1: 0})
	e.ok(e.b.EnsureReports(e.ctx))
	e.report(1, 5)
	require.Equal(t, uint64(1), wait(e, "the report", ch).seq)
	// The stream is lost and made anew, as after a broken disk.
	_, err := e.raw().Request("$JS.API.STREAM.DELETE.REPORTS", nil, 5*time.Second)
	e.ok(err)
	fresh := e.s.Broker(t, broker.Config{})
	e.ok(fresh.EnsureReports(e.ctx))
	end, err := e.b.ReportsEnd(e.ctx)
	e.ok(err)
	require.Zero(t, end, "the owner sees that its cursor is past the end")
	ch, _ = e.reports(map[uint8]uint64{1: 0})
	e.report(1, 6)
	require.Equal(t, int64(6), wait(e, "the report of the new stream", ch).batch.Reports[0].Chunk)
}

// reportsOverRestarts: each stored report reaches the handler once, in order, while four
// workers store as fast as they can and the broker goes away again and again.
func reportsOverRestarts(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	ch, _ := e.reports(map[uint8]uint64{0: 0, 1: 0, 2: 0, 3: 0})
	const restarts = 4
	var done atomic.Int64 // restarts made
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := map[uint64]int64{} // sequence to chunk, of those that were acked
	for shard := range uint8(4) {
		wg.Go(func() {
			for i := int64(0); done.Load() < restarts || i%500 != 0; i++ {
				id := int64(shard)<<32 + i
				for ctx.Err() == nil {
					seq, err := e.w.PublishReports(ctx, shard, batchOf(id))
					if err == nil {
						mu.Lock()
						stored[seq] = id
						mu.Unlock()
						break
					}
					if !errors.Is(err, broker.ErrUnavailable) && ctx.Err() == nil {
						t.Errorf("report: %v", err)
						return
					}
					// As a worker does: what comes back needs the processor, too.
					select {
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	finished := make(chan bool)
	go func() { wg.Wait(); close(finished) }()
	seen := map[uint64]int64{}
	lastSeq, next := uint64(0), 800
	take := func(r read) {
		require.NoError(t, r.err)
		require.Greater(t, r.seq, lastSeq, "in order, none twice")
		lastSeq = r.seq
		seen[r.seq] = r.batch.Reports[0].Chunk
	}
	for working := true; working; {
		select {
		case r := <-ch:
			take(r)
			if done.Load() < restarts && len(seen) >= next {
				e.s.Restart()
				done.Add(1)
				next = len(seen) + 800
			}
		case <-finished:
			working = false
		case <-e.ctx.Done():
			require.Fail(t, "reports stopped", "%d seen", len(seen))
		}
	}
	require.Equal(t, int64(restarts), done.Load())
	var end uint64
	e.until("the other connection is back", func() bool {
		var err error
		end, err = e.b.ReportsEnd(e.ctx)
		return err == nil
	})
	for lastSeq < end {
		take(wait(e, "the last reports", ch))
	}
	require.Len(t, seen, int(end), "every sequence was handed out")
	for seq, id := range stored {
		require.Equal(t, id, seen[seq])
	}
}
