package fire_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

// epoch is when the stories begin: a Monday at midnight.
var epoch = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// world is a real store in a bubble of virtual time, with schedulers over it and something
// that runs what they fire.
type world struct {
	t     *testing.T
	store *storage.DB
	real  time.Time    // when the bubble began
	step  atomic.Int64 // ms by which the clock was set
	ids   atomic.Int64

	mu        sync.Mutex
	calendars map[string]*schedule.Calendar
	jobs      map[int64]*job
	away      bool // the database
	fault     func(engine.Change) fault
	owner     *owner // that runs now, the newest
	most      int    // the most schedules one read has brought
}

// fault is what becomes of a commit.
type fault int

const (
	stored  fault = iota
	refused       // nothing is stored, and the caller hears that the database is away
	unknown       // it is stored, and the caller hears the same
)

// job is a job and what its runs do.
type job struct {
	w    *world
	id   int64
	name string
	app  int64
	// limit is how many runs of it may be under way; 0 is no bound.
	limit int
	// took and status are how long the n-th run takes, from 0, and how it ends.
	took   func(n int) time.Duration
	status func(n int) engine.Status

	// Guarded by the world.
	idle    bool // no worker is there
	begun   int
	waiting []*engine.Instance
	running map[int64]*time.Timer
	rows    map[int64]*engine.Instance
	most    int // at a time
}

// tell runs a story in a bubble.
func tell(t *testing.T, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, real: time.Now(), calendars: map[string]*schedule.Calendar{}, jobs: map[int64]*job{}}
		db, err := storage.Open(t.Context(), storage.Config{
			URL: "sqlite::memory:", Synchronous: "OFF", Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Time { return time.UnixMilli(w.now()) },
		})
		require.NoError(t, err)
		w.store = db
		defer func() { require.NoError(t, db.Close()) }()
		story(t, w)
	})
}

func (w *world) now() int64 {
	return epoch.Add(time.Since(w.real)).UnixMilli() + w.step.Load()
}

// at is a time of the story, epoch ms.
func (w *world) at(d time.Duration) int64 { return epoch.Add(d).UnixMilli() }

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) nextID() int64 { return engine.FirstID(w.now()) + w.ids.Add(1) }

// job saves a job that is over at once each time it runs.
func (w *world) job(name string, s workflow.Schedule, maxRunning int) *job {
	w.t.Helper()
	id := w.nextID()
	for engine.ShardOf(id) >= shards {
		id = w.nextID()
	}
	j := &job{
		w: w, id: id, name: name, app: 1, limit: maxRunning, running: map[int64]*time.Timer{}, rows: map[int64]*engine.Instance{},
		took:   func(int) time.Duration { return 0 },
		status: func(int) engine.Status { return engine.StatusSucceeded },
	}
	if maxRunning == 0 && s.Overlap != workflow.OverlapAllow && s.Overlap != workflow.OverlapReplace {
		j.limit = 1
	}
	w.mu.Lock()
	w.jobs[j.id] = j
	w.mu.Unlock()
	_, err := w.store.SaveJob(w.t.Context(), engine.Job{
		ID: j.id, App: j.app, Name: name, Enabled: true, Spec: workflow.Spec{Processor: "p", MaxRunning: maxRunning}, Schedule: s,
		CreatedAt: w.now(), UpdatedAt: w.now(),
	})
	require.NoError(w.t, err)
	return j
}

// save changes the job; the scheduler that is given is told, as the server does.
func (j *job) save(o *owner, change func(*engine.Job)) {
	j.w.t.Helper()
	row, err := j.w.store.Job(j.w.t.Context(), j.id)
	require.NoError(j.w.t, err)
	change(row)
	row.UpdatedAt = j.w.now()
	_, err = j.w.store.SaveJob(j.w.t.Context(), *row)
	require.NoError(j.w.t, err)
	if o != nil {
		o.fire.LookAt(engine.KindJob, j.id)
	}
}

func (j *job) enable(o *owner, on bool) { j.save(o, func(r *engine.Job) { r.Enabled = on }) }

func (j *job) pause() {
	j.w.t.Helper()
	_, err := j.w.store.PauseSchedule(j.w.t.Context(), engine.KindJob, j.id, j.w.now())
	require.NoError(j.w.t, err)
}

func (j *job) resume(o *owner) {
	j.w.t.Helper()
	_, err := j.w.store.ResumeSchedule(j.w.t.Context(), engine.KindJob, j.id, j.w.now())
	require.NoError(j.w.t, err)
	if o != nil {
		o.fire.LookAt(engine.KindJob, j.id)
	}
}

// backfill stores an instance for a scheduled time, as a backfill does.
func (j *job) backfill(at time.Duration) {
	j.w.t.Helper()
	errs, err := j.w.store.Commit(j.w.t.Context(), []engine.Change{{NewInstances: []engine.Instance{{
		ID: j.w.nextID(), App: j.app, Shard: engine.ShardOf(j.id), Job: j.id, JobVersion: 1, Status: engine.StatusWaiting, Reason: engine.ReasonDue,
		Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny, FireAt: j.w.at(at), DueAt: j.w.now(), CreatedAt: j.w.now(),
	}}}})
	require.NoError(j.w.t, err)
	require.NoError(j.w.t, errs[0])
}

// hold takes a permit of the job, as a run by call does, and gives it back.
func (j *job) hold(o *owner, give bool) {
	j.w.t.Helper()
	f := o.fences[engine.ShardOf(j.id)]
	c := engine.Change{Fenced: true, Shard: f.Shard, Owner: f.Owner, Epoch: f.Epoch}
	p := []engine.Permit{{Job: j.id, Instance: 1, Max: 1}}
	if give {
		c.GonePermits = p
	} else {
		c.Permits = p
	}
	errs, err := j.w.store.Commit(j.w.t.Context(), []engine.Change{c})
	require.NoError(j.w.t, err)
	require.NoError(j.w.t, errs[0])
}

func (j *job) row() *engine.Schedule {
	j.w.t.Helper()
	row, err := j.w.store.Schedule(j.w.t.Context(), engine.KindJob, j.id)
	require.NoError(j.w.t, err)
	return row
}

// ledger is what the store tells of the job's fires, in a few words, by scheduled time since
// the beginning: "run 10s" ran on time, "run 10s+5s" so much later, "failed 20s" failed for
// others that were under way, "misfire 20s-40s x3" did not run.
func (j *job) ledger() string {
	w := j.w
	w.t.Helper()
	type line struct {
		at   int64
		text string
	}
	var lines []line
	since := func(at int64) time.Duration { return time.Duration(at-epoch.UnixMilli()) * time.Millisecond }
	for after := int64(0); ; {
		fired, err := w.store.Fired(w.t.Context(), engine.KindJob, j.id, 1, 1<<50, after, 1000)
		require.NoError(w.t, err)
		for _, f := range fired {
			in, err := w.store.Instance(w.t.Context(), f.Instance)
			require.NoError(w.t, err)
			text := "run "
			if in.Status == engine.StatusFailed && in.StartedAt == 0 {
				text = "failed "
			}
			text += since(f.At).String()
			if late := f.FiredAt - f.At; late != 0 {
				text += "+" + (time.Duration(late) * time.Millisecond).String()
			}
			lines = append(lines, line{f.At, text})
		}
		if len(fired) < 1000 {
			break
		}
		after = fired[len(fired)-1].Instance
	}
	skips, err := w.store.Skips(w.t.Context(), engine.KindJob, j.id, 1, 1<<50, 0, 10_000)
	require.NoError(w.t, err)
	for _, k := range skips {
		text := fmt.Sprintf("%s %s", k.Reason, since(k.From))
		if k.Count > 1 || k.To != k.From {
			text += fmt.Sprintf("-%s x%d", since(k.To), k.Count)
		}
		lines = append(lines, line{k.From, text})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = lines[i].text
	}
	return strings.Join(out, ", ")
}

// whole looks whether each scheduled time up to the last one that was decided is in the ledger,
// once: of a job that was saved but once and has no calendars.
func (j *job) whole() {
	w := j.w
	w.t.Helper()
	row := j.row()
	c, err := schedule.Compile(row.Spec, w.calendars)
	require.NoError(w.t, err)
	_, want, _ := c.Due(row.AnchorAt, row.HandledAt, row.AnchorAt, 1)
	seen := map[int64]bool{}
	var got int64
	fired, err := w.store.Fired(w.t.Context(), engine.KindJob, j.id, 1, 1<<50, 0, 100_000)
	require.NoError(w.t, err)
	for _, f := range fired {
		require.False(w.t, seen[f.At], "%s fired twice for %d", j.name, f.At)
		seen[f.At] = true
		got++
	}
	skips, err := w.store.Skips(w.t.Context(), engine.KindJob, j.id, 1, 1<<50, 0, 100_000)
	require.NoError(w.t, err)
	for _, k := range skips {
		got += k.Count
	}
	require.Equal(w.t, want, got, "%s: %s", j.name, j.ledger())
}

// fired are the scheduled times of the runs, by when they were made.
func (j *job) fired() []engine.Fired {
	j.w.t.Helper()
	f, err := j.w.store.Fired(j.w.t.Context(), engine.KindJob, j.id, 1, 1<<50, 0, 100_000)
	require.NoError(j.w.t, err)
	return f
}

// owner is a server: a scheduler, and a committer that stores what it decides.
type owner struct {
	w      *world
	number int16
	fire   *fire.Scheduler
	cancel context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{}

	mu     sync.Mutex
	queue  []submitted
	fences map[uint8]fire.Fence
	gens   map[uint8]uint32
	lost   int
}

type submitted struct {
	change engine.Change
	gen    uint32
	done   func(error)
}

var errBroken = errors.New("an earlier change of the shard was lost")

// shards are those that the stories use, of all.
const shards = 4

// start starts a server that owns them. lease is how long it keeps them without a
// renewal, which it never makes.
func (w *world) start(c fire.Config, lease time.Duration) *owner {
	w.t.Helper()
	row, err := w.store.JoinServer(w.t.Context(), "server", uint64(w.nextID()), lease.Milliseconds())
	require.NoError(w.t, err)
	o := &owner{w: w, number: row.Number, wake: make(chan struct{}, 1), fences: map[uint8]fire.Fence{}, gens: map[uint8]uint32{}}
	for shard := range uint8(shards) {
		s, err := w.store.ClaimShard(w.t.Context(), shard, row.Number, row.Token)
		require.NoError(w.t, err)
		o.gens[shard] = 1
		o.fences[shard] = fire.Fence{Shard: shard, Owner: s.Owner, Epoch: s.Epoch, Gen: 1}
	}
	c.Log = slog.New(slog.DiscardHandler)
	o.fire = fire.New(c, o)
	ctx, cancel := context.WithCancel(w.t.Context())
	o.cancel = cancel
	o.ended.Go(func() { o.fire.Run(ctx) })
	o.ended.Go(func() { o.committing(ctx) })
	w.mu.Lock()
	w.owner = o
	w.mu.Unlock()
	o.adopt()
	synctest.Wait()
	return o
}

// long is a lease that outlasts every story.
const long = 10 * 365 * 24 * time.Hour

// stop ends the server, and gives its shards up.
func (o *owner) stop() {
	o.w.t.Helper()
	o.kill()
	for shard, f := range o.fences {
		require.NoError(o.w.t, o.w.store.ReleaseShard(o.w.t.Context(), shard, f.Owner, f.Epoch))
	}
}

// kill ends the server as a kill -9 does; what it has decided and not stored is gone.
func (o *owner) kill() {
	o.w.mu.Lock()
	if o.w.owner == o {
		o.w.owner = nil
	}
	o.w.mu.Unlock()
	o.cancel()
	o.ended.Wait()
}

func (o *owner) Now() int64 { return o.w.now() }

func (o *owner) Fences() []fire.Fence {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []fire.Fence
	for _, f := range o.fences {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fire.Fence) int { return cmp.Compare(a.Shard, b.Shard) })
	return out
}

func (w *world) reachable() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return engine.ErrUnavailable
	}
	return nil
}

// gone takes the database away, or brings it back.
func (w *world) gone(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

func (o *owner) Due(ctx context.Context, shards []uint8, until int64, after engine.SchedulePos, limit int) ([]engine.Schedule, error) {
	if err := o.w.reachable(); err != nil {
		return nil, err
	}
	rows, err := o.w.store.DueSchedules(ctx, shards, until, after, limit)
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	o.w.most = max(o.w.most, len(rows))
	return rows, err
}

func (o *owner) Row(ctx context.Context, kind engine.DefKind, id int64) (*engine.Schedule, error) {
	if err := o.w.reachable(); err != nil {
		return nil, err
	}
	return o.w.store.Schedule(ctx, kind, id)
}

func (o *owner) Compile(_ context.Context, s *engine.Schedule) (*schedule.Schedule, error) {
	return schedule.Compile(s.Spec, o.w.calendars)
}

func (o *owner) Prepare(context.Context, []engine.Schedule) {}

func (o *owner) Make(_ context.Context, s *engine.Schedule, at int64) (engine.FiringRun, error) {
	now := o.w.now()
	run := engine.FiringRun{Instance: &engine.Instance{
		ID: o.w.nextID(), App: s.App, Shard: s.Shard, Job: s.ID, JobVersion: s.Version, Status: engine.StatusWaiting, Reason: engine.ReasonDue,
		Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny, FireAt: at, DueAt: now, CreatedAt: now,
	}}
	if s.Spec.Overlap == workflow.OverlapReplace {
		run.Stop = &engine.Command{ID: o.w.nextID(), Shard: s.Shard, Kind: engine.CommandReplace, Target: run.Instance.ID, Request: fmt.Sprint(run.Instance.ID), CreatedAt: now}
	}
	return run, nil
}

// Superseded knows of one earlier version.
func (o *owner) Superseded(ctx context.Context, s *engine.Schedule, after int64) ([]engine.Skip, error) {
	old, err := o.w.store.JobVersion(ctx, s.ID, s.Version-1)
	if err != nil {
		return nil, err
	}
	c, err := schedule.Compile(old.Schedule, o.w.calendars)
	if err != nil {
		return nil, err
	}
	times, n, _ := c.Due(after, s.AnchorAt, old.UpdatedAt, 1)
	first, _ := c.Next(after, old.UpdatedAt)
	if n == 0 {
		return nil, nil
	}
	return []engine.Skip{{Kind: s.Kind, ID: s.ID, From: first, To: times[0], Count: n}}, nil
}

func (o *owner) Depends(ctx context.Context, s *engine.Schedule) (fire.Depends, error) {
	var out fire.Depends
	for _, d := range s.Spec.After {
		of, err := o.w.store.JobByName(ctx, s.App, d.Job)
		if err != nil {
			return out, err
		}
		row, err := o.w.store.Schedule(ctx, engine.KindJob, of.ID)
		if err != nil {
			return out, err
		}
		out.Follow(s, d, row)
	}
	return out, nil
}

func (o *owner) Commit(c engine.Change, gen uint32, done func(error)) {
	o.mu.Lock()
	o.queue = append(o.queue, submitted{c, gen, done})
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// committing stores all that has come in one transaction, as the committer does.
func (o *owner) committing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		o.mu.Lock()
		batch := o.queue
		o.queue = nil
		o.mu.Unlock()
		o.commit(ctx, batch)
	}
}

func (o *owner) commit(ctx context.Context, batch []submitted) {
	var changes []engine.Change
	var asked []submitted
	outcome := stored
	for _, b := range batch {
		o.mu.Lock()
		broken := o.gens[b.change.Shard] != b.gen
		o.mu.Unlock()
		if broken {
			b.done(errBroken)
			continue
		}
		o.w.mu.Lock()
		if o.w.fault != nil {
			outcome = max(outcome, o.w.fault(b.change))
		}
		o.w.mu.Unlock()
		changes, asked = append(changes, b.change), append(asked, b)
	}
	if len(changes) == 0 {
		return
	}
	if o.w.reachable() != nil {
		outcome = refused
	}
	errs, err := make([]error, len(changes)), error(nil)
	if outcome != refused {
		errs, err = o.w.store.Commit(ctx, changes)
	}
	if outcome != stored {
		err = engine.ErrUnavailable
	}
	for i, b := range asked {
		if err != nil {
			b.done(err)
		} else {
			b.done(errs[i])
		}
	}
}

// Lost forgets the shard, and loads it again a moment later unless it is someone else's now.
func (o *owner) Lost(f fire.Fence, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gens[f.Shard] != f.Gen {
		return
	}
	o.lost++
	o.gens[f.Shard]++
	delete(o.fences, f.Shard)
	if errors.Is(err, engine.ErrFenced) {
		return
	}
	f.Gen++
	var again func()
	again = func() {
		if o.w.reachable() != nil {
			time.AfterFunc(200*time.Millisecond, again)
			return
		}
		o.mu.Lock()
		o.fences[f.Shard] = f
		o.mu.Unlock()
		o.fire.Look()
		o.adopt()
	}
	time.AfterFunc(200*time.Millisecond, again)
}

// Made hands what was made to those that run it.
func (o *owner) Made(f *engine.Firing) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	for i := range f.Runs {
		in := f.Runs[i].Instance
		if !slices.Contains(f.Done.Admitted, in.ID) {
			continue
		}
		j := o.w.jobs[in.Job]
		if f.Done.Replaced > 0 {
			o.replace(j, in.ID)
		}
		j.waiting = append(j.waiting, in)
		o.begin(j)
	}
}

// adopt takes up what waits in the store and is not known.
func (o *owner) adopt() {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	for _, j := range o.w.jobs {
		known := map[int64]bool{}
		for _, in := range j.waiting {
			known[in.ID] = true
		}
		rows, err := o.w.store.Instances(o.w.t.Context(), j.app, j.id, 0, 10_000)
		require.NoError(o.w.t, err)
		slices.Reverse(rows)
		for i := range rows {
			in := &rows[i]
			if in.Status.Terminal() || known[in.ID] || j.running[in.ID] != nil {
				continue
			}
			j.waiting = append(j.waiting, in)
		}
		o.begin(j)
	}
}

// begin runs what may.
func (o *owner) begin(j *job) {
	for len(j.waiting) > 0 && !j.idle && (j.limit == 0 || len(j.running) < j.limit) {
		in := j.waiting[0]
		j.waiting = j.waiting[1:]
		n := j.begun
		j.begun++
		in.StartedAt = max(o.w.now(), 1)
		j.rows[in.ID] = in
		j.running[in.ID] = time.AfterFunc(j.took(n), func() { o.w.end(j, in, j.status(n)) })
		j.most = max(j.most, len(j.running))
	}
}

// work says whether there is a worker.
func (j *job) work(o *owner, there bool) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	j.idle = !there
	o.begin(j)
}

// replace stops all that is under way but the one.
func (o *owner) replace(j *job, but int64) {
	old := j.waiting
	j.waiting = nil
	for _, in := range old {
		go o.w.end(j, in, engine.StatusStopped)
	}
	for id, timer := range j.running {
		if id != but && timer.Stop() {
			in := j.rows[id]
			go o.w.end(j, in, engine.StatusStopped)
		}
	}
}

// end stores that a run is final, through the server that is there; it is tried until it is
// known to be stored.
func (w *world) end(j *job, in *engine.Instance, status engine.Status) {
	final := *in
	final.Status, final.Reason, final.FinishedAt = status, "", w.now()
	again := func() { time.AfterFunc(100*time.Millisecond, func() { w.end(j, in, status) }) }
	w.mu.Lock()
	o := w.owner
	w.mu.Unlock()
	if o == nil {
		again()
		return
	}
	o.mu.Lock()
	f, owned := o.fences[in.Shard]
	o.mu.Unlock()
	if !owned {
		again()
		return
	}
	o.Commit(engine.Change{
		Fenced: true, Shard: f.Shard, Owner: f.Owner, Epoch: f.Epoch, Instances: []engine.Instance{final},
		Ended: []engine.Ended{{Kind: engine.KindJob, ID: j.id, Run: in.ID, Status: status, Fired: true, StartAt: in.StartedAt, EndAt: final.FinishedAt}},
	}, f.Gen, func(err error) {
		go func() {
			if err != nil {
				o.Lost(f, err)
				if row, err := w.store.Instance(context.Background(), in.ID); err != nil || !row.Status.Terminal() {
					again()
					return
				}
			}
			w.mu.Lock()
			delete(j.running, in.ID)
			delete(j.rows, in.ID)
			o.begin(j)
			w.mu.Unlock()
			o.fire.LookAt(engine.KindJob, j.id)
		}()
	})
}

func every(d time.Duration) workflow.Schedule {
	return workflow.Schedule{Type: workflow.ScheduleRate, Every: workflow.Duration(d)}
}
