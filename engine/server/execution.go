package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/flow"
)

// executions finds what the rows of workflow instances refer to, the outer ones first: a
// nested one begins only while its parent waits for it. One that cannot be read now is left
// out.
func (s *Server) executions(ctx context.Context, rows []engine.WorkflowInstance, nodes []engine.Node, signals []engine.Signal) []flow.Execution {
	nodesOf, signalsOf := map[int64][]engine.Node{}, map[int64][]engine.Signal{}
	for _, n := range nodes {
		nodesOf[n.Workflow] = append(nodesOf[n.Workflow], n)
	}
	for _, g := range signals {
		signalsOf[g.Workflow] = append(signalsOf[g.Workflow], g)
	}
	out := make([]flow.Execution, 0, len(rows))
	for _, row := range rows {
		e := s.execution(ctx, row)
		if passing(e.Err) || ctx.Err() != nil {
			continue
		}
		e.Nodes, e.Signals = nodesOf[row.ID], signalsOf[row.ID]
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b flow.Execution) int { return cmp.Compare(a.Row.Depth, b.Row.Depth) })
	return out
}

func (s *Server) execution(ctx context.Context, row engine.WorkflowInstance) flow.Execution {
	e := flow.Execution{Row: row, Jobs: map[string]*engine.Job{}, Nested: map[string]*flow.Nested{}}
	if e.App, e.Err = s.app(ctx, row.App); e.Err != nil {
		return e
	}
	if e.Graph, e.Err = s.graph(ctx, version{row.Workflow, row.Version}); e.Err != nil {
		return e
	}
	s.caches.instances.put(row.ID, version{row.Workflow, row.Version})
	jobs := map[string]*engine.Job{}
	for i := range e.Graph.Len() {
		n := e.Graph.Node(i)
		switch {
		case n.Job != "":
			job, ok := jobs[n.Job]
			if !ok {
				if job, e.Err = absent(s.cfg.Store.JobByName(ctx, row.App, n.Job)); e.Err != nil {
					e.Err = fmt.Errorf("job %q: %w", n.Job, e.Err)
					return e
				}
				jobs[n.Job] = job
			}
			if job != nil {
				e.Jobs[n.ID] = job
			}
		case n.Workflow != "" && e.Nested[n.Workflow] == nil:
			if e.Nested[n.Workflow], e.Err = s.nested(ctx, row.App, n.Workflow); e.Err != nil {
				e.Err = fmt.Errorf("nested workflow %q: %w", n.Workflow, e.Err)
				return e
			}
		}
	}
	return e
}

// absent turns what is not there into nil: the node says so when its turn comes.
func absent[T any](v *T, err error) (*T, error) {
	if errors.Is(err, engine.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// nested is a workflow of the app as it is saved now; nil if it is not there.
func (s *Server) nested(ctx context.Context, app int64, name string) (*flow.Nested, error) {
	w, err := absent(s.cfg.Store.WorkflowByName(ctx, app, name))
	if w == nil || err != nil {
		return nil, err
	}
	g, err := s.graph(ctx, version{w.ID, w.Version})
	if err != nil {
		return nil, err
	}
	return &flow.Nested{Workflow: w.ID, Version: w.Version, Definition: g.Definition()}, nil
}

// loaded is a workflow instance with its nodes, as they are stored now.
func (s *Server) loaded(ctx context.Context, id int64) (flow.Execution, error) {
	row, err := s.cfg.Store.WorkflowInstance(ctx, id)
	if err != nil {
		return flow.Execution{}, err
	}
	nodes, err := s.cfg.Store.Nodes(ctx, id)
	if err != nil {
		return flow.Execution{}, err
	}
	e := s.execution(ctx, *row)
	e.Nodes = nodes
	if err := ctx.Err(); err != nil || passing(e.Err) {
		return e, cmp.Or(err, e.Err)
	}
	return e, nil
}

// beginChild brings a nested workflow instance to the flow, however long the database is
// away: the node it is nested in waits for nothing else.
func (s *Server) beginChild(ctx context.Context, parent engine.WorkflowInstance, node string, child int64, row *engine.WorkflowInstance) {
	for ctx.Err() == nil {
		read, cancel := context.WithTimeout(ctx, readTimeout)
		var e flow.Execution
		var err error
		if row != nil {
			e = s.execution(read, *row)
			if passing(e.Err) || read.Err() != nil {
				err = cmp.Or(read.Err(), e.Err)
			}
		} else {
			e, err = s.loaded(read, child)
		}
		cancel()
		if errors.Is(err, engine.ErrNotFound) {
			e.Row = engine.WorkflowInstance{ID: child, Shard: parent.Shard, Parent: parent.ID, ParentNode: node, Attempt: 1, Status: engine.StatusFailed}
			e.Err, err = fmt.Errorf("its nested workflow instance %d is gone", child), nil
		}
		if err == nil {
			s.inbox.put(item{do: func(now int64) { s.flow.Begin(now, e) }}, true)
			return
		}
		pause(ctx, retryPause)
	}
}
