package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// loop is the one goroutine that owns the owner and the flow. It handles what has come,
// hands the Changes to the committer, and goes on while they are being stored.
func (s *Server) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.untilWake())
		select {
		case <-ctx.Done():
			return
		case <-s.inbox.wake:
		case <-timer.C:
			s.handle(track.Tick{})
			s.flow.Tick(s.now())
			s.settle()
		}
		for _, it := range s.inbox.take() {
			if it.do != nil {
				it.do(s.tick())
			} else {
				s.handle(it.event)
			}
			s.settle()
		}
		s.submit(s.owner.Take())
		s.readAgain()
	}
}

// wall is the database's clock, epoch ms: what schedules go by. It may be put back.
func (s *Server) wall() int64 { return s.cluster.Now() }

// Now is the database's clock as this server knows it, epoch ms.
func (s *Server) Now() int64 { return s.wall() }

// NewID is an id that no server has given out, for what is stored beside the engine's rows;
// ErrUnavailable while the server has no lease to make ids from.
func (s *Server) NewID() (int64, error) {
	if id := s.cluster.NextID(); id != 0 {
		return id, nil
	}
	return 0, fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
}

func (s *Server) now() int64 { return s.clock.at(s.cluster.Now(), s.mono()) }

// clock never goes back: what is due at a moment that has been must not wait for it to come
// again. When the database's clock is put back, it runs at half the speed until that has
// caught up.
type clock struct {
	mu         sync.Mutex
	last, mono int64
	jump       int64 // put forward since the last look
}

// at is the time, ms, when the database's is now and the monotonic one mono.
func (c *clock) at(now, mono int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now >= c.last {
		if ahead := now - c.last - (mono - c.mono); c.last > 0 && ahead > jumpLeast {
			c.jump += ahead
		}
		c.last, c.mono = now, mono
	} else if half := (mono - c.mono) / 2; half > 0 {
		c.last += half
		c.mono += 2 * half
	}
	return c.last
}

// jumpLeast is the step, ms, from which the clock was put forward rather than ran fast.
const jumpLeast = 1000

// jumped is by how much the clock was put forward since the last call, ms.
func (c *clock) jumped() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.jump
	c.jump = 0
	return by
}

func (s *Server) handle(ev track.Event) { s.owner.Handle(s.tick(), ev) }

// tick is the time for what the loop handles next. When the database's clock was put
// forward, the owner first moves what it measures by that clock, such as timeouts: nobody
// has worked longer for it.
func (s *Server) tick() int64 {
	now := s.now()
	if by := s.clock.jumped(); by > 0 {
		s.owner.Handle(now, track.Stepped{By: by})
	}
	return now
}

// settle tells the flow of instances that moved while an event was handled, until nothing
// more comes of it.
func (s *Server) settle() {
	for len(s.moved) > 0 {
		m := s.moved[0]
		s.moved = s.moved[1:]
		if m.final {
			s.flow.Final(s.now(), &m.instance)
		} else {
			s.flow.Started(s.now(), &m.instance)
		}
	}
	s.moved = nil
}

// untilWake is how long the loop may sleep: never more than a second of a wall clock.
func (s *Server) untilWake() time.Duration {
	now, next := s.now(), s.owner.NextWake()
	if f := s.flow.NextWake(); f > 0 && (next == 0 || f < next) {
		next = f
	}
	if next == 0 {
		return time.Second
	}
	return min(max(time.Duration(next-now)*time.Millisecond, 0), time.Second)
}

// submit hands a batch to the committer. Effects run after their Change is stored; what
// live views are told runs after all of the batch is, and not if any of it was lost.
func (s *Server) submit(b track.Batch) {
	lost := new(bool) // only on the committer's goroutine
	for i := range b.Changes {
		st := b.Changes[i]
		s.progress(&st.Change)
		for j := range st.Change.DeadLetters {
			st.Change.DeadLetters[j].ID = s.cluster.NextID() // the owner has no dice
		}
		s.commit.Submit(st.Change, st.Gen, func(r commit.Result) { *lost = !s.committed(&st, r) || *lost })
	}
	news := s.news
	s.news = nil
	if len(b.After) > 0 || len(news) > 0 {
		s.commit.Submit(engine.Change{}, 0, func(r commit.Result) {
			s.perform(b.After, r)
			if *lost {
				return
			}
			for _, f := range news {
				f()
			}
		})
	}
}

// committed runs on the committer's goroutine, between two transactions.
func (s *Server) committed(st *track.Stored, r commit.Result) bool {
	err := r.Err
	if st.Permit != nil && (err == nil || errors.Is(err, engine.ErrLimit)) {
		s.inbox.put(item{event: track.Permitted{Shard: st.Change.Shard, Permit: *st.Permit, Granted: err == nil}}, false)
		return true
	}
	if err == nil && !st.Change.Fenced && s.commit.Broken(st.Change.Shard, st.Gen) {
		err = engine.ErrFenced // nothing was stored, but what it says rests on what was lost
	}
	if err == nil {
		if st.Change.Fenced {
			s.cursors[st.Change.Shard].Store(st.Change.Cursor)
		}
		s.perform(st.Effects, r)
		return true
	}
	for _, e := range st.Effects {
		switch e := e.(type) {
		case track.Wake:
			if e.Done != nil {
				e.Done(err)
			}
		default:
		}
	}
	shard, gen := st.Change.Shard, st.Gen
	instance := soleInstance(&st.Change)
	s.commit.Break(shard, gen)
	s.inbox.put(item{do: func(int64) { s.reload(shard, gen, err, instance) }}, false)
	return false
}
