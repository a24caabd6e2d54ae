package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/workflow"
)

// Decision is what becomes of a Firing: the rows that the store writes with it.
type Decision struct {
	// Done has the row of the schedule as it is from now on.
	Done      FiringDone
	Instances []Instance
	Workflows []WorkflowInstance
	Commands  []Command
	// Skips are rows for the ledger. One whose From is that of a stored row makes that grow:
	// its To is moved, its Count added.
	Skips []Skip
}

// Decide decides a Firing against the schedule's row as it stands, nil if that is gone, and
// the number of permits of its job. The same input makes the same Decision; the Firing and
// what it points to are left alone.
func (f *Firing) Decide(row *Schedule, permits int64) Decision {
	var d Decision
	if row != nil {
		d.Done.Schedule = *row
	}
	s := &d.Done.Schedule
	if row == nil || s.Version != f.Version || s.HandledAt != f.HandledAt || !s.Enabled || s.Paused() {
		d.Done.Moved = true
		return d
	}
	skips := slices.Clone(f.Skips)
	slices.SortStableFunc(skips, func(a, b Skip) int { return cmp.Compare(a.From, b.From) })
	for i := range f.Runs {
		r := &f.Runs[i]
		for len(skips) > 0 && skips[0].From <= r.fireAt() {
			d.skip(skips[0])
			skips = skips[1:]
		}
		f.decideRun(&d, r, permits)
	}
	for _, skip := range skips {
		d.skip(skip)
	}
	s.HandledAt, s.NextAt, s.WakeAt = f.Until, f.NextAt, f.WakeAt
	s.PausedAt, s.ResumedAt = 0, 0
	if f.Delay > 0 && len(d.Done.Admitted) > 0 {
		s.NextAt, s.WakeAt = 0, 0
	}
	return d
}

func (f *Firing) decideRun(d *Decision, r *FiringRun, permits int64) {
	s := &d.Done.Schedule
	limit := int64(f.MaxRunning)
	free := limit == 0 || max(int64(s.Open), permits) < limit
	switch {
	case free, f.Overlap == workflow.OverlapAllow:
		d.admit(r, "")
	case f.Overlap == workflow.OverlapQueue && int64(s.Open) < limit+int64(f.QueueMax):
		d.admit(r, ReasonQueued)
	case f.Overlap == workflow.OverlapQueue:
		d.skipRun(f, r, SkipQueueFull)
	case f.Overlap == workflow.OverlapReplace:
		d.admit(r, "")
		d.Done.Replaced++
		if r.Stop != nil {
			d.Commands = append(d.Commands, *r.Stop)
		}
	case f.Overlap == workflow.OverlapFail:
		d.fail(r, limit)
	default:
		d.skipRun(f, r, SkipOverlap)
	}
}

// admit makes the run. What waits for others says so.
func (d *Decision) admit(r *FiringRun, why Reason) {
	if r.Instance != nil {
		i := *r.Instance
		if why != "" && i.Status == StatusWaiting {
			i.Reason = why
		}
		d.Instances = append(d.Instances, i)
	} else {
		w := *r.Workflow
		if why != "" && w.Status == StatusWaiting {
			w.Reason = why
		}
		d.Workflows = append(d.Workflows, w)
	}
	s := &d.Done.Schedule
	s.Open++
	s.SkipFrom, s.SkipReason = 0, ""
	d.Done.Admitted = append(d.Done.Admitted, r.id())
}

// fail makes the run as one that has failed already; it is not under way.
func (d *Decision) fail(r *FiringRun, limit int64) {
	text := fmt.Sprintf("MaxRunning %d: as many runs are under way", limit)
	at := r.madeAt()
	if r.Instance != nil {
		i := *r.Instance
		i.Status, i.Reason, i.Error, i.StartedAt, i.FinishedAt = StatusFailed, "", text, 0, at
		d.Instances = append(d.Instances, i)
	} else {
		w := *r.Workflow
		w.Status, w.Reason, w.Error, w.StartedAt, w.FinishedAt = StatusFailed, "", text, 0, at
		d.Workflows = append(d.Workflows, w)
	}
	s := &d.Done.Schedule
	s.Runs++
	s.Failed++
	s.LastID, s.LastStatus, s.LastStart, s.LastEnd = r.id(), StatusFailed, 0, at
	s.SkipFrom, s.SkipReason = 0, ""
	d.Done.Failed++
}

func (d *Decision) skipRun(f *Firing, r *FiringRun, why SkipReason) {
	at := r.fireAt()
	d.skip(Skip{Kind: f.Kind, ID: f.ID, From: at, To: at, Count: 1, Reason: why, At: r.madeAt()})
	d.Done.Skipped++
}

// skip lets the ledger row grow that the schedule names, or begins the next one.
func (d *Decision) skip(k Skip) {
	s := &d.Done.Schedule
	if s.SkipFrom == 0 || s.SkipReason != k.Reason {
		s.SkipFrom, s.SkipReason = k.From, k.Reason
		d.Skips = append(d.Skips, k)
		return
	}
	k.From = s.SkipFrom
	if n := len(d.Skips); n > 0 && d.Skips[n-1].From == k.From {
		last := &d.Skips[n-1]
		last.To, last.Count, last.At = max(last.To, k.To), last.Count+k.Count, max(last.At, k.At)
		return
	}
	d.Skips = append(d.Skips, k)
}

func (r *FiringRun) id() int64 {
	if r.Instance != nil {
		return r.Instance.ID
	}
	return r.Workflow.ID
}

func (r *FiringRun) fireAt() int64 {
	if r.Instance != nil {
		return r.Instance.FireAt
	}
	return r.Workflow.FireAt
}

func (r *FiringRun) madeAt() int64 {
	if r.Instance != nil {
		return r.Instance.CreatedAt
	}
	return r.Workflow.CreatedAt
}

// End counts a run that is final. The end of the last fired run of a fixed delay sets when
// the next one is due.
func (s *Schedule) End(e *Ended) {
	s.Runs++
	switch e.Status {
	case StatusSucceeded:
		s.Succeeded++
	case StatusFailed, StatusTimedOut:
		s.Failed++
	default: // stopped, canceled, skipped: neither
	}
	s.LastID, s.LastStatus, s.LastStart, s.LastEnd = e.Run, e.Status, e.StartAt, e.EndAt
	if !e.Fired {
		return
	}
	s.Open = max(s.Open-1, 0)
	if s.Spec.Type == workflow.ScheduleDelay && s.Enabled && !s.Paused() && s.NextAt == 0 && s.Open == 0 {
		s.NextAt = e.EndAt + s.Spec.Every.Milliseconds()
		if s.WakeAt == 0 || s.WakeAt > s.NextAt {
			s.WakeAt = s.NextAt
		}
	}
}

// Begin has the schedule start anew at a time, as it is after a save: what was not decided
// before is not any more. It never goes back behind what was decided already, so that no
// scheduled time is fired twice. A pause goes on.
func (s *Schedule) Begin(at int64) {
	s.AnchorAt, s.HandledAt, s.NextAt = at, max(at, s.HandledAt), 0
	s.SkipFrom, s.SkipReason = 0, ""
	if s.ResumedAt != 0 {
		s.PausedAt, s.ResumedAt = 0, 0
	}
	s.WakeAt = 0
	if s.Enabled && !s.Paused() && FiresByItself(&s.Spec) {
		s.WakeAt = max(at, 1)
	}
}

// FiresByItself tells whether there is anything in it that fires.
func FiresByItself(s *workflow.Schedule) bool {
	return s.Type != workflow.ScheduleNone && !s.Zero()
}
