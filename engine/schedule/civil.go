package schedule

import "math/bits"

// Local time is counted in seconds since 1970-01-01 00:00 on the wall clock, as if there were
// no zones; days are counted from that date too. The calendar is the Gregorian one.

const daySeconds = 86400

// floorDiv rounds down, also below zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// dayOf is the day of a local second.
func dayOf(local int64) int64 { return floorDiv(local, daySeconds) }

// dayNumber counts the days from 1970-01-01 to a date. It goes by eras of 400 years that begin
// in March, so that a leap day is the last of its year.
func dayNumber(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yearOfEra := year - era*400
	dayOfYear := (153*((month+9)%12)+2)/5 + day - 1
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468
}

// dateOf is the inverse of dayNumber.
func dateOf(n int64) (year, month, day int64) {
	n += 719468
	era := floorDiv(n, 146097)
	dayOfEra := n - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	m := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*m+2)/5 + 1
	month = m + 3
	if month > 12 {
		month -= 12
	}
	year = yearOfEra + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// weekday is 0 for Sunday.
func weekday(day int64) int64 { return floorMod(day+4, 7) }

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

func monthLength(year, month int64) int64 {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// patternYears is how far a search goes where only rules count, neither lists of dates nor
// listed clock changes: the 14 kinds of a year, by the weekday of its first day and leap day or
// none, all come within 40 years, also around a year such as 2100 that has no leap day.
const patternYears = 41

// patternEnd is how far, in ms, a search from after goes that lists of dates bear upon up to
// the year listed.
func patternEnd(after, listed int64) int64 {
	return max(after, dayNumber(listed, 1, 1)*daySeconds*1000) + patternYears*366*daySeconds*1000
}

// set is a set of small numbers.
type set uint64

func (s set) has(i int64) bool { return i >= 0 && i < 64 && s>>uint(i)&1 != 0 }

// next is the smallest member from i on, -1 if there is none.
func (s set) next(i int64) int64 {
	if i < 0 {
		i = 0
	}
	if i > 63 {
		return -1
	}
	if rest := uint64(s) >> uint(i); rest != 0 {
		return i + int64(bits.TrailingZeros64(rest))
	}
	return -1
}

// prev is the largest member up to i, -1 if there is none.
func (s set) prev(i int64) int64 {
	if i < 0 {
		return -1
	}
	if i < 63 {
		s &= 1<<uint(i+1) - 1
	}
	return int64(bits.Len64(uint64(s))) - 1
}

// below counts the members smaller than i.
func (s set) below(i int64) int64 {
	if i <= 0 {
		return 0
	}
	if i < 64 {
		s &= 1<<uint(i) - 1
	}
	return int64(bits.OnesCount64(uint64(s)))
}

func (s set) len() int64 { return int64(bits.OnesCount64(uint64(s))) }
