package schedule

import (
	"math"

	"github.com/fanjet/fanjet/workflow"
)

// Schedule is a compiled workflow.Schedule. It is immutable and safe for concurrent use. All
// times are epoch milliseconds; what an answer would put before the year 1 or after 9999 is
// never.
type Schedule struct {
	spec       workflow.Schedule
	zone       zone
	rule       rule // nil: never by itself
	start, end int64
	calendars  []*Calendar
}

// Type is the schedule's type, also where it was left out.
func (s *Schedule) Type() workflow.ScheduleType { return s.spec.Type }

// Spec is the schedule with its defaults filled in. What it points to must not be changed.
func (s *Schedule) Spec() workflow.Schedule { return s.spec }

// Next is the first time after after at which the schedule fires; false: never.
//
// anchor is where fixed_rate and fixed_delay count from; other types ignore it. For fixed_rate
// it is when the job was created or last changed, so that a restart changes nothing; Start
// replaces it. For fixed_delay it is the end of the last run, or the job's creation while there
// was none: while a run is under way its schedule has no next time, and the end of the run asks
// for Next(end, end).
func (s *Schedule) Next(after, anchor int64) (at int64, ok bool) {
	after, anchor = clamp(after), clamp(anchor)
	limit := patternEnd(after, lastYear+1)
	for {
		t, ok := s.next(after, anchor)
		if !ok || len(s.calendars) == 0 {
			return t, ok
		}
		if t > limit { // calendars repeat by then, and nothing was found
			return 0, false
		}
		allowed, until := s.state(t)
		if allowed {
			return t, true
		}
		after = until
	}
}

// next is Next without calendars.
func (s *Schedule) next(after, anchor int64) (int64, bool) {
	if s.rule == nil {
		return 0, false
	}
	t, ok := s.rule.next(max(after, s.start-1), anchor)
	if !ok || t > s.end {
		return 0, false
	}
	return t, true
}

// prev is the last time up to until at which next fires.
func (s *Schedule) prev(until, anchor int64) (int64, bool) {
	if s.rule == nil {
		return 0, false
	}
	t, ok := s.rule.prev(min(until, s.end), anchor)
	if !ok || t < s.start {
		return 0, false
	}
	return t, true
}

// count counts what next walks in (after, until].
func (s *Schedule) count(after, until, anchor int64) int64 {
	after, until = max(after, s.start-1), min(until, s.end)
	if s.rule == nil || until <= after {
		return 0
	}
	return s.rule.count(after, until, anchor)
}

// day is the local date of t.
func (s *Schedule) day(t int64) int64 { return dayOf(s.zone.local(floorDiv(t, 1000))) }

// allowed tells whether no calendar excludes a day.
func (s *Schedule) allowed(day int64) bool {
	for _, c := range s.calendars {
		if c.off(day) {
			return false
		}
	}
	return true
}

// state tells whether the local day of t is allowed, and until when, in ms and included, that
// holds for certain.
func (s *Schedule) state(t int64) (allowed bool, until int64) {
	u := floorDiv(t, 1000)
	seg := s.zone.at(u)
	day := dayOf(u + seg.off)
	allowed = s.allowed(day)
	// Inside a segment the dates go forward, so that the next change of state is a midnight
	// or the segment's end.
	end := seg.end
	if change, ok := s.change(day+1, !allowed); ok {
		end = min(end, change*daySeconds-seg.off)
	}
	return allowed, clamp(min(end, maxTime/1000+1)*1000 - 1)
}

// change is the first day from day on that is allowed, or is not, as wanted.
func (s *Schedule) change(day int64, allowed bool) (int64, bool) {
	if !allowed {
		first, found := int64(math.MaxInt64), false
		for _, c := range s.calendars {
			if d, ok := c.change(day, true); ok {
				first, found = min(first, d), true
			}
		}
		return first, found
	}
	limit := max(day, indexTo) + 14 // from there on weekdays alone count
	for tries := 0; tries < len(s.calendars); {
		for _, c := range s.calendars {
			d, ok := c.change(day, false)
			switch {
			case !ok, d > limit:
				return 0, false
			case d > day:
				day, tries = d, 0
			default:
				tries++
			}
		}
	}
	return day, true
}

// Jittered is the time at which a fire scheduled for at really happens: up to Jitter later, the
// same for the same at and seed, and before the next scheduled time, so that fires stay in
// order. seed is the job's id.
func (s *Schedule) Jittered(at, seed int64) int64 {
	width := s.spec.Jitter.Milliseconds()
	if width <= 0 {
		return at
	}
	if r, ok := s.rule.(rate); ok {
		width = min(width, r.every-1)
	} else if next, ok := s.next(at, 0); ok {
		width = min(width, next-at-1)
	}
	// A fixed mixing function spreads the seeds: neighbors get unlike values.
	h := uint64(at)*0x9e3779b97f4a7c15 ^ uint64(seed)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return at + int64(h%uint64(width+1))
}
