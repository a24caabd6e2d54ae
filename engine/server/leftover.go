package server

import (
	"context"
	"errors"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// What purges are due is only in memory: a server that dies takes the knowledge with it, and
// a worker that heard of the end late may store a result after the last of them. So the
// streams themselves are asked, by whoever owns the shard: soon after it got it, and now and
// then.
const (
	leftoverEvery = 5 * time.Minute
	leftoverSoon  = 3 * time.Second
)

// lookForLeftovers has the streams looked through soon.
func (s *Server) lookForLeftovers() {
	s.leftoversAt.Store(s.mono() + leftoverSoon.Milliseconds())
}

// purgeLeftovers has the chunks, the stage and the results of final instances purged, if it
// is time. A chunk that is left in its lane would be run by the next worker that comes.
func (s *Server) purgeLeftovers(ctx context.Context) {
	at := s.leftoversAt.Load()
	if s.mono() < at {
		return
	}
	next := leftoverEvery
	if !s.findLeftovers(ctx) {
		next = leftoverSoon
	}
	s.leftoversAt.CompareAndSwap(at, s.mono()+next.Milliseconds()) // or sooner, if asked for meanwhile
}

// findLeftovers is false if not everything could be looked at.
func (s *Server) findLeftovers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	apps, err := s.cfg.Store.Apps(ctx)
	if err != nil {
		return false // the committer says so
	}
	whole := true
	for _, app := range apps {
		ids, err := s.cfg.Broker.RunHolders(ctx, app.Name, app.Set)
		if err != nil {
			return false
		}
		counts, err := s.cfg.Broker.TaskCounts(ctx, app.Name, app.Set)
		if err != nil {
			return false
		}
		for _, id := range ids {
			delete(counts, id)
		}
		for id := range counts {
			ids = append(ids, id)
		}
		for _, id := range ids {
			in, err := s.cfg.Store.Instance(ctx, id)
			switch {
			case errors.Is(err, engine.ErrNotFound): // nobody's
			case err != nil:
				whole = false
			case in.App == app.ID && in.Status.Terminal() && s.owned[in.Shard].Load():
				s.purges.add(track.Purge{App: app.Name, Set: app.Set, Instance: id, Tasks: true, Run: -1}, s.now())
			}
		}
	}
	return whole
}
