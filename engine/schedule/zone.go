package schedule

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	_ "time/tzdata" // so that a server in a bare image knows the zones
)

// zone tells the wall clock of a time zone.
type zone struct {
	loc *time.Location
	utc bool
}

// zones keeps what was loaded: many schedules share few zones, and loading reads a file. It
// holds names that exist only, so it is bounded.
var zones sync.Map // of string to *time.Location

func loadZone(name string) (zone, error) {
	switch name {
	case "", "UTC":
		return zone{time.UTC, true}, nil
	case "Local":
		return zone{}, errors.New("the zone Local is another zone on every machine; name one such as Europe/Berlin")
	}
	if loc, ok := zones.Load(name); ok {
		return zone{loc: loc.(*time.Location)}, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return zone{}, fmt.Errorf("%q is not an IANA time zone; write one such as Europe/Berlin", clip(name))
	}
	zones.Store(name, loc)
	return zone{loc: loc}, nil
}

// segment is a stretch of time, [start, end) in seconds UTC, with one offset: local = UTC + off.
type segment struct {
	start, end, off int64
}

// at is a segment that holds u. Two neighbors may have the same offset.
func (z zone) at(u int64) segment {
	if z.utc {
		return segment{math.MinInt64 / 2, math.MaxInt64 / 2, 0}
	}
	t := time.Unix(u, 0).In(z.loc)
	_, off := t.Zone()
	s, e := t.ZoneBounds()
	seg := segment{math.MinInt64 / 2, math.MaxInt64 / 2, int64(off)}
	if !s.IsZero() {
		seg.start = min(s.Unix(), u)
	}
	if !e.IsZero() {
		seg.end = e.Unix()
	}
	if seg.end <= u {
		// In a leap year the bounds computed from a zone's rule end a day early. No rule
		// changes an hour of that day.
		seg.end = u + 3600
	}
	return seg
}

// lookBack is as far as what one clock change repeats reaches: no change was longer than a day.
const lookBack = 2 * daySeconds

// high is the local time that the wall clock had reached before start, where a segment begins.
// It is beyond the segment's own begin where the change repeats something, and before it where
// there is a gap.
func (z zone) high(start int64) int64 {
	if start <= math.MinInt64/4 {
		return math.MinInt64 / 2
	}
	h := int64(math.MinInt64 / 2)
	for u := start; u > start-lookBack; {
		seg := z.at(u - 1)
		h = max(h, u+seg.off)
		u = min(seg.start, u-1)
	}
	return h
}

// maxOffset bounds |local - UTC| for every zone there ever was.
const maxOffset = 16 * 3600

// first is the first instant, in seconds UTC, at which the wall clock shows local or a later
// time.
func (z zone) first(local int64) int64 {
	if z.utc {
		return local
	}
	for seg := z.at(local - maxOffset); ; seg = z.at(seg.end) {
		switch {
		case local < seg.start+seg.off:
			return seg.start
		case local < seg.end+seg.off:
			return local - seg.off
		}
	}
}

// local is the wall clock at u.
func (z zone) local(u int64) int64 {
	if z.utc {
		return u
	}
	_, off := time.Unix(u, 0).In(z.loc).Zone()
	return u + int64(off)
}
