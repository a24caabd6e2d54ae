package schedule

// daily fires every so often inside a window of the day.
type daily struct {
	zone     zone
	every    int64 // ms
	from, to int64 // seconds of the day; to may be of the next day
	whole    bool  // the window goes to the end of its day; to does not count
	weekdays set   // on which a window begins; 0 is Sunday
}

// window is the window that begins on a day, both ends in ms; last < first if the wall clock
// leaves all of it out.
func (d *daily) window(day int64) (first, last int64) {
	first = d.zone.first(day*daySeconds+d.from) * 1000
	if d.whole {
		return first, d.zone.first((day+1)*daySeconds)*1000 - 1
	}
	end := day*daySeconds + d.to
	u := d.zone.first(end)
	if d.zone.local(u) != end { // left out: the window ends before the gap
		u--
	}
	return first, u * 1000
}

// nextDays bounds a search for a window: one begins every week, and a clock change may leave
// out one.
const nextDays = 16

func (d *daily) next(after, _ int64) (int64, bool) {
	day := dayOf(d.zone.local(floorDiv(after, 1000))) - 2
	for range nextDays {
		if d.weekdays.has(weekday(day)) {
			first, last := d.window(day)
			t := first
			if after >= first {
				t += ((after-first)/d.every + 1) * d.every
			}
			if t <= last {
				return t, t <= maxTime
			}
		}
		day++
	}
	return 0, false
}

func (d *daily) prev(until, _ int64) (int64, bool) {
	day := dayOf(d.zone.local(floorDiv(until, 1000))) + 1
	for range nextDays {
		if d.weekdays.has(weekday(day)) {
			if first, last := d.window(day); first <= last && first <= until {
				t := first + (min(until, last)-first)/d.every*d.every
				return t, t >= minTime
			}
		}
		day--
	}
	return 0, false
}

func (d *daily) count(after, until, _ int64) int64 {
	if until <= after {
		return 0
	}
	var n int64
	end := dayOf(d.zone.local(floorDiv(until, 1000))) + 1
	for day := dayOf(d.zone.local(floorDiv(after, 1000))) - 2; day <= end; day++ {
		if !d.weekdays.has(weekday(day)) {
			continue
		}
		first, last := d.window(day)
		n += d.upTo(min(until, last)-first) - d.upTo(min(after, last)-first)
	}
	return n
}

// upTo counts the fires of a window up to so many ms behind its begin.
func (d *daily) upTo(ms int64) int64 {
	if ms < 0 {
		return 0
	}
	return ms/d.every + 1
}
