package broker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Puller pulls from the durable of one lane and pool. Safe for concurrent use.
//
// Every message that was wanted is either delivered or ended, once: open counts those that
// are neither. The broker says how much of a request is unfilled when it expires; where it
// says nothing (a lost connection, a leader that went away) what is open beyond the
// requests that still stand has ended. Deliveries do not name their request, and need not.
type Puller struct {
	l       *link
	subject string // where requests go
	lane    string
	expiry  time.Duration
	deliver func(*Delivery)
	ended   func(int)

	wake   chan struct{}
	live   context.Context // ends with Close
	quit   context.CancelFunc
	gone   sync.WaitGroup
	forget func()

	mu       sync.Mutex
	closed   bool
	open     int // wanted, and neither delivered nor ended
	wish     int // of them not asked for yet
	ending   int // ended, to be told
	late     int // ended with an error: told at lateAt, or the worker would ask in a circle
	lateAt   time.Time
	requests []pullRequest // in the order of their deadlines
	lastID   uint64
	epoch    uint64
	inbox    string
	sub      *nats.Subscription
}

type pullRequest struct {
	id       uint64
	batch    int
	deadline time.Time
}

const (
	// pullSlack is how long after its expiry a request may still be answered.
	pullSlack = 2 * time.Second
	// errorPause keeps a worker from asking in a circle while the durable is not there.
	errorPause = 250 * time.Millisecond
	// skewEvery is how often the broker's clock is read.
	skewEvery = time.Minute
	// skewTook is the slowest answer that is believed: when in it the clock was read is not
	// known, and the age of a delivery decides whether it may be run unasked.
	skewTook = 250 * time.Millisecond
)

func newPuller(l *link, stream, durable, lane string, expiry time.Duration, deliver func(*Delivery), ended func(int)) (*Puller, error) {
	p := &Puller{
		l: l, subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + durable, lane: lane,
		expiry: expiry, deliver: deliver, ended: ended,
		wake: make(chan struct{}, 1),
	}
	p.live, p.quit = context.WithCancel(context.Background())
	p.epoch = l.epoch.Load()
	if err := p.subscribe(); err != nil {
		return nil, err
	}
	p.forget = l.watch(nil, p.poke)
	p.gone.Go(p.loop)
	p.gone.Go(func() { p.clock("CONSUMER.INFO." + stream + "." + durable) })
	return p, nil
}

// subscribe opens a fresh inbox. Requests of an earlier one die with it: the broker drops
// a request whose inbox nobody hears.
func (p *Puller) subscribe() error {
	inbox := p.l.nc.NewInbox()
	epoch := p.epoch
	sub, err := p.l.nc.Subscribe(inbox+".*", func(m *nats.Msg) { p.received(epoch, inbox, m) })
	if err != nil {
		return border("subscribe to deliveries", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return border("subscribe to deliveries", err)
	}
	p.sub, p.inbox = sub, inbox
	return nil
}

// Want asks for n more messages. Requests add up; each expires by itself. While the
// connection is down the wish is kept, and ended when it is back. ErrClosed after Close.
func (p *Puller) Want(n int) error {
	if n <= 0 {
		return nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("pull from lane %s: %w", p.lane, ErrClosed)
	}
	p.open += n
	p.wish += n
	p.mu.Unlock()
	p.poke()
	return nil
}

func (p *Puller) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop sends requests, notices what ended silently, and tells of all that ended. All that
// is wanted while one request is written goes in the next.
func (p *Puller) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.live.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		next := p.step()
		timer.Reset(next)
	}
}

// step does all that is due and returns when to come again.
func (p *Puller) step() time.Duration {
	if !p.l.connected() {
		return time.Hour // poked when the connection is back
	}
	now := time.Now()
	epoch := p.l.epoch.Load()
	p.mu.Lock()
	if epoch != p.epoch {
		p.restart(epoch)
	}
	for len(p.requests) > 0 && now.After(p.requests[0].deadline) {
		p.requests = p.requests[1:]
		p.settle()
	}
	if p.late > 0 && !now.Before(p.lateAt) {
		p.ending += p.late
		p.late = 0
	}
	next := time.Hour
	if p.wish > 0 && p.sub != nil {
		if err := p.ask(now); err != nil {
			next = errorPause // or earlier, when the connection is back
		}
	}
	if p.sub == nil {
		next = errorPause
	}
	if len(p.requests) > 0 {
		next = min(next, p.requests[0].deadline.Sub(now)+time.Millisecond)
	}
	if p.late > 0 {
		next = min(next, p.lateAt.Sub(now))
	}
	n := p.ending
	p.ending = 0
	p.mu.Unlock()
	if n > 0 {
		p.ended(n)
	}
	return max(next, time.Millisecond)
}

// restart ends all that was asked for over a connection that is gone. What the old inbox
// has received already is still handed out.
func (p *Puller) restart(epoch uint64) {
	old := p.sub
	p.epoch = epoch
	p.ending += p.open - p.wish
	p.open = p.wish
	p.requests = p.requests[:0]
	p.sub = nil
	if old != nil {
		// It fails only on a closed connection, and then nothing comes any more.
		_ = old.Drain()
	}
	if err := p.subscribe(); err != nil {
		p.l.log.Warn("pull from a lane", "lane", p.lane, "error", err)
		p.epoch = 0 // try again
	}
}

func (p *Puller) ask(now time.Time) error {
	p.lastID++
	var buf [64]byte
	body := append(buf[:0], `{"batch":`...)
	body = strconv.AppendInt(body, int64(p.wish), 10)
	body = append(body, `,"expires":`...)
	body = strconv.AppendInt(body, int64(p.expiry), 10)
	body = append(body, '}')
	reply := p.inbox + "." + strconv.FormatUint(p.lastID, 36)
	if err := p.l.nc.PublishRequest(p.subject, reply, body); err != nil {
		return err
	}
	p.requests = append(p.requests, pullRequest{id: p.lastID, batch: p.wish, deadline: now.Add(p.expiry + pullSlack)})
	p.wish = 0
	return nil
}

// settle ends what no standing request can fill any more.
func (p *Puller) settle() {
	standing := 0
	for i := range p.requests {
		standing += p.requests[i].batch
	}
	over := p.open - p.wish - standing
	if over <= 0 {
		return
	}
	p.open -= over
	p.ending += over
}

func (p *Puller) received(epoch uint64, inbox string, m *nats.Msg) {
	if len(m.Data) == 0 && len(m.Header) > 0 {
		if status := m.Header.Get("Status"); status != "" {
			p.status(epoch, inbox, status, m)
			return
		}
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return // it comes again after AckWait
	}
	if epoch == p.epoch && p.open > p.wish {
		p.open--
		if p.open == p.wish {
			p.requests = p.requests[:0] // all filled
		}
	}
	p.mu.Unlock()
	d, err := newDelivery(p.l, p.lane, m)
	if err == nil {
		p.deliver(d)
		return
	}
	p.l.undecodable("chunk", m.Subject, err)
	if err := p.l.publish("terminate chunk", m.Reply, termBody); err != nil {
		p.l.log.Warn("a damaged chunk will be delivered again", "subject", m.Subject, "error", err)
	}
	p.mu.Lock()
	p.ending++
	p.mu.Unlock()
	p.poke()
}

// status handles the end of one request.
func (p *Puller) status(epoch uint64, inbox, status string, m *nats.Msg) {
	if status == "100" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch != p.epoch || len(m.Subject) <= len(inbox) {
		return
	}
	id, err := strconv.ParseUint(m.Subject[len(inbox)+1:], 36, 64)
	if err != nil {
		return
	}
	at := -1
	for i := range p.requests {
		if p.requests[i].id == id {
			at = i
			break
		}
	}
	if at < 0 {
		return // filled, or given up
	}
	batch := p.requests[at].batch
	p.requests = append(p.requests[:at], p.requests[at+1:]...)
	before := p.ending
	if n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
		n = max(0, min(n, batch, p.open-p.wish))
		p.open -= n
		p.ending += n
	} else if status == "503" {
		n := min(batch, p.open-p.wish)
		p.open -= n
		p.ending += n
	}
	p.settle()
	if status != "408" && status != "404" {
		// Not the end of a wait but a refusal: the durable is not there, or moved, or full.
		p.late += p.ending - before
		p.ending = before
		p.lateAt = time.Now().Add(errorPause)
	}
	p.poke()
}

// clock keeps the broker's clock known, for the age of deliveries. One puller of a
// connection does it for all.
func (p *Puller) clock(subject string) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-p.live.Done():
			return
		case <-t.C:
		}
		wait := skewEvery
		last := p.l.measured.Load()
		if last == 0 || time.Since(time.Unix(0, last)) >= skewEvery {
			ctx, cancel := context.WithTimeout(p.live, requestWait)
			if err := p.l.measureSkew(ctx, subject); err != nil {
				wait = time.Second // the durable may come yet
			}
			cancel()
		}
		t.Reset(wait)
	}
}

// measureSkew reads the broker's clock out of an answer that carries it, and takes it for
// the time in the middle of the request.
func (l *link) measureSkew(ctx context.Context, subject string) error {
	var out struct {
		At time.Time `json:"ts"`
	}
	sent := time.Now()
	if err := l.api(ctx, "read the broker's clock", subject, nil, &out); err != nil {
		return err
	}
	if out.At.IsZero() {
		return fmt.Errorf("read the broker's clock: the answer has none: %w", ErrNotFound)
	}
	took := time.Since(sent)
	if took > skewTook {
		return fmt.Errorf("read the broker's clock: the answer took %v: %w", took, ErrUnavailable)
	}
	l.skew.Store(int64(out.At.Sub(sent.Add(took / 2))))
	l.measured.Store(time.Now().UnixNano())
	return nil
}

// Close ends the puller; open requests are abandoned, ended is not called for them.
// Deliveries that wait to be handed out come again after AckWait; one that is being handed
// out may still be. It may be called from neither deliver nor ended.
func (p *Puller) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	sub := p.sub
	p.mu.Unlock()
	p.forget()
	p.quit()
	p.gone.Wait()
	if sub != nil {
		unsubscribe(sub)
	}
}
