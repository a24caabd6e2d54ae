package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
)

func TestBothEnds(t *testing.T) {
	brokertest.Exercise(t, func(t testing.TB) brokertest.Site { return brokertest.RunCluster(t) }, brokertest.Open)
}

const (
	app = "shop"
	// patience bounds each test.
	patience = 8 * time.Minute
)

var set = broker.SetFor(app, brokertest.Nodes)

func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func chunk(instance int64) *broker.Chunk {
	return &broker.Chunk{
		ChunkKey: broker.ChunkKey{Instance: instance, Attempt: 1, Chunk: 1}, App: app, Shard: 3, Phase: broker.PhaseRoot, Processor: "p",
		Tasks: []broker.Task{{Number: 0, Attempt: 1, Item: []byte("x")}},
	}
}

func report(instance int64) *broker.ReportBatch {
	return &broker.ReportBatch{App: app, Worker: "w", Reports: []broker.Report{{ChunkKey: broker.ChunkKey{Instance: instance, Chunk: 1}, Kind: broker.ReportSucceeded}}}
}

// publish stores a chunk, or says why not.
func publish(b *broker.Broker, set string, c *broker.Chunk) error {
	stored := make(chan error, 1)
	b.PublishChunk(set, broker.LaneNormal, broker.PoolAny, c, func(err error) { stored <- err })
	return <-stored
}

// again does f until it works.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, and at the end: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// jetStream is a connection of the test's own.
func jetStream(t *testing.T, c *brokertest.Cluster) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(c.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// TestEveryAssetHasThreeReplicas, also those that were made with one: a cluster whose
// engines are told 3 raises them. An engine that is told less is refused.
func TestEveryAssetHasThreeReplicas(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	c := brokertest.RunCluster(t)
	open := func(replicas int) *broker.Broker {
		b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: c.URL(), Logger: brokertest.Quiet()}, Replicas: replicas})
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}
	one := open(1)
	require.NoError(t, one.EnsureReports(ctx))
	require.NoError(t, one.EnsureApp(ctx, "old", "", []string{"any"}))
	require.NoError(t, publish(one, "", &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: 1}, App: "old"}))

	three := open(3)
	require.NoError(t, three.EnsureReports(ctx))
	require.NoError(t, three.EnsureApp(ctx, "old", "", []string{"any"}))
	require.NoError(t, three.EnsureApp(ctx, app, set, []string{"any", "gpu"}))

	js := jetStream(t, c)
	streams, durables := 0, 0
	for s := range js.ListStreams(ctx).Info() {
		streams++
		require.Equal(t, 3, s.Config.Replicas, s.Config.Name)
		stream, err := js.Stream(ctx, s.Config.Name)
		require.NoError(t, err)
		for name := range stream.ConsumerNames(ctx).Name() {
			durables++
			// Raising takes its time.
			require.NoError(t, again(ctx, func() error {
				d, err := stream.Consumer(ctx, name)
				if err != nil {
					return err
				}
				if n := len(d.CachedInfo().Cluster.Replicas); n != 2 {
					return fmt.Errorf("%s of %s has a leader and %d more", name, s.Config.Name, n)
				}
				return nil
			}))
		}
	}
	require.Equal(t, 1+4+4, streams)
	require.Equal(t, 3+6, durables)
	n, err := three.TaskCounts(ctx, "old", "")
	require.NoError(t, err)
	require.Equal(t, map[int64]int{1: 1}, n)

	late := open(1)
	err = late.EnsureReports(ctx)
	require.ErrorContains(t, err, "it has 3 replicas and this process was told 1; give all engine processes the same number")
}

// TestRefusals: what asks for replicas that cannot be is told what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	_, err := broker.Connect(ctx, broker.Config{Replicas: 2})
	require.ErrorContains(t, err, "2 replicas; streams have 1, or 3 in a cluster")

	alone := brokertest.Run(t).Broker(t, broker.Config{Replicas: 3})
	err = alone.EnsureReports(ctx)
	require.ErrorContains(t, err, "not in a cluster; connect to a cluster of at least 3 servers with JetStream, or ask for 1 replica")

	c := brokertest.RunCluster(t)
	large := c.Broker(t, broker.Config{ReportBytes: 2 << 40})
	err = large.EnsureReports(ctx)
	require.ErrorContains(t, err, "not enough servers of the cluster can take it, with 3 replicas and 2097152 MiB reserved; start those that are down, raise their store limit")
}

// TestAssetsWithoutOneNode: two servers of three are enough to make an app's streams.
func TestAssetsWithoutOneNode(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	c := brokertest.RunCluster(t)
	b := c.Broker(t, broker.Config{})
	require.NoError(t, b.EnsureReports(ctx))
	require.NoError(t, b.EnsureApp(ctx, app, set, []string{"any"}))
	down := c.Leader("REPORTS")
	c.KillNode(down)
	other := "s0"
	if set == other {
		other = "s1"
	}
	for _, h := range []struct{ app, set string }{{"bank", set}, {"mail", other}} {
		require.NoError(t, again(ctx, func() error { return b.EnsureApp(ctx, h.app, h.set, []string{"any"}) }))
		c1 := chunk(1)
		c1.App = h.app
		require.NoError(t, again(ctx, func() error { return publish(b, h.set, c1) }))
	}
	c.StartNode(down)
	c.Settle()
	n, err := b.TaskCounts(ctx, "mail", other)
	require.NoError(t, err)
	require.NotZero(t, n[1])
}

// TestReadsShowWhatWasStored: an engine whose node only follows sees, at once, all that was
// acked before it asked, though its own node may not have it yet.
func TestReadsShowWhatWasStored(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	c := brokertest.RunCluster(t)
	w, any := c.Client(t), c.Broker(t, broker.Config{})
	require.NoError(t, any.EnsureReports(ctx))
	require.NoError(t, any.EnsureApp(ctx, app, set, []string{"any"}))
	for i := range brokertest.Nodes {
		b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: c.NodeURL(i), Logger: brokertest.Quiet()}, Replicas: 3})
		require.NoError(t, err)
		defer b.Close()
		for j := range int64(100) {
			id := int64(i)*1000 + j
			staged := make(chan uint64, 1)
			require.NoError(t, w.Stage(app, set, &broker.StageBatch{Instance: id, Run: 1, Items: [][]byte{[]byte("x")}}, func(seq uint64, err error) {
				require.NoError(t, err)
				staged <- seq
			}))
			at := <-staged
			one, err := b.ReadStaged(ctx, set, app, at)
			require.NoError(t, err)
			require.Equal(t, id, one.Instance)
			page, err := b.ReadStage(ctx, app, set, id, 1, 0, 10)
			require.NoError(t, err)
			require.Len(t, page, 1)
			require.NoError(t, publish(any, set, chunk(id)))
			list, err := b.TaskList(ctx, app, set, id)
			require.NoError(t, err)
			require.Len(t, list, 1)
			seq, err := w.PublishResult(ctx, app, set, &broker.ResultBatch{Instance: id, Run: 1})
			require.NoError(t, err)
			read := 0
			require.NoError(t, w.ReadResults(ctx, app, set, id, 1, []broker.Range{{First: seq, Last: seq}}, func(*broker.ResultBatch) error { read++; return nil }))
			require.Equal(t, 1, read)
			seq, err = w.PublishReports(ctx, 3, report(id))
			require.NoError(t, err)
			last, err := b.LastReport(ctx, 3)
			require.NoError(t, err)
			require.Equal(t, seq, last)
		}
	}
}

// TestFailover: ends that know all three URLs live through the death of each node, and come
// up while one is down.
func TestFailover(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	c := brokertest.RunCluster(t)
	b, w := c.Broker(t, broker.Config{}), c.Client(t)
	require.NoError(t, b.EnsureReports(ctx))
	require.NoError(t, b.EnsureApp(ctx, app, set, []string{"any"}))
	for i := range brokertest.Nodes {
		c.KillNode(i)
		require.NoError(t, again(ctx, func() error { return publish(b, set, chunk(int64(i+1))) }))
		require.NoError(t, again(ctx, func() error { _, err := w.PublishReports(ctx, 3, report(1)); return err }))
		// The first of the list is the one that is down.
		urls := []string{c.NodeURL(i), c.NodeURL((i + 1) % brokertest.Nodes), c.NodeURL((i + 2) % brokertest.Nodes)}
		fresh, err := broker.Dial(ctx, broker.Options{URL: strings.Join(urls, ","), Logger: brokertest.Quiet()})
		require.NoError(t, err)
		require.NoError(t, fresh.Flush(ctx))
		fresh.Close()
		c.StartNode(i)
		c.Settle()
	}
	n, err := b.TaskCounts(ctx, app, set)
	require.NoError(t, err)
	require.Len(t, n, brokertest.Nodes)
}
