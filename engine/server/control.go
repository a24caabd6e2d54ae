package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// EnsureApp returns the app of that name, made if there is none, with its streams.
func (s *Server) EnsureApp(ctx context.Context, name string) (*engine.App, error) {
	if err := engine.CheckName("app", name); err != nil {
		return nil, err
	}
	return s.byName.get(name, func() (*engine.App, error) {
		app, err := s.cfg.Store.EnsureApp(ctx, engine.App{ID: s.cluster.NextID(), Name: name, Set: broker.SetFor(name, s.cfg.Broker.Replicas()), CreatedAt: s.now()})
		if err != nil {
			return nil, fmt.Errorf("make app %q: %w", name, err)
		}
		if err := s.cfg.Broker.EnsureApp(ctx, app.Name, app.Set, []string{broker.PoolAny}); err != nil {
			return nil, fmt.Errorf("make the streams of app %q: %w", name, err)
		}
		return app, nil
	})
}

// JobDef is a job as it is to be saved.
type JobDef struct {
	App      string
	Name     string
	Title    string
	Spec     workflow.Spec
	Schedule workflow.Schedule // zero: it fires by call only
	Disabled bool
	// Expect refuses the job with ErrConflict unless it is at this version; 0 takes any.
	Expect int32
}

// SaveJob makes or updates a job that fires by call only.
func (s *Server) SaveJob(ctx context.Context, app, name, title string, spec workflow.Spec) (*engine.Job, error) {
	return s.SaveJobDef(ctx, JobDef{App: app, Name: name, Title: title, Spec: spec})
}

// SaveJobDef makes or updates a job of the app by its name. Saving what is there already makes
// no new version. A schedule that was changed begins anew; what is under way goes on as it was.
func (s *Server) SaveJobDef(ctx context.Context, d JobDef) (*engine.Job, error) {
	if err := errors.Join(engine.CheckName("job", d.Name), engine.CheckText("title", d.Title, engine.MaxTitle)); err != nil {
		return nil, err
	}
	if err := d.Spec.Validate(); err != nil {
		return nil, fmt.Errorf("job %q: %w: %w", d.Name, err, engine.ErrInvalid)
	}
	if err := s.checkParams(d.Spec.Processor, d.Spec.Params); err != nil {
		return nil, fmt.Errorf("job %q: %w: %w", d.Name, err, engine.ErrInvalid)
	}
	a, err := s.EnsureApp(ctx, d.App)
	if err != nil {
		return nil, err
	}
	if err := s.checkSchedule(ctx, a, d.Schedule, d.Name); err != nil {
		return nil, fmt.Errorf("job %q: %w", d.Name, err)
	}
	d.Spec.MaxRunning = maxRunning(d.Spec.MaxRunning, d.Schedule)
	for try := 0; ; try++ {
		job := engine.Job{
			ID: s.cluster.NextID(), App: a.ID, Name: d.Name, Title: d.Title, Enabled: !d.Disabled, Spec: d.Spec, Schedule: d.Schedule,
			CreatedAt: s.wall(), UpdatedAt: s.wall(),
		}
		old, err := s.cfg.Store.JobByName(ctx, a.ID, d.Name)
		switch {
		case err == nil && d.Expect != 0 && old.Version != d.Expect:
			return nil, fmt.Errorf("job %q is at version %d, not %d: read it again: %w", d.Name, old.Version, d.Expect, engine.ErrConflict)
		case errors.Is(err, engine.ErrNotFound) && d.Expect != 0:
			return nil, fmt.Errorf("job %q, of which you have seen version %d: %w", d.Name, d.Expect, err)
		case errors.Is(err, engine.ErrNotFound):
		case err != nil:
			return nil, fmt.Errorf("job %q: %w", d.Name, err)
		default:
			if sameJSON(old.Spec, d.Spec) && sameJSON(old.Schedule, d.Schedule) && old.Title == d.Title && old.Enabled == job.Enabled {
				return old, nil
			}
			job.ID, job.Version, job.CreatedAt = old.ID, old.Version, old.CreatedAt
		}
		if old == nil || !sameJSON(old.Schedule, d.Schedule) {
			if err := s.checkFires(ctx, a, d.Schedule); err != nil {
				return nil, fmt.Errorf("job %q: %w", d.Name, err)
			}
		}
		saved, err := s.cfg.Store.SaveJob(ctx, job)
		if errors.Is(err, engine.ErrConflict) && try < 10 {
			continue // somebody else saved it meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("save job %q: %w", d.Name, err)
		}
		s.latest.drop(jobName{a.ID, d.Name})
		s.scheduleSaved(engine.KindJob, saved.ID)
		return saved, nil
	}
}

func sameJSON(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// Trigger asks for one instance of a job.
type Trigger struct {
	App    string
	Job    string
	Params json.RawMessage // nil: the job's
	Key    string          // business key
	Delay  time.Duration
	Lane   workflow.Lane // default the job's
}

type jobName struct {
	app  int64
	name string
}

// fresh is a job as last read; it is read again after a second, so that a change by
// another server is seen.
type fresh struct {
	job *engine.Job
	at  time.Time
}

func (s *Server) latestJob(ctx context.Context, app *engine.App, name string) (*engine.Job, error) {
	k := jobName{app.ID, name}
	load := func() (fresh, error) {
		job, err := s.cfg.Store.JobByName(ctx, app.ID, name)
		return fresh{job, time.Now()}, err
	}
	f, err := s.latest.get(k, load)
	if err == nil && time.Since(f.at) > time.Second {
		s.latest.drop(k)
		f, err = s.latest.get(k, load)
	}
	if err != nil {
		return nil, fmt.Errorf("job %q of app %q: %w", name, app.Name, err)
	}
	return f.job, nil
}

// Trigger fires a job once and returns the instance's id when its row is stored.
func (s *Server) Trigger(ctx context.Context, t Trigger) (int64, error) {
	var id int64
	done := make(chan error, 1)
	if err := s.TriggerAsync(ctx, t, func(got int64, err error) {
		id = got
		done <- err
	}); err != nil {
		return 0, err
	}
	select {
	case err := <-done:
		return id, err
	case <-ctx.Done():
		return 0, fmt.Errorf("trigger job %q: whether it is stored is unknown: %w", t.Job, context.Cause(ctx))
	}
}

// TriggerAsync is Trigger for callers with many: done is called when the row is stored, on
// a goroutine that must not be held up. If it returns an error done is not called.
func (s *Server) TriggerAsync(ctx context.Context, t Trigger, done func(id int64, err error)) error {
	app, err := s.EnsureApp(ctx, t.App)
	if err != nil {
		return err
	}
	job, err := s.latestJob(ctx, app, t.Job)
	if err != nil {
		return err
	}
	if !job.Enabled {
		return fmt.Errorf("job %q is disabled: enable it first: %w", t.Job, engine.ErrConflict)
	}
	if err := errors.Join(checkLane(t.Lane), checkJSON("params", t.Params), engine.CheckText("key", t.Key, engine.MaxKey)); err != nil {
		return err
	}
	id := s.cluster.NextID()
	if id == 0 {
		return fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
	}
	now := s.now()
	in := engine.Instance{
		ID: id, App: app.ID, Shard: engine.ShardOf(job.ID), Job: job.ID, JobVersion: job.Version,
		Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Lane: cmp.Or(t.Lane, lane(&job.Spec)), Pool: pool(&job.Spec),
		Key: t.Key, Params: t.Params, DueAt: now + max(t.Delay.Milliseconds(), 0), CreatedAt: now,
	}
	finish := func(err error) { done(id, err) }
	if s.owned[in.Shard].Load() {
		s.caches.jobs.put(version{job.ID, job.Version}, job)
		row := track.Row{Instance: in, App: trackApp(app), Spec: &job.Spec, Job: job.Name}
		ok := s.inbox.put(item{event: track.Triggered{Row: row, Done: func(err error) {
			if errors.Is(err, engine.ErrFenced) || errors.Is(err, commit.ErrBroken) {
				// Not stored: the shard went to another server meanwhile, or is being loaded
				// again. Its owner finds the row.
				s.background(func(ctx context.Context) { s.insert(in, finish) })
				return
			}
			finish(err)
		}}}, true)
		if ok {
			return nil
		}
		return fmt.Errorf("this server is stopping: %w", engine.ErrUnavailable)
	}
	s.insert(in, finish)
	return nil
}

func lane(s *workflow.Spec) workflow.Lane {
	if s.Lane == "" {
		return workflow.LaneNormal
	}
	return s.Lane
}

func checkLane(l workflow.Lane) error {
	switch l {
	case "", workflow.LaneHigh, workflow.LaneNormal, workflow.LaneBulk:
		return nil
	default:
		return fmt.Errorf("lane %q: it must be high, normal or bulk: %w", l, engine.ErrInvalid)
	}
}

func pool(s *workflow.Spec) string {
	if s.Pool == "" {
		return workflow.PoolAny
	}
	return s.Pool
}

func checkJSON(what string, raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	if !json.Valid(raw) {
		return fmt.Errorf("%s are not valid JSON: %w", what, engine.ErrInvalid)
	}
	return engine.CheckBytes(what, raw, engine.MaxParams)
}
