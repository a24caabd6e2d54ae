package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
)

// LedgerEntry is one fire that ran, or consecutive ones that did not.
type LedgerEntry struct {
	Fired *engine.Fired // one of the two
	Skip  *engine.Skip
}

// At is the scheduled time, the first one of several.
func (e LedgerEntry) At() int64 {
	if e.Fired != nil {
		return e.Fired.At
	}
	return e.Skip.From
}

const (
	ledgerPage = 1000
	ledgerMost = 10_000
	// verifyMost bounds the fires that one verification looks at.
	verifyMost = 1_000_000
)

// Ledger lists the fires of a job or workflow with scheduled times in [from, to], oldest
// first; to 0 is now. more says that there are more than limit (at most 10 000): the newest
// are left out.
func (s *Server) Ledger(ctx context.Context, d Definition, from, to int64, limit int) (entries []LedgerEntry, more bool, err error) {
	_, kind, id, err := s.find(ctx, d)
	if err != nil {
		return nil, false, err
	}
	if to == 0 {
		to = s.wall()
	}
	if limit <= 0 {
		limit = 500
	}
	limit = min(limit, ledgerMost)
	fired, skips, err := s.readLedger(ctx, kind, id, from, to, verifyMost)
	if err != nil {
		return nil, false, fmt.Errorf("ledger of %s: %w", d, err)
	}
	for i := range fired {
		entries = append(entries, LedgerEntry{Fired: &fired[i]})
	}
	for i := range skips {
		entries = append(entries, LedgerEntry{Skip: &skips[i]})
	}
	slices.SortStableFunc(entries, func(a, b LedgerEntry) int { return cmp.Compare(a.At(), b.At()) })
	if len(entries) > limit {
		return entries[:limit], true, nil
	}
	return entries, false, nil
}

// readLedger reads what fired, by scheduled time, and what did not.
func (s *Server) readLedger(ctx context.Context, kind engine.DefKind, id, from, to int64, most int) ([]engine.Fired, []engine.Skip, error) {
	var fired []engine.Fired
	for after := int64(0); ; {
		page, err := s.cfg.Store.Fired(ctx, kind, id, from, to, after, ledgerPage)
		if err != nil {
			return nil, nil, err
		}
		fired = append(fired, page...)
		if len(fired) > most {
			return nil, nil, fmt.Errorf("more than %d fires lie in this range: ask for a shorter one: %w", most, engine.ErrTooLarge)
		}
		if len(page) < ledgerPage {
			break
		}
		after = page[len(page)-1].Instance
	}
	slices.SortFunc(fired, func(a, b engine.Fired) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Instance, b.Instance))
	})
	var skips []engine.Skip
	for after := int64(-1); ; {
		page, err := s.cfg.Store.Skips(ctx, kind, id, from, to, after, ledgerPage)
		if err != nil {
			return nil, nil, err
		}
		skips = append(skips, page...)
		if len(skips) > most {
			return nil, nil, fmt.Errorf("more than %d rows of skipped fires lie in this range: ask for a shorter one: %w", most, engine.ErrTooLarge)
		}
		if len(page) < ledgerPage {
			return fired, skips, nil
		}
		after = page[len(page)-1].From
	}
}
