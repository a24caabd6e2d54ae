package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// look is one server's repeated look at the cluster during one lease.
type look struct {
	c       *Cluster
	number  int16
	token   uint64
	standby bool

	failing  bool
	offSince time.Duration // monotonic; when the broker connection was first seen down
	off      bool
}

// once brings the shards into line with who is live. It returns true if the lease should
// end so that the server becomes a standby, or stops being one.
func (k *look) once(ctx context.Context) (change bool) {
	change, err := k.try(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil && !k.failing:
		k.failing = true
		k.c.cfg.Log.Error("cannot look after the shards, trying on", "number", k.number, "err", err)
	case err == nil && k.failing:
		k.failing = false
		k.c.cfg.Log.Info("the shards are looked after again", "number", k.number)
	}
	return change
}

func (k *look) try(ctx context.Context) (change bool, err error) {
	c := k.c
	lapses := c.lapses.Load()
	call, cancel := context.WithTimeout(ctx, c.cfg.TTL)
	defer cancel()
	live, err := c.store.LiveServers(call)
	if err != nil {
		return false, fmt.Errorf("list servers: %w", err)
	}
	shards, err := c.store.ShardOwners(call)
	if err != nil {
		return false, fmt.Errorf("list shards: %w", err)
	}
	c.mu.Lock()
	c.live = live
	c.mu.Unlock()
	k.verify(ctx, shards)
	c.seen.Store(lapses)
	active := slices.DeleteFunc(slices.Clone(live), standing)
	if k.yields(active) {
		return true, nil
	}
	self := slices.ContainsFunc(live, func(s engine.Server) bool { return s.Number == k.number })
	if !self || k.standby {
		return false, nil // a lapsed lease claims nothing before it is renewed
	}
	return false, k.divide(ctx, active, live, shards)
}

// verify drops what is held and, by the database, is no longer the server's.
func (k *look) verify(ctx context.Context, shards []engine.Shard) {
	var gone []engine.Shard
	for _, s := range shards {
		held, ok := k.c.Owns(s.Shard)
		if ok && (s.Owner != k.number || s.Epoch != held.Epoch) {
			gone = append(gone, held)
		}
	}
	k.c.lose(ctx, gone, false)
}

// yields tells whether the server should become a standby, or stop being one.
func (k *look) yields(active []engine.Server) bool {
	c := k.c
	connected := c.cfg.Connected()
	if k.standby {
		return connected || len(active) == 0
	}
	mono, _ := c.cfg.Clock()
	switch {
	case connected:
		k.off = false
		return false
	case !k.off:
		k.off, k.offSince = true, mono
	}
	// When the broker is away for all, they step back one after the other, and the last one
	// stays.
	rank := slices.IndexFunc(active, func(s engine.Server) bool { return s.Number == k.number })
	wait := c.cfg.BrokerGrace + time.Duration(max(rank, 0))*c.cfg.Renew
	return rank >= 0 && len(active) > 1 && mono-k.offSince >= wait
}

// replaceable tells whether another server is there to take the shards.
func (k *look) replaceable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, k.c.cfg.TTL)
	defer cancel()
	live, err := k.c.store.LiveServers(ctx)
	return err == nil && slices.ContainsFunc(live, func(s engine.Server) bool {
		return s.Number != k.number && !standing(s)
	})
}

// divide gives up what others should have and claims what is the server's own and free.
func (k *look) divide(ctx context.Context, active, live []engine.Server, shards []engine.Shard) error {
	var give []engine.Shard // held and not wanted
	var drop []engine.Shard // in its name, not held, not wanted: left by an earlier holder of the number
	var want []uint8
	for _, s := range shards {
		held, holds := k.c.Owns(s.Shard)
		mine := Home(s.Shard, active) == k.number
		free := s.Owner == k.number || !slices.ContainsFunc(live, func(v engine.Server) bool { return v.Number == s.Owner })
		switch {
		case holds && !mine:
			give = append(give, held)
		case holds:
		case mine && free:
			want = append(want, s.Shard)
		case !mine && s.Owner == k.number:
			drop = append(drop, s)
		}
	}
	claimed := k.claim(ctx, want)
	k.c.lose(context.WithoutCancel(ctx), give, true)
	return errors.Join(claimed, k.release(ctx, append(give, drop...)))
}

// abreast is how many claims or releases are in flight together.
const abreast = 8

func (k *look) claim(ctx context.Context, want []uint8) error {
	got := make([]*engine.Shard, len(want))
	err := each(len(want), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, k.c.cfg.TTL)
		defer cancel()
		s, err := k.c.store.ClaimShard(ctx, want[i], k.number, k.token)
		if errors.Is(err, engine.ErrConflict) {
			return nil // another one was faster
		}
		if err != nil {
			return fmt.Errorf("claim shard %d: %w", want[i], err)
		}
		got[i] = s
		return nil
	})
	for _, s := range got {
		if s == nil {
			continue
		}
		k.c.mu.Lock()
		k.c.held[s.Shard] = *s
		k.c.mu.Unlock()
		k.c.handler.Gained(*s)
	}
	return err
}

func (k *look) release(ctx context.Context, shards []engine.Shard) error {
	var released atomic.Bool
	defer func() {
		if released.Load() {
			k.c.cfg.OnChange()
		}
	}()
	return each(len(shards), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, k.c.cfg.TTL)
		defer cancel()
		s := shards[i]
		err := k.c.store.ReleaseShard(ctx, s.Shard, k.number, s.Epoch)
		if err == nil {
			released.Store(true)
		}
		if err != nil && !errors.Is(err, engine.ErrFenced) && !errors.Is(err, engine.ErrConflict) {
			return fmt.Errorf("release shard %d: %w", s.Shard, err)
		}
		return nil
	})
}

// each calls f for 0..n-1, some abreast, and returns the first error.
func each(n int, f func(i int) error) error {
	slots := make(chan struct{}, abreast)
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// Home is the number of the server that should own the shard, by rendezvous hashing: a
// server that comes or goes moves only its own share. 0 if there is none. Standbys must
// have been left out.
func Home(shard uint8, servers []engine.Server) int16 {
	var best uint64
	var home int16
	for _, s := range servers {
		x := uint64(shard)<<16 | uint64(uint16(s.Number))
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x = (x ^ x>>27) * 0x94D049BB133111EB
		if x ^= x >> 31; x > best {
			best, home = x, s.Number
		}
	}
	return home
}
