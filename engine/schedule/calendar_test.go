package schedule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// offDays are the days off of a year.
func offDays(c *Calendar, year int) []string {
	out := []string{}
	for day := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == year; day = day.AddDate(0, 0, 1) {
		if c.IsOff(day.Date()) {
			out = append(out, day.Format("01-02"))
		}
	}
	return out
}

func TestCalendar_JSON(t *testing.T) {
	t.Parallel()
	text := `{"off":[{"date":"2026-10-01","until":"2026-10-07","name":"National Day"}],` +
		`"repeats":[{"every":"yearly","date":"2026-12-25","days":2},{"every":"yearly","date":"2000-01-01","months":[11],"weekdays":["4thu"],"until":"2026-12-31"}],` +
		`"work":[{"date":"2026-10-07"}]}`
	var c Calendar
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	require.Equal(t, []string{"10-01", "10-02", "10-03", "10-04", "10-05", "10-06", "11-26", "12-25", "12-26"}, offDays(&c, 2026))
	require.Equal(t, []string{"12-25", "12-26"}, offDays(&c, 2027))
	require.Equal(t, []string{"12-25", "12-26"}, offDays(&c, 2199))
	require.Empty(t, offDays(&c, 2200))
	out, err := json.Marshal(&c)
	require.NoError(t, err)
	require.JSONEq(t, text, string(out))
}

func TestCalendar_Change(t *testing.T) {
	t.Parallel()
	c := &Calendar{Weekdays: []string{"sat", "sun"}, Off: []Day{{Date: "2026-05-04"}}}
	require.NoError(t, c.Check())
	for _, start := range []int64{dayNumber(1969, 12, 20), dayNumber(2026, 4, 20), dayNumber(2199, 12, 20), dayNumber(2500, 1, 1)} {
		for day := start; day < start+30; day++ {
			for _, off := range []bool{true, false} {
				want := day
				for c.off(want) != off {
					want++
				}
				got, ok := c.change(day, off)
				require.True(t, ok)
				require.Equal(t, want, got)
			}
		}
	}
	_, ok := (&Calendar{index: make([]uint64, (indexTo-indexFrom+63)/64)}).change(0, true)
	require.False(t, ok)
}

func TestCalendar_Errors(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*Calendar{
		`weekdays: "saturday" is not a weekday; write mon, tue, wed, thu, fri, sat or sun`:                            {Weekdays: []string{"saturday"}},
		`off[0].date: "1.5.2026" is not a date; write it as 2006-01-02`:                                               {Off: []Day{{Date: "1.5.2026"}}},
		`work[0].date: 2200-01-01: the year must be 1970 to 2199`:                                                     {Work: []Day{{Date: "2200-01-01"}}},
		`off[0].until: 2026-04-30 is before date 2026-05-01`:                                                          {Off: []Day{{Date: "2026-05-01", Until: "2026-04-30"}}},
		`off[0].until: more than 366 days; write several entries`:                                                     {Off: []Day{{Date: "2026-05-01", Until: "2027-05-02"}}},
		`repeats[0].every: "monthly": write yearly or weekly`:                                                         {Repeats: []Repeat{{Every: "monthly", Date: "2026-05-01"}}},
		`repeats[0].date: "" is not a date; write it as 2006-01-02`:                                                   {Repeats: []Repeat{{Every: "yearly"}}},
		`repeats[0].interval: -1: must be 1 to 500`:                                                                   {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Interval: -1}}},
		`repeats[0].days: 400: must be 1 to 366`:                                                                      {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Days: 400}}},
		`repeats[0].count: write count or until, not both`:                                                            {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Count: 1, Until: "2027-01-01"}}},
		`repeats[0].months: 13: must be 1 to 12`:                                                                      {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Months: []int{13}}}},
		`repeats[0].month_days: 32: must be 1 to 31, or -1 to -31 from the end`:                                       {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", MonthDays: []int{32}}}},
		`repeats[0].months: months and month_days are for a yearly repeat`:                                            {Repeats: []Repeat{{Every: "weekly", Date: "2026-05-01", Months: []int{1}}}},
		`repeats[0].weekdays: "6mon": write the number of the weekday in the month and its name, as in 4thu or -1mon`: {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Weekdays: []string{"6mon"}}}},
		`repeats[0].except: "x" is not a date; write it as 2006-01-02`:                                                {Repeats: []Repeat{{Every: "yearly", Date: "2026-05-01", Except: []string{"x"}}}},
	} {
		require.EqualError(t, c.Check(), want)
	}
	many := &Calendar{}
	for range maxRepeats {
		many.Repeats = append(many.Repeats, Repeat{Every: "weekly", Date: "1970-01-01", Days: 366, Weekdays: weekdayNames})
	}
	require.ErrorContains(t, many.Check(), "the repeats come to more than 5000000 days; bound them by until or count")
}

func ics(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VCALENDAR\r\n"
}

func vevent(lines ...string) string {
	return "BEGIN:VEVENT\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VEVENT"
}

func TestParseICalendar(t *testing.T) {
	t.Parallel()
	c, err := ParseICalendar(strings.NewReader("\ufeff" + ics(
		"BEGIN:VTIMEZONE", "TZID:Europe/Berlin", "BEGIN:STANDARD", "DTSTART:19701025T030000", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10", "END:STANDARD", "END:VTIMEZONE",
		vevent("DTSTART;VALUE=DATE:20261001", "DTEND;VALUE=DATE:20261008", "SUMMARY:National", "  Day\\, a week"),
		vevent("DTSTART;VALUE=DATE:20261010", "X-APPLE-SPECIAL-DAY:ALTERNATE-WORKDAY", "SUMMARY:made up"),
		vevent("DTSTART;VALUE=DATE:20261011", "CATEGORIES:Holidays,Work"),
		vevent("DTSTART;TZID=\"Europe/Berlin: here\":20260501T000000", "DURATION:P1DT12H", "BEGIN:VALARM", "DURATION:nonsense", "END:VALARM"),
		vevent("DTSTART:20260601T090000Z", "DTEND:20260602T120000Z"),
		vevent("DTSTART;VALUE=DATE:20260701", "STATUS:CANCELLED"),
		vevent("DTSTART;VALUE=DATE:20260703", "RDATE;VALUE=DATE:20260706,20260707", "EXDATE;VALUE=DATE:20260706"),
		vevent("DTSTART;VALUE=DATE:20251225", "RRULE:FREQ=YEARLY;COUNT=3", "EXDATE;VALUE=DATE:20251225"),
		vevent("DTSTART;VALUE=DATE:20260801", "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;UNTIL=20260816"),
		vevent("DTSTART;VALUE=DATE:20261126", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", "SUMMARY:Thanksgiving"),
		vevent("DTSTART;VALUE=DATE:20260525", "RRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO;UNTIL=20270101T000000Z"),
		vevent("DTSTART;VALUE=DATE:20260228", "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-1;INTERVAL=2"),
	)))
	require.NoError(t, err)
	require.Equal(t, []string{
		"02-28", "05-01", "05-02", "05-25", "06-01", "06-02", "07-03", "07-07", "08-01", "08-02", "08-15", "08-16",
		"10-01", "10-02", "10-03", "10-04", "10-05", "10-06", "10-07", "11-26", "12-25",
	}, offDays(c, 2026))
	require.Equal(t, []string{"11-25", "12-25"}, offDays(c, 2027))
	require.Equal(t, []string{"02-29", "11-23"}, offDays(c, 2028))
	require.Equal(t, []Day{{Date: "2026-10-10", Name: "made up"}, {Date: "2026-10-11"}}, c.Work)
	require.Equal(t, "National Day, a week", c.Off[0].Name)
}

func TestParseICalendar_Errors(t *testing.T) {
	t.Parallel()
	event := func(lines ...string) string { return ics(vevent(lines...)) }
	day := "DTSTART;VALUE=DATE:20260501"
	for want, text := range map[string]string{
		`iCalendar: line 0: the file is empty`:                                                                                       "",
		`iCalendar: line 1: the file does not begin with BEGIN:VCALENDAR; is it an .ics file?`:                                       "SUMMARY:x",
		`iCalendar: line 1: "date,kind" has no colon`:                                                                                "date,kind",
		`iCalendar: line 2: the file ends inside VEVENT`:                                                                             "BEGIN:VCALENDAR\nBEGIN:VEVENT\n",
		`iCalendar: line 2: END:VEVENT does not close what was begun last`:                                                           "BEGIN:VCALENDAR\nEND:VEVENT\n",
		`iCalendar: line 3: the event has no DTSTART`:                                                                                event("SUMMARY:x"),
		`iCalendar: line 4: DTSTART: "1 May" is not a date; write it as 20060102`:                                                    event("DTSTART:1 May"),
		`iCalendar: line 4: DTSTART: 99990101: the year must be 1970 to 2199`:                                                        event("DTSTART:99990101"),
		`iCalendar: line 5: RRULE: FREQ=MONTHLY is not supported; write YEARLY or WEEKLY, or single events`:                          event(day, "RRULE:FREQ=MONTHLY"),
		`iCalendar: line 5: RRULE: BYSETPOS is not supported; there are FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY and BYDAY`: event(day, "RRULE:FREQ=YEARLY;BYSETPOS=1"),
		`iCalendar: line 5: RRULE: FREQ is missing`:                                                                                  event(day, "RRULE:COUNT=2"),
		`iCalendar: line 5: RRULE: COUNT: "0" must be a number from 1 on`:                                                            event(day, "RRULE:FREQ=YEARLY;COUNT=0"),
		`iCalendar: line 5: RRULE: BYDAY: "MO": a number before the weekday is for FREQ=YEARLY, which needs one`:                     event(day, "RRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=MO"),
		`iCalendar: line 5: RRULE: BYDAY in a yearly rule needs BYMONTH`:                                                             event(day, "RRULE:FREQ=YEARLY;BYDAY=20MO"),
		`iCalendar: line 6: a second RRULE in one event; write two events`:                                                           event(day, "RRULE:FREQ=YEARLY", "RRULE:FREQ=WEEKLY"),
		`iCalendar: line 5: EXDATE: "x" is not a date; write it as 20060102`:                                                         event(day, "EXDATE:x"),
		`iCalendar: line 5: DURATION: "1D" is not a duration such as P1D`:                                                            event(day, "DURATION:1D"),
		`iCalendar: line 3: the event takes -1 days; must be 1 to 366`:                                                               event(day, "DTEND;VALUE=DATE:20260430"),
		`iCalendar: line 3: a working day with an RRULE is not supported; write an event for each`:                                   event(day, "RRULE:FREQ=YEARLY", "CATEGORIES:WORK"),
		`iCalendar: repeats[0].count: write count or until, not both`:                                                                event(day, "RRULE:FREQ=YEARLY;COUNT=2;UNTIL=20300101"),
	} {
		_, err := ParseICalendar(strings.NewReader(text))
		require.EqualError(t, err, want)
	}
	_, err := ParseICalendar(strings.NewReader("BEGIN:VCALENDAR\n" + strings.Repeat(" "+strings.Repeat("x", 1000)+"\n", 100)))
	require.ErrorContains(t, err, "a line is longer than 65536 bytes")
	_, err = ParseICalendar(strings.NewReader("BEGIN:VCALENDAR\n" + strings.Repeat("X-A:b\n", 1_000_000)))
	require.ErrorContains(t, err, "the file is larger than 4194304 bytes")
}

func TestParseCSV(t *testing.T) {
	t.Parallel()
	c, err := ParseCSV(strings.NewReader("\ufeffdate,kind,name\n# made for the test\n2026-10-01,off,\"National Day, first\"\n2026-10-02, OFF\n\n2026-10-10,work,made up\n"))
	require.NoError(t, err)
	require.Equal(t, []Day{{Date: "2026-10-01", Name: "National Day, first"}, {Date: "2026-10-02"}}, c.Off)
	require.Equal(t, []Day{{Date: "2026-10-10", Name: "made up"}}, c.Work)
	for text, want := range map[string]string{
		"2026-10-01":                 "CSV: line 1: 1 columns; write date,kind or date,kind,name",
		"2026-10-01,off,a,b":         "CSV: line 1: 4 columns; write date,kind or date,kind,name",
		"2026-10-01,off\n1.5.,off":   `CSV: line 2: date: "1.5." is not a date; write it as 2006-01-02`,
		"2026-10-01,holiday":         `CSV: line 1: kind "holiday": write off or work`,
		"2026-10-01,\"off":           `CSV: line 1: extraneous or missing " in quoted-field`,
		"2026-10-01,off\n\ndate,off": `CSV: line 3: date: "date" is not a date; write it as 2006-01-02`,
	} {
		_, err := ParseCSV(strings.NewReader(text))
		require.EqualError(t, err, want, text)
	}
	_, err = ParseCSV(strings.NewReader(strings.Repeat("2026-10-01,off\n", 300_000)))
	require.ErrorContains(t, err, "more than 20000 days of kind off")
	_, err = ParseCSV(strings.NewReader(`"` + strings.Repeat("x", MaxCalendarSize+10)))
	require.ErrorContains(t, err, "the file is larger than 4194304 bytes")
}
