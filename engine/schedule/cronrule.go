package schedule

import (
	"math"

	"github.com/fanjet/fanjet/workflow"
)

// cronRule is an expression in a zone. It walks the zone's segments: inside one, local time and
// real time go alike.
type cronRule struct {
	*cron
	zone   zone
	gap    workflow.Gap
	repeat workflow.Repeat
}

// reach is how far apart the wall clock and real time are at most, with a day to spare: beyond
// it a search may leap over segments.
const reach = 3 * daySeconds

// stretch is the part of a segment that a search looks at.
type stretch struct {
	segment
	lo  int64 // first local second that counts
	gap bool  // something in the gap before the segment fires at its start
}

// stretch is what counts of the segment that holds u.
func (r *cronRule) stretch(u int64) stretch {
	s := stretch{segment: r.zone.at(u)}
	s.lo = s.start + s.off
	if r.hourly || r.zone.utc {
		return s
	}
	high := r.zone.high(s.start)
	if r.gap == workflow.GapAfter && high < s.lo {
		n, ok := r.cron.next(high)
		s.gap = ok && n < s.lo
	}
	if r.repeat == workflow.RepeatFirst {
		s.lo = max(s.lo, high)
	}
	return s
}

// near is stretch, spared what only matters close to the segment's start.
func (r *cronRule) near(u int64) stretch {
	seg := r.zone.at(u)
	if u-seg.start > lookBack {
		return stretch{segment: seg, lo: seg.start + seg.off}
	}
	return r.stretch(u)
}

func (r *cronRule) next(after, _ int64) (int64, bool) {
	if r.never {
		return 0, false
	}
	for u, limit := floorDiv(after, 1000)+1, r.limit(after); u <= limit; {
		s := r.near(u)
		if s.gap && u == s.start {
			return u * 1000, true
		}
		local, ok := r.cron.next(max(s.lo, u+s.off))
		if ok && local < s.end+s.off {
			t := (local - s.off) * 1000
			return t, t <= maxTime
		}
		// What was before u may come again after the segment, if its end is near.
		far := s.end-u > reach
		if far && !ok {
			return 0, false
		}
		u = s.end
		if far {
			u = max(u, local-s.off-reach)
		}
	}
	return 0, false
}

// listedChanges is the year before which the zones' lists of clock changes end; from there on
// they follow rules.
const listedChanges = 2200

// limit is the last second in which a search looks that may find nothing: a local time may be
// one that clock changes leave out every year.
func (r *cronRule) limit(after int64) int64 {
	if !r.anyYear {
		return maxTime / 1000 // the years end it
	}
	return min(patternEnd(after, listedChanges), maxTime) / 1000
}

func (r *cronRule) prev(until, _ int64) (int64, bool) {
	if r.never {
		return 0, false
	}
	for u := floorDiv(until, 1000); u >= minTime/1000; {
		s := r.stretch(u)
		local, ok := r.cron.prev(u + s.off)
		far := u-s.start > reach
		switch {
		case ok && local >= s.lo:
			t := (local - s.off) * 1000
			return t, t >= minTime
		case s.gap:
			return s.start * 1000, true
		case far && !ok:
			return 0, false
		}
		u = s.start - 1
		if far {
			u = min(u, local-s.off+reach)
		}
	}
	return 0, false
}

func (r *cronRule) count(after, until, _ int64) int64 {
	var n int64
	u, end := floorDiv(after, 1000)+1, floorDiv(until, 1000)+1
	for u < end && !r.never {
		s := r.near(u)
		lo := max(s.lo, u+s.off)
		if s.gap && u == s.start {
			n++
			lo = max(lo, s.start+s.off+1) // a fire of this very second is the same one
		}
		n += r.cron.count(lo, min(s.end, end)+s.off)
		u = s.end
	}
	return n
}

// missing is what of a gap that ends at u matches: the first and the last local second, and
// how many there are.
func (r *cronRule) missing(u int64) (first, last, count int64) {
	s := r.zone.at(u)
	high := r.zone.high(s.start)
	if s.start != u || high >= u+s.off || high <= math.MinInt64/4 {
		return 0, 0, 0
	}
	count = r.cron.count(high, u+s.off)
	if count > 0 {
		first, _ = r.cron.next(high)
		last, _ = r.cron.prev(u + s.off - 1)
	}
	return first, last, count
}
