package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	calendars := map[string]*Calendar{
		"office": {Weekdays: []string{"sat", "sun"}, Off: []Day{{Date: "2026-12-25", Name: "Christmas Day"}}, Work: []Day{{Date: "2026-12-27"}}},
		"fairs":  {Off: []Day{{Date: "2026-12-24"}}},
	}
	day := workflow.Duration(24 * time.Hour)
	for _, c := range []struct {
		spec workflow.Schedule
		from string
		n    int
		want string
	}{
		{workflow.Schedule{Cron: "0 30 2 * * ?", Zone: "America/New_York"}, "2026-03-07T12:00:00-05:00", 2, `
2026-03-08T03:00:00-04:00 gap: 02:30 does not exist on 2026-03-08: moved to 03:00
2026-03-09T02:30:00-04:00`},
		{workflow.Schedule{Cron: "0 0/15 2 * * ?", Zone: "Europe/Berlin"}, "2026-03-29T00:00:00+01:00", 1, `
2026-03-29T03:00:00+02:00 gap 4: 02:00 to 02:45 do not exist on 2026-03-29: moved to 03:00, once`},
		{workflow.Schedule{Cron: "0 30 2 * * ?", Zone: "America/New_York", DSTGap: workflow.GapSkip}, "2026-03-07T12:00:00-05:00", 1, `
2026-03-08T03:00:00-04:00 skipped gap: 02:30 does not exist on 2026-03-08
2026-03-09T02:30:00-04:00`},
		{workflow.Schedule{Cron: "30 1 * * *", Zone: "America/New_York"}, "2026-11-01T00:00:00-04:00", 2, `
2026-11-01T01:30:00-04:00 overlap: 01:30 comes twice on 2026-11-01: it runs at the first only
2026-11-02T01:30:00-05:00`},
		{workflow.Schedule{Cron: "30 1 * * *", Zone: "America/New_York", DSTOverlap: workflow.RepeatBoth}, "2026-11-01T00:00:00-04:00", 2, `
2026-11-01T01:30:00-04:00 overlap: 01:30 comes twice on 2026-11-01: this is the first
2026-11-01T01:30:00-05:00 overlap: 01:30 comes twice on 2026-11-01: this is the second`},
		{workflow.Schedule{Cron: "30 * * * *", Zone: "America/New_York"}, "2026-11-01T01:00:00-04:00", 2, `
2026-11-01T01:30:00-04:00
2026-11-01T01:30:00-05:00`},
		{workflow.Schedule{Cron: "0 12 * * *", Zone: "Pacific/Apia"}, "2011-12-29T13:00:00-10:00", 2, `
2011-12-31T00:00:00+14:00 gap: 12:00 does not exist on 2011-12-30: moved to 00:00 on 2011-12-31
2011-12-31T12:00:00+14:00`},
		{workflow.Schedule{Cron: "0 9 * * *", Zone: "Europe/Berlin", Calendars: []string{"office", "fairs"}}, "2026-12-23T12:00:00+01:00", 2, `
2026-12-24T09:00:00+01:00 skipped calendar: calendar fairs: a day off
2026-12-25T09:00:00+01:00 skipped calendar: calendar office: Christmas Day
2026-12-26T09:00:00+01:00 skipped calendar: calendar office: a day off of every week
2026-12-27T09:00:00+01:00
2026-12-28T09:00:00+01:00`},
		{workflow.Schedule{Cron: "* * * * *", Zone: "UTC", Calendars: []string{"office"}}, "2026-12-24T23:58:00Z", 3, `
2026-12-24T23:59:00Z
2026-12-25T00:00:00Z skipped to 2026-12-25T23:59:00Z calendar 1440: calendar office: Christmas Day
2026-12-26T00:00:00Z skipped to 2026-12-26T23:59:00Z calendar 1440: calendar office: a day off of every week
2026-12-27T00:00:00Z
2026-12-27T00:01:00Z`},
		{workflow.Schedule{Cron: "0 9 * * *", Start: "2026-05-03T00:00:00", End: "2026-05-04T12:00:00"}, "2026-05-01T00:00:00Z", 5, `
2026-05-01T09:00:00Z skipped to 2026-05-02T09:00:00Z validity 2: before the start, 2026-05-03T00:00:00
2026-05-03T09:00:00Z
2026-05-04T09:00:00Z
2026-05-05T09:00:00Z skipped validity: after the end, 2026-05-04T12:00:00, and so is all that follows`},
		{workflow.Schedule{Every: workflow.Duration(time.Hour), From: "02:30", To: "03:30", Zone: "Europe/Berlin"}, "2026-03-28T20:00:00+01:00", 2, `
2026-03-29T03:00:00+02:00 gap: 02:30 does not exist on 2026-03-29: the window begins at 03:00
2026-03-30T02:30:00+02:00`},
		{workflow.Schedule{Every: workflow.Duration(250 * time.Millisecond)}, "2026-05-01T00:00:00Z", 2, `
2026-05-01T00:00:00.25Z
2026-05-01T00:00:00.5Z`},
		{workflow.Schedule{Cron: "0 9 * * *", End: "2026-04-01T00:00:00Z"}, "2026-05-01T00:00:00Z", 5, `
2026-05-01T09:00:00Z skipped validity: after the end, 2026-04-01T00:00:00Z, and so is all that follows`},
		{workflow.Schedule{Cron: "0 9 * * *", Zone: "Europe/Berlin", Calendars: []string{"office"}}, "2026-05-29T12:00:00Z", 1, `
2026-05-30T09:00:00+02:00 skipped to 2026-05-31T09:00:00+02:00 calendar 2: calendar office: a day off of every week
2026-06-01T09:00:00+02:00`},
		{workflow.Schedule{Every: day, Start: "2026-05-01T00:00:00Z"}, "2026-04-01T00:00:00Z", 1, `
2026-05-01T00:00:00Z`},
		{workflow.Schedule{At: "2026-03-29T02:30", Zone: "Europe/Berlin"}, "2026-01-01T00:00:00Z", 3, `
2026-03-29T03:00:00+02:00 gap: 02:30 does not exist on 2026-03-29: moved to 03:00`},
		{workflow.Schedule{At: "2026-10-25T02:30:00", Zone: "Europe/Berlin"}, "2026-01-01T00:00:00Z", 3, `
2026-10-25T02:30:00+02:00 overlap: 02:30 comes twice on 2026-10-25: it runs at the first`},
		{workflow.Schedule{Cron: "0 0 31 2 *"}, "2026-05-01T00:00:00Z", 3, ``},
		{workflow.Schedule{}, "2026-05-01T00:00:00Z", 3, ``},
		{workflow.Schedule{At: "2026-05-01T00:00:00"}, "2026-05-01T00:00:00Z", 3, ``},
	} {
		s, err := Compile(c.spec, calendars)
		require.NoError(t, err)
		from := ms(t, c.from)
		var b strings.Builder
		for _, f := range s.Preview(from, from, c.n) {
			require.Equal(t, f.At, ms(t, f.UTC))
			require.Equal(t, f.At, ms(t, f.Local))
			fmt.Fprintf(&b, "\n%s", f.Local)
			if f.Skipped {
				b.WriteString(" skipped")
			}
			if f.Last != f.At {
				fmt.Fprintf(&b, " to %s", time.UnixMilli(f.Last).In(s.zone.loc).Format(time.RFC3339))
			}
			if f.Reason != "" {
				fmt.Fprintf(&b, " %s", f.Reason)
			}
			if f.Count != 1 {
				fmt.Fprintf(&b, " %d", f.Count)
			}
			if f.Note != "" {
				fmt.Fprintf(&b, ": %s", f.Note)
			}
		}
		require.Equal(t, c.want, b.String(), fmt.Sprint(c.spec))
	}
}

func TestPreview_Bounded(t *testing.T) {
	t.Parallel()
	fires := compile(t, workflow.Schedule{Cron: "* * * * * ?"}).Preview(0, 0, 1<<30)
	require.Len(t, fires, MaxPreview)
	require.Empty(t, compile(t, workflow.Schedule{Cron: "* * * * * ?"}).Preview(0, 0, -1))
	// Every day is off, under a name that is not quickly found.
	closed := &Calendar{Repeats: []Repeat{{Every: "weekly", Date: "1970-01-01", Weekdays: weekdayNames, Name: "closed"}}}
	s, err := Compile(workflow.Schedule{Cron: "* * * * *", Zone: "Europe/Berlin", Calendars: []string{"c"}, End: "2199-12-31T00:00:00"}, map[string]*Calendar{"c": closed})
	require.NoError(t, err)
	after := ms(t, "2026-01-01T00:00:00Z")
	fires = s.Preview(after, 0, 5)
	require.Len(t, fires, 2)
	require.Equal(t, s.count(after, s.end, 0), fires[0].Count)
	require.Equal(t, s.end, fires[0].Last)
	require.Equal(t, ReasonValidity, fires[1].Reason)
	// Gaps are all there is for centuries.
	fires = compile(t, workflow.Schedule{Cron: "0 30 2 ? 3 1#2", Zone: "America/New_York", DSTGap: workflow.GapSkip, End: "2300-01-01T00:00:00Z"}).Preview(ms(t, "2026-01-01T00:00:00Z"), 0, 1)
	require.NotEmpty(t, fires)
	require.LessOrEqual(t, len(fires), 20)
}
