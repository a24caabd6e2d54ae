package schedule

import (
	"math/bits"
)

// cron is a compiled expression. It knows the wall clock alone; cronRule joins it with a zone.
type cron struct {
	seconds, minutes, hours set
	days                    set // 1 to 31
	months                  set // 1 to 12
	weekdays                set // 0 is Sunday
	years                   [(lastYear-firstYear)/64 + 1]set
	anyYear                 bool
	specials                []special
	both                    bool // day and weekday must match, else either
	hourly                  bool // the hours follow real time

	// of is weekdays as days of a month that begins with each weekday.
	of [7]set
	// perDay is how many times of the day there are.
	perDay int64
	// never tells that no date matches.
	never bool
}

// special is a day that depends on the month.
type special struct {
	weekday bool  // in the weekday field: n is a weekday
	n       int64 // a day; or before the last one if last
	last    bool
	nth     int64 // the how manieth weekday n of the month
	nearest bool  // the nearest working day in the same month
}

// ready computes what follows from the fields.
func (c *cron) ready() *cron {
	for first := range int64(7) {
		for d := int64(1); d <= 31; d++ {
			if c.weekdays.has((first + d - 1) % 7) {
				c.of[first] |= 1 << uint(d)
			}
		}
	}
	c.perDay = c.hours.len() * c.minutes.len() * c.seconds.len()
	_, found := c.nextDay(dayNumber(firstYear, 1, 1))
	c.never = !found
	return c
}

// year tells whether y matches, else the next one that does; -1 is none.
func (c *cron) year(y int64) int64 {
	if c.anyYear {
		return y
	}
	for i := max(y-firstYear, 0); i <= lastYear-firstYear; i = (i/64 + 1) * 64 {
		if n := c.years[i/64].next(i % 64); n >= 0 {
			return firstYear + i/64*64 + n
		}
	}
	return -1
}

// yearBefore is the same backwards.
func (c *cron) yearBefore(y int64) int64 {
	if c.anyYear {
		return y
	}
	for i := min(y, lastYear) - firstYear; i >= 0; i = i/64*64 - 1 {
		if n := c.years[i/64].prev(i % 64); n >= 0 {
			return firstYear + i/64*64 + n
		}
	}
	return -1
}

// month is the days of a month that match; year and month match already.
func (c *cron) month(year, month, firstDay int64) set {
	length := monthLength(year, month)
	first := weekday(firstDay)
	all := set(2)<<uint(length) - 2
	days, weekdays := c.days, c.of[first]
	for _, s := range c.specials {
		d := s.day(length, first)
		switch {
		case d < 1 || d > length:
		case s.weekday:
			weekdays |= 1 << uint(d)
		default:
			days |= 1 << uint(d)
		}
	}
	if c.both {
		return days & weekdays & all
	}
	return (days | weekdays) & all
}

// day is the day in a month that begins with the weekday first; beyond the month if there is
// none.
func (s special) day(length, first int64) int64 {
	if s.weekday {
		d := 1 + floorMod(s.n-first, 7)
		if s.last {
			return d + (length-d)/7*7
		}
		return d + (s.nth-1)*7
	}
	d := s.n
	if s.last {
		d = length - s.n
	}
	if !s.nearest || d < 1 || d > length {
		return d
	}
	switch (first + d - 1) % 7 {
	case 6: // Saturday
		if d > 1 {
			return d - 1
		}
		return d + 2
	case 0: // Sunday
		if d < length {
			return d + 1
		}
		return d - 2
	}
	return d
}

// searchYears is how far a search goes: dates and weekdays repeat after 400 years, so what is
// not found by then never comes.
const searchYears = 400

// nextDay is the first day from day on that matches.
func (c *cron) nextDay(day int64) (int64, bool) {
	year, month, d := dateOf(day)
	for limit := year + searchYears; ; {
		y := c.year(year)
		if y < 0 || y > limit {
			return 0, false
		}
		if y > year {
			year, month, d = y, 1, 1
		}
		if m := c.months.next(month); m < 0 {
			year, month, d = year+1, 1, 1
			continue
		} else if m > month {
			month, d = m, 1
		}
		first := dayNumber(year, month, 1)
		if n := c.month(year, month, first).next(d); n >= 0 {
			return first + n - 1, true
		}
		month, d = month+1, 1
		if month > 12 {
			year, month = year+1, 1
		}
	}
}

// prevDay is the last day up to day that matches.
func (c *cron) prevDay(day int64) (int64, bool) {
	year, month, d := dateOf(day)
	for limit := year - searchYears; ; {
		y := c.yearBefore(year)
		if y < 0 || y < limit {
			return 0, false
		}
		if y < year {
			year, month, d = y, 12, 31
		}
		if m := c.months.prev(month); m < 1 {
			year, month, d = year-1, 12, 31
			continue
		} else if m < month {
			month, d = m, 31
		}
		first := dayNumber(year, month, 1)
		if n := c.month(year, month, first).prev(d); n >= 1 {
			return first + n - 1, true
		}
		month, d = month-1, 31
		if month < 1 {
			year, month = year-1, 12
		}
	}
}

// countDays counts the days in [from, to) that match.
func (c *cron) countDays(from, to int64) int64 {
	if from >= to {
		return 0
	}
	var n int64
	year, month, d := dateOf(from)
	for {
		y := c.year(year)
		if y < 0 {
			return n
		}
		if y > year {
			year, month, d = y, 1, 1
		}
		first := dayNumber(year, month, 1)
		if first >= to {
			return n
		}
		if c.months.has(month) {
			days := c.month(year, month, first) >> uint(d) << uint(d)
			if end := to - first + 1; end < 32 {
				days &= 1<<uint(end) - 1
			}
			n += days.len()
		}
		month, d = month+1, 1
		if month > 12 {
			year, month = year+1, 1
		}
	}
}

// next is the first local second from local on that matches.
func (c *cron) next(local int64) (int64, bool) {
	if c.never {
		return 0, false
	}
	day := dayOf(local)
	at, ok := c.nextDay(day)
	if ok && at == day {
		if s := c.nextTime(local - day*daySeconds); s >= 0 {
			return day*daySeconds + s, true
		}
		at, ok = c.nextDay(day + 1)
	}
	if !ok {
		return 0, false
	}
	return at*daySeconds + c.nextTime(0), true
}

// prev is the last local second up to local that matches.
func (c *cron) prev(local int64) (int64, bool) {
	if c.never {
		return 0, false
	}
	day := dayOf(local)
	at, ok := c.prevDay(day)
	if ok && at == day {
		if s := c.prevTime(local - day*daySeconds); s >= 0 {
			return day*daySeconds + s, true
		}
		at, ok = c.prevDay(day - 1)
	}
	if !ok {
		return 0, false
	}
	return at*daySeconds + c.prevTime(daySeconds-1), true
}

// count counts the local seconds in [from, to) that match.
func (c *cron) count(from, to int64) int64 {
	if from >= to || c.never {
		return 0
	}
	first, last := dayOf(from), dayOf(to)
	n := c.countDays(first, last) * c.perDay
	if c.countDays(first, first+1) > 0 {
		n -= c.timesBefore(from - first*daySeconds)
	}
	if rest := to - last*daySeconds; rest > 0 && c.countDays(last, last+1) > 0 {
		n += c.timesBefore(rest)
	}
	return n
}

// nextTime is the first second of the day from s on that matches, -1 if there is none.
func (c *cron) nextTime(s int64) int64 {
	hour, minute, second := s/3600, s/60%60, s%60
	if c.hours.has(hour) {
		if c.minutes.has(minute) {
			if n := c.seconds.next(second); n >= 0 {
				return hour*3600 + minute*60 + n
			}
		}
		if n := c.minutes.next(minute + 1); n >= 0 {
			return hour*3600 + n*60 + c.seconds.first()
		}
	}
	if n := c.hours.next(hour + 1); n >= 0 {
		return n*3600 + c.minutes.first()*60 + c.seconds.first()
	}
	return -1
}

// prevTime is the last second of the day up to s that matches, -1 if there is none.
func (c *cron) prevTime(s int64) int64 {
	hour, minute, second := s/3600, s/60%60, s%60
	if c.hours.has(hour) {
		if c.minutes.has(minute) {
			if n := c.seconds.prev(second); n >= 0 {
				return hour*3600 + minute*60 + n
			}
		}
		if n := c.minutes.prev(minute - 1); n >= 0 {
			return hour*3600 + n*60 + c.seconds.last()
		}
	}
	if n := c.hours.prev(hour - 1); n >= 0 {
		return n*3600 + c.minutes.last()*60 + c.seconds.last()
	}
	return -1
}

// timesBefore counts the seconds of the day before s that match.
func (c *cron) timesBefore(s int64) int64 {
	hour, minute, second := s/3600, s/60%60, s%60
	n := c.hours.below(hour) * c.minutes.len() * c.seconds.len()
	if c.hours.has(hour) {
		n += c.minutes.below(minute) * c.seconds.len()
		if c.minutes.has(minute) {
			n += c.seconds.below(second)
		}
	}
	return n
}

func (s set) first() int64 { return int64(bits.TrailingZeros64(uint64(s))) }

func (s set) last() int64 { return int64(bits.Len64(uint64(s))) - 1 }
