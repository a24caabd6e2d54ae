package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// checkSchedule refuses a schedule that has no meaning, or that follows the job it belongs to.
func (s *Server) checkSchedule(ctx context.Context, app *engine.App, spec workflow.Schedule, job string) error {
	if _, err := s.compile(ctx, app.ID, spec); err != nil {
		return err
	}
	for _, d := range spec.After {
		if err := engine.CheckName("schedule.after: job", d.Job); err != nil {
			return err
		}
		if job != "" && d.Job == job {
			return fmt.Errorf("schedule.after: the job cannot follow itself: %w", engine.ErrInvalid)
		}
	}
	return nil
}

// checkFires refuses a schedule that has nothing to come. One that is stored already may have
// come to its end since.
func (s *Server) checkFires(ctx context.Context, app *engine.App, spec workflow.Schedule) error {
	c, err := s.compile(ctx, app.ID, spec)
	if err != nil || c.Type() == workflow.ScheduleNone {
		return err
	}
	now := s.wall()
	if _, ok := c.Next(now, now); !ok {
		return fmt.Errorf("schedule: it never fires from now on; look at it with `fanjet next`, or leave it out: %w", engine.ErrInvalid)
	}
	return nil
}

// maxRunning is the limit of a definition. Queued and replacing fires need one to wait for.
func maxRunning(given int, s workflow.Schedule) int {
	if given == 0 && (s.Overlap == workflow.OverlapQueue || s.Overlap == workflow.OverlapReplace) {
		return 1
	}
	return given
}

// scheduleSaved has the schedule looked at by whoever owns its shard.
func (s *Server) scheduleSaved(kind engine.DefKind, id int64) {
	if shard := engine.ShardOf(id); s.owned[shard].Load() {
		s.fire.LookAt(kind, id)
	} else {
		_ = s.cfg.Broker.Nudge(shard) // a lost one costs a read, 5 s at most
	}
}

// Definition names a job or a workflow of an app: one of the two.
type Definition struct {
	App      string
	Job      string
	Workflow string
}

// String names it to people.
func (d Definition) String() string {
	if d.Job != "" {
		return fmt.Sprintf("job %q of app %q", d.Job, d.App)
	}
	return fmt.Sprintf("workflow %q of app %q", d.Workflow, d.App)
}

// find is the kind and id of a job or workflow.
func (s *Server) find(ctx context.Context, d Definition) (*engine.App, engine.DefKind, int64, error) {
	if (d.Job == "") == (d.Workflow == "") {
		return nil, 0, 0, fmt.Errorf("name a job or a workflow, one of the two: %w", engine.ErrInvalid)
	}
	app, err := s.cfg.Store.AppByName(ctx, d.App)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("app %q: %w", d.App, err)
	}
	if d.Job != "" {
		job, err := s.cfg.Store.JobByName(ctx, app.ID, d.Job)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("%s: %w", d, err)
		}
		return app, engine.KindJob, job.ID, nil
	}
	w, err := s.cfg.Store.WorkflowByName(ctx, app.ID, d.Workflow)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("%s: %w", d, err)
	}
	return app, engine.KindWorkflow, w.ID, nil
}

// Standing is how a job or workflow stands.
type Standing struct {
	engine.Schedule
	// P50 and P95 are the running time, ms, of the newest Window runs that succeeded.
	P50, P95 int64
	Window   int
}

// durationWindow is how many runs P50 and P95 are of.
const durationWindow = 200

// Schedule tells how a job or workflow stands.
func (s *Server) Schedule(ctx context.Context, d Definition) (*Standing, error) {
	_, kind, id, err := s.find(ctx, d)
	if err != nil {
		return nil, err
	}
	row, err := s.cfg.Store.Schedule(ctx, kind, id)
	if err != nil {
		return nil, fmt.Errorf("schedule of %s: %w", d, err)
	}
	took, err := s.cfg.Store.Durations(ctx, kind, id, durationWindow)
	if err != nil {
		return nil, fmt.Errorf("running times of %s: %w", d, err)
	}
	out := &Standing{Schedule: *row, Window: len(took)}
	if slices.Sort(took); len(took) > 0 {
		out.P50, out.P95 = took[len(took)/2], took[min(len(took)*95/100, len(took)-1)]
	}
	return out, nil
}

// Preview is what a schedule would fire next in an app, after from (epoch ms; 0 is now), with
// what does not run between; at most schedule.MaxPreview fires that run, 5 if n is 0.
func (s *Server) Preview(ctx context.Context, app string, spec workflow.Schedule, from int64, n int) ([]schedule.Fire, error) {
	a, err := s.cfg.Store.AppByName(ctx, app)
	if err != nil {
		return nil, fmt.Errorf("app %q: %w", app, err)
	}
	c, err := s.compile(ctx, a.ID, spec)
	if err != nil {
		return nil, err
	}
	if from == 0 {
		from = s.wall()
	}
	if n <= 0 {
		n = 5
	}
	return c.Preview(from, from, min(n, schedule.MaxPreview)), nil
}

// PauseSchedule stops a schedule from firing. What runs goes on, and calls still start runs.
func (s *Server) PauseSchedule(ctx context.Context, d Definition) error {
	_, kind, id, err := s.find(ctx, d)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Store.PauseSchedule(ctx, kind, id, s.wall()); err != nil {
		return fmt.Errorf("pause %s: %w", d, err)
	}
	return nil
}

// ResumeSchedule has a paused schedule fire again. What was due meanwhile is for its misfire
// policy.
func (s *Server) ResumeSchedule(ctx context.Context, d Definition) error {
	_, kind, id, err := s.find(ctx, d)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Store.ResumeSchedule(ctx, kind, id, s.wall()); err != nil {
		return fmt.Errorf("resume %s: %w", d, err)
	}
	s.scheduleSaved(kind, id)
	return nil
}

// SetEnabled enables or disables a job or workflow. One that is disabled neither fires nor can
// be started by call; the time until it is enabled again is not made up for.
func (s *Server) SetEnabled(ctx context.Context, d Definition, on bool) error {
	app, kind, id, err := s.find(ctx, d)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if kind == engine.KindJob {
			err = s.enableJob(ctx, id, on)
			s.latest.drop(jobName{app.ID, d.Job})
		} else {
			err = s.enableWorkflow(ctx, id, on)
		}
		if errors.Is(err, engine.ErrConflict) && try < 10 {
			continue // somebody else saved it meanwhile
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		s.scheduleSaved(kind, id)
		return nil
	}
}

func (s *Server) enableJob(ctx context.Context, id int64, on bool) error {
	job, err := s.cfg.Store.Job(ctx, id)
	if err != nil || job.Enabled == on {
		return err
	}
	job.Enabled, job.UpdatedAt = on, s.wall()
	_, err = s.cfg.Store.SaveJob(ctx, *job)
	return err
}

func (s *Server) enableWorkflow(ctx context.Context, id int64, on bool) error {
	w, err := s.cfg.Store.Workflow(ctx, id)
	if err != nil || w.Enabled == on {
		return err
	}
	w.Enabled, w.UpdatedAt = on, s.wall()
	_, err = s.cfg.Store.SaveWorkflow(ctx, *w)
	return err
}

// SaveCalendar makes or updates a business calendar of the app: the JSON of a
// schedule.Calendar.
func (s *Server) SaveCalendar(ctx context.Context, app, name string, body []byte) (*engine.Calendar, error) {
	if err := engine.CheckName("calendar", name); err != nil {
		return nil, err
	}
	if _, err := readCalendar(body); err != nil {
		return nil, fmt.Errorf("calendar %q: %w: %w", name, err, engine.ErrInvalid)
	}
	a, err := s.EnsureApp(ctx, app)
	if err != nil {
		return nil, err
	}
	c := engine.Calendar{ID: s.cluster.NextID(), App: a.ID, Name: name, Body: body, UpdatedAt: s.wall()}
	old, err := s.cfg.Store.CalendarByName(ctx, a.ID, name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
	case err != nil:
		return nil, fmt.Errorf("calendar %q: %w", name, err)
	case bytes.Equal(old.Body, body):
		return old, nil
	default:
		c.ID, c.Version = old.ID, old.Version
	}
	saved, err := s.cfg.Store.SaveCalendar(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("save calendar %q: %w", name, err)
	}
	return saved, nil
}

func readCalendar(body []byte) (*schedule.Calendar, error) {
	var c schedule.Calendar
	if err := strictJSON(body, &c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &c, nil
}

// strictJSON refuses fields that are not known, and more than one value.
func strictJSON(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is something behind the value")
	}
	return nil
}

// CancelKey cancels what waits, and stops what runs, of a job under a business key. It returns
// how many instances were told to end.
func (s *Server) CancelKey(ctx context.Context, app, job, key string) (int, error) {
	if key == "" {
		return 0, fmt.Errorf("which key? instances without one are stopped by their ids: %w", engine.ErrInvalid)
	}
	_, _, id, err := s.find(ctx, Definition{App: app, Job: job})
	if err != nil {
		return 0, err
	}
	n := 0
	for {
		rows, err := s.cfg.Store.ByKey(ctx, id, key, true, cancelPage)
		if err != nil {
			return n, fmt.Errorf("instances of job %q with key %q: %w", job, key, err)
		}
		for i := range rows {
			r := &rows[i]
			if err := s.order(ctx, engine.Command{Kind: engine.CommandStop, Shard: r.Shard, Target: r.ID, Request: fmt.Sprintf("key-%d", r.ID)}); err != nil {
				return n, err
			}
			n++
		}
		if len(rows) < cancelPage {
			return n, nil
		}
		for i := range rows {
			if _, err := s.WaitInstance(ctx, rows[i].ID); err != nil {
				return n, fmt.Errorf("wait until the first %d have ended: %w", n, err)
			}
		}
	}
}

const cancelPage = 500
