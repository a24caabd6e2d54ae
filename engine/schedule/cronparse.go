package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxCron bounds a cron expression, in bytes.
const maxCron = 512

// Years a cron expression may name.
const (
	firstYear = 1970
	lastYear  = 2199
)

// cronField is what may stand in one field.
type cronField struct {
	name     string
	min, max int
	names    []string // of the values from min on
	wraps    bool     // a range may go over the end
}

var (
	monthNames   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

	secondField  = cronField{"second", 0, 59, nil, true}
	minuteField  = cronField{"minute", 0, 59, nil, true}
	hourField    = cronField{"hour", 0, 23, nil, true}
	dayField     = cronField{"day-of-month", 1, 31, nil, true}
	monthField   = cronField{"month", 1, 12, monthNames, true}
	weekdayField = cronField{"day-of-week", 0, 6, weekdayNames, true} // Vixie; 7 is Sunday too
	quartzField  = cronField{"day-of-week", 1, 7, weekdayNames, true}
	yearField    = cronField{"year", firstYear, lastYear, nil, false}

	vixieFields  = []cronField{minuteField, hourField, dayField, monthField, weekdayField}
	quartzFields = []cronField{secondField, minuteField, hourField, dayField, monthField, quartzField, yearField}
)

// word is a piece of the expression and the column at which it begins.
type word struct {
	text   string
	column int
}

func (w word) errorf(format string, args ...any) *FieldError {
	return &FieldError{"schedule.cron", w.column, fmt.Sprintf(format, args...)}
}

// cut splits w at the first sep.
func (w word) cut(sep string) (before, after word, found bool) {
	i := strings.Index(w.text, sep)
	if i < 0 {
		return w, word{}, false
	}
	return word{w.text[:i], w.column}, word{w.text[i+len(sep):], w.column + utf8.RuneCountInString(w.text[:i]) + len(sep)}, true
}

// words splits text at blanks.
func words(text string) []word {
	var out []word
	column, begin := 0, -1
	for i, r := range text {
		column++
		blank := r == ' ' || r == '\t'
		switch {
		case !blank && begin < 0:
			begin = i
			out = append(out, word{column: column})
		case blank && begin >= 0:
			out[len(out)-1].text = text[begin:i]
			begin = -1
		}
	}
	if begin >= 0 {
		out[len(out)-1].text = text[begin:]
	}
	return out
}

// parseCron reads an expression; the error is a *FieldError.
func parseCron(text string) (*cron, error) {
	if len(text) > maxCron {
		return nil, fieldError("schedule.cron", "%d bytes; at most %d", len(text), maxCron)
	}
	ws := words(text)
	switch len(ws) {
	case 5:
		return parseVixie(ws)
	case 6, 7:
		return parseQuartz(ws)
	}
	hint := ""
	if strings.HasPrefix(strings.TrimSpace(text), "@") {
		hint = "; write out what an @ name stands for, or use type fixed_rate"
	}
	return nil, fieldError("schedule.cron", "%d fields: write 5 (minute hour day-of-month month day-of-week), or 6 or 7 (second first, year last)%s", len(ws), hint)
}

func parseVixie(ws []word) (*cron, error) {
	c := &cron{seconds: 1, anyYear: true}
	for i, f := range vixieFields {
		if strings.Contains(ws[i].text, "?") {
			return nil, ws[i].errorf("%s %q: ? belongs to expressions of 6 or 7 fields; write *", f.name, clip(ws[i].text))
		}
		if err := c.field(f, ws[i], false); err != nil {
			return nil, err
		}
	}
	c.both = strings.HasPrefix(ws[2].text, "*") || strings.HasPrefix(ws[4].text, "*")
	return c.ready(), nil
}

func parseQuartz(ws []word) (*cron, error) {
	c := &cron{anyYear: len(ws) == 6, both: true}
	for i, w := range ws {
		if day := i == 3 || i == 5; day && w.text == "?" {
			continue
		}
		if strings.Contains(w.text, "?") {
			return nil, w.errorf("%s %q: ? stands alone, in day-of-month or day-of-week", quartzFields[i].name, clip(w.text))
		}
		if err := c.field(quartzFields[i], w, true); err != nil {
			return nil, err
		}
	}
	switch day, weekday := ws[3].text == "?", ws[5].text == "?"; {
	case day && weekday:
		return nil, ws[5].errorf("day-of-month and day-of-week are both ?; one of them must say which days")
	case day:
		c.days = 1<<32 - 2
	case weekday:
		c.weekdays = 1<<7 - 1
	default:
		return nil, ws[5].errorf("day-of-month %q and day-of-week %q: write ? in exactly one of them", clip(ws[3].text), clip(ws[5].text))
	}
	return c.ready(), nil
}

// field reads a list of items.
func (c *cron) field(f cronField, w word, quartz bool) error {
	all := w
	for {
		item, rest, more := w.cut(",")
		if item.text == "" {
			return all.errorf("%s %q: a value is missing beside a comma", f.name, clip(all.text))
		}
		if err := c.item(f, item, quartz); err != nil {
			return err
		}
		if !more {
			return nil
		}
		w = rest
	}
}

// item reads one of: * a a-b, each with or without /step, and in Quartz what is special for days.
func (c *cron) item(f cronField, w word, quartz bool) error {
	if quartz {
		switch f.name {
		case dayField.name:
			if done, err := c.specialDay(f, w); done || err != nil {
				return err
			}
		case quartzField.name:
			if done, err := c.specialWeekday(f, w); done || err != nil {
				return err
			}
		}
	}
	span, stepWord, stepped := w.cut("/")
	step := 1
	if stepped {
		n, ok := digits(stepWord.text)
		values := f.max - f.min + 1
		switch {
		case !ok:
			return w.errorf("%s %q: the step %q must be a number", f.name, clip(w.text), clip(stepWord.text))
		case n < 1:
			return w.errorf("%s %q: the step must be 1 to %d", f.name, clip(w.text), values-1)
		case n >= values:
			return w.errorf("%s %q: the step must be 1 to %d, for cron begins anew in every field; for a longer period use type fixed_rate", f.name, clip(w.text), values-1)
		}
		step = n
	}
	if span.text == "*" {
		c.open(f)
		c.add(f, f.min, f.max, step)
		return nil
	}
	fromWord, toWord, ranged := span.cut("-")
	from, err := f.value(fromWord, w)
	if err != nil {
		return err
	}
	switch {
	case ranged:
		to, err := f.value(toWord, w)
		if err != nil {
			return err
		}
		if to < from {
			if f.max == 6 && from == 7 { // from Sunday
				from = 0
			} else if !f.wraps {
				return w.errorf("%s %q: the range ends before it begins", f.name, clip(w.text))
			} else {
				to += f.max - f.min + 1
			}
		}
		c.add(f, from, to, step)
	case stepped:
		c.open(f)
		c.add(f, from, max(f.max, from), step)
	default:
		c.add(f, from, from, 1)
	}
	return nil
}

// open notes that the hours follow real time.
func (c *cron) open(f cronField) {
	if f.name == hourField.name {
		c.hourly = true
	}
}

// add puts in from, from+step … to, which may go over the end of the field.
func (c *cron) add(f cronField, from, to, step int) {
	for v := from; v <= to; v += step {
		n := v
		if n > f.max {
			n -= f.max - f.min + 1 // 7 is Sunday in Vixie's, whose max is 6
		}
		switch f.name {
		case secondField.name:
			c.seconds |= 1 << n
		case minuteField.name:
			c.minutes |= 1 << n
		case hourField.name:
			c.hours |= 1 << n
		case dayField.name:
			c.days |= 1 << n
		case monthField.name:
			c.months |= 1 << n
		case weekdayField.name:
			c.weekdays |= 1 << (n - f.min)
		case yearField.name:
			c.years[(n-firstYear)/64] |= 1 << ((n - firstYear) % 64)
		}
	}
}

// value reads a number or a name; item is what the error shows.
func (f cronField) value(w, item word) (int, error) {
	low := strings.ToLower(w.text)
	for i, name := range f.names {
		if low == name {
			return f.min + i, nil
		}
	}
	most := f.max
	if most == 6 {
		most = 7
	}
	n, ok := digits(w.text)
	switch {
	case w.text == "":
		return 0, item.errorf("%s %q: a value is missing", f.name, clip(item.text))
	case ok && n >= f.min && n <= most:
		return n, nil
	}
	names := ""
	if f.names != nil {
		names = fmt.Sprintf(", or a name %s to %s", strings.ToUpper(f.names[0]), strings.ToUpper(f.names[len(f.names)-1]))
	}
	return 0, w.errorf("%s %q: must be %d to %d%s", f.name, clip(item.text), f.min, most, names)
}

// digits reads a number without a sign.
func digits(s string) (int, bool) {
	if s == "" || len(s) > 6 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// specialDay reads L, L-n, LW, L-nW and nW.
func (c *cron) specialDay(f cronField, w word) (bool, error) {
	text := strings.ToUpper(w.text)
	body, nearest := strings.CutSuffix(text, "W")
	switch {
	case body == "L":
		c.specials = append(c.specials, special{last: true, nearest: nearest})
	case strings.HasPrefix(body, "L-"):
		n, ok := digits(body[2:])
		if !ok || n < 1 || n > 30 {
			return false, w.errorf("%s %q: behind L- must be 1 to 30", f.name, clip(w.text))
		}
		c.specials = append(c.specials, special{last: true, n: int64(n), nearest: nearest})
	case nearest:
		n, ok := digits(body)
		if !ok || n < 1 || n > 31 {
			return false, w.errorf("%s %q: before W must be 1 to 31, or L", f.name, clip(w.text))
		}
		c.specials = append(c.specials, special{n: int64(n), nearest: true})
	default:
		return false, nil
	}
	return true, nil
}

// specialWeekday reads L (Saturday), nL and n#k.
func (c *cron) specialWeekday(f cronField, w word) (bool, error) {
	text := strings.ToUpper(w.text)
	if text == "L" {
		c.weekdays |= 1 << 6
		return true, nil
	}
	if day, nth, found := w.cut("#"); found {
		v, err := f.value(day, w)
		if err != nil {
			return false, err
		}
		k, ok := digits(nth.text)
		if !ok || k < 1 || k > 5 {
			return false, w.errorf("%s %q: behind # must be 1 to 5", f.name, clip(w.text))
		}
		c.specials = append(c.specials, special{weekday: true, n: int64(v - f.min), nth: int64(k)})
		return true, nil
	}
	if body, found := strings.CutSuffix(text, "L"); found {
		v, err := f.value(word{body, w.column}, w)
		if err != nil {
			return false, err
		}
		c.specials = append(c.specials, special{weekday: true, n: int64(v - f.min), last: true})
		return true, nil
	}
	return false, nil
}
