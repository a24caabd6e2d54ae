package schedule

import (
	"slices"
	"strconv"
	"strings"
)

// occurrence is a repeat whose texts were read.
type occurrence struct {
	first, until int64 // days on which it may begin
	interval     int64
	days         int64
	months       set // yearly
	monthDays    []int64
	ordinals     []ordinal // yearly
	weekdays     set       // weekly
	except       map[int64]bool
}

// ordinal is the n-th weekday of a month, from the end if n is negative.
type ordinal struct{ n, weekday int64 }

// maxMarks bounds how many days the repeats of one calendar may come to in all.
const maxMarks = 5_000_000

// each calls f with every day of the repeat up to the year 2199, and takes from budget what it
// did.
func (r *Repeat) each(field string, budget *int, f func(day int64)) error {
	o, err := r.parse(field)
	if err != nil {
		return err
	}
	left := r.Count
	begin := func(day int64) bool {
		if *budget--; *budget < 0 {
			return false
		}
		if day < o.first {
			return true
		}
		if day > o.until {
			return false
		}
		if !o.except[day] {
			for n := range o.days {
				f(day + n)
			}
			*budget -= int(o.days)
		}
		left--
		return left != 0
	}
	if r.Every == "weekly" {
		o.weekly(begin)
	} else {
		o.yearly(begin)
	}
	if *budget < 0 {
		return fieldError(field, "the repeats come to more than %d days; bound them by until or count", maxMarks)
	}
	return nil
}

// weekly calls f with the days until it says that it is enough. Weeks begin on Monday.
func (o *occurrence) weekly(f func(day int64) bool) {
	for monday := o.first - floorMod(o.first+3, 7); monday <= o.until; monday += 7 * o.interval {
		for i := range int64(7) {
			if o.weekdays.has((i+1)%7) && !f(monday+i) {
				return
			}
		}
	}
}

// yearly is the same for years.
func (o *occurrence) yearly(f func(day int64) bool) {
	year, _, _ := dateOf(o.first)
	for ; year <= lastYear; year += o.interval {
		for month := o.months.next(1); month >= 0; month = o.months.next(month + 1) {
			for _, day := range o.inMonth(year, month) {
				if !f(day) {
					return
				}
			}
		}
	}
}

func (o *occurrence) inMonth(year, month int64) []int64 {
	first, length := dayNumber(year, month, 1), monthLength(year, month)
	var out []int64
	for _, d := range o.monthDays {
		if d < 0 {
			d += length + 1
		}
		if d >= 1 && d <= length {
			out = append(out, first+d-1)
		}
	}
	for _, w := range o.ordinals {
		d := 1 + floorMod(w.weekday-weekday(first), 7)
		if w.n > 0 {
			d += (w.n - 1) * 7
		} else {
			d += ((length-d)/7 + w.n + 1) * 7
		}
		if d >= 1 && d <= length {
			out = append(out, first+d-1)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *Repeat) parse(field string) (*occurrence, error) {
	first, err := parseDate(field+".date", r.Date)
	if err != nil {
		return nil, err
	}
	o := &occurrence{first: first, until: indexTo - 1, interval: int64(r.Interval), days: int64(r.Days)}
	for _, n := range []*int64{&o.interval, &o.days} {
		if *n == 0 {
			*n = 1
		}
	}
	switch {
	case o.interval < 1 || o.interval > 500:
		return nil, fieldError(field+".interval", "%d: must be 1 to 500", r.Interval)
	case o.days < 1 || o.days > maxSpanDays:
		return nil, fieldError(field+".days", "%d: must be 1 to %d", r.Days, maxSpanDays)
	case r.Count < 0:
		return nil, fieldError(field+".count", "%d: must not be negative", r.Count)
	case r.Count > 0 && r.Until != "":
		return nil, fieldError(field+".count", "write count or until, not both")
	case len(r.Except) > MaxCalendarDays:
		return nil, fieldError(field+".except", "%d of them; at most %d", len(r.Except), MaxCalendarDays)
	}
	if r.Until != "" {
		if o.until, err = parseDate(field+".until", r.Until); err != nil {
			return nil, err
		}
	}
	o.except = make(map[int64]bool, len(r.Except))
	for _, text := range r.Except {
		day, err := parseDate(field+".except", text)
		if err != nil {
			return nil, err
		}
		o.except[day] = true
	}
	switch r.Every {
	case "weekly":
		return o, r.parseWeekly(field, o)
	case "yearly":
		return o, r.parseYearly(field, o)
	}
	return nil, fieldError(field+".every", "%q: write yearly or weekly", clip(r.Every))
}

func (r *Repeat) parseWeekly(field string, o *occurrence) error {
	if len(r.Months)+len(r.MonthDays) > 0 {
		return fieldError(field+".months", "months and month_days are for a yearly repeat")
	}
	var err error
	if o.weekdays, err = parseWeekdays(field+".weekdays", r.Weekdays); o.weekdays == 0 {
		o.weekdays = 1 << uint(weekday(o.first))
	}
	return err
}

func (r *Repeat) parseYearly(field string, o *occurrence) error {
	_, month, day := dateOf(o.first)
	for _, m := range r.Months {
		if m < 1 || m > 12 {
			return fieldError(field+".months", "%d: must be 1 to 12", m)
		}
		o.months |= 1 << uint(m)
	}
	if o.months == 0 {
		o.months = 1 << uint(month)
	}
	for _, d := range r.MonthDays {
		if d < -31 || d == 0 || d > 31 {
			return fieldError(field+".month_days", "%d: must be 1 to 31, or -1 to -31 from the end", d)
		}
		o.monthDays = append(o.monthDays, int64(d))
	}
	for _, text := range r.Weekdays {
		w, err := parseOrdinal(field+".weekdays", text)
		if err != nil {
			return err
		}
		o.ordinals = append(o.ordinals, w)
	}
	switch {
	case len(o.monthDays) > 31 || len(o.ordinals) > 70:
		return fieldError(field, "too many days a month")
	case len(o.monthDays) > 0 && len(o.ordinals) > 0:
		return fieldError(field+".month_days", "write month_days or weekdays, not both")
	case len(o.monthDays)+len(o.ordinals) == 0:
		o.monthDays = []int64{day}
	}
	return nil
}

// parseOrdinal reads 4thu or -1mon.
func parseOrdinal(field, text string) (ordinal, error) {
	if len(text) > 3 {
		number, name := text[:len(text)-3], text[len(text)-3:]
		n, err := strconv.Atoi(number)
		i := slices.Index(weekdayNames, strings.ToLower(name))
		if err == nil && i >= 0 && n != 0 && n >= -5 && n <= 5 {
			return ordinal{int64(n), int64(i)}, nil
		}
	}
	return ordinal{}, fieldError(field, "%q: write the number of the weekday in the month and its name, as in 4thu or -1mon", clip(text))
}
