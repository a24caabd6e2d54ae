package schedule

import "math"

// rule is a type of schedule without validity and calendars. Times are in epoch milliseconds;
// anchor is where a rate counts from.
type rule interface {
	// next is the first fire after after.
	next(after, anchor int64) (int64, bool)
	// prev is the last fire up to until.
	prev(until, anchor int64) (int64, bool)
	// count counts the fires in (after, until], without walking them.
	count(after, until, anchor int64) int64
}

// The years 0001 and 9999 bound every time.
const (
	minTime = -62135596800_000
	maxTime = 253402300799_999
)

func clamp(t int64) int64 { return min(max(t, minTime), maxTime) }

// once fires at one time.
type once int64

func (o once) next(after, _ int64) (int64, bool) { return int64(o), int64(o) > after }

func (o once) prev(until, _ int64) (int64, bool) { return int64(o), int64(o) <= until }

func (o once) count(after, until, _ int64) int64 {
	if int64(o) > after && int64(o) <= until {
		return 1
	}
	return 0
}

// rate fires every so often: from start on, or one period after the anchor if there is no
// start. A delay has both: it fires a period after the anchor, but not before start.
type rate struct {
	every int64
	start int64 // math.MinInt64: none
	delay bool
}

// base is the first fire.
func (r rate) base(anchor int64) int64 {
	switch {
	case r.start == math.MinInt64:
		return anchor + r.every
	case r.delay:
		return max(anchor+r.every, r.start)
	}
	return r.start
}

// until counts the fires up to t.
func (r rate) until(t, anchor int64) int64 {
	b := r.base(anchor)
	if t < b {
		return 0
	}
	return (t-b)/r.every + 1
}

func (r rate) next(after, anchor int64) (int64, bool) {
	t := r.base(anchor) + r.until(after, anchor)*r.every
	return t, t <= maxTime
}

func (r rate) prev(until, anchor int64) (int64, bool) {
	n := r.until(until, anchor)
	return r.base(anchor) + (n-1)*r.every, n > 0
}

func (r rate) count(after, until, anchor int64) int64 {
	if until <= after {
		return 0
	}
	return r.until(until, anchor) - r.until(after, anchor)
}
