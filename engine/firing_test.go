package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// firingRow is a schedule as the firings of these tests know it.
func firingRow(open int32) *Schedule {
	return &Schedule{Kind: KindJob, ID: 7, Version: 3, Enabled: true, HandledAt: 100, NextAt: 200, WakeAt: 200, Open: open}
}

// firingOf fires instances 1, 2, … at 200, 300, …
func firingOf(runs int, overlap workflow.Overlap, maxRunning int32) *Firing {
	f := &Firing{Kind: KindJob, ID: 7, Version: 3, HandledAt: 100, Until: 1000, NextAt: 1100, WakeAt: 1105, Overlap: overlap, MaxRunning: maxRunning, QueueMax: 2}
	for n := range runs {
		f.Runs = append(f.Runs, FiringRun{
			Instance: &Instance{ID: int64(n + 1), Job: 7, Status: StatusWaiting, Reason: ReasonDue, FireAt: int64(200 + 100*n), CreatedAt: 1001},
			Stop:     &Command{ID: int64(50 + n), Kind: CommandReplace},
		})
	}
	return f
}

func TestDecideByOverlap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlap        workflow.Overlap
		max            int32
		open           int32
		permits        int64
		admitted       []int64
		skips          []Skip
		failed, queued int
		replaced       int64
	}{
		"no bound":         {overlap: workflow.OverlapSkip, open: 9, permits: 9, admitted: []int64{1, 2, 3, 4}},
		"skip":             {overlap: workflow.OverlapSkip, max: 2, admitted: []int64{1, 2}, skips: []Skip{{From: 400, To: 500, Count: 2, Reason: SkipOverlap}}},
		"the default":      {max: 1, open: 1, skips: []Skip{{From: 200, To: 500, Count: 4, Reason: SkipOverlap}}},
		"called ones hold": {overlap: workflow.OverlapSkip, max: 3, permits: 3, skips: []Skip{{From: 200, To: 500, Count: 4, Reason: SkipOverlap}}},
		"allow":            {overlap: workflow.OverlapAllow, max: 1, open: 1, admitted: []int64{1, 2, 3, 4}},
		"queue": {
			overlap: workflow.OverlapQueue, max: 1, admitted: []int64{1, 2, 3}, queued: 2,
			skips: []Skip{{From: 500, To: 500, Count: 1, Reason: SkipQueueFull}},
		},
		"queue behind called ones": {
			overlap: workflow.OverlapQueue, max: 1, permits: 1, admitted: []int64{1, 2, 3}, queued: 3,
			skips: []Skip{{From: 500, To: 500, Count: 1, Reason: SkipQueueFull}},
		},
		"replace": {overlap: workflow.OverlapReplace, max: 2, open: 1, admitted: []int64{1, 2, 3, 4}, replaced: 3},
		"fail":    {overlap: workflow.OverlapFail, max: 2, open: 1, admitted: []int64{1}, failed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := firingRow(c.open)
			f := firingOf(4, c.overlap, c.max)
			d := f.Decide(row, c.permits)
			require.Equal(t, d, f.Decide(row, c.permits), "decided again it is the same")
			require.Equal(t, firingRow(c.open), row, "the input is left alone")
			require.Equal(t, firingOf(4, c.overlap, c.max), f)
			require.False(t, d.Done.Moved)
			require.Equal(t, c.admitted, d.Done.Admitted)
			require.EqualValues(t, c.failed, d.Done.Failed)
			require.Equal(t, c.replaced, d.Done.Replaced)
			require.Len(t, d.Commands, int(c.replaced))
			require.Len(t, d.Instances, len(c.admitted)+c.failed)
			skipped := int64(0)
			for i := range c.skips {
				k := &c.skips[i]
				k.Kind, k.ID, k.At = KindJob, 7, 1001
				skipped += k.Count
			}
			require.Equal(t, c.skips, d.Skips)
			require.Equal(t, skipped, d.Done.Skipped)
			queued := 0
			for _, i := range d.Instances {
				if i.Status == StatusFailed {
					require.Equal(t, "MaxRunning 2: as many runs are under way", i.Error)
					require.Equal(t, i.CreatedAt, i.FinishedAt)
				}
				if i.Reason == ReasonQueued {
					queued++
				}
			}
			require.Equal(t, c.queued, queued)
			want := firingRow(c.open + int32(len(c.admitted)))
			want.HandledAt, want.NextAt, want.WakeAt = 1000, 1100, 1105
			want.Runs, want.Failed = int64(c.failed), int64(c.failed)
			if c.failed > 0 {
				want.LastID, want.LastStatus, want.LastEnd = 4, StatusFailed, 1001
			}
			if n := len(c.skips); n > 0 {
				want.SkipFrom, want.SkipReason = c.skips[n-1].From, c.skips[n-1].Reason
			}
			require.Equal(t, *want, d.Done.Schedule)
		})
	}
}

func TestDecideMoved(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]func(s *Schedule) *Schedule{
		"gone":     func(*Schedule) *Schedule { return nil },
		"saved":    func(s *Schedule) *Schedule { s.Version++; return s },
		"fired":    func(s *Schedule) *Schedule { s.HandledAt++; return s },
		"disabled": func(s *Schedule) *Schedule { s.Enabled = false; return s },
		"paused":   func(s *Schedule) *Schedule { s.PausedAt = 150; return s },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := row(firingRow(0))
			d := firingOf(2, workflow.OverlapAllow, 1).Decide(s, 0)
			want := Decision{Done: FiringDone{Moved: true}}
			if s != nil {
				want.Done.Schedule = *s
			}
			require.Equal(t, want, d)
		})
	}
	resumed := firingRow(0)
	resumed.PausedAt, resumed.ResumedAt = 150, 160
	d := firingOf(1, workflow.OverlapSkip, 1).Decide(resumed, 0)
	require.False(t, d.Done.Moved)
	require.Zero(t, d.Done.Schedule.PausedAt+d.Done.Schedule.ResumedAt)
}

// Equal skips next to each other are one row, over firings too; a run or another reason
// between begins the next row.
func TestDecideSkips(t *testing.T) {
	t.Parallel()
	skip := func(from, to, count int64, why SkipReason) Skip {
		return Skip{Kind: KindJob, ID: 7, From: from, To: to, Count: count, Reason: why, At: 1001}
	}
	f := firingOf(2, workflow.OverlapSkip, 1) // at 200 and 300
	f.Skips = []Skip{skip(350, 400, 2, SkipCalendar), skip(110, 190, 3, SkipMisfire), skip(410, 420, 2, SkipCalendar)}
	row := firingRow(0)
	row.SkipFrom, row.SkipReason = 50, SkipMisfire
	d := f.Decide(row, 0)
	require.Equal(t, []Skip{
		skip(50, 190, 3, SkipMisfire), // the stored row grows
		skip(300, 300, 1, SkipOverlap),
		skip(350, 420, 4, SkipCalendar),
	}, d.Skips)
	require.EqualValues(t, 350, d.Done.Schedule.SkipFrom)
	require.Equal(t, SkipCalendar, d.Done.Schedule.SkipReason)
	require.EqualValues(t, 1, d.Done.Skipped, "those given are not decided here")

	next := *firingOf(0, workflow.OverlapSkip, 1)
	next.HandledAt, next.Until = 1000, 2000
	next.Skips = []Skip{skip(1100, 1900, 9, SkipCalendar)}
	d = next.Decide(&d.Done.Schedule, 0)
	require.Equal(t, []Skip{skip(350, 1900, 9, SkipCalendar)}, d.Skips)

	f = firingOf(2, workflow.OverlapFail, 1)
	row.SkipFrom, row.SkipReason = 50, SkipOverlap
	d = f.Decide(row, 1)
	require.Zero(t, d.Done.Schedule.SkipFrom, "a failed run is in the ledger by its instance")
}

func TestDecideWorkflow(t *testing.T) {
	t.Parallel()
	row := firingRow(1)
	row.Kind = KindWorkflow
	f := firingOf(0, workflow.OverlapQueue, 1)
	f.Kind = KindWorkflow
	for n := range int64(3) {
		f.Runs = append(f.Runs, FiringRun{Workflow: &WorkflowInstance{ID: n + 1, Workflow: 7, Status: StatusWaiting, FireAt: 200 + n, CreatedAt: 1001}})
	}
	d := f.Decide(row, 0)
	require.Equal(t, []int64{1, 2}, d.Done.Admitted)
	require.Len(t, d.Workflows, 2)
	require.Equal(t, ReasonQueued, d.Workflows[0].Reason)
	f.Overlap = workflow.OverlapFail
	d = f.Decide(row, 0)
	require.EqualValues(t, 3, d.Done.Failed)
	require.Equal(t, StatusFailed, d.Workflows[2].Status)
	require.Equal(t, "MaxRunning 1: as many runs are under way", d.Workflows[2].Error)
}

func TestFixedDelayIsSetByTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	row := firingRow(0)
	row.Spec = workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(time.Second)}
	f := firingOf(1, workflow.OverlapSkip, 1)
	f.Delay = 1000
	s := f.Decide(row, 0).Done.Schedule
	require.Zero(t, s.NextAt)
	require.Zero(t, s.WakeAt)
	refused := f.Decide(row, 1).Done.Schedule
	require.EqualValues(t, 1100, refused.NextAt, "nothing runs that could set it")

	called := s
	called.End(&Ended{Run: 9, Status: StatusSucceeded, StartAt: 1, EndAt: 2000})
	require.Zero(t, called.NextAt, "the fired one is under way still")
	require.EqualValues(t, 1, called.Open)
	for _, status := range []Status{StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped, StatusCanceled, StatusSkipped} {
		done := s
		done.End(&Ended{Run: 1, Status: status, Fired: true, StartAt: 1500, EndAt: 3000})
		require.EqualValues(t, 4000, done.NextAt, status.String())
		require.EqualValues(t, 4000, done.WakeAt)
		require.Zero(t, done.Open)
	}
	for name, change := range map[string]func(s *Schedule){
		"disabled":          func(s *Schedule) { s.Enabled = false },
		"paused":            func(s *Schedule) { s.PausedAt = 1 },
		"known already":     func(s *Schedule) { s.NextAt = 5 },
		"another under way": func(s *Schedule) { s.Open = 2 },
		"another schedule":  func(s *Schedule) { s.Spec.Type = workflow.ScheduleRate },
	} {
		done := s
		change(&done)
		wake := done.WakeAt
		done.End(&Ended{Run: 1, Status: StatusSucceeded, Fired: true, EndAt: 3000})
		require.Equal(t, wake, done.WakeAt, name)
	}
	woken := s
	woken.WakeAt = 2500 // it was saved meanwhile
	woken.End(&Ended{Run: 1, Status: StatusSucceeded, Fired: true, EndAt: 3000})
	require.EqualValues(t, 2500, woken.WakeAt)
	require.EqualValues(t, 4000, woken.NextAt)
}

func TestEndCounts(t *testing.T) {
	t.Parallel()
	s := firingRow(1)
	for n, status := range []Status{StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped, StatusCanceled, StatusSkipped} {
		s.End(&Ended{Run: int64(n), Status: status, Fired: n < 3, StartAt: 10, EndAt: 20})
	}
	require.EqualValues(t, 6, s.Runs)
	require.EqualValues(t, 1, s.Succeeded)
	require.EqualValues(t, 2, s.Failed)
	require.Zero(t, s.Open, "never below 0")
	require.EqualValues(t, 5, s.LastID)
	require.Equal(t, StatusSkipped, s.LastStatus)
}

func TestBegin(t *testing.T) {
	t.Parallel()
	cron := workflow.Schedule{Cron: "0 0 * * *"}
	for name, c := range map[string]struct {
		from Schedule
		want Schedule
	}{
		"by itself":       {Schedule{Enabled: true, Spec: cron, NextAt: 9, WakeAt: 9, HandledAt: 5, SkipFrom: 1, SkipReason: SkipOverlap}, Schedule{Enabled: true, Spec: cron, AnchorAt: 100, HandledAt: 100, WakeAt: 100}},
		"never goes back": {Schedule{Enabled: true, Spec: cron, HandledAt: 150}, Schedule{Enabled: true, Spec: cron, AnchorAt: 100, HandledAt: 150, WakeAt: 100}},
		"disabled":        {Schedule{Spec: cron, WakeAt: 9}, Schedule{Spec: cron, AnchorAt: 100, HandledAt: 100}},
		"by call only":    {Schedule{Enabled: true}, Schedule{Enabled: true, AnchorAt: 100, HandledAt: 100}},
		"none":            {Schedule{Enabled: true, Spec: workflow.Schedule{Type: workflow.ScheduleNone}}, Schedule{Enabled: true, Spec: workflow.Schedule{Type: workflow.ScheduleNone}, AnchorAt: 100, HandledAt: 100}},
		"paused":          {Schedule{Enabled: true, Spec: cron, PausedAt: 50}, Schedule{Enabled: true, Spec: cron, PausedAt: 50, AnchorAt: 100, HandledAt: 100}},
		"resumed":         {Schedule{Enabled: true, Spec: cron, PausedAt: 50, ResumedAt: 60}, Schedule{Enabled: true, Spec: cron, AnchorAt: 100, HandledAt: 100, WakeAt: 100}},
	} {
		c.from.Begin(100)
		require.Equal(t, c.want, c.from, name)
	}
}

func TestIDTime(t *testing.T) {
	t.Parallel()
	const at = IDEpoch + 86_400_000
	id := FirstID(at)
	require.EqualValues(t, at, IDTime(id))
	require.EqualValues(t, at-1, IDTime(id-1))
	require.Zero(t, FirstID(5))
}
