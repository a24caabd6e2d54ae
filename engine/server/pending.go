package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// pending counts publishes without an answer, so that a listing can wait for those begun
// before it.
type pending struct {
	mu           sync.Mutex
	begun, ended uint64
	waiters      map[chan struct{}]uint64
}

func (p *pending) begin() {
	p.mu.Lock()
	p.begun++
	p.mu.Unlock()
}

func (p *pending) end() {
	p.mu.Lock()
	p.ended++
	for w, n := range p.waiters {
		if p.ended >= n {
			close(w)
			delete(p.waiters, w)
		}
	}
	p.mu.Unlock()
}

// wait returns when as many publishes have ended as had begun, or with ctx. Answers come
// in order but for those of a lost connection, which come as errors.
func (p *pending) wait(ctx context.Context) {
	p.mu.Lock()
	if p.ended >= p.begun {
		p.mu.Unlock()
		return
	}
	w := make(chan struct{})
	if p.waiters == nil {
		p.waiters = map[chan struct{}]uint64{}
	}
	p.waiters[w] = p.begun
	p.mu.Unlock()
	select {
	case <-w:
	case <-ctx.Done():
	}
}

// purges are instances whose leftovers in the broker are being removed, again after a
// while, because a worker that has not heard of the end may still add to them.
type purges struct {
	mu   sync.Mutex
	list []purge
}

type purge struct {
	track.Purge
	at   int64
	left int
}

const (
	purgeTimes = 3
	purgePause = 5000 // ms
	purgesMost = 100_000
)

func (p *purges) add(e track.Purge, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) < purgesMost {
		p.list = append(p.list, purge{Purge: e, at: now, left: purgeTimes})
	}
}

// again has what due took looked at once more.
func (p *purges) again(at int64, list ...purge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range list {
		x.at = at
		p.list = append(p.list, x)
	}
}

// due takes what is to be purged now.
func (p *purges) due(now int64) []purge {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []purge
	rest := p.list[:0]
	for _, x := range p.list {
		if x.at <= now {
			out = append(out, x)
		} else {
			rest = append(rest, x)
		}
	}
	p.list = rest
	return out
}

// purging removes leftovers, beside everything else.
func (s *Server) purging(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		due := s.purges.due(s.now())
		for i, p := range due {
			if err := s.purgeOnce(ctx, p); errors.Is(err, broker.ErrUnavailable) {
				s.purges.again(s.now()+purgePause, due[i:]...) // it does not count, and the others would fare no better
				break
			}
			if p.left--; p.left > 0 {
				s.purges.again(s.now()+purgePause, p)
			}
		}
		s.purgeReports(ctx)
		s.purgeLeftovers(ctx)
	}
}

func (s *Server) purgeOnce(ctx context.Context, p purge) error {
	b := s.cfg.Broker
	var err error
	if p.Tasks {
		err = b.PurgeTasks(ctx, p.App, p.Set, p.Instance)
	}
	if p.Run != 0 && err == nil {
		err = b.PurgeRun(ctx, p.App, p.Set, p.Instance, max(p.Run, 0))
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("purge again later", "instance", p.Instance, "err", err)
	}
	return err
}

// purgeReports removes reports up to the committed cursors, a shard at a time.
func (s *Server) purgeReports(ctx context.Context) {
	now := s.now()
	if now < s.purgedAt+s.purgeEvery {
		return
	}
	s.purgedAt = now
	for shard := range s.cursors {
		cursor := s.cursors[shard].Load()
		if cursor < s.purgedTo[shard] {
			s.purgedTo[shard] = 0 // the stream was lost or restored, and counts from there
		}
		if cursor <= s.purgedTo[shard] || !s.owned[shard].Load() {
			continue
		}
		if err := s.cfg.Broker.PurgeReports(ctx, uint8(shard), cursor); err != nil {
			return // the next round
		}
		s.purgedTo[shard] = cursor
	}
}

// orders remembers stop orders, to repeat them to a worker whose beat still lists the work.
type orders struct {
	mu      sync.Mutex
	stop    map[int64]stopped
	pruneAt time.Time
}

type stopped struct {
	app     string
	attempt int32
	at      time.Time
}

const (
	ordersKept  = 10 * time.Minute
	ordersPrune = time.Minute
	ordersMost  = 100_000
)

func (o *orders) add(e track.Order) {
	if e.Control.Kind != broker.ControlStop {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop == nil {
		o.stop = map[int64]stopped{}
	}
	now := time.Now()
	if now.After(o.pruneAt) {
		o.pruneAt = now.Add(ordersPrune)
		for id, x := range o.stop {
			if now.Sub(x.at) > ordersKept {
				delete(o.stop, id)
			}
		}
	}
	if len(o.stop) < ordersMost {
		o.stop[e.Control.Instance] = stopped{e.App, e.Control.Attempt, now}
	}
}

// missed are the orders that a worker's beat shows it has not heard, one an instance.
func (o *orders) missed(b *broker.Beat) []broker.Control {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []broker.Control
	var said map[int64]bool
	for _, k := range b.Held {
		if x, ok := o.stop[k.Instance]; ok && x.app == b.App && k.Attempt <= x.attempt && time.Since(x.at) > time.Second && !said[k.Instance] {
			if said == nil {
				said = map[int64]bool{}
			}
			said[k.Instance] = true
			out = append(out, broker.Control{Kind: broker.ControlStop, Instance: k.Instance, Attempt: x.attempt})
		}
	}
	return out
}
