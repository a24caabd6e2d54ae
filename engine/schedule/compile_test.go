package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

func TestCompile_Defaults(t *testing.T) {
	t.Parallel()
	in := workflow.Schedule{Cron: "0 9 * * *"}
	require.Equal(t, workflow.Schedule{
		Type: workflow.ScheduleCron, Cron: "0 9 * * *", Zone: "UTC", DSTGap: workflow.GapAfter, DSTOverlap: workflow.RepeatFirst,
		Misfire: workflow.MisfireOnce, MisfireAfter: workflow.Duration(3 * time.Second), MisfireMax: 100,
		Overlap: workflow.OverlapSkip, QueueMax: 100,
	}, compile(t, in).Spec())
	require.Equal(t, workflow.Schedule{Cron: "0 9 * * *"}, in, "the document stays as it is")
	for _, c := range []struct {
		spec workflow.Schedule
		want workflow.ScheduleType
	}{
		{workflow.Schedule{}, workflow.ScheduleNone},
		{workflow.Schedule{Every: workflow.Duration(time.Second)}, workflow.ScheduleRate},
		{workflow.Schedule{Every: workflow.Duration(time.Second), From: "08:00"}, workflow.ScheduleDaily},
		{workflow.Schedule{At: "2026-05-01T00:00:00Z"}, workflow.ScheduleOnce},
	} {
		require.Equal(t, c.want, compile(t, c.spec).Type())
	}
}

// Every error names its field and says what to write.
func TestCompile_Errors(t *testing.T) {
	t.Parallel()
	sec := workflow.Duration(time.Second)
	calendars := map[string]*Calendar{"bad": {Off: []Day{{Date: "2026-02-30"}}}, "good": {}}
	for want, spec := range map[string]workflow.Schedule{
		`schedule.type: "hourly": write cron, fixed_rate, fixed_delay, daily_interval, once or none`:                                                  {Type: "hourly"},
		`schedule.cron: 0 fields: write 5 (minute hour day-of-month month day-of-week), or 6 or 7 (second first, year last)`:                          {Type: workflow.ScheduleCron},
		`schedule.every: it has no meaning for type cron; leave it out, or change the type`:                                                           {Cron: "* * * * *", Every: sec},
		`schedule.cron: it has no meaning for type fixed_rate; leave it out, or change the type`:                                                      {Type: workflow.ScheduleRate, Every: sec, Cron: "* * * * *"},
		`schedule.weekdays: it has no meaning for type none; leave it out, or change the type`:                                                        {Weekdays: []string{"mon"}},
		`schedule.every: it is missing; write a duration such as 30s`:                                                                                 {Type: workflow.ScheduleDelay},
		`schedule.every: 99ms: must be 100ms to 87840h0m0s`:                                                                                           {Every: workflow.Duration(99 * time.Millisecond)},
		`schedule.every: -1s: must be 100ms to 87840h0m0s`:                                                                                            {Every: -sec},
		`schedule.every: 100.000001ms: must be whole milliseconds`:                                                                                    {Every: workflow.Duration(100*time.Millisecond + 1)},
		`schedule.at: it is missing; write a time such as 2006-01-02T15:04:05Z`:                                                                       {Type: workflow.ScheduleOnce},
		`schedule.at: "tomorrow": write 2006-01-02T15:04:05Z or, local to the zone, 2006-01-02T15:04:05`:                                              {At: "tomorrow"},
		`schedule.at: 1969-12-31T00:00:00Z: the year must be 1970 to 9999`:                                                                            {At: "1969-12-31T00:00:00Z"},
		`schedule.from: "24:00": write a time of day from 00:00 to 23:59:59, as in 08:30`:                                                             {Every: sec, From: "24:00"},
		`schedule.to: "8:00": write a time of day from 00:00 to 23:59:59, as in 08:30`:                                                                {Every: sec, To: "8:00"},
		`schedule.to: 08:00 is from too, so that the window is empty; leave out to for a window until midnight`:                                       {Every: sec, From: "08:00", To: "08:00"},
		`schedule.weekdays: "montag" is not a weekday; write mon, tue, wed, thu, fri, sat or sun`:                                                     {Every: sec, From: "08:00", Weekdays: []string{"montag"}},
		`schedule.zone: "Mars/Olympus" is not an IANA time zone; write one such as Europe/Berlin`:                                                     {Zone: "Mars/Olympus"},
		`schedule.zone: the zone Local is another zone on every machine; name one such as Europe/Berlin`:                                              {Zone: "Local"},
		`schedule.end: 2026-01-01T00:00 is before start 2026-01-02T00:00`:                                                                             {Start: "2026-01-02T00:00", End: "2026-01-01T00:00"},
		`schedule.dst_gap: "before": write after or skip`:                                                                                             {DSTGap: "before"},
		`schedule.dst_overlap: "second": write first or both`:                                                                                         {DSTOverlap: "second"},
		`schedule.misfire: "never": write once, skip or all`:                                                                                          {Misfire: "never"},
		`schedule.overlap: "kill": write skip, allow, queue, replace or fail`:                                                                         {Overlap: "kill"},
		`schedule.jitter: 2h0m0s: must be 0s to 1h0m0s`:                                                                                               {Jitter: workflow.Duration(2 * time.Hour)},
		`schedule.misfire_after: 25h0m0s: must be 1ms to 24h0m0s`:                                                                                     {MisfireAfter: workflow.Duration(25 * time.Hour)},
		`schedule.misfire_max: 10001: must be 1 to 10000`:                                                                                             {MisfireMax: 10_001},
		`schedule.queue_max: -1: must be 1 to 10000`:                                                                                                  {QueueMax: -1},
		`schedule.calendars: the app has no calendar "none"`:                                                                                          {Calendars: []string{"none"}},
		`schedule.calendars: "good" is named twice`:                                                                                                   {Calendars: []string{"good", "good"}},
		`schedule.calendars: calendar "bad": off[0].date: "2026-02-30" is not a date; write it as 2006-01-02`:                                         {Calendars: []string{"bad"}},
		`schedule.after[0].job: "A B" is not the name of a job: [a-z0-9][a-z0-9_-]{0,62}`:                                                             {After: []workflow.Dependency{{Job: "A B"}}},
		`schedule.after[1].job: "a" is named twice`:                                                                                                   {After: []workflow.Dependency{{Job: "a"}, {Job: "a", Weak: true}}},
		"schedule.zone: \"x\" is not an IANA time zone; write one such as Europe/Berlin\nschedule.cron: column 1: minute \"61\": must be 0 to 59":     {Zone: "x", Cron: "61 * * * *"},
		"schedule.every: it is missing; write a duration such as 30s\nschedule.to: \"x\": write a time of day from 00:00 to 23:59:59, as in 08:30":    {From: "08:00", To: "x"},
		"schedule.start: \"x\": write 2006-01-02T15:04:05Z or, local to the zone, 2006-01-02T15:04:05\nschedule.queue_max: 10001: must be 1 to 10000": {Start: "x", QueueMax: 10_001},
	} {
		s, err := Compile(spec, calendars)
		require.EqualError(t, err, want)
		require.Nil(t, s)
		var field *FieldError
		require.ErrorAs(t, err, &field)
	}
}

// A local time that a clock change leaves out or repeats has one meaning.
func TestCompile_LocalTimes(t *testing.T) {
	t.Parallel()
	for local, want := range map[string]string{
		"2026-03-29T02:30:00":    "2026-03-29T03:00:00+02:00",
		"2026-10-25T02:30:00":    "2026-10-25T02:30:00+02:00",
		"2026-05-01T08:00":       "2026-05-01T08:00:00+02:00",
		"2026-05-01T08:00:00Z":   "2026-05-01T10:00:00+02:00",
		"2026-05-01T08:00:00.25": "2026-05-01T08:00:00.25+02:00",
	} {
		s := compile(t, workflow.Schedule{At: local, Zone: "Europe/Berlin"})
		require.Equal(t, []string{want}, walk(t, s, "2026-01-01T00:00:00Z", 2))
	}
}

func TestCompile_Concurrently(t *testing.T) {
	t.Parallel()
	cal := &Calendar{Weekdays: []string{"sun"}}
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s, err := Compile(workflow.Schedule{Cron: "0 9 * * *", Zone: "Asia/Tokyo", Calendars: []string{"c"}}, map[string]*Calendar{"c": cal})
			require.NoError(t, err)
			_, ok := s.Next(0, 0)
			require.True(t, ok)
		})
	}
}
