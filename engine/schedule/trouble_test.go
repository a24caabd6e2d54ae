package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// What broke for others, as fires: every line is an expression, a zone, where to begin, and
// the fires that follow.
func TestTrouble_Fires(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id, expr, zone, from string
		want                 []string
	}{
		{"A01", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00", []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"}},
		{"A02", "10 2 * * *", "Europe/Berlin", "2026-03-29T01:09:00+01:00", []string{"2026-03-29T03:00:00+02:00"}},
		{"A02 next year", "29 5 2 23 2 ?", "Africa/Casablanca", "2025-02-23T02:45:00+01:00", []string{"2026-02-23T02:05:29Z"}},
		{"A02 never again", "29 5 2 23 2 ? 2025", "Africa/Casablanca", "2025-02-23T02:45:00+01:00", []string{}},
		{"A04", "*/30 * * * *", "Australia/Melbourne", "2024-04-07T01:59:00+11:00", []string{"2024-04-07T02:00:00+11:00", "2024-04-07T02:30:00+11:00", "2024-04-07T02:00:00+10:00", "2024-04-07T02:30:00+10:00", "2024-04-07T03:00:00+10:00"}},
		{"A05", "0 1 4 11 *", "America/Sao_Paulo", "2018-11-03T23:00:00-03:00", []string{"2018-11-04T01:00:00-02:00"}},
		{"A05", "0 */2 * * *", "Africa/Cairo", "2025-04-24T21:00:00+02:00", []string{"2025-04-24T22:00:00+02:00", "2025-04-25T02:00:00+03:00", "2025-04-25T04:00:00+03:00"}},
		{"A07", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00", []string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"A08", "25 0 * * *", "Asia/Kolkata", "2014-05-13T17:19:00+05:30", []string{"2014-05-14T00:25:00+05:30"}},
		{"A11", "0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"A11 Sunday", "0 0 0 29 2 ? 2026-2031", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"A14", "5 10 * * 6-7", "UTC", "2026-01-01T00:00:00Z", []string{"2026-01-03T10:05:00Z", "2026-01-04T10:05:00Z", "2026-01-10T10:05:00Z"}},
		{"A16", "0 0 * * 4-7/3", "UTC", "2026-01-01T00:00:00Z", []string{"2026-01-04T00:00:00Z", "2026-01-08T00:00:00Z"}},
		{"A16", "0 0 * * 2/2", "UTC", "2026-01-01T00:00:00Z", []string{"2026-01-03T00:00:00Z", "2026-01-06T00:00:00Z", "2026-01-08T00:00:00Z", "2026-01-10T00:00:00Z", "2026-01-13T00:00:00Z"}},
		{"A17", "0 9 1-31 * 1", "UTC", "2026-01-01T10:00:00Z", []string{"2026-01-02T09:00:00Z", "2026-01-03T09:00:00Z"}},
		{"A19", "0 0 5 4W * ?", "UTC", "2025-04-17T00:00:00Z", []string{"2025-05-05T05:00:00Z"}},
		{"A19", "0 30 15 1W * ?", "UTC", "2025-05-30T00:00:00Z", []string{"2025-06-02T15:30:00Z"}},
		{"A19", "0 30 15 1W 11 ?", "UTC", "2025-05-30T00:00:00Z", []string{"2025-11-03T15:30:00Z"}},
		{"A20", "0 0 0 ? * L", "UTC", "2016-12-22T00:00:00Z", []string{"2016-12-24T00:00:00Z", "2016-12-31T00:00:00Z"}},
		{"A35", "0 30 2 ? 3 1#2", "America/New_York", "2037-06-01T00:00:00Z", []string{"2038-03-14T03:00:00-04:00", "2039-03-13T03:00:00-04:00", "2040-03-11T03:00:00-04:00"}},
	} {
		s := compile(t, workflow.Schedule{Cron: c.expr, Zone: c.zone})
		require.Equal(t, inZone(t, c.zone, c.want), walk(t, s, c.from, max(len(c.want), 1)), c.id+" "+c.expr)
	}
}

// A10: impossible dates are answered, not searched for ever, whatever is asked of them.
func TestTrouble_ImpossibleDates(t *testing.T) {
	t.Parallel()
	closed := &Calendar{Weekdays: weekdayNames}
	mondays := &Calendar{Weekdays: []string{"mon"}}
	for _, spec := range []workflow.Schedule{
		{Cron: "0 0 30 2 *"},
		{Cron: "0 0 31 2,4,6 *", Zone: "America/New_York"},
		{Cron: "0 0 0 ? 2 1#5 2027-2031"},
		{Cron: "0 9 * * *", Zone: "America/New_York", Calendars: []string{"closed"}},
		{Cron: "0 9 * * 1", Zone: "America/New_York", Calendars: []string{"mondays"}},
		{Cron: "0 30 2 ? 3 1#2", Zone: "America/New_York", DSTGap: workflow.GapSkip}, // in the gap of every year
		{Cron: "0 30 2/22 ? 3 1#2", Zone: "America/New_York"},
		{Cron: "* * * * * ?", Zone: "America/New_York", Calendars: []string{"closed"}},
		{Cron: "* * * * *", End: "2020-01-01T00:00:00Z"},
		{At: "2020-01-01T00:00:00Z"},
		{},
	} {
		s, err := Compile(spec, map[string]*Calendar{"closed": closed, "mondays": mondays})
		require.NoError(t, err)
		after := ms(t, "2026-01-01T00:00:00Z")
		at, ok := s.Next(after, 0)
		require.False(t, ok, spec)
		require.Zero(t, at)
		p := s.Plan(after, after+3600_000, 0)
		require.Empty(t, p.Run)
		require.False(t, p.NextOK)
		for _, f := range s.Preview(after, 0, 3) {
			require.True(t, f.Skipped, spec)
		}
	}
}

// A34: a window of the day is aligned to its begin.
func TestTrouble_DailyWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		spec workflow.Schedule
		from string
		want []string
	}{
		{"as asked at 17:50", workflow.Schedule{From: "18:00", To: "19:10", Every: workflow.Duration(30 * time.Minute), Zone: "Asia/Shanghai"}, "2026-05-01T17:50:00+08:00", []string{"2026-05-01T18:00:00+08:00", "2026-05-01T18:30:00+08:00", "2026-05-01T19:00:00+08:00", "2026-05-02T18:00:00+08:00"}},
		{"both ends belong to it", workflow.Schedule{From: "18:00", To: "19:00", Every: workflow.Duration(30 * time.Minute)}, "2026-05-01T18:30:00Z", []string{"2026-05-01T19:00:00Z", "2026-05-02T18:00:00Z"}},
		{"over midnight, by the weekday on which it begins", workflow.Schedule{From: "22:00", To: "02:00", Every: workflow.Duration(2 * time.Hour), Weekdays: []string{"fri"}}, "2026-05-01T00:00:00Z", []string{"2026-05-01T22:00:00Z", "2026-05-02T00:00:00Z", "2026-05-02T02:00:00Z", "2026-05-08T22:00:00Z"}},
		{"over a gap", workflow.Schedule{From: "22:00", To: "04:00", Every: workflow.Duration(90 * time.Minute), Zone: "Europe/Berlin"}, "2026-03-28T22:00:00+01:00", []string{"2026-03-28T23:30:00+01:00", "2026-03-29T01:00:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T22:00:00+02:00"}},
		{"over an overlap", workflow.Schedule{From: "01:00", To: "03:00", Every: workflow.Duration(time.Hour), Zone: "Europe/Berlin"}, "2026-10-25T00:00:00+02:00", []string{"2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"its end in a gap", workflow.Schedule{From: "01:00", To: "02:30", Every: workflow.Duration(30 * time.Minute), Zone: "Europe/Berlin"}, "2026-03-29T00:00:00+01:00", []string{"2026-03-29T01:00:00+01:00", "2026-03-29T01:30:00+01:00", "2026-03-30T01:00:00+02:00"}},
		{"its begin in a gap", workflow.Schedule{From: "02:30", To: "04:30", Every: workflow.Duration(time.Hour), Zone: "Europe/Berlin"}, "2026-03-29T00:00:00+01:00", []string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"the whole day", workflow.Schedule{Type: workflow.ScheduleDaily, Every: workflow.Duration(7 * time.Hour)}, "2026-05-01T14:00:00Z", []string{"2026-05-01T21:00:00Z", "2026-05-02T00:00:00Z"}},
	} {
		s := compile(t, c.spec)
		require.Equal(t, workflow.ScheduleDaily, s.Type())
		want := inZone(t, s.Spec().Zone, c.want)
		require.Equal(t, want, walk(t, s, c.from, len(want)), c.what)
		require.EqualValues(t, len(want), s.count(ms(t, c.from), ms(t, c.want[len(want)-1]), 0), c.what)
	}
}

// A fire that a gap moves onto one of its own is counted once.
func TestCron_MovedOntoAnother(t *testing.T) {
	t.Parallel()
	s := compile(t, workflow.Schedule{Cron: "0 0,30 2,3 * * ?", Zone: "Europe/Berlin"})
	from, until := ms(t, "2026-03-29T00:00:00+01:00"), ms(t, "2026-03-29T12:00:00+02:00")
	agrees(t, s, from, until, []int64{ms(t, "2026-03-29T03:00:00+02:00"), ms(t, "2026-03-29T03:30:00+02:00")}, "")
}

// A day that begins twice: the clock of St. John's went from 00:01 back to 23:01.
func TestCalendar_DayThatComesTwice(t *testing.T) {
	t.Parallel()
	cal := &Calendar{Off: []Day{{Date: "2010-11-07"}}}
	s, err := Compile(workflow.Schedule{Cron: "*/30 * * * *", Zone: "America/St_Johns", Calendars: []string{"c"}}, map[string]*Calendar{"c": cal})
	require.NoError(t, err)
	require.Equal(t, []string{"2010-11-06T23:30:00-02:30", "2010-11-06T23:30:00-03:30", "2010-11-08T00:00:00-03:30"}, walk(t, s, "2010-11-06T23:00:00-02:30", 3))
}

func TestRates(t *testing.T) {
	t.Parallel()
	anchor := ms(t, "2026-05-01T00:00:07.5Z")
	s := compile(t, every(10*time.Second, ""))
	for _, c := range []struct{ after, want int64 }{
		{0, anchor + 10_000},
		{anchor, anchor + 10_000},
		{anchor + 9_999, anchor + 10_000},
		{anchor + 10_000, anchor + 20_000},
		{anchor + 1_000_001, anchor + 1_010_000},
	} {
		at, ok := s.Next(c.after, anchor)
		require.True(t, ok)
		require.Equal(t, c.want, at, c)
	}
	// Start is a fire and replaces the anchor; End is one too.
	spec := every(10*time.Second, "")
	spec.Start, spec.End = "2026-05-01T02:00:00", "2026-05-01T02:00:20"
	spec.Zone = "Europe/Berlin"
	require.Equal(t, []string{"2026-05-01T02:00:00+02:00", "2026-05-01T02:00:10+02:00", "2026-05-01T02:00:20+02:00"}, walk(t, compile(t, spec), "2026-01-01T00:00:00Z", 9))
	// A delay counts from the end of the last run, and does not begin before Start.
	spec.Type, spec.End = workflow.ScheduleDelay, ""
	s = compile(t, spec)
	start := ms(t, "2026-05-01T00:00:00Z")
	at, ok := s.Next(start-5000, start-5000)
	require.True(t, ok)
	require.Equal(t, start+5000, at)
	at, _ = s.Next(start-60_000, start-60_000)
	require.Equal(t, start, at)
}

// Jitter is the same for the same fire, spreads jobs, and keeps the order of fires.
func TestJitter(t *testing.T) {
	t.Parallel()
	spec := workflow.Schedule{Cron: "*/10 * * * * ?", Jitter: workflow.Duration(time.Minute)}
	s, same := compile(t, spec), compile(t, spec)
	at := ms(t, "2026-05-01T00:00:00Z")
	var sum, last int64
	for i := range int64(1000) {
		j := s.Jittered(at, 42)
		require.Equal(t, j, same.Jittered(at, 42))
		require.GreaterOrEqual(t, j, at)
		require.Less(t, j, at+10_000)
		require.Greater(t, j, last)
		last = j
		sum += s.Jittered(at, i) - at
		at += 10_000
	}
	require.InDelta(t, 5000, sum/1000, 500)
	require.Equal(t, at, compile(t, workflow.Schedule{Cron: "* * * * *"}).Jittered(at, 7))
	spec = every(100*time.Millisecond, "")
	spec.Jitter = workflow.Duration(time.Hour)
	require.Less(t, compile(t, spec).Jittered(at, 7), at+100)
	require.LessOrEqual(t, compile(t, workflow.Schedule{At: "2026-05-01T00:00:00Z", Jitter: workflow.Duration(time.Second)}).Jittered(at, 7), at+1000)
}

// A year of fires is counted, not walked: exact, and the newest of them.
func TestDue_Long(t *testing.T) {
	t.Parallel()
	a, b := ms(t, "2025-01-01T00:00:00Z"), ms(t, "2026-01-01T00:00:00Z")
	seconds := (b - a) / 1000
	s := compile(t, workflow.Schedule{Cron: "* * * * * ?", Zone: "America/New_York"})
	times, total, skips := s.Due(a, b, 0, 3)
	require.Equal(t, seconds, total)
	require.Equal(t, []int64{b - 2000, b - 1000, b}, times)
	require.Empty(t, skips)
	times, total, _ = compile(t, every(100*time.Millisecond, "")).Due(a, b, a, 0)
	require.Equal(t, seconds*10, total)
	require.Empty(t, times)
	// A delay is due once at most.
	times, total, _ = compile(t, workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(time.Second)}).Due(a, b, a, 5)
	require.EqualValues(t, 1, total)
	require.Equal(t, []int64{a + 1000}, times)
}
