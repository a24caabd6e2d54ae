package server

import (
	"context"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/internal/track"
)

const sweepPage = 500

// sweeping looks each second at what nobody told the server of: rows that wait, commands,
// silent workers. A nudge makes it look at once.
func (s *Server) sweeping(ctx context.Context) {
	every := min(time.Second, s.cfg.BeatEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		s.expire()
		s.look(ctx)
		if n%10 == 0 {
			s.lookAtWorkers(ctx)
		}
		s.inbox.put(item{do: func(int64) {
			st := s.owner.Stats()
			s.stats.Store(&st)
			// First what was decided before, so that nothing is told of it ahead of its commit.
			s.submit(s.owner.Take())
			s.submit(s.owner.MoveCursors())
		}}, false)
		select {
		case <-ctx.Done():
			return
		case <-s.nudge:
		case <-tick.C:
		}
	}
}

func (s *Server) nudged(shard uint8) {
	if !s.owned[shard].Load() {
		return
	}
	s.fire.LookSoon()
	s.lookSoon()
}

// lookSoon has the sweep look at once.
func (s *Server) lookSoon() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// look reads what waits for this server's shards.
func (s *Server) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	heads, err := s.cfg.Store.QueueHeads(ctx)
	if err != nil {
		return // the database is away: the committer says so, and the next look comes
	}
	s.inbox.put(item{event: track.Heads{Heads: heads}}, false)
	var shards []uint8
	for id := range uint8(engine.Shards) {
		if s.owned[id].Load() {
			shards = append(shards, id)
		}
	}
	if len(shards) == 0 {
		return
	}
	var fences [engine.Shards]*fire.Fence
	for _, id := range shards {
		fences[id] = s.fences[id].Load()
	}
	rows, err := s.cfg.Store.NewWorkflows(ctx, shards, s.now(), sweepPage)
	if err != nil {
		return
	}
	for _, e := range s.executions(ctx, rows, nil, nil) {
		s.inbox.put(item{do: func(now int64) {
			// If the shard was lost or loaded again since, the row may be that of a run which is
			// over, and nothing here remembers.
			if f := fences[e.Row.Shard]; f != nil && f == s.fences[e.Row.Shard].Load() {
				s.flow.Begin(now, e)
			}
		}}, false)
	}
	after := int64(0)
	for {
		cmds, err := s.cfg.Store.Commands(ctx, shards, after, sweepPage)
		if err != nil {
			return
		}
		for _, c := range cmds {
			after = c.ID
			if !s.inbox.put(item{do: func(int64) { s.takeCommand(c) }}, true) {
				return
			}
		}
		if len(cmds) < sweepPage {
			return
		}
	}
}

// lookAtWorkers takes in which workers are in maintenance.
func (s *Server) lookAtWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	seen := map[string]bool{}
	for _, w := range s.fleet.Workers("") {
		if seen[w.Beat.App] {
			continue
		}
		seen[w.Beat.App] = true
		if app, err := s.cfg.Store.AppByName(ctx, w.Beat.App); err == nil {
			s.maintenance(ctx, app)
		}
	}
}
