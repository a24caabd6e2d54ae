package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config is the engine's end.
type Config struct {
	Options
	// AckWait of the task durables; default 8 s.
	AckWait time.Duration
	// Replicas of every stream and durable: 1, or 3 in a cluster of at least three servers;
	// default 1. All engine processes of one broker must have the same: one that is told less
	// than a stream has refuses it, one that is told more raises it. See SetFor.
	Replicas int
	// TaskBytes, StageBytes, ResultBytes, LogBytes bound each stream of an app; ReportBytes
	// the one reports stream. Defaults 256 MiB, 1 GiB, 1 GiB, 1 GiB, 1 GiB.
	TaskBytes, StageBytes, ResultBytes, LogBytes, ReportBytes int64
	// LogAge bounds the log streams; default 7 days.
	LogAge time.Duration
}

func (c Config) withDefaults() Config {
	if c.AckWait <= 0 {
		c.AckWait = 8 * time.Second
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	for _, f := range []struct {
		to   *int64
		size int64
	}{{&c.TaskBytes, 256 << 20}, {&c.StageBytes, 1 << 30}, {&c.ResultBytes, 1 << 30}, {&c.LogBytes, 1 << 30}, {&c.ReportBytes, 1 << 30}} {
		if *f.to <= 0 {
			*f.to = f.size
		}
	}
	if c.LogAge <= 0 {
		c.LogAge = 7 * 24 * time.Hour
	}
	return c
}

// Broker is the engine's end of the broker. Safe for concurrent use. The reports are read
// over a TCP connection of their own, so that a burst of them delays no ack of a publish.
type Broker struct {
	c      Config
	l      *link // publishes, requests, questions
	in     *link // reads the reports
	chunks *publisher
	js     jetstream.JetStream
	assets assets
	pool   sync.Pool // of *[]byte, for encoding
}

const brokerWindow = 16384 // chunks without an ack

// MaxSlots bounds the slots of one worker; a beat that names more is dropped.
const MaxSlots = 1 << 16

// Connect connects, as Dial does.
func Connect(ctx context.Context, c Config) (*Broker, error) {
	c = c.withDefaults()
	if c.Replicas != 1 && c.Replicas != 3 {
		return nil, fmt.Errorf("connect to broker: %d replicas; streams have 1, or 3 in a cluster", c.Replicas)
	}
	l, err := dial(ctx, c.Options, "server")
	if err != nil {
		return nil, err
	}
	in, err := dial(ctx, c.Options, "server reports")
	if err != nil {
		l.close()
		return nil, err
	}
	b := &Broker{c: c, l: l, in: in}
	l.replicated = c.Replicas > 1
	if b.chunks, err = newPublisher(l, brokerWindow); err != nil {
		b.Close()
		return nil, err
	}
	if b.js, err = jetstream.New(l.nc); err != nil {
		b.Close()
		return nil, border("connect", err)
	}
	// What was there may be gone with the store of a broker that comes back.
	l.watch(b.assets.forget, b.assets.forget)
	watchBoth(l, in, c.OnDown, c.OnUp)
	return b, nil
}

// Replicas is how many replicas the streams have: 1 or 3.
func (b *Broker) Replicas() int { return b.c.Replicas }

// watchBoth makes one connection of two: down with the first, up with the last.
func watchBoth(a, b *link, down, up func()) {
	var mu sync.Mutex
	var lost [2]bool
	for i, l := range []*link{a, b} {
		set := func(to bool, tell func()) {
			mu.Lock()
			defer mu.Unlock()
			before := lost[0] || lost[1]
			lost[i] = to
			if after := lost[0] || lost[1]; after != before && tell != nil {
				tell()
			}
		}
		l.watch(func() { set(true, down) }, func() { set(false, up) })
	}
}

// PublishChunk stores a chunk in its lane; done is called exactly once, with nil when it is
// stored. Nothing is buffered while the connection is down: the error comes at once. Errors:
// ErrNoRoom, ErrTooLarge, ErrUnavailable (it may be stored all the same). It waits while
// 16384 chunks are without an ack. done may be called before it returns, and is called from
// the connection's goroutine: it must not block. The chunk may be changed when it returns.
func (b *Broker) PublishChunk(set, lane, pool string, c *Chunk, done func(error)) {
	err := checkApp(c.App, set)
	if err == nil && (!validLane(lane) || !ValidName(pool)) {
		err = fmt.Errorf("publish chunk: lane %q, pool %q: no such lane, or a bad pool name", lane, pool)
	}
	if err != nil {
		done(err)
		return
	}
	p, ok := b.pool.Get().(*[]byte)
	if !ok {
		p = new([]byte)
	}
	data, err := appendChunk(*p, c)
	if err != nil {
		done(err)
		return
	}
	// done has the error that is returned.
	_ = b.chunks.publish(taskSubject(c.App, set, lane, pool, c.Instance), data, func(_ uint64, err error) {
		if errors.Is(err, errNoStream) {
			b.assets.forget() // the next EnsureApp makes it again
		}
		done(err)
	})
	if cap(data) <= maxPooled {
		*p = data[:0]
		b.pool.Put(p)
	}
}

// SendDirected sends a chunk to one worker and returns its answer. ErrNoResponders: the
// worker is not there. ErrUnavailable: it did not answer before ctx ended (5 s without a
// deadline); it may hold the chunk.
func (b *Broker) SendDirected(ctx context.Context, worker string, c *Chunk) (DirectedReply, error) {
	if err := checkNames("send to worker", c.App, worker); err != nil {
		return 0, err
	}
	data, err := EncodeChunk(c)
	if err != nil {
		return 0, err
	}
	m, err := b.l.request(ctx, "send to worker "+worker+" of app "+c.App, workerSubject(c.App, worker), data)
	if err != nil {
		return 0, err
	}
	return DecodeDirectedReply(m.Data)
}

// Order sends a control message to all workers of the app, without waiting.
func (b *Broker) Order(app string, c Control) error {
	if err := checkNames("order", app); err != nil {
		return err
	}
	data, err := EncodeControl(&c)
	if err != nil {
		return err
	}
	return b.l.publish("order to app "+app, controlSubject(app), data)
}

// OnAsk answers the questions to one shard. h is called from one goroutine and answers
// later, from any goroutine, by calling reply once. A question nobody answers is asked again.
func (b *Broker) OnAsk(shard uint8, h func(q *AskRequest, reply func(*AskReply))) (stop func(), err error) {
	return b.l.subscribe(askSubject(shard), "", func(m *nats.Msg) {
		q, err := DecodeAskRequest(m.Data)
		if err == nil && q.Shard != shard {
			err = fmt.Errorf("a question to shard %d names shard %d: %w", shard, q.Shard, ErrUndecodable)
		}
		if err != nil {
			b.l.undecodable("question", m.Subject, err)
			return
		}
		h(q, func(a *AskReply) {
			data, err := EncodeAskReply(a)
			b.answer("answer a question", m.Reply, data, err)
		})
	})
}

func (b *Broker) answer(op, reply string, data []byte, err error) {
	if err == nil {
		err = b.l.publish(op, reply, data)
	}
	if err != nil {
		b.l.log.Warn("the worker will ask again", "error", fmt.Errorf("%s: %w", op, err))
	}
}

// OnRegister answers registrations; queue group, so that one server answers each. h is
// called from one goroutine and may answer later, from any.
func (b *Broker) OnRegister(h func(bt *Beat, reply func(*Registration))) (stop func(), err error) {
	return b.l.subscribe(registerAll, serverQueue, func(m *nats.Msg) {
		bt, err := DecodeBeat(m.Data)
		if err == nil {
			err = bt.check(m.Subject, registerSubject(bt.App))
		}
		if err != nil {
			b.l.undecodable("registration", m.Subject, err)
			return
		}
		h(bt, func(g *Registration) {
			data, err := EncodeRegistration(g)
			b.answer("answer a registration", m.Reply, data, err)
		})
	})
}

// OnBeat hears all beats of all apps. h is called from one goroutine.
func (b *Broker) OnBeat(h func(*Beat)) (stop func(), err error) {
	return b.l.subscribe(beatAll, "", func(m *nats.Msg) {
		bt, err := DecodeBeat(m.Data)
		if err == nil {
			err = bt.check(m.Subject, beatSubject(bt.App, bt.Worker))
		}
		if err != nil {
			b.l.undecodable("beat", m.Subject, err)
			return
		}
		h(bt)
	})
}

// check tells whether the beat is of whom its subject names, which is all that the broker's
// permissions bind a worker to, and whether its numbers can be reckoned with.
func (bt *Beat) check(subject, own string) error {
	if subject != own {
		return fmt.Errorf("worker %q of app %q speaks on %s: %w", bt.Worker, bt.App, subject, ErrUndecodable)
	}
	if err := checkNames("beat", append([]string{bt.App, bt.Worker}, bt.Pools...)...); err != nil {
		return fmt.Errorf("%w: %w", err, ErrUndecodable)
	}
	if bt.Slots < 0 || bt.Slots > MaxSlots || bt.Busy < 0 {
		return fmt.Errorf("worker %s has %d slots, %d of them busy; 0 to %d can be: %w", bt.Worker, bt.Slots, bt.Busy, MaxSlots, ErrUndecodable)
	}
	return nil
}

// Nudge tells the owner of the shard that rows wait for it; OnNudge hears it. Losing one
// costs a sweep.
func (b *Broker) Nudge(shard uint8) error {
	return b.l.publish("nudge", nudgeSubject(shard), nil)
}

// OnNudge hears the nudges of all shards, from one goroutine.
func (b *Broker) OnNudge(h func(shard uint8)) (stop func(), err error) {
	return b.l.subscribe(nudgeAll, "", func(m *nats.Msg) {
		if shard, ok := shardOf(m.Subject); ok {
			h(shard)
		}
	})
}

// NudgeServers tells all servers that one has come, gone or given shards up; OnNudgeServers
// hears it. Losing one costs a second.
func (b *Broker) NudgeServers() error { return b.l.publish("nudge servers", nudgeServers, nil) }

// OnNudgeServers hears the nudges of NudgeServers, its own too, from one goroutine.
func (b *Broker) OnNudgeServers(h func()) (stop func(), err error) {
	return b.l.subscribe(nudgeServers, "", func(*nats.Msg) { h() })
}

// PublishEvent tells live views; lost when nobody listens. topic is one or more tokens.
func (b *Broker) PublishEvent(app string, topic string, payload []byte) error {
	if err := checkNames("publish event", app); err != nil {
		return err
	}
	if !validTopic(topic) {
		return fmt.Errorf("publish event of app %s: topic %q is not one or more tokens", app, topic)
	}
	return b.l.publish("event of app "+app, eventSubject(app, topic), payload)
}

// OnEvent hears the events of one app, or of all with app "". h is called from one
// goroutine and may keep payload.
func (b *Broker) OnEvent(app string, h func(app, topic string, payload []byte)) (stop func(), err error) {
	if app == "" {
		app = "*"
	} else if err := checkNames("hear events", app); err != nil {
		return nil, err
	}
	return b.l.subscribe(eventSubject(app, ">"), "", func(m *nats.Msg) {
		_, rest, _ := strings.Cut(m.Subject, ".")
		of, topic, _ := strings.Cut(rest, ".")
		h(of, topic, m.Data)
	})
}

// Undecodable is how many messages this end dropped because it could not decode them.
// Reports are not among them: their handler gets them.
func (b *Broker) Undecodable() uint64 { return b.l.damaged.Load() + b.in.damaged.Load() }

// Connected tells whether both connections are up.
func (b *Broker) Connected() bool { return b.l.connected() && b.in.connected() }

// Flush waits until the broker has seen all that was sent.
func (b *Broker) Flush(ctx context.Context) error { return b.l.flush(ctx) }

// Close waits up to 5 s for the acks of chunks, sends what is buffered and closes.
func (b *Broker) Close() {
	if b.chunks != nil {
		b.chunks.close(ackTimeout)
	}
	b.in.close()
	b.l.close()
}

// noSuch turns a purge or a count of a stream that is not there into nothing to do.
func noSuch(err error) bool { return errors.Is(err, ErrNotFound) }
