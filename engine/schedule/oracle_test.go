package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// The oracle walks every minute of real time with Go's own clock and looks at each wall clock
// that it shows. It shares no code with the package: expressions are made as text together with
// the numbers that they mean.

// oracleField is one field as text and as what it means.
type oracleField struct {
	text string
	ok   map[int]bool
	open bool // begins with * or is N/step
}

type dice struct{ *rand.Rand }

func (d dice) among(lo, hi int) int { return lo + d.IntN(hi-lo+1) }

// field makes a field of the values lo … hi.
func (d dice) field(lo, hi int, wraps bool) oracleField {
	f := oracleField{ok: map[int]bool{}}
	var items []string
	for range d.among(1, 2) {
		a, b, step := d.among(lo, hi), d.among(lo, hi), d.among(1, (hi-lo)/2+1)
		switch { // clocks change early, at the full or half hour
		case d.IntN(2) > 0:
		case hi == 59:
			a, b = 30*d.IntN(2), 30*d.IntN(2)
		case hi == 23:
			a, b = d.IntN(5), d.IntN(5)
		}
		switch d.IntN(6) {
		case 0:
			if len(items) > 0 {
				continue
			}
			f.open = true
			items = append(items, fmt.Sprintf("*/%d", step))
			for v := lo; v <= hi; v += step {
				f.ok[v] = true
			}
		case 1:
			f.open = true
			items = append(items, fmt.Sprintf("%d/%d", a, step))
			for v := a; v <= hi; v += step {
				f.ok[v] = true
			}
		case 2:
			if b < a && !wraps {
				a, b = b, a
			}
			items = append(items, fmt.Sprintf("%d-%d/%d", a, b, step))
			length := b - a
			if b < a {
				length += hi - lo + 1
			}
			for i := 0; i <= length; i += step {
				f.ok[lo+(a-lo+i)%(hi-lo+1)] = true
			}
		default:
			items = append(items, strconv.Itoa(a))
			f.ok[a] = true
		}
	}
	f.text = strings.Join(items, ",")
	return f
}

func (d dice) star(lo, hi int) oracleField {
	f := oracleField{text: "*", ok: map[int]bool{}, open: true}
	for v := lo; v <= hi; v++ {
		f.ok[v] = true
	}
	return f
}

// oracle is an expression that the test understands by itself.
type oracle struct {
	text     string
	fixed    bool
	seconds  []int
	matches  func(t time.Time) bool // looks at the wall clock, to the minute
	timezone *time.Location
}

func (d dice) oracle(loc *time.Location) oracle {
	minutes, hours := d.field(0, 59, true), d.field(0, 23, true)
	if d.IntN(4) == 0 {
		hours = d.star(0, 23)
	}
	days, months, weekdays := d.star(1, 31), d.star(1, 12), d.star(0, 6)
	if d.IntN(3) == 0 {
		days = d.field(1, 31, true)
	}
	if d.IntN(4) == 0 {
		months = d.field(1, 12, true)
	}
	if d.IntN(3) == 0 {
		weekdays = d.field(0, 6, true)
	}
	quartz := d.IntN(2) == 0
	both := days.open && strings.HasPrefix(days.text, "*") || strings.HasPrefix(weekdays.text, "*")
	o := oracle{fixed: !hours.open, seconds: []int{0}, timezone: loc}
	if quartz {
		seconds := d.field(0, 59, true)
		o.seconds = o.seconds[:0]
		for s := range 60 {
			if seconds.ok[s] {
				o.seconds = append(o.seconds, s)
			}
		}
		both = true
		dayText, weekdayText := days.text, "?"
		if d.IntN(2) == 0 {
			weekdays = d.field(0, 6, true)
			days, dayText, weekdayText = d.star(1, 31), "?", quartzDays(weekdays.text)
		} else {
			weekdays = d.star(0, 6)
		}
		o.text = strings.Join([]string{seconds.text, minutes.text, hours.text, dayText, months.text, weekdayText}, " ")
	} else {
		o.text = strings.Join([]string{minutes.text, hours.text, days.text, months.text, weekdays.text}, " ")
	}
	o.matches = func(t time.Time) bool {
		day, weekday := days.ok[t.Day()], weekdays.ok[int(t.Weekday())]
		date := day && weekday
		if !both {
			date = day || weekday
		}
		return date && months.ok[int(t.Month())] && hours.ok[t.Hour()] && minutes.ok[t.Minute()]
	}
	return o
}

// quartzDays writes weekdays from 1 on; steps stay what they are.
func quartzDays(text string) string {
	items := strings.Split(text, ",")
	for i, item := range items {
		span, step, stepped := strings.Cut(item, "/")
		if span != "*" {
			ends := strings.Split(span, "-")
			for j := range ends {
				n, _ := strconv.Atoi(ends[j])
				ends[j] = strconv.Itoa(n + 1)
			}
			span = strings.Join(ends, "-")
		}
		if items[i] = span; stepped {
			items[i] += "/" + step
		}
	}
	return strings.Join(items, ",")
}

// fires walks from and until, which are whole minutes, and begins two days before so as to know
// what the wall clock had shown.
func (o oracle) fires(from, until time.Time, gap workflow.Gap, repeat workflow.Repeat) []int64 {
	var out []int64
	add := func(t time.Time) {
		if !t.Before(from) && (len(out) == 0 || out[len(out)-1] < t.UnixMilli()) {
			out = append(out, t.UnixMilli())
		}
	}
	var shown time.Time // the wall clock's latest minute, as if it were UTC
	for u := from.Add(-48 * time.Hour); u.Before(until); u = u.Add(time.Minute) {
		l := u.In(o.timezone)
		wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
		if shown.IsZero() {
			shown = wall.Add(-time.Minute)
		}
		again := !wall.After(shown)
		for left := shown.Add(time.Minute); o.fixed && left.Before(wall); left = left.Add(time.Minute) {
			if gap == workflow.GapAfter && o.matches(left) {
				add(u)
			}
		}
		if wall.After(shown) {
			shown = wall
		}
		if !o.matches(wall) || again && o.fixed && repeat == workflow.RepeatFirst {
			continue
		}
		for _, s := range o.seconds {
			add(u.Add(time.Duration(s) * time.Second))
		}
	}
	return out
}

var oracleZones = strings.Fields(`UTC America/New_York America/Los_Angeles America/Sao_Paulo America/Santiago America/St_Johns
	America/Havana America/Asuncion America/Caracas America/Scoresbysund America/Godthab America/Anchorage America/Metlakatla
	Europe/Berlin Europe/London Europe/Dublin Europe/Lisbon Europe/Moscow Europe/Istanbul Europe/Chisinau Europe/Volgograd
	Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Tripoli Africa/Windhoek Africa/Juba Africa/Sao_Tome
	Asia/Beirut Asia/Gaza Asia/Amman Asia/Damascus Asia/Tehran Asia/Kabul Asia/Kolkata Asia/Kathmandu Asia/Dhaka Asia/Pyongyang
	Asia/Shanghai Asia/Hong_Kong Asia/Ulaanbaatar Asia/Manila Asia/Vladivostok Asia/Almaty
	Australia/Lord_Howe Australia/Melbourne Australia/Eucla Antarctica/Troll Antarctica/Casey Antarctica/Macquarie
	Pacific/Apia Pacific/Chatham Pacific/Kiritimati Pacific/Kwajalein Pacific/Fiji Pacific/Norfolk Pacific/Easter Pacific/Tongatapu
	Atlantic/Azores Atlantic/Stanley Indian/Mauritius`)

// seed is FANJET_SEED, else a fixed one; rounds is the first value times FANJET_ROUNDS.
func seed(t *testing.T, rounds int) (dice, int) {
	t.Helper()
	n, times := uint64(20260501), 1
	for name, set := range map[string]func(int){"FANJET_SEED": func(v int) { n = uint64(v) }, "FANJET_ROUNDS": func(v int) { times = v }} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.Atoi(text)
			require.NoError(t, err, name)
			set(v)
		}
	}
	t.Logf("FANJET_SEED=%d", n)
	return dice{rand.New(rand.NewPCG(n, 1))}, rounds * times
}

// aroundChange is a minute near a clock change of the zone, or anywhere where there is none.
func (d dice) aroundChange(loc *time.Location) time.Time {
	at := time.Date(d.among(1975, 2110), time.Month(d.among(1, 12)), d.among(1, 28), d.IntN(24), d.IntN(60), 0, 0, time.UTC)
	if _, end := at.In(loc).ZoneBounds(); !end.IsZero() && d.IntN(4) > 0 {
		at = end.Truncate(time.Minute).Add(-time.Duration(d.among(0, 36*60)) * time.Minute)
	}
	return at.UTC()
}

func TestCron_AsTheOracle(t *testing.T) {
	t.Parallel()
	d, rounds := seed(t, 700)
	fires := 0
	for i := range rounds {
		zone := oracleZones[d.IntN(len(oracleZones))]
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		o := d.oracle(loc)
		spec := workflow.Schedule{
			Cron: o.text, Zone: zone,
			DSTGap:     []workflow.Gap{workflow.GapAfter, workflow.GapSkip}[d.IntN(2)],
			DSTOverlap: []workflow.Repeat{workflow.RepeatFirst, workflow.RepeatBoth}[d.IntN(2)],
		}
		s, err := Compile(spec, nil)
		require.NoError(t, err, o.text)
		from := d.aroundChange(loc)
		until := from.Add(48 * time.Hour)
		want := o.fires(from, until, spec.DSTGap, spec.DSTOverlap)
		fires += len(want)
		what := fmt.Sprintf("round %d: %q %s gap=%s overlap=%s from %s", i, o.text, zone, spec.DSTGap, spec.DSTOverlap, from.Format(time.RFC3339))
		a, b := from.UnixMilli()-1, until.UnixMilli()-1
		agrees(t, s, a, b, want, what)
		// Any part of the range is counted right too.
		c := a + d.Int64N(b-a)
		part, _ := slices.BinarySearch(want, c+1)
		require.EqualValues(t, part, s.count(a, c, 0), what)
		require.EqualValues(t, len(want)-part, s.count(c, b, 0), what)
	}
	require.Greater(t, fires, rounds)
}

// agrees tells that next, prev and count all see these fires in (a, b].
func agrees(t *testing.T, s *Schedule, a, b int64, want []int64, what string) {
	t.Helper()
	got := []int64{}
	for after := a; ; {
		at, ok := s.next(after, a)
		if !ok || at > b {
			break
		}
		require.Greater(t, at, after, what)
		got = append(got, at)
		after = at
	}
	require.Equal(t, append([]int64{}, want...), got, what)
	require.EqualValues(t, len(want), s.count(a, b, a), what)
	until := b
	for i := len(want) - 1; i >= 0; i-- {
		at, ok := s.prev(until, a)
		require.True(t, ok, what)
		require.Equal(t, want[i], at, what)
		until = at - 1
	}
	if at, ok := s.prev(until, a); ok {
		require.LessOrEqual(t, at, a, what)
	}
}

// The days of a month that depend on it, by counting days.
func TestCron_SpecialDaysAsTheOracle(t *testing.T) {
	t.Parallel()
	last := func(t time.Time) int { return t.AddDate(0, 1, -t.Day()).Day() }
	working := func(t time.Time) bool { return t.Weekday() >= time.Monday && t.Weekday() <= time.Friday }
	// nearest is the working day next to day n of t's month.
	nearest := func(t time.Time, n int) int {
		for _, d := range []int{n, n - 1, n + 1, n - 2, n + 2} {
			if d >= 1 && d <= last(t) && working(t.AddDate(0, 0, d-t.Day())) {
				return d
			}
		}
		return 0
	}
	for text, matches := range map[string]func(t time.Time) bool{
		"0 0 0 L * ?":     func(t time.Time) bool { return t.Day() == last(t) },
		"0 0 0 L-3 * ?":   func(t time.Time) bool { return t.Day() == last(t)-3 },
		"0 0 0 LW * ?":    func(t time.Time) bool { return t.Day() == nearest(t, last(t)) },
		"0 0 0 L-2W * ?":  func(t time.Time) bool { return t.Day() == nearest(t, last(t)-2) },
		"0 0 0 1W * ?":    func(t time.Time) bool { return t.Day() == nearest(t, 1) },
		"0 0 0 15W,L * ?": func(t time.Time) bool { return t.Day() == nearest(t, 15) || t.Day() == last(t) },
		"0 0 0 31W * ?":   func(t time.Time) bool { return last(t) == 31 && t.Day() == nearest(t, 31) },
		"0 0 0 ? * L":     func(t time.Time) bool { return t.Weekday() == time.Saturday },
		"0 0 0 ? * 6L":    func(t time.Time) bool { return t.Weekday() == time.Friday && t.Day() > last(t)-7 },
		"0 0 0 ? * 2#1":   func(t time.Time) bool { return t.Weekday() == time.Monday && t.Day() <= 7 },
		"0 0 0 ? * 3#5,1": func(t time.Time) bool {
			return t.Weekday() == time.Tuesday && t.Day() > 28 || t.Weekday() == time.Sunday
		},
		"0 0 29 2 *":         func(t time.Time) bool { return t.Month() == time.February && t.Day() == 29 },
		"0 0 0 ? 2/3 * 2001": func(t time.Time) bool { return t.Year() == 2001 && (int(t.Month())-2)%3 == 0 },
	} {
		var want []int64
		from, until := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2108, 1, 1, 0, 0, 0, 0, time.UTC)
		for day := from; day.Before(until); day = day.AddDate(0, 0, 1) {
			if matches(day) {
				want = append(want, day.UnixMilli())
			}
		}
		agrees(t, compile(t, workflow.Schedule{Cron: text}), from.UnixMilli()-1, until.UnixMilli()-1, want, text)
	}
}

// A window of the day by walking real time second by second: it opens when the wall clock
// first shows its begin or later, and closes when it has shown its end.
func TestDaily_AsTheOracle(t *testing.T) {
	t.Parallel()
	d, rounds := seed(t, 100)
	for i := range rounds {
		zone := oracleZones[d.IntN(len(oracleZones))]
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		begin, end, period := d.IntN(24*60), d.IntN(24*60), d.among(1, 300)
		if d.IntN(2) == 0 {
			begin, end, period = begin/30*30, d.IntN(10)*30, 15*d.among(1, 4)
		}
		if begin == end {
			continue
		}
		weekdays := []string{}
		for _, name := range weekdayNames {
			if d.IntN(2) == 0 {
				weekdays = append(weekdays, name)
			}
		}
		clock := func(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }
		spec := workflow.Schedule{
			Every: workflow.Duration(time.Duration(period) * time.Minute), From: clock(begin), To: clock(end), Weekdays: weekdays, Zone: zone,
		}
		s, err := Compile(spec, nil)
		require.NoError(t, err)
		from := d.aroundChange(loc)
		until := from.Add(4 * 24 * time.Hour)
		var want []int64
		var shown, open time.Time // open: the wall clock's end of the window
		left := 0                 // minutes to the next fire
		for u := from.Add(-72 * time.Hour); u.Before(until); u = u.Add(time.Minute) {
			l := u.In(loc)
			wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
			if shown.IsZero() {
				shown = wall.Add(-time.Minute)
			}
			for m := shown.Add(time.Minute); !m.After(wall); m = m.Add(time.Minute) {
				if m.Hour()*60+m.Minute() == begin && (len(weekdays) == 0 || slices.Contains(weekdays, strings.ToLower(m.Weekday().String()[:3]))) {
					length := end - begin
					if length < 0 {
						length += 24 * 60
					}
					open, left = m.Add(time.Duration(length)*time.Minute), 0
				}
			}
			if wall.After(shown) {
				shown = wall
			}
			if open.IsZero() || shown.After(open) {
				open = time.Time{}
				continue
			}
			if left == 0 {
				left = period
				if !u.Before(from) {
					want = append(want, u.UnixMilli())
				}
			}
			left--
			if shown.Equal(open) { // its end was shown: only this very minute belongs to it
				open = time.Time{}
			}
		}
		what := fmt.Sprintf("round %d: %s %s-%s every %dm %v from %s", i, zone, spec.From, spec.To, period, weekdays, from.Format(time.RFC3339))
		agrees(t, s, from.UnixMilli()-1, until.UnixMilli()-1, want, what)
	}
}

// With calendars Next and Due are those without, less the days that are off.
func TestCalendars_AsTheOracle(t *testing.T) {
	t.Parallel()
	d, rounds := seed(t, 100)
	for i := range rounds {
		zone := oracleZones[d.IntN(len(oracleZones))]
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		o := d.oracle(loc)
		from := d.aroundChange(loc)
		cal := &Calendar{Weekdays: []string{weekdayNames[d.IntN(7)]}}
		off := map[string]bool{}
		for range 6 {
			date := from.AddDate(0, 0, d.among(-1, 7)).Format(time.DateOnly)
			if d.IntN(3) == 0 {
				cal.Work = append(cal.Work, Day{Date: date})
			} else {
				cal.Off = append(cal.Off, Day{Date: date})
			}
		}
		other := &Calendar{Off: []Day{{Date: from.AddDate(0, 0, 2).Format(time.DateOnly)}}}
		for n := -3; n < 12; n++ {
			day := from.AddDate(0, 0, n)
			date := day.Format(time.DateOnly)
			same := func(x Day) bool { return x.Date == date }
			off[date] = slices.ContainsFunc(other.Off, same) || !slices.ContainsFunc(cal.Work, same) &&
				(slices.ContainsFunc(cal.Off, same) || strings.ToLower(day.Weekday().String()[:3]) == cal.Weekdays[0])
		}
		s, err := Compile(workflow.Schedule{Cron: o.text, Zone: zone, Calendars: []string{"a", "b"}}, map[string]*Calendar{"a": cal, "b": other})
		require.NoError(t, err)
		a, b := from.UnixMilli()-1, from.AddDate(0, 0, 6).UnixMilli()-1
		var want []int64
		skipped := int64(0)
		for _, at := range o.fires(from, from.AddDate(0, 0, 6), workflow.GapAfter, workflow.RepeatFirst) {
			if off[time.UnixMilli(at).In(loc).Format(time.DateOnly)] {
				skipped++
			} else {
				want = append(want, at)
			}
		}
		what := fmt.Sprintf("round %d: %q %s from %s", i, o.text, zone, from.Format(time.RFC3339))
		times, total, skips := s.Due(a, b, 0, 1<<30)
		require.Equal(t, want, times, what)
		require.EqualValues(t, len(want), total, what)
		for _, sp := range skips {
			skipped -= sp.Count
			require.LessOrEqual(t, sp.From, sp.To, what)
		}
		require.Zero(t, skipped, what)
		after := a
		for _, at := range want {
			next, ok := s.Next(after, 0)
			require.True(t, ok, what)
			require.Equal(t, at, next, what)
			after = at
		}
	}
}
