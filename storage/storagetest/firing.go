package storagetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// owners own shards as they are asked for.
type owners struct {
	t  *testing.T
	s  engine.Store
	by map[uint8]*owner
}

func newOwners(t *testing.T, s engine.Store) *owners {
	return &owners{t: t, s: s, by: map[uint8]*owner{}}
}

func (o *owners) of(shard uint8) *owner {
	o.t.Helper()
	if o.by[shard] == nil {
		o.by[shard] = own(o.t, o.s, shard)
	}
	return o.by[shard]
}

// firing fires a job once at that time, as the schedule stands.
func firing(s engine.Schedule, at int64, overlap workflow.Overlap) engine.Firing {
	i := instance(s.Shard, engine.StatusWaiting)
	i.ID = engine.FirstID(at) + newID()&0xfffff
	i.Job, i.JobVersion, i.Key, i.FireAt, i.DueAt, i.CreatedAt = s.ID, s.Version, "", at, at, at+1
	stop := engine.Command{ID: newID(), Shard: s.Shard, Kind: engine.CommandReplace, Target: i.ID, Payload: []byte(`{}`), CreatedAt: at + 1}
	return engine.Firing{
		Kind: engine.KindJob, ID: s.ID, Version: s.Version, HandledAt: s.HandledAt, Until: at, NextAt: at + 100, WakeAt: at + 103,
		Overlap: overlap, MaxRunning: s.MaxRunning, QueueMax: 2, Runs: []engine.FiringRun{{Instance: &i, Stop: &stop}},
	}
}

// fire commits a firing in a Change of its own and returns what became of it.
func (o *owner) fire(f engine.Firing) engine.FiringDone {
	o.t.Helper()
	c := o.change()
	c.Firings = []engine.Firing{f}
	o.must(c)
	require.NotNil(o.t, c.Firings[0].Done)
	return *c.Firings[0].Done
}

// Every policy through the store: what is made, what the ledger says, and how the schedule
// stands then.
func exerciseFiring(t *testing.T, s engine.Store) {
	ctx := t.Context()
	all := newOwners(t, s)
	for _, overlap := range []workflow.Overlap{workflow.OverlapAllow, workflow.OverlapSkip, workflow.OverlapQueue, workflow.OverlapReplace, workflow.OverlapFail} {
		j := saveJob(t, s, daily, 1)
		row := schedule(t, s, engine.KindJob, j.ID)
		o := all.of(row.Shard)
		first := firing(row, base+100, overlap)
		done := o.fire(first)
		require.Equal(t, []int64{first.Runs[0].Instance.ID}, done.Admitted)
		require.Equal(t, *first.Runs[0].Instance, stored(t, s, first.Runs[0].Instance.ID))
		want := row
		want.HandledAt, want.NextAt, want.WakeAt, want.Open = base+100, base+200, base+203, 1
		require.Equal(t, want, done.Schedule)
		require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))

		// The same again: it is over.
		again := first
		other := *first.Runs[0].Instance
		other.ID = newID()
		again.Runs = []engine.FiringRun{{Instance: &other}}
		done = o.fire(again)
		require.Equal(t, engine.FiringDone{Moved: true, Schedule: want}, done)
		_, err := s.Instance(ctx, other.ID)
		require.ErrorIs(t, err, engine.ErrNotFound)

		// Three more find one under way.
		var got []engine.FiringDone
		var fired []engine.Fired
		for n := range int64(3) {
			f := firing(want, base+200+100*n, overlap)
			got = append(got, o.fire(f))
			want = got[n].Schedule
			require.Equal(t, want, schedule(t, s, engine.KindJob, j.ID))
		}
		fired, err = s.Fired(ctx, engine.KindJob, j.ID, base, base+1000, 0, 100)
		require.NoError(t, err)
		skips, err := s.Skips(ctx, engine.KindJob, j.ID, base, base+1000, 0, 100)
		require.NoError(t, err)
		commands, err := s.Commands(ctx, []uint8{row.Shard}, 0, 100)
		require.NoError(t, err)
		replaced := 0
		for _, c := range commands {
			for _, f := range fired {
				if c.Target == f.Instance {
					replaced++
				}
			}
		}
		reasons := map[engine.Reason]int{}
		for _, f := range fired {
			reasons[stored(t, s, f.Instance).Reason]++
		}
		switch overlap {
		case workflow.OverlapAllow:
			require.Len(t, fired, 4)
			require.EqualValues(t, 4, want.Open)
			require.Equal(t, engine.Fired{At: base + 400, Instance: got[2].Admitted[0], FiredAt: base + 401, Status: engine.StatusWaiting}, fired[3])
		case workflow.OverlapSkip:
			require.Len(t, fired, 1)
			require.Equal(t, []engine.Skip{{Kind: engine.KindJob, ID: j.ID, From: base + 200, To: base + 400, Count: 3, Reason: engine.SkipOverlap, At: base + 401}}, skips)
			require.EqualValues(t, 1, got[2].Skipped)
		case workflow.OverlapQueue:
			require.Len(t, fired, 3)
			require.Equal(t, map[engine.Reason]int{engine.ReasonDue: 1, engine.ReasonQueued: 2}, reasons)
			require.Equal(t, []engine.Skip{{Kind: engine.KindJob, ID: j.ID, From: base + 400, To: base + 400, Count: 1, Reason: engine.SkipQueueFull, At: base + 401}}, skips)
		case workflow.OverlapReplace:
			require.Len(t, fired, 4)
			require.Equal(t, 3, replaced)
			require.EqualValues(t, 1, got[2].Replaced)
		case workflow.OverlapFail:
			require.Len(t, fired, 4)
			require.EqualValues(t, 1, want.Open)
			require.EqualValues(t, 3, want.Runs)
			require.EqualValues(t, 3, want.Failed)
			last := stored(t, s, fired[3].Instance)
			require.Equal(t, engine.StatusFailed, last.Status)
			require.Equal(t, "MaxRunning 1: as many runs are under way", last.Error)
			require.Equal(t, last.CreatedAt, last.FinishedAt)
		}
		if overlap != workflow.OverlapSkip && overlap != workflow.OverlapQueue {
			require.Empty(t, skips)
		}
		if overlap != workflow.OverlapReplace {
			require.Zero(t, replaced)
		}
	}
}

// A workflow fires as a job does, once for each time.
func exerciseFiringWorkflow(t *testing.T, s engine.Store) {
	def, err := s.SaveWorkflow(t.Context(), engine.WorkflowDef{ID: newID(), App: 7, Name: "w", Enabled: true, Definition: []byte(`{}`), Schedule: daily, UpdatedAt: base})
	require.NoError(t, err)
	row := schedule(t, s, engine.KindWorkflow, def.ID)
	o := own(t, s, row.Shard)
	w := workflowInstance(row.Shard, engine.StatusWaiting)
	w.ID, w.Workflow, w.FireAt, w.Parent, w.ParentNode, w.Depth = engine.FirstID(base+100), def.ID, base+100, 0, "", 0
	f := engine.Firing{Kind: engine.KindWorkflow, ID: def.ID, Version: 1, HandledAt: base, Until: base + 100, NextAt: base + 200, WakeAt: base + 200, Runs: []engine.FiringRun{{Workflow: &w}}}
	require.Equal(t, []int64{w.ID}, o.fire(f).Admitted)
	requireWorkflows(t, s, []engine.WorkflowInstance{w})
	fired, err := s.Fired(t.Context(), engine.KindWorkflow, def.ID, base, base+200, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Fired{{At: base + 100, Instance: w.ID, FiredAt: base, Status: engine.StatusWaiting}}, fired)
	// Past the schedule the database itself refuses the second one.
	twice := w
	twice.ID = newID()
	c := o.change()
	c.NewWorkflows = []engine.WorkflowInstance{twice}
	require.ErrorIs(t, one(t, s, c), engine.ErrConflict)
	twice.FireAt = base + 101
	c.NewWorkflows = []engine.WorkflowInstance{twice}
	o.must(c)
}

// Many schedules of one commit: one that has been fired past its row, one that moved on, and
// the rest, which is stored.
func exerciseFiringMany(t *testing.T, s engine.Store) {
	ctx := t.Context()
	all := newOwners(t, s)
	var rows []engine.Schedule
	for range 30 {
		j := saveJob(t, s, daily, 1)
		rows = append(rows, schedule(t, s, engine.KindJob, j.ID))
	}
	taken := firing(rows[3], base+100, workflow.OverlapSkip)
	c := all.of(rows[3].Shard).change()
	c.NewInstances = []engine.Instance{*taken.Runs[0].Instance}
	all.of(rows[3].Shard).must(c)
	_, err := s.PauseSchedule(ctx, engine.KindJob, rows[5].ID, base+50)
	require.NoError(t, err)

	var changes []engine.Change
	for n, row := range rows {
		c := all.of(row.Shard).change()
		f := firing(row, base+100, workflow.OverlapSkip)
		f.Skips = []engine.Skip{{Kind: engine.KindJob, ID: row.ID, From: base + 10, To: base + 20, Count: 11, Reason: engine.SkipMisfire, At: base + 101}}
		c.Firings, c.Cursor = []engine.Firing{f}, uint64(n+1)
		changes = append(changes, c)
	}
	// The same schedule once more: the first firing of the commit has it.
	second := all.of(rows[0].Shard).change()
	second.Firings = []engine.Firing{firing(rows[0], base+100, workflow.OverlapSkip)}
	changes = append(changes, second)
	errs, err := s.Commit(ctx, changes)
	require.NoError(t, err)
	for n, err := range errs {
		if n == 3 {
			require.ErrorIs(t, err, engine.ErrConflict)
			require.Nil(t, changes[n].Firings[0].Done, "it was not stored")
			continue
		}
		require.NoError(t, err)
		f := changes[n].Firings[0]
		require.Equal(t, n == 5 || n == 30, f.Done.Moved, "firing %d", n)
		if n < 30 {
			require.Equal(t, schedule(t, s, engine.KindJob, rows[n].ID), f.Done.Schedule)
		}
		skips, err := s.Skips(ctx, engine.KindJob, f.ID, base, base+100, 0, 10)
		require.NoError(t, err)
		if f.Done.Moved && n != 30 {
			require.Empty(t, skips)
		} else {
			require.Len(t, skips, 1)
		}
	}
	require.Equal(t, rows[3], schedule(t, s, engine.KindJob, rows[3].ID))
}

// Whatever is saved, disabled or paused while it fires: either the fire was before it, or it
// is not at all.
func exerciseFiringRaces(t *testing.T, s engine.Store) {
	ctx := t.Context()
	all := newOwners(t, s)
	for n := range 24 {
		j := saveJob(t, s, daily, 0)
		row := schedule(t, s, engine.KindJob, j.ID)
		o := all.of(row.Shard)
		f := firing(row, base+100, workflow.OverlapSkip)
		c := o.change()
		c.Firings = []engine.Firing{f}
		var wg sync.WaitGroup
		wg.Go(func() {
			errs, err := s.Commit(ctx, []engine.Change{c})
			if err != nil || errs[0] != nil {
				t.Errorf("fire: %v, %v", err, errs)
			}
		})
		wg.Go(func() {
			var err error
			next := *j
			next.UpdatedAt = base + 150
			switch n % 3 {
			case 0:
				next.Enabled = false
				_, err = s.SaveJob(ctx, next)
			case 1:
				next.Schedule.Cron = "0 0 5 * * ?"
				_, err = s.SaveJob(ctx, next)
			case 2:
				_, err = s.PauseSchedule(ctx, engine.KindJob, j.ID, base+150)
			}
			if err != nil {
				t.Errorf("change: %v", err)
			}
		})
		wg.Wait()
		done := c.Firings[0].Done
		require.NotNil(t, done)
		got := schedule(t, s, engine.KindJob, j.ID)
		_, err := s.Instance(ctx, f.Runs[0].Instance.ID)
		if done.Moved {
			require.ErrorIs(t, err, engine.ErrNotFound)
			require.Zero(t, got.Open)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, 1, got.Open)
			require.GreaterOrEqual(t, got.HandledAt, int64(base+100))
		}
		if n%3 == 1 {
			require.Equal(t, int64(base+150), got.WakeAt)
		} else {
			require.Zero(t, got.WakeAt)
		}
		stale := firing(got, base+200, workflow.OverlapSkip)
		stale.Version = row.Version
		require.True(t, o.fire(stale).Moved, "after the change returned nothing fires by what was before")
	}
}

// Consecutive fires that do not run for one reason are one row, over many firings.
func exerciseLedger(t *testing.T, s engine.Store) {
	ctx := t.Context()
	j := saveJob(t, s, daily, 0)
	row := schedule(t, s, engine.KindJob, j.ID)
	o := own(t, s, row.Shard)
	skip := func(from, to, count int64, why engine.SkipReason) engine.Skip {
		return engine.Skip{Kind: engine.KindJob, ID: j.ID, From: base + from, To: base + to, Count: count, Reason: why, At: base + to + 1}
	}
	move := func(until int64, runAt int64, skips ...engine.Skip) {
		t.Helper()
		f := firing(row, base+until, workflow.OverlapSkip)
		f.Skips = skips
		if runAt == 0 {
			f.Runs = nil
		} else {
			f.Runs[0].Instance.FireAt = base + runAt
		}
		done := o.fire(f)
		require.False(t, done.Moved)
		row = done.Schedule
	}
	for n := range int64(5) {
		move(10*n+10, 0, skip(10*n+1, 10*n+9, 9, engine.SkipPaused))
	}
	move(60, 0, skip(51, 60, 10, engine.SkipMisfire))
	move(80, 75, skip(61, 70, 10, engine.SkipMisfire), skip(76, 80, 5, engine.SkipMisfire))
	move(90, 85, skip(86, 90, 5, engine.SkipMisfire))
	want := []engine.Skip{
		skip(1, 49, 45, engine.SkipPaused), skip(51, 70, 20, engine.SkipMisfire), skip(76, 80, 5, engine.SkipMisfire), skip(86, 90, 5, engine.SkipMisfire),
	}
	read := func(from, to, after int64, limit int) []engine.Skip {
		t.Helper()
		got, err := s.Skips(ctx, engine.KindJob, j.ID, base+from, base+to, after, limit)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, want, read(0, 1000, 0, 10))
	require.Equal(t, want[1:2], read(70, 75, 0, 10))
	require.Equal(t, want[1:3], read(0, 80, base+1, 10))
	require.Equal(t, want[:2], read(0, 1000, 0, 2))
	require.Empty(t, read(50, 50, 0, 10))

	// A fire that lies behind the range, one before it, and pages.
	fired, err := s.Fired(ctx, engine.KindJob, j.ID, base+75, base+84, 0, 10)
	require.NoError(t, err)
	require.Len(t, fired, 1)
	require.Equal(t, int64(base+75), fired[0].At)
	all, err := s.Fired(ctx, engine.KindJob, j.ID, base, base+1000, 0, 10)
	require.NoError(t, err)
	require.Len(t, all, 2)
	page, err := s.Fired(ctx, engine.KindJob, j.ID, base, base+1000, all[0].Instance, 10)
	require.NoError(t, err)
	require.Equal(t, all[1:], page)

	// What may grow still has not ended, however old it is.
	dead := engine.Change{DeadLetters: []engine.DeadLetter{{ID: newID(), Reason: "r", At: base + 5}, {ID: newID(), Reason: "r", At: base + 9000}}}
	require.NoError(t, one(t, s, dead))
	n, err := s.DeleteLedger(ctx, base+81, 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, want[2:], read(0, 1000, 0, 10))
	n, err = s.DeleteLedger(ctx, base+1000, 10)
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "the third row and a dead letter")
	require.Equal(t, want[3:], read(0, 1000, 0, 10))
	letters, err := s.DeadLetters(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	move(100, 0, skip(91, 100, 10, engine.SkipMisfire))
	require.Equal(t, []engine.Skip{skip(86, 100, 15, engine.SkipMisfire)}, read(0, 1000, 0, 10))
}

// What ended is counted exactly, in small commits and large ones, by many owners at once.
func exerciseEnded(t *testing.T, s engine.Store) {
	ctx := t.Context()
	jobs := make([]*engine.Job, 5)
	for n := range jobs {
		jobs[n] = saveJob(t, s, workflow.Schedule{}, 0)
	}
	all := newOwners(t, s)
	for n := range uint8(4) {
		all.of(n)
	}
	statuses := []engine.Status{engine.StatusSucceeded, engine.StatusFailed, engine.StatusTimedOut, engine.StatusStopped, engine.StatusCanceled, engine.StatusSkipped}
	var wg sync.WaitGroup
	fails := make(chan error, 1000)
	for n := range uint8(4) {
		o := all.of(n)
		wg.Go(func() {
			for k := range 20 {
				changes := make([]engine.Change, 1+k%3)
				for n := range changes {
					changes[n] = o.change()
					for m, j := range jobs {
						for r, status := range statuses {
							e := engine.Ended{Kind: engine.KindJob, ID: j.ID, Run: int64(k*100 + m*10 + r + 1), Status: status, StartAt: base, EndAt: base + int64(k)}
							changes[n].Ended = append(changes[n].Ended, e)
						}
					}
				}
				errs, err := s.Commit(ctx, changes)
				fails <- err
				for _, err := range errs {
					fails <- err
				}
			}
		})
	}
	wg.Wait()
	close(fails)
	for err := range fails {
		require.NoError(t, err)
	}
	commits := int64(0)
	for k := range 20 {
		commits += int64(1 + k%3)
	}
	commits *= 4
	for _, j := range jobs {
		got := schedule(t, s, engine.KindJob, j.ID)
		require.Equal(t, 6*commits, got.Runs)
		require.Equal(t, commits, got.Succeeded)
		require.Equal(t, 2*commits, got.Failed)
		require.Zero(t, got.Open)
		require.Equal(t, engine.StatusSkipped, got.LastStatus)
		require.Equal(t, int64(base), got.LastStart)
		require.NotZero(t, got.LastEnd)
	}
	// One that ended in the Change that fires makes room for that.
	j := saveJob(t, s, daily, 1)
	row := schedule(t, s, engine.KindJob, j.ID)
	o := all.of(row.Shard)
	first := o.fire(firing(row, base+100, workflow.OverlapSkip))
	c := o.change()
	c.Ended = []engine.Ended{{Kind: engine.KindJob, ID: j.ID, Run: first.Admitted[0], Status: engine.StatusFailed, Fired: true, StartAt: base + 1, EndAt: base + 150}}
	c.Firings = []engine.Firing{firing(first.Schedule, base+200, workflow.OverlapSkip)}
	o.must(c)
	require.Len(t, c.Firings[0].Done.Admitted, 1)
	got := schedule(t, s, engine.KindJob, j.ID)
	require.Equal(t, got, c.Firings[0].Done.Schedule)
	require.EqualValues(t, 1, got.Open)
	require.EqualValues(t, 1, got.Failed)
	// One that nobody knows any more is no matter.
	c = o.change()
	c.Ended = []engine.Ended{{Kind: engine.KindWorkflow, ID: newID(), Run: 1, Status: engine.StatusFailed, EndAt: base}}
	o.must(c)
}

// The end of the last fired run sets when a fixed delay is due again.
func exerciseFixedDelay(t *testing.T, s engine.Store) {
	ctx := t.Context()
	all := newOwners(t, s)
	delay := workflow.Schedule{Type: workflow.ScheduleDelay, Every: workflow.Duration(500 * time.Millisecond)}
	for n, status := range []engine.Status{engine.StatusSucceeded, engine.StatusStopped, engine.StatusTimedOut} {
		j := saveJob(t, s, delay, 1)
		row := schedule(t, s, engine.KindJob, j.ID)
		o := all.of(row.Shard)
		f := firing(row, base+100, workflow.OverlapSkip)
		f.Delay = 500
		done := o.fire(f)
		require.Zero(t, done.Schedule.NextAt)
		require.Zero(t, done.Schedule.WakeAt)
		require.Equal(t, done.Schedule, schedule(t, s, engine.KindJob, j.ID))
		end := func(fired bool) engine.Schedule {
			c := o.change()
			c.Ended = []engine.Ended{{Kind: engine.KindJob, ID: j.ID, Run: done.Admitted[0], Status: status, Fired: fired, StartAt: base + 101, EndAt: base + 1000}}
			o.must(c)
			return schedule(t, s, engine.KindJob, j.ID)
		}
		require.Zero(t, end(false).NextAt, "a called one ended, the fired one runs")
		switch n {
		case 1:
			_, err := s.PauseSchedule(ctx, engine.KindJob, j.ID, base+900)
			require.NoError(t, err)
			got := end(true)
			require.Zero(t, got.NextAt)
			require.Zero(t, got.WakeAt)
		case 2:
			j.Enabled = false
			_, err := s.SaveJob(ctx, *j)
			require.NoError(t, err)
			require.Zero(t, end(true).NextAt)
		default:
			got := end(true)
			require.Equal(t, int64(base+1500), got.NextAt)
			require.Equal(t, int64(base+1500), got.WakeAt)
			require.Zero(t, got.Open)
			due, err := s.DueSchedules(ctx, []uint8{row.Shard}, base+1500, engine.SchedulePos{}, 1000)
			require.NoError(t, err)
			require.Contains(t, due, got)
		}
	}
}

// What a fence does not cover, or no firing can be.
func exerciseFiringRefused(t *testing.T, s engine.Store) {
	j := saveJob(t, s, daily, 0)
	row := schedule(t, s, engine.KindJob, j.ID)
	o := own(t, s, row.Shard)
	good := func() engine.Firing { return firing(row, base+100, workflow.OverlapSkip) }
	for name, c := range map[string]engine.Change{
		"unfenced firing": {Shard: row.Shard, Firings: []engine.Firing{good()}},
		"unfenced end":    {Shard: row.Shard, Ended: []engine.Ended{{Kind: engine.KindJob, ID: j.ID, Status: engine.StatusFailed}}},
		"unfenced permit": {Shard: row.Shard, Permits: []engine.Permit{{Job: j.ID, Instance: 1, Max: 1}}},
		"unfenced return": {Shard: row.Shard, GonePermits: []engine.Permit{{Job: j.ID, Instance: 1}}},
	} {
		require.ErrorIs(t, one(t, s, c), engine.ErrInvalid, name)
	}
	for name, spoil := range map[string]func(f *engine.Firing){
		"kind":        func(f *engine.Firing) { f.Kind = 3 },
		"another job": func(f *engine.Firing) { f.Runs[0].Instance.Job++ },
		"called":      func(f *engine.Firing) { f.Runs[0].Instance.FireAt = 0 },
		"final":       func(f *engine.Firing) { f.Runs[0].Instance.Status = engine.StatusFailed },
		"shard":       func(f *engine.Firing) { f.Runs[0].Instance.Shard++ },
		"nothing":     func(f *engine.Firing) { f.Runs[0].Instance = nil },
		"both":        func(f *engine.Firing) { f.Runs[0].Workflow = &engine.WorkflowInstance{} },
		"no skips":    func(f *engine.Firing) { f.Skips = []engine.Skip{{Kind: f.Kind, ID: f.ID, From: 1, To: 2, Reason: "r"}} },
		"backwards": func(f *engine.Firing) {
			f.Skips = []engine.Skip{{Kind: f.Kind, ID: f.ID, From: 3, To: 2, Count: 1, Reason: "r"}}
		},
		"another's": func(f *engine.Firing) {
			f.Skips = []engine.Skip{{Kind: f.Kind, ID: f.ID + 1, From: 1, To: 2, Count: 1, Reason: "r"}}
		},
		"no reason":    func(f *engine.Firing) { f.Skips = []engine.Skip{{Kind: f.Kind, ID: f.ID, From: 1, To: 2, Count: 1}} },
		"before time":  func(f *engine.Firing) { f.NextAt = -1 },
		"negative max": func(f *engine.Firing) { f.MaxRunning = -1 },
	} {
		f := good()
		spoil(&f)
		c, beside := o.change(), o.change()
		c.Firings, beside.NewInstances = []engine.Firing{f}, []engine.Instance{instance(row.Shard, engine.StatusWaiting)}
		errs, err := s.Commit(t.Context(), []engine.Change{c, beside})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], engine.ErrInvalid, name)
		require.NoError(t, errs[1])
	}
	require.Equal(t, row, schedule(t, s, engine.KindJob, j.ID))

	// A stale owner fires nothing.
	stale := o.change()
	stale.Firings = []engine.Firing{good()}
	stale.Firings[0].Done = &engine.FiringDone{Failed: 7} // of another try
	claimed, err := s.ClaimShard(t.Context(), row.Shard, o.server.Number, o.server.Token)
	require.NoError(t, err)
	o.shard = *claimed
	require.ErrorIs(t, one(t, s, stale), engine.ErrFenced)
	require.Equal(t, engine.FiringDone{}, *stale.Firings[0].Done)
	require.Equal(t, row, schedule(t, s, engine.KindJob, j.ID))

	// Of a job that is not there nothing fires.
	f := good()
	f.ID = newID()
	f.Runs[0].Instance.Job = f.ID
	require.Equal(t, engine.FiringDone{Moved: true}, o.fire(f))

	raw, ok := s.(Raw)
	require.True(t, ok)
	f = good()
	f.Skips = []engine.Skip{{Kind: engine.KindJob, ID: j.ID, From: base + 1, To: base + 5, Count: 2, Reason: engine.SkipMisfire, At: base}}
	require.False(t, o.fire(f).Moved)
	p := o.change()
	p.Permits = []engine.Permit{{Job: j.ID, Instance: newID(), Max: 2}}
	o.must(p)
	for _, bad := range []string{
		"UPDATE schedules SET open_runs = -1", "UPDATE schedules SET kind = 3", "UPDATE schedules SET failed = -1", "UPDATE schedules SET succeeded = runs + 1",
		"UPDATE schedules SET version = 0", "UPDATE schedules SET shard = 64", "UPDATE schedules SET wake_key = 0", "UPDATE schedules SET enabled = 0",
		"UPDATE schedules SET resumed_at = 5", "UPDATE schedules SET paused_at = 5", "UPDATE schedules SET skip_from = 5", "UPDATE schedules SET max_running = -1",
		"UPDATE schedules SET last_status = 3", "UPDATE schedules SET spec = NULL", "UPDATE schedules SET enabled = 2",
		"UPDATE ledger SET skips = 0", "UPDATE ledger SET to_at = from_at - 1", "UPDATE ledger SET reason = ''", "UPDATE ledger SET kind = 0",
	} {
		_, err := raw.RawExec(t.Context(), fmt.Sprintf("%s WHERE id = ?", bad), j.ID)
		require.Error(t, err, bad)
	}
	_, err = raw.RawExec(t.Context(), "UPDATE permits SET max_running = 0 WHERE job_id = ?", j.ID)
	require.Error(t, err)
	_, err = raw.RawExec(t.Context(), "UPDATE schedules SET open_runs = 2 WHERE id = ?", j.ID)
	require.NoError(t, err)
}
