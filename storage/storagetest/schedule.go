package storagetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

var daily = workflow.Schedule{Type: workflow.ScheduleCron, Cron: "0 0 2 * * ?", Zone: "Europe/Berlin", Calendars: []string{"feiertage-ü"}}

// saveJob makes a job of app 7 with that schedule.
func saveJob(t *testing.T, s engine.Store, spec workflow.Schedule, maxRunning int) *engine.Job {
	t.Helper()
	id := newID()
	j, err := s.SaveJob(t.Context(), engine.Job{
		ID: id, App: 7, Name: fmt.Sprintf("job-%d", id), Enabled: true,
		Spec: workflow.Spec{Processor: "p", MaxRunning: maxRunning}, Schedule: spec, CreatedAt: base, UpdatedAt: base,
	})
	require.NoError(t, err)
	return j
}

func schedule(t *testing.T, s engine.Store, kind engine.DefKind, id int64) engine.Schedule {
	t.Helper()
	got, err := s.Schedule(t.Context(), kind, id)
	require.NoError(t, err)
	return *got
}

// Saving makes the schedule, and begins it anew only if what says when it fires has changed.
func exerciseSchedules(t *testing.T, s engine.Store) {
	ctx := t.Context()
	j := engine.Job{
		ID: newID(), App: 7, Name: "nightly", Enabled: true, Spec: workflow.Spec{Processor: "p", MaxRunning: 3}, Schedule: daily, CreatedAt: base, UpdatedAt: base,
	}
	v1, err := s.SaveJob(ctx, j)
	require.NoError(t, err)
	j.Version = 1
	require.Equal(t, j, *v1)
	want := engine.Schedule{
		Kind: engine.KindJob, ID: j.ID, App: 7, Shard: engine.ShardOf(j.ID), Version: 1, Enabled: true, Spec: daily, MaxRunning: 3,
		AnchorAt: base, HandledAt: base, WakeAt: base,
	}
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))

	// The owner has looked at it; what is saved then leaves it alone.
	o := own(t, s, want.Shard)
	fireNothing(o, want, base+10, base+500)
	want.HandledAt, want.NextAt, want.WakeAt = base+10, base+500, base+500
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	j.Title, j.Spec.MaxRunning, j.UpdatedAt = "other", 5, base+20
	save := func() {
		t.Helper()
		saved, err := s.SaveJob(ctx, j)
		require.NoError(t, err)
		j.Version++
		require.Equal(t, j, *saved)
		want.Version, want.Enabled, want.Spec, want.MaxRunning = j.Version, j.Enabled, j.Schedule, int32(j.Spec.MaxRunning)
	}
	save()
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))

	anew := func() {
		want.AnchorAt, want.HandledAt, want.NextAt, want.WakeAt = j.UpdatedAt, j.UpdatedAt, 0, j.UpdatedAt
	}
	j.Schedule.Cron, j.UpdatedAt = "0 0 3 * * ?", base+30
	save()
	anew()
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	j.Enabled, j.UpdatedAt = false, base+40
	save()
	anew()
	want.WakeAt = 0
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	j.Enabled, j.UpdatedAt = true, base+50
	save()
	anew()
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	j.UpdatedAt, j.Enabled = base+45, false // by a clock that is behind
	save()
	anew()
	want.HandledAt, want.WakeAt = base+50, 0
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	j.Schedule, j.Enabled, j.UpdatedAt = workflow.Schedule{Type: workflow.ScheduleNone}, true, base+60
	save()
	anew()
	want.WakeAt = 0
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID), "by call only")

	old, err := s.JobVersion(ctx, j.ID, 1)
	require.NoError(t, err)
	require.Equal(t, *v1, *old)
	given, err := s.SaveJob(ctx, engine.Job{App: 7, Name: "zzz", Spec: workflow.Spec{Processor: "p"}, UpdatedAt: base})
	require.NoError(t, err)
	require.Equal(t, engine.ShardOf(given.ID), schedule(t, s, engine.KindJob, given.ID).Shard)
	j.Version = 1
	_, err = s.SaveJob(ctx, j)
	require.ErrorIs(t, err, engine.ErrConflict)
	require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID), "what was refused changes nothing")

	w, err := s.SaveWorkflow(ctx, engine.WorkflowDef{
		ID: newID(), App: 7, Name: "etl", Enabled: true, Definition: []byte(`{}`), Schedule: daily, MaxRunning: 4, CreatedAt: base, UpdatedAt: base,
	})
	require.NoError(t, err)
	require.Equal(t, daily, w.Schedule)
	got := schedule(t, s, engine.KindWorkflow, w.ID)
	require.Equal(t, engine.Schedule{
		Kind: engine.KindWorkflow, ID: w.ID, App: 7, Shard: engine.ShardOf(w.ID), Version: 1, Enabled: true, Spec: daily, MaxRunning: 4,
		AnchorAt: base, HandledAt: base, WakeAt: base,
	}, got)
	w.Schedule, w.MaxRunning, w.UpdatedAt = workflow.Schedule{}, 0, base+1
	_, err = s.SaveWorkflow(ctx, *w)
	require.NoError(t, err)
	back, err := s.WorkflowVersion(ctx, w.ID, 1)
	require.NoError(t, err)
	require.Equal(t, daily, back.Schedule)
	require.EqualValues(t, 4, back.MaxRunning)
	back, err = s.Workflow(ctx, w.ID)
	require.NoError(t, err)
	require.Equal(t, workflow.Schedule{}, back.Schedule)
	require.Zero(t, back.MaxRunning)

	all, err := s.Schedules(ctx, 7, engine.SchedulePos{}, 10)
	require.NoError(t, err)
	require.Len(t, all, 3)
	page, err := s.Schedules(ctx, 7, engine.SchedulePos{Kind: all[0].Kind, ID: all[0].ID}, 1)
	require.NoError(t, err)
	require.Equal(t, all[1:2], page)
	page, err = s.Schedules(ctx, 7, engine.SchedulePos{Kind: all[1].Kind, ID: all[1].ID}, 5)
	require.NoError(t, err)
	require.Equal(t, all[2:], page)
	require.Equal(t, engine.KindWorkflow, page[0].Kind)
	_, err = s.Schedule(ctx, engine.KindWorkflow, j.ID)
	require.ErrorIs(t, err, engine.ErrNotFound)
	tooLong := workflow.Schedule{Cron: strings.Repeat("a", 65<<10)}
	_, err = s.SaveJob(ctx, engine.Job{App: 7, Name: "big", Spec: workflow.Spec{Processor: "p"}, Schedule: tooLong})
	require.ErrorIs(t, err, engine.ErrTooLarge)
	_, err = s.SaveJob(ctx, engine.Job{App: 7, Name: "neg", Spec: workflow.Spec{Processor: "p", MaxRunning: -1}})
	require.ErrorIs(t, err, engine.ErrInvalid)
}

// fireNothing moves a schedule on, as its owner does when it looks at it for the first time.
func fireNothing(o *owner, s engine.Schedule, until, next int64) {
	o.t.Helper()
	c := o.change()
	c.Firings = []engine.Firing{{Kind: s.Kind, ID: s.ID, Version: s.Version, HandledAt: s.HandledAt, Until: until, NextAt: next, WakeAt: next}}
	o.must(c)
	require.False(o.t, c.Firings[0].Done.Moved)
}

func exercisePause(t *testing.T, s engine.Store) {
	ctx := t.Context()
	j := saveJob(t, s, daily, 0)
	want := schedule(t, s, engine.KindJob, j.ID)
	o := own(t, s, want.Shard)
	fireNothing(o, want, base+10, base+500)
	pause := func(at int64) {
		t.Helper()
		got, err := s.PauseSchedule(ctx, engine.KindJob, j.ID, at)
		require.NoError(t, err)
		require.Equal(t, want, *got)
		require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	}
	resume := func(at int64) {
		t.Helper()
		got, err := s.ResumeSchedule(ctx, engine.KindJob, j.ID, at)
		require.NoError(t, err)
		require.Equal(t, want, *got)
		require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
	}
	want.HandledAt, want.NextAt, want.WakeAt = base+10, base+500, base+500
	resume(base + 15)
	want.WakeAt, want.PausedAt = 0, base+20
	pause(base + 20)
	pause(base + 30)
	require.True(t, want.Paused())
	due, err := s.DueSchedules(ctx, []uint8{want.Shard}, base+1000, engine.SchedulePos{}, 10)
	require.NoError(t, err)
	require.Empty(t, due)
	want.ResumedAt, want.WakeAt = base+600, base+600
	resume(base + 600)
	resume(base + 610)
	want.ResumedAt, want.WakeAt = 0, 0
	pause(base + 620) // nothing was decided between: it has been paused all the time

	// A save leaves the pause, and a disabled one has nothing to decide when it goes on.
	saved := *j
	saved.Schedule.Cron, saved.UpdatedAt = "0 0 4 * * ?", base+700
	next, err := s.SaveJob(ctx, saved)
	require.NoError(t, err)
	want = schedule(t, s, engine.KindJob, j.ID)
	require.EqualValues(t, base+20, want.PausedAt)
	require.Zero(t, want.WakeAt)
	next.Enabled = false
	_, err = s.SaveJob(ctx, *next)
	require.NoError(t, err)
	want = schedule(t, s, engine.KindJob, j.ID)
	want.PausedAt = 0
	resume(base + 800)

	_, err = s.PauseSchedule(ctx, engine.KindWorkflow, newID(), base)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.ResumeSchedule(ctx, engine.KindJob, newID(), base)
	require.ErrorIs(t, err, engine.ErrNotFound)
}

// Many schedules that wake at few times, of jobs and workflows, read in pages by shards.
func exerciseDueSchedules(t *testing.T, s engine.Store) {
	ctx := t.Context()
	var want []engine.Schedule
	for _, at := range []int64{base, base + 1} {
		for _, kind := range []engine.DefKind{engine.KindJob, engine.KindWorkflow} {
			for range 40 {
				id := newID()
				if kind == engine.KindJob {
					_, err := s.SaveJob(ctx, engine.Job{ID: id, App: id, Name: "a", Enabled: true, Spec: workflow.Spec{Processor: "p"}, Schedule: daily, UpdatedAt: at})
					require.NoError(t, err)
				} else {
					_, err := s.SaveWorkflow(ctx, engine.WorkflowDef{ID: id, App: id, Name: "a", Enabled: true, Definition: []byte(`{}`), Schedule: daily, UpdatedAt: at})
					require.NoError(t, err)
				}
				want = append(want, schedule(t, s, kind, id))
			}
		}
	}
	_, err := s.SaveJob(ctx, engine.Job{App: 7, Name: "later", Enabled: true, Spec: workflow.Spec{Processor: "p"}, Schedule: daily, UpdatedAt: base + 2})
	require.NoError(t, err)
	read := func(shards []uint8, limit int) (all []engine.Schedule) {
		pos := engine.SchedulePos{}
		for {
			got, err := s.DueSchedules(ctx, shards, base+1, pos, limit)
			require.NoError(t, err)
			if len(got) == 0 {
				return all
			}
			require.LessOrEqual(t, len(got), limit)
			all = append(all, got...)
			last := got[len(got)-1]
			pos = engine.SchedulePos{WakeAt: last.WakeAt, Kind: last.Kind, ID: last.ID}
		}
	}
	every := make([]uint8, engine.Shards)
	for n := range every {
		every[n] = uint8(n)
	}
	require.Equal(t, want, read(every, 7))
	require.Equal(t, want, read(every, 1000))
	var some []engine.Schedule
	for _, w := range want {
		if w.Shard < 20 {
			some = append(some, w)
		}
	}
	require.Equal(t, some, read(every[:20], 3))
	require.Empty(t, read(nil, 10))
}

func exerciseCalendars(t *testing.T, s engine.Store) {
	ctx := t.Context()
	c := engine.Calendar{ID: newID(), App: 7, Name: "holidays", Body: []byte(`{"exclude":["2026-12-25 💥"]}`), UpdatedAt: base}
	v1, err := s.SaveCalendar(ctx, c)
	require.NoError(t, err)
	c.Version = 1
	require.Equal(t, c, *v1)
	c.Body, c.UpdatedAt = []byte(`{}`), base+1
	v2, err := s.SaveCalendar(ctx, c)
	require.NoError(t, err)
	_, err = s.SaveCalendar(ctx, c)
	require.ErrorIs(t, err, engine.ErrConflict)
	c.Version = 2
	require.Equal(t, c, *v2)
	got, err := s.CalendarByName(ctx, 7, "holidays")
	require.NoError(t, err)
	require.Equal(t, c, *got)
	_, err = s.CalendarByName(ctx, 8, "holidays")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.SaveCalendar(ctx, engine.Calendar{App: 7, Name: "holidays"})
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = s.SaveCalendar(ctx, engine.Calendar{App: 7, Name: "Not A Name"})
	require.ErrorIs(t, err, engine.ErrInvalid)
	_, err = s.SaveCalendar(ctx, engine.Calendar{App: 7, Name: "big", Body: make([]byte, 1<<20+1)})
	require.ErrorIs(t, err, engine.ErrTooLarge)
	second, err := s.SaveCalendar(ctx, engine.Calendar{App: 7, Name: "works", Body: []byte(`{}`)})
	require.NoError(t, err)
	require.NotZero(t, second.ID)
	page, err := s.Calendars(ctx, 7, "", 1)
	require.NoError(t, err)
	require.Equal(t, []engine.Calendar{c}, page)
	page, err = s.Calendars(ctx, 7, "holidays", 5)
	require.NoError(t, err)
	require.Equal(t, []engine.Calendar{*second}, page)
}
