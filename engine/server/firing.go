package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// firing is what the scheduler stands on.
type firing struct{ s *Server }

func (h firing) Now() int64 { return h.s.wall() }

func (h firing) Fences() []fire.Fence {
	var out []fire.Fence
	for i := range h.s.fences {
		if f := h.s.fences[i].Load(); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

func (h firing) Due(ctx context.Context, shards []uint8, until int64, after engine.SchedulePos, limit int) ([]engine.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return h.s.cfg.Store.DueSchedules(ctx, shards, until, after, limit)
}

func (h firing) Row(ctx context.Context, kind engine.DefKind, id int64) (*engine.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return h.s.cfg.Store.Schedule(ctx, kind, id)
}

func (h firing) Compile(ctx context.Context, row *engine.Schedule) (*schedule.Schedule, error) {
	return h.s.compiled(ctx, row)
}

// Prepare reads the versions of the jobs that come due, so that a second with many fires finds
// them in memory.
func (h firing) Prepare(ctx context.Context, rows []engine.Schedule) {
	for i := range rows {
		r := &rows[i]
		if r.Kind != engine.KindJob {
			continue
		}
		if _, err := h.s.jobVersion(ctx, version{r.ID, r.Version}); err != nil {
			return // Make reads it
		}
	}
}

// Make makes what a schedule runs for one of its times.
func (h firing) Make(ctx context.Context, row *engine.Schedule, at int64) (engine.FiringRun, error) {
	s := h.s
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	id := s.cluster.NextID()
	if id == 0 {
		return engine.FiringRun{}, fmt.Errorf("this server has no lease to make ids from: %w", engine.ErrUnavailable)
	}
	now := s.wall()
	var out engine.FiringRun
	switch row.Kind {
	case engine.KindJob:
		job, err := s.jobVersion(ctx, version{row.ID, row.Version})
		if err != nil {
			return out, fmt.Errorf("version %d of job %d: %w", row.Version, row.ID, err)
		}
		out.Instance = &engine.Instance{
			ID: id, App: row.App, Shard: row.Shard, Job: row.ID, JobVersion: row.Version,
			Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Lane: lane(&job.Spec), Pool: pool(&job.Spec),
			FireAt: at, DueAt: now, CreatedAt: now,
		}
	case engine.KindWorkflow:
		g, err := s.graph(ctx, version{row.ID, row.Version})
		if err != nil {
			return out, fmt.Errorf("version %d of workflow %d: %w", row.Version, row.ID, err)
		}
		params, err := g.Definition().BindParams(nil)
		if err != nil {
			return out, fmt.Errorf("%w: %w", err, engine.ErrInvalid)
		}
		out.Workflow = &engine.WorkflowInstance{
			ID: id, App: row.App, Shard: row.Shard, Workflow: row.ID, Version: row.Version,
			Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Params: params, FireAt: at, DueAt: now, CreatedAt: now,
		}
	}
	if row.Spec.Overlap == workflow.OverlapReplace {
		out.Stop = &engine.Command{
			ID: s.cluster.NextID(), Shard: row.Shard, Kind: engine.CommandReplace, Target: id, Request: fmt.Sprintf("replace-%d", id), CreatedAt: now,
			Payload: []byte(row.Kind.String()),
		}
	}
	return out, nil
}

// Superseded goes through the versions that were in force after a time and are not any more.
func (h firing) Superseded(ctx context.Context, row *engine.Schedule, after int64) ([]engine.Skip, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	reigns, err := h.s.reigns(ctx, row, after)
	if err != nil {
		return nil, fmt.Errorf("versions of %s %d: %w", row.Kind, row.ID, err)
	}
	var out []engine.Skip
	for _, r := range reigns {
		if r.last || !r.enabled || r.to <= after {
			continue
		}
		c, err := h.s.compile(ctx, row.App, r.spec)
		if err != nil {
			h.s.cfg.Log.Warn("a version of a schedule cannot be read any more", "kind", row.Kind.String(), "id", row.ID, "err", err)
			continue
		}
		from := max(after, r.from)
		times, n, _ := c.Due(from, r.to, r.anchor, 1)
		if first, ok := c.Next(from, r.anchor); ok && n > 0 && c.Type() != workflow.ScheduleDelay {
			out = append(out, engine.Skip{Kind: row.Kind, ID: row.ID, From: first, To: times[0], Count: n})
		}
	}
	return out, nil
}

// Depends looks how the jobs stand that a schedule follows.
func (h firing) Depends(ctx context.Context, row *engine.Schedule) (fire.Depends, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var out fire.Depends
	for _, d := range row.Spec.After {
		job, err := h.s.cfg.Store.JobByName(ctx, row.App, d.Job)
		if errors.Is(err, engine.ErrNotFound) {
			// What is not there has not succeeded, and is not waited for: the ledger shows it.
			out.Skip = out.Skip || !d.Weak
			continue
		}
		if err != nil {
			return out, fmt.Errorf("job %q, which it follows: %w", d.Job, err)
		}
		of, err := h.s.cfg.Store.Schedule(ctx, engine.KindJob, job.ID)
		if err != nil {
			return out, fmt.Errorf("schedule of job %q, which it follows: %w", d.Job, err)
		}
		if of.NextAt != 0 && of.NextAt == row.NextAt && row.ID < of.ID {
			// If they follow each other, directly or through others, and are due at one moment, one
			// of them goes first, or each would wait for the other for ever.
			round, err := h.follows(ctx, of, row)
			if err != nil {
				return out, err
			}
			if round {
				of.NextAt = 0
			}
		}
		out.Follow(row, d, of)
	}
	return out, nil
}

// followMost bounds how many jobs are looked through for a circle.
const followMost = 200

// follows tells whether one schedule follows the job of another, directly or through others.
func (h firing) follows(ctx context.Context, one, other *engine.Schedule) (bool, error) {
	if other.Kind != engine.KindJob {
		return false, nil // nobody follows a workflow
	}
	seen := map[string]bool{}
	for next := one.Spec.After; len(next) > 0 && len(seen) < followMost; {
		name := next[0].Job
		next = next[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		job, err := absent(h.s.cfg.Store.JobByName(ctx, one.App, name))
		switch {
		case err != nil:
			return false, fmt.Errorf("job %q: %w", name, err)
		case job == nil: // it is followed by nobody's fires
		case job.ID == other.ID:
			return true, nil
		default:
			next = slices.Concat(next, job.Schedule.After)
		}
	}
	return false, nil
}

func (h firing) Commit(c engine.Change, gen uint32, done func(error)) {
	h.s.commit.Submit(c, gen, func(r commit.Result) { done(r.Err) })
}

func (h firing) Lost(f fire.Fence, err error) {
	if errors.Is(err, commit.ErrStopped) {
		return
	}
	h.s.inbox.put(item{do: func(int64) { h.s.reload(f.Shard, f.Gen, err, 0) }}, false)
}

// Made brings what a firing made to those who run it.
func (h firing) Made(f *engine.Firing) {
	s := h.s
	made := map[int64]bool{}
	for _, id := range f.Done.Admitted {
		made[id] = true
	}
	var heads []engine.QueueHead
	for _, r := range f.Runs {
		switch {
		case r.Instance != nil && made[r.Instance.ID]:
			heads = append(heads, engine.QueueHead{Queue: engine.QueueOf(r.Instance.App, r.Instance.Lane, r.Instance.Pool), DueAt: r.Instance.DueAt})
		case r.Workflow != nil && made[r.Workflow.ID]:
			row := *r.Workflow
			s.background(func(ctx context.Context) {
				if e := s.execution(ctx, row); !passing(e.Err) && ctx.Err() == nil {
					s.inbox.put(item{do: func(now int64) { s.flow.Begin(now, e) }}, true)
				}
			})
		}
	}
	if len(heads) > 0 {
		s.inbox.put(item{event: track.Heads{Heads: heads}}, false)
	}
	if f.Done.Replaced > 0 {
		s.lookSoon()
	}
}

// compiledKey names what a compiled schedule was made of: calendars are read again after a
// while.
type compiledKey struct {
	kind engine.DefKind
	of   version
}

type compiledSchedule struct {
	schedule *schedule.Schedule
	at       int64 // mono, when its calendars were read; 0: it has none
}

// calendarPatience is how long, ms, a change of a calendar may go unseen.
const calendarPatience = 10_000

func (s *Server) compiled(ctx context.Context, row *engine.Schedule) (*schedule.Schedule, error) {
	k := compiledKey{row.Kind, version{row.ID, row.Version}}
	load := func() (compiledSchedule, error) {
		c, err := s.compile(ctx, row.App, row.Spec)
		out := compiledSchedule{schedule: c}
		if len(row.Spec.Calendars) > 0 {
			out.at = s.mono()
		}
		return out, err
	}
	c, err := s.schedules.get(k, load)
	if err == nil && c.at != 0 && s.mono()-c.at > calendarPatience {
		s.schedules.drop(k)
		c, err = s.schedules.get(k, load)
	}
	return c.schedule, err
}

// compile gives a schedule of an app its meaning; an error is what to write differently, or
// that a calendar cannot be read now.
func (s *Server) compile(ctx context.Context, app int64, spec workflow.Schedule) (*schedule.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	calendars := map[string]*schedule.Calendar{}
	for _, name := range spec.Calendars {
		row, err := s.cfg.Store.CalendarByName(ctx, app, name)
		if errors.Is(err, engine.ErrNotFound) {
			continue // Compile names it
		}
		if err != nil {
			return nil, fmt.Errorf("calendar %q: %w", name, err)
		}
		c, err := readCalendar(row.Body)
		if err != nil {
			return nil, fmt.Errorf("calendar %q as stored: %w: %w", name, err, engine.ErrInvalid)
		}
		calendars[name] = c
	}
	c, err := schedule.Compile(spec, calendars)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, engine.ErrInvalid)
	}
	return c, nil
}

// rearmed has the schedule of a run that is final looked at: the next fire of a fixed_delay
// counts from now.
func (s *Server) rearmed(in *engine.Instance) {
	if in.FireAt == 0 || in.Job == 0 {
		return
	}
	s.caches.jobs.mu.Lock()
	job := s.caches.jobs.m[version{in.Job, in.JobVersion}]
	s.caches.jobs.mu.Unlock()
	if job == nil || job.Schedule.Type == workflow.ScheduleDelay {
		s.fire.LookAt(engine.KindJob, in.Job)
	}
}

// replace ends the other runs of what a run replaces: those that are under way, and those that
// were due before it. It is carried out again until its command is gone.
func (s *Server) replace(ctx context.Context, c engine.Command) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st := s.cfg.Store
	if string(c.Payload) == engine.KindWorkflow.String() {
		w, err := st.WorkflowInstance(ctx, c.Target)
		if err != nil {
			return err
		}
		others, err := st.WorkflowInstances(ctx, w.App, w.Workflow, c.Target, replaceMost)
		if err != nil {
			return err
		}
		for i := range others {
			if o := &others[i]; !o.Status.Terminal() && o.Parent == 0 {
				if err := s.order(ctx, engine.Command{Kind: engine.CommandStopWorkflow, Shard: o.Shard, Target: o.ID, Request: fmt.Sprintf("replaced-%d-%d", c.Target, o.ID)}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	in, err := st.Instance(ctx, c.Target)
	if err != nil {
		return err
	}
	others, err := st.Instances(ctx, in.App, in.Job, c.Target, replaceMost)
	if err != nil {
		return err
	}
	for i := range others {
		o := &others[i]
		if o.Status.Terminal() || o.Workflow != 0 || o.Status == engine.StatusWaiting && o.FireAt == 0 && o.DueAt > s.now() {
			continue
		}
		if err := s.order(ctx, engine.Command{Kind: engine.CommandStop, Shard: o.Shard, Target: o.ID, Request: fmt.Sprintf("replaced-%d-%d", c.Target, o.ID)}); err != nil {
			return err
		}
	}
	return nil
}

// replaceMost bounds how far back runs are looked for that a run replaces. What it replaces
// was the newest but for runs that were over sooner.
const replaceMost = 1000
