package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of a calendar.
const (
	// MaxCalendarDays bounds the entries of each list of a Calendar.
	MaxCalendarDays = 20_000
	// MaxCalendarSize bounds an iCalendar or CSV file, in bytes.
	MaxCalendarSize = 4 << 20

	maxRepeats  = 2_000
	maxSpanDays = 366
)

// Calendar tells on which days a schedule may fire: a day in Work is one; else a day in Off,
// one of a Repeat, and one of the Weekdays is none; else it is one. Dates are local to the
// zone of the schedule and from 1970 to 2199; outside of these years Weekdays alone count.
//
// It is stored as JSON. It must not be changed after its first use; then it is safe for
// concurrent use.
type Calendar struct {
	// Weekdays (mon … sun) are off every week.
	Weekdays []string `json:"weekdays,omitempty"`
	// Off are days on which nothing fires.
	Off []Day `json:"off,omitempty"`
	// Repeats are days off that come again.
	Repeats []Repeat `json:"repeats,omitempty"`
	// Work are days on which schedules fire whatever the other fields say: working days that
	// make up for a holiday.
	Work []Day `json:"work,omitempty"`

	once  sync.Once
	err   error
	index []uint64 // a bit for each day that is off, from the year 1970 on
	week  set      // weekdays that are off; 0 is Sunday
}

// Day is a day of a calendar, or several in a row.
type Day struct {
	// Date is 2006-01-02.
	Date string `json:"date"`
	// Until is the last day, included; Date if empty. At most 366 days.
	Until string `json:"until,omitempty"`
	// Name is for people.
	Name string `json:"name,omitempty"`
}

// Repeat is days off that come every year or every week.
type Repeat struct {
	// Every is yearly or weekly.
	Every string `json:"every"`
	// Interval takes every so manieth year or week; default 1.
	Interval int `json:"interval,omitempty"`
	// Date is the first day it may be, 2006-01-02. A yearly one without Month, Day, Weekday
	// comes on its month and day, a weekly one without Weekdays on its weekday.
	Date string `json:"date"`
	// Days is how many days it lasts; default 1, at most 366.
	Days int `json:"days,omitempty"`
	// Months (1 … 12) and MonthDays (1 … 31, -1 is the month's last) are when a yearly one comes.
	Months    []int `json:"months,omitempty"`
	MonthDays []int `json:"month_days,omitempty"`
	// Weekdays are mon … sun. For a yearly one they are of its Months and have a number before
	// them: 4thu is the fourth Thursday, -1mon the last Monday.
	Weekdays []string `json:"weekdays,omitempty"`
	// Until is the last day on which it may begin, 2006-01-02; none if empty. Count is how
	// often it comes; 0 is without bound. At most one of the two is set.
	Until string `json:"until,omitempty"`
	Count int    `json:"count,omitempty"`
	// Except are dates on which it would begin and does not.
	Except []string `json:"except,omitempty"`
	// Name is for people.
	Name string `json:"name,omitempty"`
}

var (
	indexFrom = dayNumber(firstYear, 1, 1)
	indexTo   = dayNumber(lastYear+1, 1, 1)
)

// Check tells what is wrong with the calendar; each error is a FieldError.
func (c *Calendar) Check() error {
	c.once.Do(c.build)
	return c.err
}

// build computes the index.
func (c *Calendar) build() {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, fieldError(field, format, args...))
	}
	week, err := parseWeekdays("weekdays", c.Weekdays)
	if err != nil {
		errs = append(errs, err)
	}
	c.week = week
	c.index = make([]uint64, (indexTo-indexFrom+63)/64)
	for d := indexFrom; d < indexTo; d++ {
		if week.has(weekday(d)) {
			c.set(d, true)
		}
	}
	if len(c.Repeats) > maxRepeats {
		fail("repeats", "%d of them; at most %d", len(c.Repeats), maxRepeats)
	} else {
		budget := maxMarks
		for i := range c.Repeats {
			field := fmt.Sprintf("repeats[%d]", i)
			if err := c.Repeats[i].each(field, &budget, func(day int64) { c.set(day, true) }); err != nil {
				errs = append(errs, err)
			}
			if budget < 0 {
				break
			}
		}
	}
	for _, list := range []struct {
		name string
		days []Day
		off  bool
	}{{"off", c.Off, true}, {"work", c.Work, false}} {
		if len(list.days) > MaxCalendarDays {
			fail(list.name, "%d of them; at most %d", len(list.days), MaxCalendarDays)
			continue
		}
		for i, d := range list.days {
			first, last, err := d.span(fmt.Sprintf("%s[%d]", list.name, i))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for n := first; n <= last; n++ {
				c.set(n, list.off)
			}
		}
	}
	c.err = errors.Join(errs...)
}

func (c *Calendar) set(day int64, off bool) {
	if day < indexFrom || day >= indexTo {
		return
	}
	i := day - indexFrom
	if off {
		c.index[i/64] |= 1 << uint(i%64)
	} else {
		c.index[i/64] &^= 1 << uint(i%64)
	}
}

// off tells whether nothing fires on a day.
func (c *Calendar) off(day int64) bool {
	if day < indexFrom || day >= indexTo {
		return c.week.has(weekday(day))
	}
	i := day - indexFrom
	return c.index[i/64]>>uint(i%64)&1 != 0
}

// IsOff tells whether nothing fires on a date. It is false if Check fails.
func (c *Calendar) IsOff(year int, month time.Month, day int) bool {
	return c.Check() == nil && c.off(dayNumber(int64(year), int64(month), int64(day)))
}

// change is the first day from day on that is off, or is not, as wanted. What does not change
// within a week behind the index never does.
func (c *Calendar) change(day int64, off bool) (int64, bool) {
	for day < indexTo+8 {
		if c.off(day) == off {
			return day, true
		}
		if i := day - indexFrom; i >= 0 && day < indexTo && i%64 == 0 {
			if w := c.index[i/64]; off && w == 0 || !off && w == ^uint64(0) {
				day += 64
				continue
			}
		}
		day++
	}
	for end := day + 7; day < end; day++ {
		if c.off(day) == off {
			return day, true
		}
	}
	return 0, false
}

// span is the first and last day, as day numbers.
func (d Day) span(field string) (first, last int64, err error) {
	first, err = parseDate(field+".date", d.Date)
	if err != nil {
		return 0, 0, err
	}
	if d.Until == "" {
		return first, first, nil
	}
	last, err = parseDate(field+".until", d.Until)
	switch {
	case err != nil:
		return 0, 0, err
	case last < first:
		return 0, 0, fieldError(field+".until", "%s is before date %s", d.Until, d.Date)
	case last-first >= maxSpanDays:
		return 0, 0, fieldError(field+".until", "more than %d days; write several entries", maxSpanDays)
	}
	return first, last, nil
}

func parseDate(field, text string) (int64, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return 0, fieldError(field, "%q is not a date; write it as 2006-01-02", clip(text))
	}
	n := dayNumber(int64(t.Year()), int64(t.Month()), int64(t.Day()))
	if n < indexFrom || n >= indexTo {
		return 0, fieldError(field, "%s: the year must be %d to %d", text, firstYear, lastYear)
	}
	return n, nil
}

func formatDate(day int64) string {
	y, m, d := dateOf(day)
	return fmt.Sprintf("%04d-%02d-%02d", y, m, d)
}

// parseWeekdays reads mon … sun; 0 is Sunday.
func parseWeekdays(field string, names []string) (set, error) {
	var s set
	for _, name := range names {
		i := slices.Index(weekdayNames, strings.ToLower(name))
		if i < 0 {
			return 0, fieldError(field, "%q is not a weekday; write mon, tue, wed, thu, fri, sat or sun", clip(name))
		}
		s |= 1 << uint(i)
	}
	return s, nil
}

// why says to people why a day is off: the name of its entry, or what it is. Days of one reason
// have one text.
func (c *Calendar) why(day int64) string {
	for _, d := range c.Off {
		if first, last, err := d.span("off"); err == nil && first <= day && day <= last && d.Name != "" {
			return d.Name
		}
	}
	for i := range c.Repeats {
		found, budget := false, maxMarks
		if err := c.Repeats[i].each("repeats", &budget, func(d int64) { found = found || d == day }); err == nil && found && c.Repeats[i].Name != "" {
			return c.Repeats[i].Name
		}
	}
	if c.week.has(weekday(day)) {
		return "a day off of every week"
	}
	return "a day off"
}
