package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/internal/flow"
	"github.com/fanjet/fanjet/engine/internal/track"
)

const retryPause = 200 * time.Millisecond

// Gained implements cluster.Handler: the shard is loaded and taken over.
func (s *Server) Gained(shard engine.Shard) {
	s.inbox.put(item{do: func(int64) { s.load(shard, 0) }}, false)
}

// Lost implements cluster.Handler: what is decided is stored, and the shard forgotten.
func (s *Server) Lost(ctx context.Context, shard engine.Shard) {
	done := make(chan struct{})
	ok := s.inbox.put(item{do: func(int64) {
		s.submit(s.owner.Take())
		if ctx.Err() == nil {
			s.submit(s.owner.MoveCursors())
		}
		s.drop(shard.Shard)
		s.held[shard.Shard] = engine.Shard{}
		s.submit(s.owner.Take())
		s.commit.Submit(engine.Change{}, 0, func(commit.Result) { close(done) })
	}}, false)
	if !ok {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
		// Too late to wait for: the fence refuses whatever is still under way.
	}
}

// drop forgets a shard's memory.
func (s *Server) drop(shard uint8) {
	s.owned[shard].Store(false)
	s.fences[shard].Store(nil)
	s.owner.Handle(s.now(), track.Lost{Shard: shard})
	s.flow.Lost(shard)
	s.taken.forget(shard)
	maps.DeleteFunc(s.nodes, func(_ int64, n nodeRef) bool { return n.shard == shard })
	s.gens[shard] = 0
	// What the reader at hand still brings may lie behind the cursor the shard comes back
	// with: only a reader that began there counts.
	s.reading[shard] = 0
	if stop := s.asks[shard]; stop != nil {
		stop()
		s.asks[shard] = nil
	}
	s.readDirty = true
}

// reload drops a shard whose memory ran ahead of a lost Change, and loads it again.
func (s *Server) reload(shard uint8, gen uint32, why error, instance int64) {
	if s.gens[shard] != gen || s.held[shard].Epoch == 0 {
		return // on its way already, or not ours any more
	}
	if !errors.Is(why, engine.ErrFenced) && !errors.Is(why, commit.ErrBroken) && !errors.Is(why, commit.ErrStopped) {
		s.cfg.Log.Warn("a commit was lost, the shard is loaded again", "shard", shard, "err", why)
	}
	after, aside := s.poison[shard].refused(why, s.cursors[shard].Load(), instance)
	if aside != 0 {
		s.setAside(shard, aside, why)
	}
	s.drop(shard)
	s.load(s.held[shard], after)
}

// load reads a shard's state, once everything handed in for it before has ended.
func (s *Server) load(shard engine.Shard, after time.Duration) {
	s.held[shard.Shard] = shard
	gen := s.commit.Mend(shard.Shard)
	s.gens[shard.Shard] = gen
	s.loading++
	s.commit.Submit(engine.Change{}, 0, func(commit.Result) {
		s.background(func(ctx context.Context) {
			if after > 0 {
				pause(ctx, after)
			}
			s.loadNow(ctx, shard, gen)
		})
	})
}

func (s *Server) loadNow(ctx context.Context, shard engine.Shard, gen uint32) {
	s.loads <- struct{}{}
	defer func() { <-s.loads }()
	var st *engine.ShardState
	var rows []track.Row
	var works []flow.Execution
	for ctx.Err() == nil {
		var err error
		if st, rows, works, err = s.readShard(ctx, shard); err == nil {
			break
		}
		st = nil
		if errors.Is(err, engine.ErrFenced) {
			break
		}
		s.cfg.Log.Debug("a shard cannot be loaded yet", "shard", shard.Shard, "err", err)
		pause(ctx, retryPause)
	}
	s.inbox.put(item{do: func(now int64) {
		s.loading--
		s.readDirty = true
		if st == nil || s.gens[shard.Shard] != gen || s.held[shard.Shard].Epoch != shard.Epoch {
			return
		}
		rows = slices.DeleteFunc(rows, func(r track.Row) bool { return s.aside[r.Instance.ID] })
		s.owner.Handle(now, track.Gained{State: st, Rows: rows, Gen: gen, Number: shard.Owner})
		s.settle()
		if p := s.owner.Pending(shard.Shard); p != nil {
			p.DeadLetters = append(p.DeadLetters, s.poison[shard.Shard].letters...)
			s.poison[shard.Shard].letters = nil
		}
		for _, e := range works {
			s.flow.Begin(now, e)
			s.settle()
		}
		for _, n := range st.Nodes {
			if n.Instance != 0 && !n.Status.Terminal() {
				s.nodes[n.Instance] = nodeRef{n.Workflow, n.Node, shard.Shard}
			}
		}
		for _, c := range st.Commands {
			s.takeCommand(c)
		}
		s.answerAsks(shard.Shard)
		s.cursors[shard.Shard].Store(st.Shard.Cursor)
		s.owned[shard.Shard].Store(true)
		s.fences[shard.Shard].Store(&fire.Fence{Shard: shard.Shard, Owner: shard.Owner, Epoch: shard.Epoch, Gen: gen})
		s.fire.Look()
		s.lookForLeftovers()
	}}, false)
}

// loadTimeout bounds what refers to the rows of a shard being read, a few statements for
// each at worst.
const loadTimeout = 2 * time.Minute

// readShard reads a shard's state and everything that its rows refer to: all of it or
// nothing. What would be left out is on its way, and nobody would look for it again.
func (s *Server) readShard(ctx context.Context, shard engine.Shard) (*engine.ShardState, []track.Row, []flow.Execution, error) {
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := s.cfg.Store.LoadShard(read, shard.Shard, shard.Owner, shard.Epoch)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("load shard %d: %w", shard.Shard, err)
	}
	look, stop := context.WithTimeout(ctx, loadTimeout)
	defer stop()
	rows := s.resolveAll(look, st.Instances)
	works := s.executions(look, st.Workflows, st.Nodes, st.Signals)
	if len(rows) < len(st.Instances) || len(works) < len(st.Workflows) {
		return nil, nil, nil, fmt.Errorf("load shard %d: not all that its rows refer to can be read: %w", shard.Shard, engine.ErrUnavailable)
	}
	return st, rows, works, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// answerAsks subscribes to the questions of a shard.
func (s *Server) answerAsks(shard uint8) {
	if s.asks[shard] != nil {
		return
	}
	stop, err := s.cfg.Broker.OnAsk(shard, func(q *broker.AskRequest, reply func(*broker.AskReply)) {
		s.background(func(ctx context.Context) {
			ask := track.Asked{Request: q, Reply: reply}
			if q.Kind == broker.AskRun {
				read, cancel := context.WithTimeout(ctx, readTimeout)
				last, err := s.cfg.Broker.LastReport(read, shard)
				cancel()
				if err != nil {
					reply(&broker.AskReply{Verdict: broker.VerdictRetry})
					return
				}
				ask.After = last
			}
			s.inbox.put(item{event: ask}, false)
		})
	})
	if err != nil {
		s.cfg.Log.Warn("questions of a shard cannot be heard yet", "shard", shard, "err", err)
		s.background(func(ctx context.Context) {
			pause(ctx, time.Second)
			s.inbox.put(item{do: func(int64) {
				if s.owned[shard].Load() {
					s.answerAsks(shard)
				}
			}}, false)
		})
		return
	}
	s.asks[shard] = stop
}

// loadPatience is how long, ms, a new reader waits for shards that are being loaded.
const loadPatience = 2000

// readAgain starts reading the reports anew when the set of shards has changed: each from
// its cursor. Reports that an earlier reader brought are dropped.
func (s *Server) readAgain() {
	if !s.readDirty || s.ctx.Err() != nil {
		s.dirtyAt = 0
		return
	}
	// Shards that are being loaded are waited for, but not long: one that cannot be loaded
	// must not keep the others from their reports.
	if s.dirtyAt == 0 {
		s.dirtyAt = s.mono()
	}
	if s.loading > 0 && s.mono()-s.dirtyAt < loadPatience {
		return
	}
	s.readDirty, s.dirtyAt = false, 0
	gen := s.readGen.Add(1)
	cursors := map[uint8]uint64{}
	for id := range uint8(engine.Shards) {
		if s.owner.Owns(id) {
			cursors[id] = s.owner.Cursor(id)
			s.reading[id] = gen
		}
	}
	stop := s.stopReading
	s.stopReading = nil
	s.background(func(ctx context.Context) {
		if stop != nil {
			stop()
		}
		if len(cursors) > 0 {
			s.startReading(ctx, gen, cursors)
		} else if len(s.cluster.Servers()) > 1 {
			s.readyOnce.Do(func() { close(s.ready) }) // the others have all the shards
		}
	})
}

func (s *Server) startReading(ctx context.Context, gen int64, cursors map[uint8]uint64) {
	for s.readGen.Load() == gen && ctx.Err() == nil {
		read, cancel := context.WithTimeout(ctx, readTimeout)
		err := s.cfg.Broker.EnsureReports(read)
		var end uint64
		if err == nil {
			end, err = s.cfg.Broker.ReportsEnd(read)
		}
		cancel()
		if err != nil {
			pause(ctx, retryPause)
			continue
		}
		for shard, cursor := range cursors {
			if cursor > end {
				s.cfg.Log.Warn("the reports stream ends before the shard's cursor: it was lost or restored", "shard", shard, "cursor", cursor, "end", end)
				cursors[shard] = end
				s.inbox.put(item{do: func(now int64) {
					if s.reading[shard] == gen {
						s.owner.Handle(now, track.CursorReset{Shard: shard, End: end})
					}
				}}, false)
			}
		}
		stop, err := s.cfg.Broker.Reports(ctx, cursors, func(shard uint8, seq uint64, batch *broker.ReportBatch, raw []byte, err error) {
			if s.readGen.Load() != gen {
				return
			}
			ev := track.Reported{Shard: shard, Seq: seq, Batch: batch, Err: err}
			if batch == nil {
				ev.Raw = append([]byte(nil), raw...)
			}
			s.inbox.put(item{bytes: len(raw), do: func(now int64) {
				if s.reading[shard] == gen {
					s.takeReport(now, ev)
				}
			}}, true)
		})
		if err != nil {
			pause(ctx, retryPause)
			continue
		}
		if !s.inbox.put(item{do: func(int64) {
			if s.readGen.Load() != gen {
				s.background(func(context.Context) { stop() })
				return
			}
			s.stopReading = stop
			s.readyOnce.Do(func() { close(s.ready) })
		}}, false) {
			stop()
		}
		return
	}
}
