package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/workflow"
)

// insert stores a waiting row for whoever owns its shard, and nudges it.
func (s *Server) insert(in engine.Instance, done func(error)) {
	s.commit.Submit(engine.Change{NewInstances: []engine.Instance{in}}, 0, func(r commit.Result) {
		if r.Err == nil {
			_ = s.cfg.Broker.Nudge(in.Shard) // a lost one costs a sweep
			s.live.tell(in.App, instanceEvent(&in))
		}
		done(r.Err)
	})
}

// Start asks for one execution of a workflow.
type Start struct {
	App        string // default the definition's
	Definition *workflow.Definition
	Params     map[string]json.RawMessage
	Key        string
}

// StartWorkflow saves the definition if it is new, and starts it. It returns the workflow
// instance's id when its row is stored. A bad definition or param is refused before that, and
// so is one that nests a workflow which is not saved.
func (s *Server) StartWorkflow(ctx context.Context, st Start) (int64, error) {
	if st.Definition == nil {
		return 0, fmt.Errorf("a start needs a definition: %w", engine.ErrInvalid)
	}
	params, err := st.Definition.BindParams(st.Params)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", err, engine.ErrInvalid)
	}
	if err := errors.Join(engine.CheckText("key", st.Key, engine.MaxKey), engine.CheckBytes("params", params, engine.MaxParams)); err != nil {
		return 0, err
	}
	app, def, err := s.save(ctx, st.App, st.Definition, true)
	if err != nil {
		return 0, err
	}
	if !def.Enabled {
		return 0, fmt.Errorf("workflow %q is disabled: enable it first: %w", def.Name, engine.ErrConflict)
	}
	now := s.now()
	row := engine.WorkflowInstance{
		ID: s.cluster.NextID(), App: app.ID, Shard: engine.ShardOf(def.ID), Workflow: def.ID, Version: def.Version,
		Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Key: st.Key, Params: params, DueAt: now, CreatedAt: now,
	}
	if row.ID == 0 {
		return 0, fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
	}
	if r := s.commit.Store(ctx, engine.Change{NewWorkflows: []engine.WorkflowInstance{row}}, 0); r.Err != nil {
		return 0, fmt.Errorf("store the workflow instance: %w", r.Err)
	}
	if !s.owned[row.Shard].Load() {
		_ = s.cfg.Broker.Nudge(row.Shard) // a lost one costs a sweep
		return row.ID, nil
	}
	e := s.execution(ctx, row)
	if !passing(e.Err) && ctx.Err() == nil {
		s.inbox.put(item{do: func(now int64) { s.flow.Begin(now, e) }}, true)
	}
	return row.ID, nil
}

// SaveWorkflow saves a definition under its name, in its app, and starts nothing. Saving what
// is there already makes no new version. A workflow that it nests may be saved later; one that
// is nested in itself, by whatever way, is refused.
func (s *Server) SaveWorkflow(ctx context.Context, d *workflow.Definition) (*engine.WorkflowDef, error) {
	if d == nil {
		return nil, fmt.Errorf("there is no definition to save: %w", engine.ErrInvalid)
	}
	_, def, err := s.save(ctx, "", d, false)
	return def, err
}

// save checks and saves a definition; app "" is the definition's own.
func (s *Server) save(ctx context.Context, appName string, d *workflow.Definition, start bool) (*engine.App, *engine.WorkflowDef, error) {
	if _, err := workflow.Build(d); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", err, engine.ErrInvalid)
	}
	if err := s.checkNodes(d); err != nil {
		return nil, nil, err
	}
	app, err := s.EnsureApp(ctx, cmp.Or(appName, d.App))
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkSchedule(ctx, app, d.Schedule, ""); err != nil {
		return nil, nil, fmt.Errorf("workflow %q: %w", d.Name, err)
	}
	if !d.Schedule.Zero() {
		if _, err := d.BindParams(nil); err != nil {
			return nil, nil, fmt.Errorf("workflow %q fires by itself, so each of its params needs a default: %w: %w", d.Name, err, engine.ErrInvalid)
		}
	}
	if err := s.checkNesting(ctx, app, d, start); err != nil {
		return nil, nil, err
	}
	def, err := s.saveWorkflow(ctx, app, d)
	return app, def, err
}

// saveWorkflow saves the definition under its name; the same one again is no new version.
func (s *Server) saveWorkflow(ctx context.Context, app *engine.App, d *workflow.Definition) (*engine.WorkflowDef, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode workflow %q: %w", d.Name, err)
	}
	if err := engine.CheckBytes("definition", doc, engine.MaxDefinition); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		w := engine.WorkflowDef{
			ID: s.cluster.NextID(), App: app.ID, Name: d.Name, Title: d.Title, Enabled: true, Definition: doc,
			Schedule: d.Schedule, MaxRunning: int32(maxRunning(d.MaxRunning, d.Schedule)), CreatedAt: s.wall(), UpdatedAt: s.wall(),
		}
		old, err := s.cfg.Store.WorkflowByName(ctx, app.ID, d.Name)
		switch {
		case errors.Is(err, engine.ErrNotFound):
		case err != nil:
			return nil, fmt.Errorf("workflow %q: %w", d.Name, err)
		case bytes.Equal(old.Definition, doc):
			return old, nil
		default:
			w.ID, w.Version, w.CreatedAt, w.Enabled = old.ID, old.Version, old.CreatedAt, old.Enabled
		}
		if old == nil || !sameJSON(old.Schedule, d.Schedule) {
			if err := s.checkFires(ctx, app, d.Schedule); err != nil {
				return nil, fmt.Errorf("workflow %q: %w", d.Name, err)
			}
		}
		saved, err := s.cfg.Store.SaveWorkflow(ctx, w)
		if errors.Is(err, engine.ErrConflict) && try < 10 {
			continue // somebody else saved it meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("save workflow %q: %w", d.Name, err)
		}
		s.scheduleSaved(engine.KindWorkflow, saved.ID)
		return saved, nil
	}
}

// StopInstance and StopWorkflow stop what runs; a final one stays as it is. They return
// when the command is stored; Wait tells when it is carried out.
func (s *Server) StopInstance(ctx context.Context, id int64) error {
	in, err := s.cfg.Store.Instance(ctx, id)
	if err != nil {
		return fmt.Errorf("instance %d: %w", id, err)
	}
	return s.order(ctx, engine.Command{Kind: engine.CommandStop, Shard: in.Shard, Target: id})
}

// StopWorkflow stops a workflow instance and everything it has running.
func (s *Server) StopWorkflow(ctx context.Context, id int64) error {
	w, err := s.cfg.Store.WorkflowInstance(ctx, id)
	if err != nil {
		return fmt.Errorf("workflow instance %d: %w", id, err)
	}
	return s.order(ctx, engine.Command{Kind: engine.CommandStopWorkflow, Shard: w.Shard, Target: id})
}

// order stores a command for the owner of its shard. The same request twice is one command.
func (s *Server) order(ctx context.Context, c engine.Command) error {
	c.ID, c.CreatedAt = s.cluster.NextID(), s.now()
	if c.ID == 0 {
		return fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
	}
	asked := c.Request != ""
	if !asked {
		c.Request = fmt.Sprintf("%016x", token())
	}
	r := s.commit.Store(ctx, engine.Change{NewCommands: []engine.Command{c}}, 0)
	if asked && errors.Is(r.Err, engine.ErrConflict) {
		return nil
	}
	if r.Err != nil {
		return fmt.Errorf("store the command to %s %d: %w", c.Kind, c.Target, r.Err)
	}
	if s.owned[c.Shard].Load() {
		s.inbox.put(item{do: func(int64) { s.takeCommand(c) }}, true)
	} else {
		_ = s.cfg.Broker.Nudge(c.Shard) // a lost one costs a sweep
	}
	return nil
}

// Logs calls each for the log lines that the instance's tasks wrote, in order. Lines that
// are over the streams' age or bytes are gone.
func (s *Server) Logs(ctx context.Context, instance int64, each func(*broker.LogBatch) error) error {
	in, err := s.cfg.Store.Instance(ctx, instance)
	if err != nil {
		return fmt.Errorf("instance %d: %w", instance, err)
	}
	if in.LogFrom == 0 {
		return nil
	}
	app, err := s.app(ctx, in.App)
	if err != nil {
		return err
	}
	return s.cfg.Broker.ReadLogs(ctx, app.Name, app.Set, instance, in.LogFrom, in.LogTo, func(_ uint64, l *broker.LogBatch) error { return each(l) })
}
