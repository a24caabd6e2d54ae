package fire

import (
	"context"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// pollPause is how long, ms, until a schedule that waits for something is looked at again.
const pollPause = 500

// decide says what is to be done at now about a schedule that has woken. again is set if that
// is nothing yet: when to look at it once more.
func (s *Scheduler) decide(ctx context.Context, e *entry, now int64) (f engine.Firing, again int64, err error) {
	row := &e.row
	compiled, err := s.host.Compile(ctx, row)
	if err != nil {
		return f, 0, err
	}
	spec := compiled.Spec()
	anchor := row.AnchorAt
	if spec.Type == workflow.ScheduleDelay {
		if row.NextAt == 0 && row.Open > 0 {
			return f, now + pollPause, nil // it was saved while a run of it is under way
		}
		anchor = delayAnchor(row, spec.Every.Milliseconds())
	}
	var before []engine.Skip
	if row.ResumedAt != 0 && row.PausedAt < row.HandledAt {
		// It was saved while it was paused: what the version before would have fired is not for
		// this one, and is in the ledger all the same.
		if before, err = s.host.Superseded(ctx, row, row.PausedAt); err != nil {
			return f, 0, err
		}
		for i := range before {
			before[i].Reason, before[i].At = engine.SkipPaused, now
		}
	}
	due := *row
	if len(spec.After) > 0 && due.NextAt == 0 { // it was saved, or is a fixed_delay that was resumed
		due.NextAt, _ = compiled.Next(row.HandledAt, anchor)
	}
	if len(spec.After) > 0 && due.NextAt != 0 && due.NextAt <= now {
		d, err := s.host.Depends(ctx, &due)
		switch {
		case err != nil:
			return f, 0, err
		case d.Wait:
			return f, now + pollPause, nil
		case d.Skip:
			f = s.skipDependent(row, compiled, anchor, now)
			f.Skips = append(before, f.Skips...)
			return f, 0, nil
		case d.Ready > due.NextAt && now-d.Ready <= spec.MisfireAfter.Milliseconds()+pollPause && s.released[keyOf(row)] < d.Ready:
			// It is not late for having waited. That is for one fire; those that came due behind
			// it are for the misfire policy, lest a slow job lets go of a flood.
			if len(s.released) >= 10_000 {
				clear(s.released)
			}
			s.released[keyOf(row)] = d.Ready
			now = max(due.NextAt, min(now, compiled.Jittered(due.NextAt, row.ID)))
		}
	}
	p := plan(compiled, row, anchor, now)
	f = engine.Firing{
		Kind: row.Kind, ID: row.ID, Version: row.Version, HandledAt: row.HandledAt, Until: p.Until,
		Overlap: spec.Overlap, MaxRunning: row.MaxRunning, QueueMax: int32(spec.QueueMax),
	}
	if f.MaxRunning == 0 && spec.Overlap != workflow.OverlapAllow {
		f.MaxRunning = 1
	}
	if p.NextOK {
		f.NextAt, f.WakeAt = p.Next, compiled.Jittered(p.Next, row.ID)
	}
	if spec.Type == workflow.ScheduleDelay {
		f.Delay = spec.Every.Milliseconds()
		if !p.NextOK && len(p.Run) > 0 {
			// The end of the run sets the next one; but if there is no run, for others are under
			// way or it was made already, nothing would.
			f.NextAt = now + f.Delay
			f.WakeAt = f.NextAt
		}
	}
	f.Skips = append(before, skips(row, p.Skips, now)...)
	for _, at := range p.Run {
		run, err := s.host.Make(ctx, row, at)
		switch {
		case err == nil:
			f.Runs = append(f.Runs, run)
		case errors.Is(err, engine.ErrNotFound), errors.Is(err, engine.ErrInvalid):
			s.warn(row, fmt.Errorf("what it runs cannot be made: %w", err))
			f.Skips = append(f.Skips, engine.Skip{Kind: row.Kind, ID: row.ID, From: at, To: at, Count: 1, Reason: engine.SkipRemoved, At: now})
		default:
			return f, 0, err
		}
	}
	return f, 0, nil
}

// delayAnchor is where the next fire of a fixed_delay counts from: the end of its last run,
// or when it was saved or resumed.
func delayAnchor(row *engine.Schedule, every int64) int64 {
	switch {
	case row.NextAt != 0:
		return row.NextAt - every
	case row.ResumedAt != 0:
		return row.ResumedAt - every
	default:
		return max(row.AnchorAt, row.LastEnd)
	}
}

// plan is schedule.Plan with jitter: a fire is not late for having been put off.
func plan(c *schedule.Schedule, row *engine.Schedule, anchor, now int64) schedule.Plan {
	jitter := c.Spec().Jitter.Milliseconds()
	if jitter <= 0 || row.NextAt == 0 {
		return c.Plan(row.HandledAt, now, anchor)
	}
	at := c.Jittered(row.NextAt, row.ID)
	if at > now {
		// The clock was put back, or this is another version of it.
		return schedule.Plan{Until: row.HandledAt, Next: row.NextAt, NextOK: true}
	}
	if now-at <= c.Spec().MisfireAfter.Milliseconds() {
		return c.Plan(row.HandledAt, row.NextAt, anchor)
	}
	// It was missed, and so were those behind it that have come with all their jitter.
	until := row.NextAt
	for {
		next, ok := c.Next(until, anchor)
		if !ok || c.Jittered(next, row.ID) > now {
			break
		}
		if next < now-jitter {
			next = now - jitter // far behind: leap
		}
		until = max(next, until+1)
	}
	p := c.Plan(row.HandledAt, max(until, now-jitter), anchor)
	if c.Spec().Misfire == workflow.MisfireSkip {
		for _, at := range p.Run {
			p.Skips = append(p.Skips, schedule.Span{From: at, To: at, Count: 1, Reason: schedule.ReasonMisfire})
		}
		p.Run = nil
	}
	return p
}

// skips are the rows of the ledger for what does not run. What was due while the schedule was
// paused says so.
func skips(row *engine.Schedule, spans []schedule.Span, now int64) []engine.Skip {
	var out []engine.Skip
	for _, sp := range spans {
		k := engine.Skip{Kind: row.Kind, ID: row.ID, From: sp.From, To: sp.To, Count: sp.Count, Reason: engine.SkipReason(sp.Reason), At: now}
		if sp.Reason == schedule.ReasonMisfire && row.PausedAt != 0 && sp.To >= row.PausedAt && sp.From <= row.ResumedAt {
			k.Reason = engine.SkipPaused
		}
		out = append(out, k)
	}
	return out
}

// skipDependent skips the due fires of a schedule that follows a job which did not succeed.
func (s *Scheduler) skipDependent(row *engine.Schedule, c *schedule.Schedule, anchor, now int64) engine.Firing {
	f := engine.Firing{Kind: row.Kind, ID: row.ID, Version: row.Version, HandledAt: row.HandledAt, Until: now}
	times, total, _ := c.Due(row.HandledAt, now, anchor, 1)
	if total > 0 {
		first, _ := c.Next(row.HandledAt, anchor)
		f.Skips = []engine.Skip{{Kind: row.Kind, ID: row.ID, From: first, To: times[0], Count: total, Reason: engine.SkipDependency, At: now}}
		f.Until = times[0]
	}
	if c.Type() == workflow.ScheduleDelay {
		every := c.Spec().Every.Milliseconds()
		f.NextAt, f.WakeAt = now+every, now+every
		return f
	}
	if next, ok := c.Next(now, anchor); ok {
		f.NextAt, f.WakeAt = next, c.Jittered(next, row.ID)
	}
	return f
}
