package schedule

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// Whatever is compiled, Next ends, goes forward, and agrees with prev and count.
func FuzzNext(f *testing.F) {
	file := vectors(f)
	for _, list := range [][]vector{file.Vectors, file.Finite, file.Never, file.Reject} {
		for _, v := range list {
			f.Add(v.Expr, v.Zone, int64(1767225600_000), uint8(0))
		}
	}
	f.Add("29 5 2 23 2 ?", "Africa/Casablanca", int64(1740275100_000), uint8(3))
	f.Fuzz(func(t *testing.T, expr, zone string, after int64, policy uint8) {
		spec := workflow.Schedule{Cron: expr, Zone: zone}
		if policy&1 != 0 {
			spec.DSTGap = workflow.GapSkip
		}
		if policy&2 != 0 {
			spec.DSTOverlap = workflow.RepeatBoth
		}
		if policy&4 != 0 {
			spec.Calendars = []string{"weekend"}
		}
		s, err := Compile(spec, map[string]*Calendar{"weekend": {Weekdays: []string{"sat", "sun"}}})
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		after = min(max(after, -1<<53), 1<<53)
		from, n := after, int64(0)
		for range 5 {
			at, ok := s.Next(after, 0)
			if !ok {
				require.Zero(t, at)
				break
			}
			require.Greater(t, at, clamp(after))
			after = at
			n++
		}
		if n > 0 {
			_, total, _ := s.Due(from, after, 0, 0)
			require.Equal(t, n, total)
			last, ok := s.prev(after, 0)
			require.True(t, ok)
			require.Equal(t, after, last)
		}
	})
}

// Whatever is read as iCalendar or CSV ends, and what is accepted can be stored and used.
func FuzzICalendar(f *testing.F) {
	f.Add([]byte(ics(vevent("DTSTART;VALUE=DATE:20261001", "RRULE:FREQ=YEARLY;COUNT=3", "SUMMARY:x"))))
	f.Add([]byte(ics(vevent("DTSTART;VALUE=DATE:20260801", "DTEND:20260810T000000", "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;UNTIL=20260816", "EXDATE:20260808"))))
	f.Add([]byte("BEGIN:VCALENDAR\n \nEND:VCALENDAR"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseICalendar(bytes.NewReader(data))
		stored(t, c, err)
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("date,kind,name\n2026-10-01,off,x\n2026-10-02,work"))
	f.Add([]byte("\"2026-10-01\",off"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCSV(bytes.NewReader(data))
		stored(t, c, err)
	})
}

func stored(t *testing.T, c *Calendar, err error) {
	t.Helper()
	if err != nil {
		require.Nil(t, c)
		return
	}
	data, err := json.Marshal(c)
	require.NoError(t, err)
	var again Calendar
	require.NoError(t, json.Unmarshal(data, &again))
	require.NoError(t, again.Check())
	require.Equal(t, c.index, again.index)
}
