package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Client is a worker's end: one connection that dials out only. Safe for concurrent use.
type Client struct {
	l     *link
	acked *publisher // stage batches, results, reports, logs
	pool  sync.Pool  // of *[]byte, for encoding
}

const (
	clientWindow = 1024 // messages of a worker without an ack
	maxPooled    = 1 << 20
)

// Dial connects and keeps the connection up: it returns once connected or when ctx ends
// (ErrUnavailable), and reconnects for ever afterwards. Close it.
func Dial(ctx context.Context, o Options) (*Client, error) {
	l, err := dial(ctx, o, "worker")
	if err != nil {
		return nil, err
	}
	p, err := newPublisher(l, clientWindow)
	if err != nil {
		l.close()
		return nil, err
	}
	// Told last: what went with the old connection has ended by then.
	l.watch(o.OnDown, o.OnUp)
	return &Client{l: l, acked: p}, nil
}

// buffer lends a slice for encoding; give it back by return.
func (c *Client) buffer() *[]byte {
	if b, ok := c.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4096)
	return &b
}

func (c *Client) giveBack(p *[]byte, b []byte) {
	if cap(b) <= maxPooled {
		*p = b[:0]
		c.pool.Put(p)
	}
}

// store publishes and waits for the ack.
func (c *Client) store(ctx context.Context, subject string, encode func([]byte) ([]byte, error)) (uint64, error) {
	p := c.buffer()
	data, err := encode(*p)
	if err != nil {
		return 0, err
	}
	type outcome struct {
		seq uint64
		err error
	}
	ch := make(chan outcome, 1)
	err = c.acked.publish(subject, data, func(seq uint64, err error) { ch <- outcome{seq, err} })
	c.giveBack(p, data)
	if err != nil {
		return 0, err
	}
	select {
	case o := <-ch:
		return o.seq, o.err
	case <-ctx.Done():
		return 0, border("publish "+subject, ctx.Err())
	}
}

// Register introduces the worker to the engine. It retries while no server answers, or the
// answer says that its refusal may pass, until ctx ends: then it returns that last answer,
// or ErrNoResponders or ErrUnavailable. A final refusal is an answer, not an error.
func (c *Client) Register(ctx context.Context, b Beat) (Registration, error) {
	if err := checkNames("register worker", b.App, b.Worker); err != nil {
		return Registration{}, err
	}
	data, err := EncodeBeat(&b)
	if err != nil {
		return Registration{}, err
	}
	op := "register worker " + b.Worker + " of app " + b.App
	pause := 50 * time.Millisecond
	var last *Registration
	for {
		try, cancel := context.WithTimeout(ctx, requestWait)
		m, err := c.l.request(try, op, registerSubject(b.App), data)
		cancel()
		if err == nil {
			var g *Registration
			if g, err = DecodeRegistration(m.Data); err == nil {
				if !g.Retry {
					return *g, nil
				}
				last = g
			}
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrTooLarge) {
			return Registration{}, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if last != nil {
				return *last, nil
			}
			if err == nil {
				err = border(op, ctx.Err())
			}
			return Registration{}, err
		}
		pause = min(2*pause, time.Second)
	}
}

// Beat sends one beat, without waiting. ErrUnavailable while the connection is down: a
// late beat would lie.
func (c *Client) Beat(b *Beat) error {
	if err := checkNames("beat", b.App, b.Worker); err != nil {
		return err
	}
	data, err := EncodeBeat(b)
	if err != nil {
		return err
	}
	return c.l.publish("beat", beatSubject(b.App, b.Worker), data)
}

// Puller opens the pull side of (lane, pool). deliver is called for each message, from one
// goroutine; ended is called, from another one and one call at a time, when a pull request
// ended (expired, connection lost, the durable not there) with n messages unfilled, so that
// the worker may ask again. For every message wanted there is exactly one delivery or one
// of the n, at the latest two seconds after the expiry or, if the connection is down by
// then, when it is back; rarely a delivery comes after its request was given up with the
// connection: nak it if there is no slot. A message that cannot be decoded is reported as a
// refusal to nobody: it is terminated, counted and logged once, and ended with 1.
//
// The durable need not exist yet. Close the puller before the client.
func (c *Client) Puller(app, set, lane, pool string, expiry time.Duration, deliver func(*Delivery), ended func(n int)) (*Puller, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	if !validLane(lane) || !ValidName(pool) {
		return nil, fmt.Errorf("pull from lane %q of pool %q: no such lane, or a bad pool name", lane, pool)
	}
	return newPuller(c.l, kindTask.streamOf(app, set), durableName(app, set, lane, pool), lane, expiry, deliver, ended)
}

// OnDirected answers chunks sent to this worker by request. h is called from one goroutine
// and must not block. What cannot be decoded is counted, logged once, and refused.
func (c *Client) OnDirected(app, worker string, h func(*Chunk) DirectedReply) (stop func(), err error) {
	if err := checkNames("hear directed chunks", app, worker); err != nil {
		return nil, err
	}
	return c.l.subscribe(workerSubject(app, worker), "", func(m *nats.Msg) {
		answer := DirectedRefused
		if chunk, err := DecodeChunk(m.Data); err != nil {
			c.l.undecodable("directed chunk", m.Subject, err)
		} else {
			answer = h(chunk)
		}
		if err := c.l.publish("answer a directed chunk", m.Reply, EncodeDirectedReply(answer)); err != nil {
			c.l.log.Debug("a directed chunk will be sent again", "error", err)
		}
	})
}

// OnControl hears the orders to the workers of the app. h is called from one goroutine.
func (c *Client) OnControl(app string, h func(Control)) (stop func(), err error) {
	if err := checkNames("hear orders", app); err != nil {
		return nil, err
	}
	return c.l.subscribe(controlSubject(app), "", func(m *nats.Msg) {
		o, err := DecodeControl(m.Data)
		if err != nil {
			c.l.undecodable("order", m.Subject, err)
			return
		}
		h(o)
	})
}

// PublishReports stores one batch in the reports stream and returns when it is stored.
// Errors: ErrNoRoom, ErrUnavailable (it may be stored all the same), ErrTooLarge, ctx's.
func (c *Client) PublishReports(ctx context.Context, shard uint8, b *ReportBatch) (seq uint64, err error) {
	if err := checkNames("publish reports", b.App); err != nil {
		return 0, err
	}
	if err := checkShard("publish reports", shard); err != nil {
		return 0, err
	}
	return c.store(ctx, reportSubject(b.App, shard), func(dst []byte) ([]byte, error) { return appendReports(dst, b) })
}

// Stage stores one batch. done is called exactly once: with its sequence when it is stored,
// or with the error (ErrNoRoom when the stream is full, ErrUnavailable, ErrTooLarge); after
// ErrUnavailable it may be stored all the same. An error that is returned was given to
// done before. Stage keeps nothing of b when it returns; it waits while 1024 messages are
// without an ack. done is called from the connection's goroutine and must not block.
//
// Batches of one goroutine are stored in the order of the calls.
func (c *Client) Stage(app, set string, b *StageBatch, done func(seq uint64, err error)) error {
	if err := checkApp(app, set); err != nil {
		done(0, err)
		return err
	}
	p := c.buffer()
	data, err := appendStage(*p, b)
	if err != nil {
		done(0, err)
		return err
	}
	err = c.acked.publish(runSubject(kindStage, app, set, b.Instance, b.Run), data, done)
	c.giveBack(p, data)
	return err
}

// StageUsed is the number of messages the run holds in the stage, as the stream's leader
// counts them. The broker does not know the bytes of a run; who stages counts them.
func (c *Client) StageUsed(ctx context.Context, app, set string, instance int64, run int32) (msgs uint64, err error) {
	if err := checkApp(app, set); err != nil {
		return 0, err
	}
	return c.l.count(ctx, kindStage.streamOf(app, set), runSubject(kindStage, app, set, instance, run))
}

// PublishResult stores values and returns the sequence. Errors as PublishReports.
func (c *Client) PublishResult(ctx context.Context, app, set string, b *ResultBatch) (seq uint64, err error) {
	if err := checkApp(app, set); err != nil {
		return 0, err
	}
	return c.store(ctx, runSubject(kindResult, app, set, b.Instance, b.Run), func(dst []byte) ([]byte, error) { return appendResult(dst, b) })
}

// ReadResults calls each for every result message of the run whose sequence is in ranges
// (ascending), in order, in constant memory. A listed sequence that is missing is an
// error (ErrNotFound). An error of each ends it and is returned as it is. each owns the batch.
func (c *Client) ReadResults(ctx context.Context, app, set string, instance int64, run int32, ranges []Range, each func(*ResultBatch) error) error {
	if err := checkApp(app, set); err != nil {
		return err
	}
	return c.l.readResults(ctx, kindResult.streamOf(app, set), runSubject(kindResult, app, set, instance, run), ranges, each)
}

// Ask puts one question to the owner of the shard; ErrNoResponders when the shard has no
// owner, ErrUnavailable when nobody answered before ctx ended (5 s without a deadline).
func (c *Client) Ask(ctx context.Context, q *AskRequest) (*AskReply, error) {
	if err := checkShard("ask", q.Shard); err != nil {
		return nil, err
	}
	data, err := EncodeAskRequest(q)
	if err != nil {
		return nil, err
	}
	m, err := c.l.request(ctx, fmt.Sprintf("ask the owner of shard %d", q.Shard), askSubject(q.Shard), data)
	if err != nil {
		return nil, err
	}
	return DecodeAskReply(m.Data)
}

// PublishLog stores lines and returns the sequence. Errors as PublishReports.
func (c *Client) PublishLog(ctx context.Context, app, set string, b *LogBatch) (seq uint64, err error) {
	if err := checkApp(app, set); err != nil {
		return 0, err
	}
	return c.store(ctx, logSubject(app, set, b.Instance), func(dst []byte) ([]byte, error) { return appendLog(dst, b) })
}

// Undecodable is how many messages this end dropped because it could not decode them.
func (c *Client) Undecodable() uint64 { return c.l.damaged.Load() }

// Connected tells whether the connection is up.
func (c *Client) Connected() bool { return c.l.connected() }

// MaxPayload is the largest message the broker takes, in bytes.
func (c *Client) MaxPayload() int64 { return c.l.nc.MaxPayload() }

// Flush waits until the broker has seen all that was sent.
func (c *Client) Flush(ctx context.Context) error { return c.l.flush(ctx) }

// Close waits up to 5 s for what waits for an ack, sends what is buffered and closes.
func (c *Client) Close() {
	c.acked.close(ackTimeout)
	c.l.close()
}
