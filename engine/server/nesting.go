package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// maxNested bounds how many workflows one may reach by nesting.
const maxNested = 1000

// nesting walks the definitions that a workflow nests, as they are saved now.
type nesting struct {
	s     *Server
	app   *engine.App
	known map[string]*workflow.Definition // nil: not saved
	depth map[string]int                  // levels from this one on, itself counted
	path  []string
	start bool
}

// checkNesting refuses a workflow that is nested in itself, too many levels, params that the
// nested one does not declare, and for a start also what is not saved.
func (s *Server) checkNesting(ctx context.Context, app *engine.App, d *workflow.Definition, start bool) error {
	n := &nesting{s: s, app: app, known: map[string]*workflow.Definition{d.Name: d}, depth: map[string]int{}, start: start}
	levels, err := n.walk(ctx, d)
	if err != nil {
		return err
	}
	if levels > workflow.MaxDepth {
		return fmt.Errorf("more than %d levels of nested workflows: workflow %q has %d: %w", workflow.MaxDepth, d.Name, levels, engine.ErrInvalid)
	}
	return nil
}

// walk is how many levels the workflow has. Its stack is as deep as the definitions nest: a
// way of more than MaxDepth is refused.
func (n *nesting) walk(ctx context.Context, d *workflow.Definition) (int, error) {
	n.path = append(n.path, d.Name)
	defer func() { n.path = n.path[:len(n.path)-1] }()
	if len(n.path) > workflow.MaxDepth {
		return 0, fmt.Errorf("more than %d levels of nested workflows: %s: %w", workflow.MaxDepth, strings.Join(n.path, " -> "), engine.ErrInvalid)
	}
	levels := 1
	for i := range d.Nodes {
		node := &d.Nodes[i]
		if node.Kind() != workflow.TypeWorkflow {
			continue
		}
		below, err := n.node(ctx, node)
		if err != nil {
			return 0, err
		}
		levels = max(levels, below+1)
	}
	n.depth[d.Name] = levels
	return levels, nil
}

func (n *nesting) node(ctx context.Context, node *workflow.Node) (int, error) {
	for _, above := range n.path {
		if above == node.Workflow {
			return 0, fmt.Errorf("workflow %q is nested in itself: %s -> %s: %w", node.Workflow, strings.Join(n.path, " -> "), node.Workflow, engine.ErrInvalid)
		}
	}
	d, err := n.definition(ctx, node.Workflow)
	if err != nil {
		return 0, err
	}
	if d == nil {
		if n.start {
			return 0, fmt.Errorf("node %q of workflow %q nests workflow %q, which is not in app %q: save it first: %w",
				node.ID, n.path[len(n.path)-1], node.Workflow, n.app.Name, engine.ErrInvalid)
		}
		return 1, nil
	}
	if len(n.path) == 1 {
		if err := d.CheckNested(node); err != nil {
			return 0, fmt.Errorf("node %q of workflow %q: %w: %w", node.ID, n.path[0], err, engine.ErrInvalid)
		}
	}
	if levels, ok := n.depth[node.Workflow]; ok {
		if len(n.path)+levels > workflow.MaxDepth {
			return 0, fmt.Errorf("more than %d levels of nested workflows: %s -> %s -> …: %w",
				workflow.MaxDepth, strings.Join(n.path, " -> "), node.Workflow, engine.ErrInvalid)
		}
		return levels, nil
	}
	return n.walk(ctx, d)
}

func (n *nesting) definition(ctx context.Context, name string) (*workflow.Definition, error) {
	if d, ok := n.known[name]; ok {
		return d, nil
	}
	if len(n.known) > maxNested {
		return nil, fmt.Errorf("workflow %q reaches more than %d workflows by nesting: %w", n.path[0], maxNested, engine.ErrInvalid)
	}
	to, err := n.s.nested(ctx, n.app.ID, name)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return nil, fmt.Errorf("nested workflow %q: %w", name, err)
	}
	n.known[name] = nil
	if to != nil {
		n.known[name] = to.Definition
	}
	return n.known[name], nil
}
