package server

import (
	"context"
	"time"

	"github.com/fanjet/fanjet/engine"
)

const (
	retainEvery = time.Minute
	retainPage  = 150
	// retainShare is how many times as long as a deletion took the next one waits, so that
	// deleting a year of history takes a fifth of the database at most.
	retainShare = 4
	retainPause = 20 * time.Millisecond
)

// retaining deletes what is older than it is to be kept, in short transactions, beside
// everything else. Whoever owns the first shard does it.
func (s *Server) retaining(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.ready:
	}
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		if s.owned[0].Load() {
			s.retain(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// retain is one pass over what is too old. It ends early if the database is away or the shard
// is lost: the next pass begins anew.
func (s *Server) retain(ctx context.Context) {
	now := s.now()
	if before := s.keptSince(now); before > 0 {
		for after := int64(0); s.owned[0].Load() && ctx.Err() == nil; {
			began := time.Now()
			last, rows, err := s.cfg.Store.DeleteHistory(ctx, after, engine.FirstID(before), retainPage)
			if err != nil {
				s.cfg.Log.Debug("old history is deleted later", "err", err)
				return
			}
			s.retained.Add(rows)
			if last == 0 {
				break
			}
			after = last
			pause(ctx, max(retainShare*time.Since(began), retainPause))
		}
	}
	if s.cfg.KeepLedger < 0 {
		return
	}
	for s.owned[0].Load() && ctx.Err() == nil {
		began := time.Now()
		rows, err := s.cfg.Store.DeleteLedger(ctx, now-s.cfg.KeepLedger.Milliseconds(), retainPage)
		if err != nil {
			s.cfg.Log.Debug("old rows of the ledger are deleted later", "err", err)
			return
		}
		s.retained.Add(rows)
		if rows < retainPage {
			return
		}
		pause(ctx, max(retainShare*time.Since(began), retainPause))
	}
}

// keptSince is from when on history is whole, epoch ms; 0: nothing is deleted.
func (s *Server) keptSince(now int64) int64 {
	if s.cfg.KeepHistory < 0 {
		return 0
	}
	return now - s.cfg.KeepHistory.Milliseconds()
}
