package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// Verification compares what should have fired with what did. Times are epoch ms.
type Verification struct {
	From, To int64
	// Expected are the scheduled times by the versions that were in force; of a fixed_delay,
	// what fired.
	Expected int64
	Fired    int64
	Skipped  int64 // with a reason in the ledger
	// Missing left no trace, Doubled fired more than once, Unexpected fired at a time that no
	// version names. At most 100 of each are listed.
	Missing, Doubled, Unexpected                []int64
	MissingCount, DoubledCount, UnexpectedCount int64
	MaxLate, P99Late                            int64 // ms, of what fired
}

// Clean tells whether nothing was missed, doubled or made up.
func (v *Verification) Clean() bool {
	return v.MissingCount == 0 && v.DoubledCount == 0 && v.UnexpectedCount == 0
}

const (
	verifyList = 100
	// verifyRecent is how near to now, ms, fires may still be under way.
	verifyRecent = 10_000
	// verifySaved is how long, ms, before a version was saved a fire may have been due that
	// nobody had decided about yet: the new version has taken its place.
	verifySaved = 5_000
)

// reign is a version of a definition and how long it was in force.
type reign struct {
	from, to int64 // scheduled times in (from, to]
	anchor   int64
	spec     workflow.Schedule
	enabled  bool
	last     bool
}

// Verify recomputes which fires of a job or workflow should have come in [from, to] and
// compares with the ledger. to is at most ten seconds ago, or when the last fire was scheduled
// that was decided about; 0 is that. Calendars count as they are now. from is at most as far back as history is kept.
func (s *Server) Verify(ctx context.Context, d Definition, from, to int64) (*Verification, error) {
	app, kind, id, err := s.find(ctx, d)
	if err != nil {
		return nil, err
	}
	row, err := s.cfg.Store.Schedule(ctx, kind, id)
	if err != nil {
		return nil, fmt.Errorf("schedule of %s: %w", d, err)
	}
	// What was decided is in the ledger however recent it is.
	if latest := max(s.wall()-verifyRecent, min(row.HandledAt, s.wall())); to == 0 || to > latest {
		to = latest
	}
	from = max(from, s.keptSince(s.wall()))
	v := &Verification{From: from, To: to}
	if to < from {
		return v, nil
	}
	reigns, err := s.reigns(ctx, row, 0)
	if err != nil {
		return nil, fmt.Errorf("versions of %s: %w", d, err)
	}
	fired, skips, err := s.readLedger(ctx, kind, id, from, to, verifyMost)
	if err != nil {
		return nil, fmt.Errorf("ledger of %s: %w", d, err)
	}
	v.fires(fired)
	l := ledger{fired: fired, skips: skips}
	for i, r := range reigns {
		c, err := s.compile(ctx, app.ID, r.spec)
		if err != nil {
			return nil, fmt.Errorf("a version of the schedule of %s: %w", d, err)
		}
		if err := v.reign(c, r, i == 0, row, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
	}
	for _, n := range l.matched {
		if !n {
			v.UnexpectedCount++
		}
	}
	for i, n := range l.matched {
		if !n && len(v.Unexpected) < verifyList {
			v.Unexpected = append(v.Unexpected, fired[i].At)
		}
	}
	return v, nil
}

// reigns are the versions of a definition that were in force since a time or later, oldest
// first; 0 are all of them. The newest are read first, so that those of long ago cost nothing.
func (s *Server) reigns(ctx context.Context, row *engine.Schedule, since int64) ([]reign, error) {
	var out []reign // newest first
	for n := row.Version; n >= 1; n-- {
		var r reign
		if row.Kind == engine.KindJob {
			j, err := s.cfg.Store.JobVersion(ctx, row.ID, n)
			if err != nil {
				return nil, err
			}
			r.from, r.spec, r.enabled = j.UpdatedAt, j.Schedule, j.Enabled
		} else {
			w, err := s.cfg.Store.WorkflowVersion(ctx, row.ID, n)
			if err != nil {
				return nil, err
			}
			r.from, r.spec, r.enabled = w.UpdatedAt, w.Schedule, w.Enabled
		}
		r.anchor, r.to, r.last = r.from, 1<<62, len(out) == 0
		if k := len(out) - 1; k >= 0 {
			if sameJSON(out[k].spec, r.spec) && out[k].enabled == r.enabled {
				out[k].from, out[k].anchor = r.from, r.from // the schedule went on as it was
				continue
			}
			if out[k].from <= since {
				break // what was before was over by then
			}
			r.to = out[k].from
		}
		out = append(out, r)
	}
	slices.Reverse(out)
	return out, nil
}

// ledger is what happened, by scheduled time.
type ledger struct {
	fired   []engine.Fired
	skips   []engine.Skip
	matched []bool // of fired: a version names its time
}

func (v *Verification) fires(fired []engine.Fired) {
	v.Fired = int64(len(fired))
	late := make([]int64, 0, len(fired))
	for i, f := range fired {
		if i > 0 && fired[i-1].At == f.At {
			v.DoubledCount++
			if len(v.Doubled) < verifyList {
				v.Doubled = append(v.Doubled, f.At)
			}
		}
		late = append(late, f.FiredAt-f.At)
	}
	if slices.Sort(late); len(late) > 0 {
		v.MaxLate, v.P99Late = late[len(late)-1], late[min(len(late)*99/100, len(late)-1)]
	}
}

// reign walks what one version should have fired.
func (v *Verification) reign(c *schedule.Schedule, r reign, first bool, row *engine.Schedule, l *ledger) error {
	if l.matched == nil {
		l.matched = make([]bool, len(l.fired))
	}
	after, to := max(v.From-1, r.from), min(v.To, r.to)
	if first && len(l.fired) > 0 {
		// A backfill may reach further back than the first version.
		after = max(v.From-1, min(r.from, l.fired[0].At-1))
	}
	if c.Type() == workflow.ScheduleDelay {
		for i, f := range l.fired {
			if f.At > after && f.At <= to {
				l.matched[i] = true
				v.Expected++
			}
		}
		return nil
	}
	i, k := 0, 0
	for n := 0; ; n++ {
		if n > verifyMost {
			return fmt.Errorf("more than %d fires lie in this range: ask for a shorter one: %w", verifyMost, engine.ErrTooLarge)
		}
		at, ok := c.Next(after, r.anchor)
		if !ok || at > to {
			return nil
		}
		after = at
		for i < len(l.fired) && l.fired[i].At < at {
			i++
		}
		hit := false
		for ; i < len(l.fired) && l.fired[i].At == at; i++ {
			l.matched[i], hit = true, true
		}
		if at <= r.from || !r.enabled {
			continue // before its time: nothing was due
		}
		for k < len(l.skips) && l.skips[k].To < at {
			k++
		}
		switch {
		case hit:
			v.Expected++
		case k < len(l.skips) && l.skips[k].From <= at:
			v.Expected++
			v.Skipped++
		case row.PausedAt != 0 && at > min(row.HandledAt, row.PausedAt):
			// It is for the misfire policy, once the schedule is resumed.
		case !r.last && at > r.to-verifySaved:
		default:
			v.Expected++
			v.MissingCount++
			if len(v.Missing) < verifyList {
				v.Missing = append(v.Missing, at)
			}
		}
	}
}
