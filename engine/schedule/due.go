package schedule

import (
	"slices"

	"github.com/fanjet/fanjet/workflow"
)

// Reason says why a scheduled time does not run, or runs at another time.
type Reason string

// The reasons. Misfire and calendar are decisions not to run; the others are shown by Preview.
const (
	ReasonMisfire  Reason = "misfire"  // it was noticed too late
	ReasonCalendar Reason = "calendar" // a calendar excludes its day
	ReasonGap      Reason = "gap"      // a clock change leaves its local time out
	ReasonOverlap  Reason = "overlap"  // a clock change repeats its local time
	ReasonValidity Reason = "validity" // it is before Start or after End
)

// Span is scheduled times in a row that do not run for one reason.
type Span struct {
	From   int64  `json:"from"` // the first, epoch ms
	To     int64  `json:"to"`   // the last; both are fires
	Count  int64  `json:"count"`
	Reason Reason `json:"reason"` // empty: they may run
}

// MaxSpans bounds how many Spans one call reports. If there are more, the oldest are put
// together by reason, so that counts stay exact and the two oldest spans overlap.
const MaxSpans = 256

// Due lists the times in (after, until] at which the schedule fires: the newest limit of them,
// oldest first, and how many there are in all. skips are the times that calendars exclude. It
// counts by arithmetic: a year of a fire every 100 ms is a matter of microseconds. For
// fixed_delay there is at most one, for the next depends on its run.
func (s *Schedule) Due(after, until, anchor int64, limit int) (times []int64, total int64, skips []Span) {
	after, until, anchor = clamp(after), clamp(until), clamp(anchor)
	if s.spec.Type == workflow.ScheduleDelay {
		if first, ok := s.Next(after, anchor); ok && first <= until {
			until = first
		}
	}
	spans := s.spans(after, until, anchor)
	for _, sp := range spans {
		if sp.Reason == "" {
			total += sp.Count
		} else {
			skips = append(skips, sp)
		}
	}
	times, _ = s.newest(spans, anchor, min(total, int64(limit)))
	return times, total, bound(skips)
}

// spans is all that is scheduled in (after, until], in order; neighbors differ in reason.
func (s *Schedule) spans(after, until, anchor int64) []Span {
	var out []Span
	for {
		t, ok := s.next(after, anchor)
		if !ok || t > until {
			return out
		}
		end, reason := until, Reason("")
		if len(s.calendars) > 0 {
			allowed, to := s.state(t)
			end = min(to, until)
			if !allowed {
				reason = ReasonCalendar
			}
		}
		last, _ := s.prev(end, anchor)
		sp := Span{t, last, s.count(after, end, anchor), reason}
		if n := len(out); n > 0 && out[n-1].Reason == reason {
			out[n-1].To = sp.To
			out[n-1].Count += sp.Count
		} else {
			out = append(out, sp)
		}
		after = end
	}
}

// newest takes the newest n times that may run, oldest first, and gives the spans without
// them.
func (s *Schedule) newest(spans []Span, anchor, n int64) (times []int64, rest []Span) {
	rest = slices.Clone(spans)
	for i := len(rest) - 1; i >= 0 && n > 0; i-- {
		sp := &rest[i]
		if sp.Reason != "" {
			continue
		}
		for ; n > 0 && sp.Count > 0; n-- {
			times = append(times, sp.To)
			if sp.Count--; sp.Count > 0 {
				sp.To, _ = s.prev(sp.To-1, anchor)
			}
		}
	}
	slices.Reverse(times)
	return times, slices.DeleteFunc(rest, func(sp Span) bool { return sp.Count == 0 })
}

// bound puts the oldest spans together if there are more than MaxSpans.
func bound(spans []Span) []Span {
	more := len(spans) - MaxSpans
	if more <= 0 {
		return spans
	}
	var out []Span
	for _, sp := range spans[:more+2] {
		i := slices.IndexFunc(out, func(o Span) bool { return o.Reason == sp.Reason })
		if i < 0 {
			out = append(out, sp)
			continue
		}
		out[i].To = sp.To
		out[i].Count += sp.Count
	}
	return append(out, spans[more+2:]...)
}
