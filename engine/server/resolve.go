package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// cache keeps what does not change: an app's name, a version of a job or workflow, which
// version a workflow instance runs. When it is full it is emptied.
type cache[K comparable, V any] struct {
	mu   sync.Mutex
	most int
	m    map[K]V
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, m: map[K]V{}}
}

func (c *cache[K, V]) get(k K, load func() (V, error)) (V, error) {
	c.mu.Lock()
	v, ok := c.m[k]
	c.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := load()
	if err == nil {
		c.put(k, v)
	}
	return v, err
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= c.most {
		clear(c.m)
	}
	c.m[k] = v
}

func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, k)
}

type version struct {
	id      int64
	version int32
}

// caches are what rows refer to.
type caches struct {
	apps      *cache[int64, *engine.App]
	jobs      *cache[version, *engine.Job]
	graphs    *cache[version, *workflow.Graph]
	instances *cache[int64, version] // workflow instance → its workflow's version
}

func newCaches() caches {
	return caches{
		apps: newCache[int64, *engine.App](10_000), jobs: newCache[version, *engine.Job](50_000),
		graphs: newCache[version, *workflow.Graph](256), instances: newCache[int64, version](100_000),
	}
}

func (s *Server) app(ctx context.Context, id int64) (*engine.App, error) {
	return s.caches.apps.get(id, func() (*engine.App, error) { return s.cfg.Store.App(ctx, id) })
}

func (s *Server) jobVersion(ctx context.Context, v version) (*engine.Job, error) {
	return s.caches.jobs.get(v, func() (*engine.Job, error) { return s.cfg.Store.JobVersion(ctx, v.id, v.version) })
}

func (s *Server) graph(ctx context.Context, v version) (*workflow.Graph, error) {
	return s.caches.graphs.get(v, func() (*workflow.Graph, error) {
		w, err := s.cfg.Store.WorkflowVersion(ctx, v.id, v.version)
		if err != nil {
			return nil, err
		}
		d, err := workflow.Parse(w.Name, w.Definition)
		if err != nil {
			return nil, fmt.Errorf("version %d of workflow %q as stored: %w: %w", v.version, w.Name, engine.ErrInvalid, err)
		}
		g, err := workflow.Build(d)
		if err != nil {
			return nil, fmt.Errorf("version %d of workflow %q as stored: %w: %w", v.version, w.Name, engine.ErrInvalid, err)
		}
		return g, nil
	})
}

// passing tells whether what could not be read may be read later. Only what is gone or is
// stored broken stays so: any other error is the database's, and must not end work for good.
func passing(err error) bool {
	return err != nil && !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrInvalid)
}

func trackApp(a *engine.App) *track.App { return &track.App{ID: a.ID, Name: a.Name, Set: a.Set} }

func (s *Server) resolveAll(ctx context.Context, rows []engine.Instance) []track.Row {
	out := make([]track.Row, 0, len(rows))
	for _, in := range rows {
		if ctx.Err() != nil {
			return out
		}
		row := s.resolve(ctx, in)
		if row.Err == nil && in.Attempt > 1 && in.Status == engine.StatusWaiting {
			row.Checkpoint, row.Err = s.checkpoint(ctx, in)
		}
		if passing(row.Err) || ctx.Err() != nil {
			continue // it waits; it is read again
		}
		out = append(out, row)
	}
	return out
}

// checkpoint is what the root task of the attempt before has left.
func (s *Server) checkpoint(ctx context.Context, in engine.Instance) ([]byte, error) {
	rows, err := s.cfg.Store.TasksOf(ctx, in.ID, in.Attempt-1, engine.TaskRoot, 0, 1)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0].Checkpoint, nil
}

// resolve finds what an instance's row refers to. What is gone or broken becomes the row's
// error: that one instance fails, those behind it go on.
func (s *Server) resolve(ctx context.Context, in engine.Instance) track.Row {
	row := track.Row{Instance: in}
	app, err := s.app(ctx, in.App)
	if err != nil {
		row.Err = fmt.Errorf("its app: %w", err)
		return row
	}
	row.App = trackApp(app)
	var job *engine.Job
	if in.Job != 0 {
		if job, err = s.jobVersion(ctx, version{in.Job, in.JobVersion}); err != nil {
			row.Err = fmt.Errorf("version %d of its job: %w", in.JobVersion, err)
			return row
		}
		row.Job, row.Spec = job.Name, &job.Spec
	}
	if in.Workflow == 0 {
		if job == nil {
			row.Err = fmt.Errorf("it belongs to no job and no workflow: %w", engine.ErrInvalid)
		}
		return row
	}
	v, err := s.caches.instances.get(in.Workflow, func() (version, error) {
		w, err := s.cfg.Store.WorkflowInstance(ctx, in.Workflow)
		if err != nil {
			return version{}, err
		}
		return version{w.Workflow, w.Version}, nil
	})
	var g *workflow.Graph
	if err == nil {
		g, err = s.graph(ctx, v)
	}
	if err != nil {
		row.Err = fmt.Errorf("its workflow: %w", err)
		return row
	}
	i, ok := g.Index(in.Node)
	if !ok {
		row.Err = fmt.Errorf("its node %q is not in version %d of the workflow: %w", in.Node, v.version, engine.ErrInvalid)
		return row
	}
	var base *workflow.Spec
	if job != nil {
		base = &job.Spec
	}
	spec := g.Node(i).Resolve(base)
	spec.Params = nil
	row.Spec = &spec
	return row
}
