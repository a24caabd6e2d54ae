package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

const second = int64(1000)

func every(d time.Duration, misfire workflow.Misfire) workflow.Schedule {
	return workflow.Schedule{Every: workflow.Duration(d), Misfire: misfire}
}

// A25: a 10-s job whose server is away for 65 s.
func TestPlan_Misfire(t *testing.T) {
	t.Parallel()
	anchor := ms(t, "2026-05-01T00:00:00Z")
	now := anchor + 65*second
	at := func(n int64) int64 { return anchor + n*10*second }
	for _, c := range []struct {
		policy workflow.Misfire
		run    []int64
		skips  []Span
	}{
		{workflow.MisfireSkip, nil, []Span{{at(1), at(6), 6, ReasonMisfire}}},
		{workflow.MisfireOnce, []int64{at(6)}, []Span{{at(1), at(5), 5, ReasonMisfire}}},
		{workflow.MisfireAll, []int64{at(1), at(2), at(3), at(4), at(5), at(6)}, nil},
	} {
		p := compile(t, every(10*time.Second, c.policy)).Plan(anchor, now, anchor)
		require.Equal(t, Plan{c.run, c.skips, at(6), at(7), true}, p, c.policy)
	}
}

func TestPlan_OnTime(t *testing.T) {
	t.Parallel()
	anchor := ms(t, "2026-05-01T00:00:00Z")
	at := func(n int64) int64 { return anchor + n*second }
	// The times of the last 3 s run each, whatever the policy; what is older was missed.
	now := at(60) + 500
	for policy, older := range map[workflow.Misfire]int64{workflow.MisfireSkip: 0, workflow.MisfireOnce: 0, workflow.MisfireAll: 7} {
		spec := every(time.Second, policy)
		spec.MisfireMax = 7
		p := compile(t, spec).Plan(anchor, now, anchor)
		require.Len(t, p.Run, int(3+older), policy)
		require.Equal(t, at(60), p.Run[len(p.Run)-1])
		require.Equal(t, []Span{{at(1), at(57 - older), 57 - older, ReasonMisfire}}, p.Skips)
	}
	// A time exactly as old as misfire_after is on time.
	p := compile(t, every(10*time.Second, workflow.MisfireSkip)).Plan(anchor, at(13), anchor)
	require.Equal(t, []int64{at(10)}, p.Run)
	p = compile(t, every(10*time.Second, workflow.MisfireSkip)).Plan(anchor, at(13)+1, anchor)
	require.Empty(t, p.Run)
}

// A22: a 5-s job whose clock goes forward an hour makes up for one run, then goes on.
func TestPlan_ClockForward(t *testing.T) {
	t.Parallel()
	s := compile(t, every(5*time.Second, ""))
	anchor := ms(t, "2026-05-01T00:00:00Z")
	last, now := anchor+50*second, anchor+3650*second+100
	p := s.Plan(last, now, anchor)
	require.Len(t, p.Run, 1)
	require.Equal(t, []Span{{anchor + 55*second, anchor + 3645*second, 719, ReasonMisfire}}, p.Skips)
	require.Equal(t, anchor+3655*second, p.Next)
	p = s.Plan(p.Until, p.Next, anchor)
	require.Equal(t, []int64{anchor + 3655*second}, p.Run)
	require.Empty(t, p.Skips)
}

// A clock that goes back decides nothing twice.
func TestPlan_ClockBack(t *testing.T) {
	t.Parallel()
	s := compile(t, workflow.Schedule{Cron: "* * * * *"})
	last := ms(t, "2026-05-01T12:00:00Z")
	p := s.Plan(last, last-3600*second, 0)
	require.Equal(t, Plan{Until: last, Next: last + 60*second, NextOK: true}, p)
}

// A26: what was disabled is not made up for, if the plan begins where it was enabled.
func TestPlan_EnabledAgain(t *testing.T) {
	t.Parallel()
	s := compile(t, workflow.Schedule{Cron: "*/1 * * * *"})
	enabled := ms(t, "2026-05-01T12:10:30Z")
	p := s.Plan(enabled, enabled, 0)
	require.Equal(t, Plan{Until: enabled, Next: enabled + 30*second, NextOK: true}, p)
	p = s.Plan(enabled, p.Next+5, 0)
	require.Equal(t, []int64{enabled + 30*second}, p.Run)
	require.Empty(t, p.Skips)
}

// A28: a rate counts from its anchor, so that a restart every 4 minutes changes nothing.
func TestPlan_Restarts(t *testing.T) {
	t.Parallel()
	spec := every(10*time.Minute, "")
	anchor := ms(t, "2026-05-01T00:00:00Z")
	last, runs := anchor, 0
	for now := anchor; now <= anchor+3600*second; now += second {
		s := compile(t, spec) // anew every second
		p := s.Plan(last, now, anchor)
		last = p.Until
		runs += len(p.Run)
	}
	require.Equal(t, 6, runs)
}

// A32: after a 45-s run of a 10-s job the next time is at most 10 s away.
func TestPlan_SlowJob(t *testing.T) {
	t.Parallel()
	s := compile(t, workflow.Schedule{Cron: "*/10 * * * * ?"})
	begin := ms(t, "2026-05-01T00:00:00Z")
	p := s.Plan(begin, begin+45*second, 0)
	require.True(t, p.NextOK)
	require.LessOrEqual(t, p.Next-(begin+45*second), 10*second)
}

func TestPlan_FixedDelay(t *testing.T) {
	t.Parallel()
	spec := workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(10 * time.Second)}
	end := ms(t, "2026-05-01T00:00:00Z") // of the last run
	due := end + 10*second
	p := compile(t, spec).Plan(end, due, end)
	require.Equal(t, Plan{Run: []int64{due}, Until: due}, p, "no next one while it runs")
	// However late: one run.
	for _, policy := range []workflow.Misfire{workflow.MisfireOnce, workflow.MisfireAll} {
		spec.Misfire = policy
		p = compile(t, spec).Plan(end, end+3605*second, end)
		require.Equal(t, Plan{Run: []int64{due}, Until: due}, p)
	}
	// One that is skipped does not end the schedule.
	spec.Misfire = workflow.MisfireSkip
	p = compile(t, spec).Plan(end, end+3605*second, end)
	require.Equal(t, Plan{Skips: []Span{{due, due, 1, ReasonMisfire}}, Until: due, Next: end + 3610*second, NextOK: true}, p)
}

func TestPlan_Bounded(t *testing.T) {
	t.Parallel()
	spec := every(100*time.Millisecond, workflow.MisfireAll)
	spec.MisfireMax, spec.MisfireAfter = 10_000, workflow.Duration(24*time.Hour)
	year := int64(365 * 24 * 3600 * 1000)
	p := compile(t, spec).Plan(0, year, 0)
	require.Len(t, p.Run, MaxRun)
	require.Len(t, p.Skips, 1)
	require.Equal(t, year/100, p.Skips[0].Count+MaxRun)
	require.Equal(t, p.Run[0]-100, p.Skips[0].To)
}

func TestPlan_Calendar(t *testing.T) {
	t.Parallel()
	weekend := &Calendar{Weekdays: []string{"sat", "sun"}}
	s, err := Compile(workflow.Schedule{Cron: "0 12 * * *", Zone: "Europe/Berlin", Calendars: []string{"work"}}, map[string]*Calendar{"work": weekend})
	require.NoError(t, err)
	after, now := ms(t, "2026-03-26T12:00:00+01:00"), ms(t, "2026-03-31T12:00:01+02:00") // Thursday to Tuesday
	p := s.Plan(after, now, 0)
	friday, monday := ms(t, "2026-03-27T12:00:00+01:00"), ms(t, "2026-03-30T12:00:00+02:00")
	require.Equal(t, Plan{
		Run: []int64{ms(t, "2026-03-31T12:00:00+02:00")},
		Skips: []Span{
			{friday, friday, 1, ReasonMisfire},
			{ms(t, "2026-03-28T12:00:00+01:00"), ms(t, "2026-03-29T12:00:00+02:00"), 2, ReasonCalendar},
			{monday, monday, 1, ReasonMisfire},
		},
		Until: ms(t, "2026-03-31T12:00:00+02:00"),
		Next:  ms(t, "2026-04-01T12:00:00+02:00"), NextOK: true,
	}, p)

	times, total, skips := s.Due(after, now, 0, 2)
	require.EqualValues(t, 3, total)
	require.Equal(t, []int64{monday, p.Run[0]}, times)
	require.Equal(t, p.Skips[1:2], skips)
}

// Ten years of weekends are more spans than a ledger wants: the oldest are put together, and
// nothing is lost of the counts.
func TestPlan_ManySpans(t *testing.T) {
	t.Parallel()
	weekend := &Calendar{Weekdays: []string{"sat", "sun"}}
	s, err := Compile(workflow.Schedule{Cron: "* * * * *", Zone: "Europe/Berlin", Calendars: []string{"work"}}, map[string]*Calendar{"work": weekend})
	require.NoError(t, err)
	after, now := ms(t, "2016-01-01T00:00:00Z"), ms(t, "2026-01-01T00:00:00Z")
	p := s.Plan(after, now, 0)
	require.Len(t, p.Skips, MaxSpans)
	total := int64(len(p.Run))
	for _, sp := range p.Skips {
		total += sp.Count
	}
	require.Equal(t, (now-after)/60_000, total)
}

func TestPlan_NothingOfNone(t *testing.T) {
	t.Parallel()
	require.Equal(t, Plan{Until: 5}, compile(t, workflow.Schedule{}).Plan(5, 1<<45, 0))
	s := compile(t, workflow.Schedule{At: "2026-05-01T00:00:00Z"})
	at := ms(t, "2026-05-01T00:00:00Z")
	require.Equal(t, Plan{Run: []int64{at}, Until: at}, s.Plan(0, at+10, 0))
	require.Equal(t, Plan{Until: at}, s.Plan(at, at+10, 0), "a time that is past does not come again")
}
