package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// lease is what a renewal left behind. Immutable.
type lease struct {
	number int16
	token  uint64
	mono   time.Duration // before the renewal was sent
	wall   time.Duration
	until  int64 // end by the database's clock
}

// reading is the database's clock at a moment of the monotonic one; now 0 is none.
type reading struct {
	now  int64
	mono time.Duration
}

// Now is the database's time at the last renewal plus the monotonic clock since, epoch ms;
// 0 before the first one. It does not go back unless a step was reported.
func (c *Cluster) Now() int64 {
	mono, _ := c.cfg.Clock()
	c.clockMu.Lock()
	defer c.clockMu.Unlock()
	if c.clock.now == 0 {
		return 0
	}
	c.lastNow = max(c.lastNow, c.clock.now+(mono-c.clock.mono).Milliseconds())
	return c.lastNow
}

// Deciding tells whether the server may decide anything: its lease was renewed less than
// TTL ago by its own clocks, and since then it has seen its shards to be its own. Both the
// monotonic and the wall clock count, because either may stand still while the machine is
// suspended. It is cheap; owners ask before each decision.
func (c *Cluster) Deciding() bool {
	l := c.lease.Load()
	if l == nil || c.lapses.Load() != c.seen.Load() {
		return false
	}
	mono, wall := c.cfg.Clock()
	return mono-l.mono < c.cfg.TTL && wall-l.wall < c.cfg.TTL
}

// NextID is a new id: int64, time-ordered, greater than all this process issued before and
// different from those of all others, also over restarts with an earlier clock. It never
// waits. It is 0 before the server has joined, and when the database was away for so long
// that all promised ids (some millions) are used up; nothing could be stored then anyhow.
func (c *Cluster) NextID() int64 { return c.ids.next(c.Now()) }

// join takes a server number and stores the first promise of ids. It tries until ctx ends.
func (c *Cluster) join(ctx context.Context, name string) *lease {
	failing := false
	for ctx.Err() == nil {
		l, err := c.tryJoin(ctx, name)
		if err == nil {
			if failing {
				c.cfg.Log.Info("joined the cluster after all", "server", name)
			}
			return l
		}
		if !failing && ctx.Err() == nil {
			c.cfg.Log.Error("cannot join the cluster, trying on", "server", name, "err", err)
			failing = true
		}
		c.pause(ctx)
	}
	return nil
}

func (c *Cluster) tryJoin(ctx context.Context, name string) (*lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.TTL)
	defer cancel()
	token := rand.Uint64() >> 1 // fits a signed column
	row, err := c.store.JoinServer(ctx, name, token, c.cfg.TTL.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if row.Number < 1 || row.Number > MaxNumber {
		return nil, fmt.Errorf("join: server number %d is not in 1..%d: %w", row.Number, MaxNumber, engine.ErrInvalid)
	}
	now := row.Until - c.cfg.TTL.Milliseconds()
	l, err := c.renew(ctx, &lease{number: row.Number, token: token, until: row.Until}, row.LastID, now)
	if err != nil {
		leave, stop := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.TTL)
		defer stop()
		_ = c.store.LeaveServer(leave, row.Number, token) // else it expires
		return nil, err
	}
	c.cfg.Log.Info("joined the cluster", "server", name, "number", row.Number)
	return l, nil
}

// renew moves the lease, and everything that hangs on it: the clock, the promise of ids
// and whether the shards have to be looked at before anything more is decided.
func (c *Cluster) renew(ctx context.Context, l *lease, floor, now int64) (*lease, error) {
	ttl := c.cfg.TTL.Milliseconds()
	bound := c.ids.promise(now, 2*ttl, floor)
	mono, wall := c.cfg.Clock()
	now, err := c.store.RenewServer(ctx, l.number, l.token, ttl, bound)
	if err != nil {
		return nil, fmt.Errorf("renew server %d: %w", l.number, err)
	}
	got, _ := c.cfg.Clock()
	c.setClock(now, mono, got)
	c.ids.promised(l.number, bound, floor, now+ttl)
	if now >= l.until {
		// The lease had ended by the database's clock; others may have taken shards.
		c.lapses.Add(1)
	}
	next := &lease{number: l.number, token: l.token, mono: mono, wall: wall, until: now + ttl}
	c.lease.Store(next)
	return next, nil
}

// stepBound is the change of the database's clock against the monotonic one that counts as
// a step.
const stepBound = time.Second

func (c *Cluster) setClock(now int64, sent, got time.Duration) {
	next := reading{now: now, mono: sent + (got-sent)/2}
	c.clockMu.Lock()
	step := time.Duration(now-c.clock.now)*time.Millisecond - (next.mono - c.clock.mono)
	stepped := c.clock.now != 0 && step.Abs() > stepBound+(got-sent)/2
	c.clock = next
	if stepped {
		c.lastNow = now
	}
	c.clockMu.Unlock()
	if !stepped {
		return
	}
	c.cfg.Log.Warn("the database's clock has stepped", "step", step)
	if c.cfg.OnStep != nil {
		c.cfg.OnStep(step)
	}
}

// renewing renews until ctx ends or the lease is taken away; then it closes taken.
// After each renewal it leaves a token in renewed.
func (c *Cluster) renewing(ctx context.Context, l *lease, renewed chan<- struct{}, taken chan<- struct{}) {
	t := time.NewTicker(c.cfg.Renew)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		call, cancel := context.WithTimeout(ctx, c.cfg.TTL)
		next, err := c.renew(call, l, 0, c.Now())
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, engine.ErrFenced):
			c.cfg.Log.Error("the lease was taken away", "number", l.number, "err", err)
			close(taken)
			return
		case err != nil:
			if !failing {
				c.cfg.Log.Error("cannot renew the lease", "number", l.number, "err", err)
			}
			failing = true
			continue
		}
		if failing {
			c.cfg.Log.Info("the lease is renewed again", "number", l.number)
		}
		failing, l = false, next
		select {
		case renewed <- struct{}{}:
		default:
		}
	}
}
