package schedule

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxEvents bounds the events of an iCalendar file, maxLine a line of it with all that was
// folded into it, in bytes.
const (
	maxEvents = 10_000
	maxLine   = 64 << 10
)

// ParseICalendar reads the events of an iCalendar file (RFC 5545) as days off, at most
// MaxCalendarSize bytes. An event is a working day instead if its categories have WORK or
// WORKDAY, or X-APPLE-SPECIAL-DAY is ALTERNATE-WORKDAY, as in published Chinese calendars.
// Canceled events count for nothing. Times of the day and zones are left out: an event takes
// the dates it is written with. A yearly or weekly RRULE is understood; any other is an error,
// for a day that is not excluded is one on which something runs. Errors name the line.
func ParseICalendar(r io.Reader) (*Calendar, error) {
	p := &icalendar{lines: newLines(r), out: &Calendar{}}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("iCalendar: line %d: %w", p.lines.at, err)
	}
	if err := p.out.Check(); err != nil {
		return nil, fmt.Errorf("iCalendar: %w", err)
	}
	return p.out, nil
}

// icalendar is a file being read.
type icalendar struct {
	lines  *lines
	out    *Calendar
	events int
}

// property is one line: NAME;PARAM=value:text.
type property struct {
	name, text string
}

func (p *icalendar) parse() error {
	var open []string // components around the line
	var e *event
	begun := false
	for p.lines.next() {
		prop, err := parseProperty(p.lines.text)
		if err != nil {
			return err
		}
		if !begun && (prop.name != "BEGIN" || !strings.EqualFold(prop.text, "VCALENDAR")) {
			return errors.New("the file does not begin with BEGIN:VCALENDAR; is it an .ics file?")
		}
		begun = true
		switch prop.name {
		case "BEGIN":
			if len(open) == 8 {
				return errors.New("components are nested too deep")
			}
			open = append(open, strings.ToUpper(prop.text))
			if len(open) == 2 && open[1] == "VEVENT" {
				if p.events++; p.events > maxEvents {
					return fmt.Errorf("more than %d events", maxEvents)
				}
				e = &event{line: p.lines.at}
			}
		case "END":
			if len(open) == 0 || open[len(open)-1] != strings.ToUpper(prop.text) {
				return fmt.Errorf("END:%s does not close what was begun last", clip(prop.text))
			}
			if len(open) == 2 && e != nil {
				if err := e.addTo(p.out); err != nil {
					p.lines.at = e.line
					return err
				}
				e = nil
			}
			open = open[:len(open)-1]
		default:
			if e != nil && len(open) == 2 {
				if err := e.property(prop); err != nil {
					return err
				}
			}
		}
	}
	switch {
	case p.lines.err != nil:
		return p.lines.err
	case !begun:
		return errors.New("the file is empty")
	case len(open) > 0:
		return fmt.Errorf("the file ends inside %s", clip(open[len(open)-1]))
	}
	return nil
}

func parseProperty(line string) (property, error) {
	quoted := false
	for i, r := range line {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ':' && !quoted:
			name, _, _ := strings.Cut(line[:i], ";")
			return property{strings.ToUpper(name), strings.TrimSpace(line[i+1:])}, nil
		}
	}
	return property{}, fmt.Errorf("%q has no colon", clip(line))
}

// event is a VEVENT being read.
type event struct {
	line       int
	name       string
	first      int64 // day
	end        int64 // first day behind it; 0: not said
	days       int64 // by DURATION; 0: not said
	dated      bool
	work, void bool
	rule       *Repeat
	more       []int64 // RDATE
	except     []string
}

func (e *event) property(p property) error {
	var err error
	switch p.name {
	case "DTSTART":
		e.first, _, err = icalDate(p.text)
		e.dated = true
	case "DTEND":
		var midnight bool
		if e.end, midnight, err = icalDate(p.text); !midnight {
			e.end++
		}
	case "DURATION":
		e.days, err = icalDays(p.text)
	case "SUMMARY":
		e.name = icalText(p.text)
	case "STATUS":
		e.void = strings.EqualFold(p.text, "CANCELLED")
	case "X-APPLE-SPECIAL-DAY":
		e.work = e.work || strings.EqualFold(p.text, "ALTERNATE-WORKDAY")
	case "CATEGORIES":
		for c := range strings.SplitSeq(strings.ToUpper(p.text), ",") {
			e.work = e.work || strings.TrimSpace(c) == "WORK" || strings.TrimSpace(c) == "WORKDAY"
		}
	case "RRULE":
		if e.rule != nil {
			return errors.New("a second RRULE in one event; write two events")
		}
		e.rule, err = icalRule(p.text)
	case "EXRULE":
		return errors.New("EXRULE is not supported; write EXDATE")
	case "EXDATE", "RDATE":
		for text := range strings.SplitSeq(p.text, ",") {
			day, _, err := icalDate(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if p.name == "EXDATE" {
				e.except = append(e.except, formatDate(day))
			} else {
				e.more = append(e.more, day)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// addTo puts the event into a calendar.
func (e *event) addTo(c *Calendar) error {
	if e.void {
		return nil
	}
	if !e.dated {
		return errors.New("the event has no DTSTART")
	}
	days := max(e.days, 1)
	if e.end != 0 {
		days = e.end - e.first
		if days == 0 {
			days = 1 // DTEND is DTSTART: some write one day so
		}
	}
	if days < 1 || days > maxSpanDays {
		return fmt.Errorf("the event takes %d days; must be 1 to %d", days, maxSpanDays)
	}
	if e.rule != nil {
		if e.work {
			return errors.New("a working day with an RRULE is not supported; write an event for each")
		}
		r := *e.rule
		r.Date, r.Name, r.Except = formatDate(e.first), e.name, e.except
		if days > 1 {
			r.Days = int(days)
		}
		c.Repeats = append(c.Repeats, r)
	}
	for i, first := range append([]int64{e.first}, e.more...) {
		if i == 0 && e.rule != nil || slices.Contains(e.except, formatDate(first)) {
			continue
		}
		d := Day{Date: formatDate(first), Name: e.name}
		if days > 1 {
			d.Until = formatDate(first + days - 1)
		}
		if e.work {
			c.Work = append(c.Work, d)
		} else {
			c.Off = append(c.Off, d)
		}
	}
	return nil
}

// icalDate reads 20260102, 20260102T150405 or that with Z; midnight tells that it is the begin
// of its day.
func icalDate(text string) (day int64, midnight bool, err error) {
	date, clock, timed := strings.Cut(text, "T")
	t, err := time.Parse("20060102", date)
	if err == nil && timed {
		_, err = time.Parse("150405", strings.TrimSuffix(clock, "Z"))
	}
	if err != nil {
		return 0, false, fmt.Errorf("%q is not a date; write it as 20060102", clip(text))
	}
	if t.Year() < firstYear || t.Year() > lastYear {
		return 0, false, fmt.Errorf("%s: the year must be %d to %d", clip(text), firstYear, lastYear)
	}
	day = dayNumber(int64(t.Year()), int64(t.Month()), int64(t.Day()))
	return day, !timed || strings.HasPrefix(clock, "000000"), nil
}

// icalDays reads a DURATION as whole days, rounded up.
func icalDays(text string) (int64, error) {
	body, found := strings.CutPrefix(strings.ToUpper(text), "P")
	date, clock, _ := strings.Cut(body, "T")
	var days int64
	for _, unit := range []struct {
		letter string
		days   int64
	}{{"W", 7}, {"D", 1}} {
		if number, rest, ok := strings.Cut(date, unit.letter); ok {
			n, isNumber := digits(number)
			found = found && isNumber
			days += int64(n) * unit.days
			date = rest
		}
	}
	if !found || date != "" || body == "" || strings.Trim(clock, "0123456789HMS") != "" {
		return 0, fmt.Errorf("%q is not a duration such as P1D", clip(text))
	}
	if strings.Trim(clock, "0HMS") != "" {
		days++
	}
	return days, nil
}

// icalText takes the escapes out of a text and bounds it.
func icalText(text string) string {
	s := []rune(strings.NewReplacer(`\n`, " ", `\N`, " ", `\,`, ",", `\;`, ";", `\\`, `\`).Replace(strings.ToValidUTF8(text, "?")))
	return string(s[:min(len(s), 200)])
}

var icalWeekdays = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}

// icalRule reads an RRULE that is yearly or weekly.
func icalRule(text string) (*Repeat, error) {
	r := &Repeat{}
	byDay, weekStart := "", "MO"
	for part := range strings.SplitSeq(strings.ToUpper(text), ";") {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "FREQ":
			switch value {
			case "YEARLY", "WEEKLY":
				r.Every = strings.ToLower(value)
			default:
				return nil, fmt.Errorf("FREQ=%s is not supported; write YEARLY or WEEKLY, or single events", clip(value))
			}
		case "INTERVAL":
			r.Interval, err = icalNumber(key, value)
		case "COUNT":
			r.Count, err = icalNumber(key, value)
		case "UNTIL":
			var day int64
			if day, _, err = icalDate(value); err == nil {
				r.Until = formatDate(day)
			}
		case "BYMONTH":
			r.Months, err = icalNumbers(key, value)
		case "BYMONTHDAY":
			r.MonthDays, err = icalNumbers(key, value)
		case "BYDAY":
			byDay = value
		case "WKST":
			weekStart = value
		default:
			return nil, fmt.Errorf("%s is not supported; there are FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY and BYDAY", clip(key))
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Every == "" {
		return nil, errors.New("FREQ is missing")
	}
	if weekStart != "MO" && r.Every == "weekly" && r.Interval > 1 {
		return nil, fmt.Errorf("WKST=%s with an INTERVAL is not supported; weeks begin on Monday", clip(weekStart))
	}
	return r, icalByDay(r, byDay)
}

func icalByDay(r *Repeat, list string) error {
	if list == "" {
		return nil
	}
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimPrefix(text, "+")
		number, name := "", text
		if len(text) > 2 {
			number, name = text[:len(text)-2], text[len(text)-2:]
		}
		i := slices.Index(icalWeekdays, name)
		switch {
		case i < 0:
			return fmt.Errorf("BYDAY: %q is not a weekday; write MO to SU", clip(text))
		case (number == "") != (r.Every == "weekly"):
			return fmt.Errorf("BYDAY: %q: a number before the weekday is for FREQ=YEARLY, which needs one", clip(text))
		case r.Every == "yearly" && len(r.Months) == 0:
			return errors.New("BYDAY in a yearly rule needs BYMONTH")
		}
		r.Weekdays = append(r.Weekdays, number+weekdayNames[i])
	}
	return nil
}

func icalNumber(key, text string) (int, error) {
	n, ok := digits(text)
	if !ok || n < 1 {
		return 0, fmt.Errorf("%s: %q must be a number from 1 on", key, clip(text))
	}
	return n, nil
}

func icalNumbers(key, text string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a number", key, clip(part))
		}
		out = append(out, n)
	}
	return out, nil
}

// lines reads lines that go on where the next one begins with a blank.
type lines struct {
	in   *bufio.Reader
	size int
	row  int // lines read
	peek string
	more bool // peek holds a line

	text string
	at   int // where text begins
	err  error
}

func newLines(r io.Reader) *lines {
	return &lines{in: bufio.NewReader(r)}
}

// raw is the next line as it is written, without its end.
func (l *lines) raw() (string, bool) {
	var b strings.Builder
	for {
		part, isPrefix, err := l.in.ReadLine()
		if errors.Is(err, io.EOF) && b.Len() == 0 {
			return "", false
		}
		if err != nil && !errors.Is(err, io.EOF) {
			l.err = err
			return "", false
		}
		b.Write(part)
		if l.size += len(part) + 1; l.size > MaxCalendarSize {
			l.err = fmt.Errorf("the file is larger than %d bytes", MaxCalendarSize)
			return "", false
		}
		if !isPrefix || err != nil {
			l.row++
			return strings.TrimSuffix(b.String(), "\r"), true
		}
	}
}

// next reads a line that is not empty into text.
func (l *lines) next() bool {
	for !l.more || l.peek == "" {
		if l.peek, l.more = l.raw(); !l.more {
			return false
		}
		if l.row == 1 {
			l.peek = strings.TrimPrefix(l.peek, "\ufeff")
		}
	}
	var b strings.Builder
	b.WriteString(l.peek)
	l.at = l.row
	for {
		if l.peek, l.more = l.raw(); !l.more || l.peek == "" || l.peek[0] != ' ' && l.peek[0] != '\t' {
			break
		}
		if b.WriteString(l.peek[1:]); b.Len() > maxLine {
			l.err = fmt.Errorf("a line is longer than %d bytes", maxLine)
			return false
		}
	}
	l.text = b.String()
	return l.err == nil
}
