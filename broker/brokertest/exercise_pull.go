package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// wantsEnd: for each message wanted, one delivery or one ended.
func wantsEnd(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	p, c := e.puller("shop", "", 300*time.Millisecond)
	for i := range 2 {
		e.ok(e.publish("", chunkOf("shop", int64(i+1), 1, "x")))
	}
	e.ok(p.Want(1))
	e.ok(p.Want(4)) // a second request while the first is open
	for range 2 {
		e.ok(wait(e, "a chunk", c.got).Ack())
	}
	for rest := 3; rest > 0; {
		rest -= wait(e, "the end of the wants", c.ended)
		require.GreaterOrEqual(t, rest, 0)
	}
	// Nothing is open any more: what comes now waits for the next want.
	e.ok(e.publish("", chunkOf("shop", 3, 1, "x")))
	require.Empty(t, c.got)
	e.ok(p.Want(1))
	require.Equal(t, int64(3), wait(e, "the third chunk", c.got).Chunk.Instance)
	require.NoError(t, p.Want(0))
	p.Close()
	require.ErrorIs(t, p.Want(1), broker.ErrClosed)
}

func wantsWithoutDurable(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	p, c := e.puller("shop", "", time.Minute)
	e.ok(p.Want(3))
	require.Equal(t, 3, wait(e, "the end of the wants", c.ended))
	e.ok(e.b.EnsureApp(e.ctx, "shop", "", []string{"any"}))
	e.ok(p.Want(2))
	e.ok(e.publish("", chunkOf("shop", 1, 1, "x")))
	e.ok(wait(e, "the chunk", c.got).Ack())
	// The stream goes away under an open request.
	nc := e.raw()
	_, err := nc.Request("$JS.API.STREAM.DELETE.TASKS_shop", nil, 5*time.Second)
	e.ok(err)
	require.Equal(t, 1, wait(e, "the end of the wants", c.ended))
}

// wantsOverRestarts runs a worker with ten slots through restarts of the broker: if one
// want were lost, a slot would starve; if all were, it would hang.
func wantsOverRestarts(t *testing.T, in place) {
	e := start(t, in, broker.Config{AckWait: time.Second})
	p, c := e.puller("shop", "", 500*time.Millisecond)
	const slots, chunks = 10, 600
	e.ok(p.Want(slots))
	open, done, restarts := slots, map[int64]bool{}, 0
	published := make(chan int64, chunks)
	go func() {
		for i := range int64(chunks) {
			for {
				stored := make(chan error, 1)
				e.b.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", i+1, 1, "x"), func(err error) { stored <- err })
				select {
				case err := <-stored:
					if err == nil {
						published <- i + 1
					}
					if err != nil && e.ctx.Err() == nil {
						continue
					}
				case <-e.ctx.Done():
				}
				break
			}
		}
	}()
	for len(done) < chunks {
		select {
		case d := <-c.got:
			done[d.Chunk.Instance] = true
			if d.Ack() != nil {
				delete(done, d.Chunk.Instance) // it comes again
			}
			if open > 0 {
				open--
			}
			if want := slots - open; want > 0 {
				e.ok(p.Want(want))
				open = slots
			}
		case n := <-c.ended:
			open = max(0, open-n)
			e.ok(p.Want(slots - open))
			open = slots
		case <-e.ctx.Done():
			require.Fail(t, "starved", "%d of %d done, %d wants open", len(done), chunks, open)
			return
		}
		if restarts < 3 && len(done) == (restarts+1)*chunks/5 {
			restarts++
			e.s.Restart()
		}
	}
	require.Equal(t, 3, restarts)
	// All wants end in the end: none is lost in the restarts.
	for open > 0 {
		select {
		case n := <-c.ended:
			open -= n
		case d := <-c.got: // an ack was lost: delivered again
			e.ok(d.Ack())
			open--
		case <-e.ctx.Done():
			require.Fail(t, "wants never ended", "%d", open)
			return
		}
	}
}

func redelivery(t *testing.T, in place) {
	const ackWait = 300 * time.Millisecond
	e := start(t, in, broker.Config{AckWait: ackWait})
	p, c := e.puller("shop", "", 5*time.Second)
	e.ok(p.Want(3))
	e.ok(e.publish("", chunkOf("shop", 1, 1, "x")))
	first := wait(e, "the chunk", c.got)
	require.Equal(t, 1, first.Delivered)
	second := wait(e, "the chunk again", c.got)
	require.Equal(t, 2, second.Delivered)
	require.Equal(t, first.Chunk, second.Chunk)
	require.GreaterOrEqual(t, second.Age, ackWait-50*time.Millisecond)
	require.Less(t, second.Age, 20*time.Second)
	begin := time.Now()
	e.ok(second.Nak(200 * time.Millisecond))
	third := wait(e, "the chunk once more", c.got)
	require.Equal(t, 3, third.Delivered)
	require.GreaterOrEqual(t, time.Since(begin), 190*time.Millisecond)
	e.ok(p.Want(1))
	e.ok(third.Nak(0))
	e.ok(wait(e, "the chunk at once", c.got).Ack())
}

func inProgress(t *testing.T, in place) {
	const ackWait = 500 * time.Millisecond
	e := start(t, in, broker.Config{AckWait: ackWait})
	p, c := e.puller("shop", "", 10*time.Second)
	e.ok(p.Want(2))
	e.ok(e.publish("", chunkOf("shop", 1, 1, "x")))
	d := wait(e, "the chunk", c.got)
	tick := time.NewTicker(ackWait / 5)
	defer tick.Stop()
	for range 15 { // three times AckWait
		<-tick.C
		e.ok(d.InProgress())
		require.Empty(t, c.got)
	}
	again := wait(e, "the chunk, once its progress stopped", c.got)
	require.Equal(t, 2, again.Delivered)
	e.ok(again.Ack())
}

// manyWaiting: with the driver's default of 512 waiting requests, the others would starve
// without an error.
func manyWaiting(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	const workers = 1000
	got := make(chan int, workers)
	for i := range workers {
		p, err := e.w.Puller("shop", "", broker.LaneNormal, "any", 30*time.Second,
			func(d *broker.Delivery) {
				if d.Ack() == nil {
					got <- i
				}
			}, func(int) {})
		e.ok(err)
		e.Cleanup(p.Close)
		e.ok(p.Want(1))
	}
	done := make(chan error, workers)
	for i := range workers {
		e.b.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", int64(i+1), 1, "x"), func(err error) { done <- err })
	}
	served := map[int]bool{}
	for range workers {
		e.ok(wait(e, "an ack", done))
		served[wait(e, "a chunk", got)] = true
	}
	require.Len(t, served, workers)
}

func undecodable(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	nc := e.raw()
	for _, body := range []string{"garbage", "\x02\x01 of tomorrow", "\x01\x01"} {
		_, err := nc.Request("task.shop.normal.any.1", []byte(body), 5*time.Second)
		e.ok(err)
	}
	e.ok(e.publish("", chunkOf("shop", 2, 1, "x")))
	p, c := e.puller("shop", "", 10*time.Second)
	e.ok(p.Want(4))
	d := wait(e, "the good chunk", c.got)
	require.Equal(t, int64(2), d.Chunk.Instance)
	for n := 0; n < 3; {
		n += wait(e, "the wants of the bad ones", c.ended)
	}
	require.Equal(t, uint64(3), e.w.Undecodable())
	e.ok(d.Ack())
	e.until("all are gone from the stream", func() bool {
		n, err := e.b.TaskCounts(e.ctx, "shop", "")
		return err == nil && len(n) == 0
	})
}

func tasksListed(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	const chunks = 2500 // more than one batch of a read
	done := make(chan error, chunks+1)
	for i := range int64(chunks) {
		lane := broker.Lanes[i%3]
		e.b.PublishChunk("", lane, "any", chunkOf("shop", 1, i+1, "x"), func(err error) { done <- err })
	}
	e.b.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", 2, 1, "x"), func(err error) { done <- err })
	for range chunks + 1 {
		e.ok(wait(e, "an ack", done))
	}
	keys, err := e.b.TaskList(e.ctx, "shop", "", 1)
	e.ok(err)
	require.Len(t, keys, chunks)
	for i, k := range keys {
		require.Equal(t, broker.ChunkKey{Instance: 1, Attempt: 1, Chunk: int64(i + 1)}, k)
	}
	counts, err := e.b.TaskCounts(e.ctx, "shop", "")
	e.ok(err)
	require.Equal(t, map[int64]int{1: chunks, 2: 1}, counts)
	// While a worker acks as fast as it can, every list is still whole.
	var p *broker.Puller
	ready := make(chan bool)
	p, err = e.w.Puller("shop", "", broker.LaneHigh, "any", 2*time.Second, func(d *broker.Delivery) {
		<-ready
		if d.Ack() == nil {
			_ = p.Want(1) // it fails only once the test is over
		}
	}, func(int) {})
	e.ok(err)
	e.Cleanup(p.Close)
	close(ready)
	e.ok(p.Want(4))
	const others = chunks - (chunks+2)/3 // those of the two other lanes
	for len(keys) > others {
		keys, err = e.b.TaskList(e.ctx, "shop", "", 1)
		e.ok(err)
		require.GreaterOrEqual(t, len(keys), others)
	}
	e.ok(e.b.PurgeTasks(e.ctx, "shop", "", 1))
	keys, err = e.b.TaskList(e.ctx, "shop", "", 1)
	e.ok(err)
	require.Empty(t, keys)
	_, _, tasks, err := e.b.RunCounts(e.ctx, "shop", "", 2)
	e.ok(err)
	require.Equal(t, uint64(1), tasks)
}

func purgeInFlight(t *testing.T, in place) {
	e := start(t, in, broker.Config{AckWait: 300 * time.Millisecond})
	p, c := e.puller("shop", "", 5*time.Second)
	for i := range int64(20) {
		e.ok(e.publish("", chunkOf("shop", 1, i+1, "x")))
	}
	e.ok(p.Want(10))
	var held []*broker.Delivery
	for range 10 {
		held = append(held, wait(e, "a chunk", c.got))
	}
	e.ok(e.b.PurgeTasks(e.ctx, "shop", "", 1))
	for i, d := range held {
		switch i % 3 {
		case 0:
			e.ok(d.Ack())
		case 1:
			e.ok(d.Nak(0))
		default:
			e.ok(d.InProgress())
		}
	}
	// None of them comes again, and new ones flow.
	e.ok(p.Want(10))
	e.ok(e.publish("", chunkOf("shop", 2, 1, "new")))
	d := wait(e, "the new chunk", c.got)
	require.Equal(t, int64(2), d.Chunk.Instance, fmt.Sprint(d.Chunk.ChunkKey))
	e.ok(d.Ack())
	for n := 9; n > 0; {
		n -= wait(e, "the end of the wants", c.ended)
	}
	require.Empty(t, c.got)
}
