package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

func TestOneChunkFlowsEndToEnd(t *testing.T) {
	s := Run(t)
	b := s.Broker(t, broker.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, b.EnsureReports(ctx))
	require.NoError(t, b.EnsureApp(ctx, "shop", "", []string{"any"}))
	c := s.Client(t)

	reports := make(chan *broker.ReportBatch, 1)
	stop, err := b.Reports(ctx, map[uint8]uint64{3: 0}, func(shard uint8, seq uint64, batch *broker.ReportBatch, raw []byte, err error) {
		reports <- batch
	})
	require.NoError(t, err)
	defer stop()

	got := make(chan *broker.Delivery, 1)
	p, err := c.Puller("shop", "", "normal", "any", 2*time.Second, func(d *broker.Delivery) { got <- d }, func(int) {})
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, p.Want(1))

	stored := make(chan error, 1)
	chunk := &broker.Chunk{App: "shop", Shard: 3, Processor: "p", ChunkKey: broker.ChunkKey{Instance: 7, Attempt: 1, Chunk: 1}, Tasks: []broker.Task{{Number: 0, Attempt: 1, Item: []byte("x")}}}
	b.PublishChunk("", "normal", "any", chunk, func(err error) { stored <- err })
	require.NoError(t, <-stored)
	d := <-got
	require.Equal(t, chunk, d.Chunk)
	require.Equal(t, 1, d.Delivered)
	seq, err := c.PublishReports(ctx, 3, &broker.ReportBatch{App: "shop", Worker: "w", Reports: []broker.Report{{ChunkKey: chunk.ChunkKey, Kind: broker.ReportSucceeded}}})
	require.NoError(t, err)
	require.Equal(t, uint64(1), seq)
	require.NoError(t, d.Ack())
	require.Len(t, (<-reports).Reports, 1)
	require.NoError(t, c.Flush(ctx))
	require.Eventually(t, func() bool {
		n, err := b.TaskCounts(ctx, "shop", "")
		return err == nil && len(n) == 0
	}, 5*time.Second, 5*time.Millisecond)
}
