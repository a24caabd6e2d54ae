package clustertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
)

// got is one report as the owner of its shard sees it.
type got struct {
	seq      uint64
	instance int64
}

// line is an engine that stores chunks and reads reports, and a worker that does the chunks.
type line struct {
	t      *testing.T
	ctx    context.Context
	c      *brokertest.Cluster
	b      *broker.Broker
	read   chan got
	ids    chan int64 // instances to store
	mu     sync.Mutex
	stored map[uint64]int64 // sequence and instance of the reports that were acked
	seen   map[uint64]int64 // and of those that were read
	done   map[int64]bool
	last   uint64
	quit   func() // ends the worker and the engine's publishing
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{t: t, ctx: limit(t), c: brokertest.RunCluster(t), read: make(chan got, 1<<16), ids: make(chan int64), stored: map[uint64]int64{}, seen: map[uint64]int64{}, done: map[int64]bool{}}
	l.b = l.c.Broker(t, broker.Config{AckWait: 2 * time.Second})
	w := l.c.Client(t)
	require.NoError(t, l.b.EnsureReports(l.ctx))
	require.NoError(t, l.b.EnsureApp(l.ctx, app, set, []string{"any"}))
	stop, err := l.b.Reports(l.ctx, map[uint8]uint64{3: 0}, func(_ uint8, seq uint64, batch *broker.ReportBatch, _ []byte, err error) {
		if err == nil {
			l.read <- got{seq, batch.Reports[0].Instance}
		}
	})
	require.NoError(t, err)
	t.Cleanup(stop)

	deliveries, ended := make(chan *broker.Delivery, 64), make(chan int, 1024)
	p, err := w.Puller(app, set, broker.LaneNormal, broker.PoolAny, time.Second, func(d *broker.Delivery) { deliveries <- d }, func(n int) { ended <- n })
	require.NoError(t, err)
	var both sync.WaitGroup
	ctx, cancel := context.WithCancel(l.ctx)
	l.quit = sync.OnceFunc(func() { cancel(); both.Wait(); p.Close() })
	t.Cleanup(l.quit)
	both.Go(func() { // the engine
		for {
			select {
			case id := <-l.ids:
				_ = again(ctx, func() error { return publish(l.b, set, chunk(id)) }) // it fails with ctx only
			case <-ctx.Done():
				return
			}
		}
	})
	require.NoError(t, p.Want(4))
	both.Go(func() { // the worker: stores the report, then acks
		for {
			select {
			case d := <-deliveries:
				id := d.Chunk.Instance
				_ = again(ctx, func() error {
					seq, err := w.PublishReports(ctx, 3, report(id))
					if err == nil {
						l.mu.Lock()
						l.stored[seq] = id
						l.mu.Unlock()
					}
					return err
				})
				_ = d.Ack() // a lost one brings the chunk again, and that is reported again
				_ = p.Want(1)
			case n := <-ended:
				_ = p.Want(n)
			case <-ctx.Done():
				return
			}
		}
	})
	return l
}

func (l *line) take(r got) {
	l.t.Helper()
	require.Greater(l.t, r.seq, l.last, "in order, none twice")
	l.last = r.seq
	l.seen[r.seq] = r.instance
}

// run has the instances from..to done, and calls kill half way.
func (l *line) run(from, to int64, kill func()) {
	l.t.Helper()
	next, killed := from, false
	for left := to - from + 1; left > 0; {
		ids := l.ids
		if next > to {
			ids = nil
		}
		if !killed && next > (from+to)/2 {
			killed = true
			kill()
		}
		select {
		case ids <- next:
			next++
		case r := <-l.read:
			l.take(r)
			if !l.done[r.instance] {
				l.done[r.instance] = true
				left--
			}
		case <-l.ctx.Done():
			require.FailNow(l.t, "it stopped", "%d of %d..%d are not done", left, from, to)
		}
	}
	// The cursor that an owner has committed is never beyond the stream's end.
	var end uint64
	require.NoError(l.t, again(l.ctx, func() (err error) { end, err = l.b.ReportsEnd(l.ctx); return err }))
	require.GreaterOrEqual(l.t, end, l.last)
}

// TestLeadersDie kills the leader of the tasks, of their durable, of the reports, and the
// node that hands the reports out, each in the middle of work: what was acked is there, and
// the reports go on in order.
func TestLeadersDie(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	const batch = 300
	from := int64(1)
	for _, whom := range []func() int{
		func() int { return l.c.Leader("TASKS-" + set) },
		func() int { return l.c.ConsumerNode("TASKS-"+set, app+"=normal") },
		func() int { return l.c.Leader("REPORTS") },
		func() int { return l.c.ConsumerNode("REPORTS", "owner-") },
	} {
		node := -1
		l.run(from, from+batch-1, func() {
			node = whom()
			l.c.KillNode(node)
		})
		require.GreaterOrEqual(t, node, 0)
		l.c.StartNode(node)
		l.c.Settle()
		from += batch
	}
	// All at once.
	l.run(from, from+batch-1, l.c.Restart)
	l.c.Settle()
	require.Len(t, l.done, 5*batch)
	require.NoError(t, again(l.ctx, func() error { _, err := l.b.TaskCounts(l.ctx, app, set); return err }))
	// Whatever the broker acked is read, at the sequence that it said.
	l.quit()
	end, err := l.b.ReportsEnd(l.ctx)
	require.NoError(t, err)
	for l.last < end {
		select {
		case r := <-l.read:
			l.take(r)
		case <-l.ctx.Done():
			require.FailNow(t, "the last reports are not read", "%d of %d", l.last, end)
		}
	}
	require.NotEmpty(t, l.stored)
	for seq, id := range l.stored {
		require.Equal(t, id, l.seen[seq], "the report at %d", seq)
	}
}

// TestQuorumLost: with one node of three nothing is stored, and nothing is said to be; with
// two it goes on by itself, and what waits for a leader gets it.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	c := brokertest.RunCluster(t)
	b := c.Broker(t, broker.Config{})
	require.NoError(t, b.EnsureReports(ctx))
	require.NoError(t, b.EnsureApp(ctx, app, set, []string{"any"}))
	require.NoError(t, publish(b, set, chunk(1)))
	c.KillNode(0)
	c.KillNode(1)
	require.NoError(t, again(ctx, func() error { return b.Flush(ctx) }), "the third takes connections")
	require.ErrorIs(t, publish(b, set, chunk(2)), broker.ErrUnavailable)
	made := make(chan error, 1)
	go func() { made <- again(ctx, func() error { return b.EnsureApp(ctx, "bank", set, []string{"any"}) }) }()
	c.StartNode(0)
	require.NoError(t, <-made, "the durables of another app wait for a leader")
	require.NoError(t, again(ctx, func() error { return publish(b, set, chunk(3)) }))
	n, err := b.TaskCounts(ctx, app, set)
	require.NoError(t, err)
	require.Equal(t, 1, n[1], "what was acked before is there")
	require.Equal(t, 1, n[3])
	c.StartNode(1)
	c.Settle()
}
