package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// publisher stores messages without waiting for one before it sends the next, and calls
// each one's done exactly once. It is written here and not taken from the driver because
// every outcome must be known for sure: a lost connection ends at once all that was sent
// over it, and a full window waits instead of failing after 200 ms.
type publisher struct {
	l       *link
	prefix  string // inbox and a dot; the token follows
	timeout time.Duration
	stall   time.Duration
	room    chan struct{} // one token for each message under way
	sub     *nats.Subscription

	mu      sync.Mutex
	next    uint64
	open    map[uint64]underWay
	timer   *time.Timer
	armed   bool
	closing bool
	idle    chan struct{} // closed when open gets empty while closing
}

type underWay struct {
	done  func(seq uint64, err error)
	epoch uint64
	sent  time.Time
}

const (
	ackTimeout   = 5 * time.Second
	stallTimeout = 10 * time.Second
)

func newPublisher(l *link, window int) (*publisher, error) {
	p := &publisher{
		l: l, prefix: l.nc.NewInbox() + ".", timeout: ackTimeout, stall: stallTimeout,
		room: make(chan struct{}, window), open: make(map[uint64]underWay, 64),
	}
	sub, err := l.nc.Subscribe(p.prefix+"*", p.answered)
	if err != nil {
		return nil, border("subscribe to acks", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, border("subscribe to acks", err)
	}
	p.sub = sub
	p.timer = time.AfterFunc(time.Hour, p.expire)
	p.timer.Stop()
	l.watch(p.lost, p.lost)
	return p, nil
}

// publish stores data on the subject. done is called exactly once, also with the error
// that is returned (then nothing was sent). It may be called before publish returns, and
// from the connection's goroutine: it must not block. data may be used again when publish
// has returned.
func (p *publisher) publish(subject string, data []byte, done func(seq uint64, err error)) error {
	if err := p.send(subject, data, done); err != nil {
		err = border("publish "+subject, err)
		done(0, err)
		return err
	}
	return nil
}

func (p *publisher) send(subject string, data []byte, done func(seq uint64, err error)) error {
	if limit := p.l.nc.MaxPayload(); limit > 0 && int64(len(data)) > limit {
		return fmt.Errorf("%d bytes, the broker takes %d: %w", len(data), limit, ErrTooLarge)
	}
	select {
	case p.room <- struct{}{}:
	default:
		if err := p.wait(); err != nil {
			return err
		}
	}
	now := time.Now()
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		<-p.room
		return ErrClosed
	}
	p.next++
	id := p.next
	p.open[id] = underWay{done: done, epoch: p.l.epoch.Load(), sent: now}
	if !p.armed {
		p.armed = true
		p.timer.Reset(p.timeout / 4)
	}
	p.mu.Unlock()

	var buf [96]byte
	reply := strconv.AppendUint(append(buf[:0], p.prefix...), id, 36)
	err := p.l.nc.PublishRequest(subject, string(reply), data)
	if err == nil {
		return nil
	}
	if _, mine := p.remove(id); mine {
		return err
	}
	return nil // done has been called by lost or expire meanwhile
}

// wait waits for room in the window.
func (p *publisher) wait() error {
	t := time.NewTimer(p.stall)
	defer t.Stop()
	select {
	case p.room <- struct{}{}:
		return nil
	case <-t.C:
		return fmt.Errorf("%d messages without an ack for %v: %w", cap(p.room), p.stall, ErrUnavailable)
	case <-p.l.closed:
		return ErrClosed
	}
}

// remove takes a message out of those under way; only who gets it may call its done.
func (p *publisher) remove(id uint64) (underWay, bool) {
	p.mu.Lock()
	u, ok := p.open[id]
	if ok {
		delete(p.open, id)
		if p.closing && len(p.open) == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	if ok {
		<-p.room
	}
	return u, ok
}

func (p *publisher) answered(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(p.prefix):], 36, 64)
	if err != nil {
		return // not a token of ours
	}
	u, ok := p.remove(id)
	if !ok {
		return // too late: it was given up
	}
	seq, err := readPubAck(m)
	u.done(seq, err)
}

// errNoStream: nobody stores the subject; the stream is not up yet, or gone.
var errNoStream = errors.New("no stream takes the subject")

var seqKey = []byte(`"seq":`)

// readPubAck reads the sequence out of an ack. The broker writes {"stream":"S","seq":1};
// only other answers go through a JSON decoder.
func readPubAck(m *nats.Msg) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, fmt.Errorf("publish: %w: %w", errNoStream, ErrUnavailable)
	}
	if i := bytes.Index(m.Data, seqKey); i >= 0 && !bytes.Contains(m.Data[:i], []byte(`"error"`)) {
		var seq uint64
		j := i + len(seqKey)
		for j < len(m.Data) && m.Data[j] >= '0' && m.Data[j] <= '9' {
			seq = seq*10 + uint64(m.Data[j]-'0')
			j++
		}
		if seq > 0 && j < len(m.Data) && (m.Data[j] == '}' || m.Data[j] == ',') {
			return seq, nil
		}
	}
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("publish: ack %.80q: %w: %w", m.Data, ErrUnavailable, err)
	}
	if ack.Error != nil {
		return 0, border("publish", ack.Error)
	}
	if ack.Seq == 0 {
		return 0, fmt.Errorf("publish: ack %.80q names no sequence: %w", m.Data, ErrUnavailable)
	}
	return ack.Seq, nil
}

// lost ends all that was sent over a connection that is gone: an ack cannot come any more.
func (p *publisher) lost() {
	e := p.l.lostEpoch()
	p.end(func(u underWay) bool { return u.epoch <= e },
		fmt.Errorf("publish: connection lost before the ack: %w", ErrUnavailable))
}

func (p *publisher) expire() {
	before := time.Now().Add(-p.timeout)
	p.end(func(u underWay) bool { return u.sent.Before(before) },
		fmt.Errorf("publish: no ack within %v: %w", p.timeout, ErrUnavailable))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) == 0 {
		p.armed = false
		return
	}
	p.timer.Reset(p.timeout / 4)
}

func (p *publisher) end(which func(underWay) bool, err error) {
	p.mu.Lock()
	var ids []uint64
	for id, u := range p.open {
		if which(u) {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	for _, id := range ids {
		if u, ok := p.remove(id); ok {
			u.done(0, err)
		}
	}
}

// close takes nothing new, waits up to a while for what is under way and gives up the rest.
func (p *publisher) close(wait time.Duration) {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return
	}
	p.closing = true
	p.idle = make(chan struct{})
	if len(p.open) == 0 {
		close(p.idle)
	}
	p.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-p.idle:
	case <-t.C:
	case <-p.l.closed:
	}
	p.end(func(underWay) bool { return true }, fmt.Errorf("publish: %w", ErrClosed))
	p.timer.Stop()
	unsubscribe(p.sub)
}
