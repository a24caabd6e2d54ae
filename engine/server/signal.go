package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/flow"
	"github.com/fanjet/fanjet/workflow"
)

// signalPayload is the payload of a signal's command.
type signalPayload struct {
	Name     string          `json:"name"`
	Approval bool            `json:"approval,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
}

// Signal is what a signal node waits for.
type Signal struct {
	// Name is the name of the signal, or the id of the node.
	Name string
	// Payload is JSON of at most workflow.MaxSignal bytes, and the node's result; nil is null.
	Payload json.RawMessage
	// By says who sends it, for the log.
	By string
	// Request makes the signal unique: while one waits to be taken, another with the same
	// Request is no second one. Random if empty.
	Request string
}

// Signal sends a signal to a workflow instance. The node that waits for it gets it; one that
// comes before its node is kept until then, and one after another if there are several. It
// returns when the signal is stored. ErrNotFound: no node waits for a signal of that name;
// ErrConflict: the workflow instance is final, or the name is that of an approval.
func (s *Server) Signal(ctx context.Context, id int64, g Signal) error {
	if len(g.Payload) == 0 {
		g.Payload = json.RawMessage("null")
	}
	if !json.Valid(g.Payload) {
		return fmt.Errorf("the payload of signal %q is not valid JSON: %w", g.Name, engine.ErrInvalid)
	}
	if err := engine.CheckBytes("payload", g.Payload, workflow.MaxSignal); err != nil {
		return err
	}
	w, n, err := s.signaled(ctx, id, g.Name)
	if err != nil {
		return err
	}
	if n.Type == workflow.TypeApproval {
		return fmt.Errorf("node %q of workflow instance %d is an approval: approve or reject it: %w", n.ID, id, engine.ErrConflict)
	}
	return s.sendSignal(ctx, w, g.Request, g.By, signalPayload{Name: n.SignalName(), Payload: g.Payload})
}

// Approval decides an approval node.
type Approval struct {
	// Node is the id of the node, or the name of its signal.
	Node string
	// Reject fails the node instead.
	Reject bool
	// By and Comment are kept with the node's result.
	By, Comment string
	// Roles are those that the caller has; one of them must be among the node's, if it has any.
	Roles []string
	// Request is as in Signal.
	Request string
}

// Approve approves or rejects an approval node of a workflow instance. Errors are as of
// Signal; ErrForbidden: none of the caller's roles may decide it.
func (s *Server) Approve(ctx context.Context, id int64, a Approval) error {
	if err := errors.Join(engine.CheckText("by", a.By, engine.MaxTitle), engine.CheckText("comment", a.Comment, engine.MaxText)); err != nil {
		return err
	}
	w, n, err := s.signaled(ctx, id, a.Node)
	if err != nil {
		return err
	}
	if n.Type != workflow.TypeApproval {
		return fmt.Errorf("node %q of workflow instance %d is no approval: send it a signal: %w", n.ID, id, engine.ErrConflict)
	}
	if !n.MayApprove(a.Roles) {
		return fmt.Errorf("node %q may be approved by %s only: %w", n.ID, strings.Join(n.Roles, ", "), engine.ErrForbidden)
	}
	payload, err := json.Marshal(flow.Verdict{Approved: !a.Reject, By: a.By, Comment: a.Comment})
	if err != nil {
		return fmt.Errorf("encode the approval of node %q: %w", n.ID, err)
	}
	return s.sendSignal(ctx, w, a.Request, a.By, signalPayload{Name: n.SignalName(), Approval: true, Payload: payload})
}

// signaled finds the workflow instance and a node of it that takes this signal.
func (s *Server) signaled(ctx context.Context, id int64, name string) (*engine.WorkflowInstance, *workflow.Node, error) {
	w, err := s.cfg.Store.WorkflowInstance(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("workflow instance %d: %w", id, err)
	}
	if w.Status.Terminal() {
		return nil, nil, fmt.Errorf("workflow instance %d is %s: it takes no signals: %w", id, w.Status, engine.ErrConflict)
	}
	g, err := s.graph(ctx, version{w.Workflow, w.Version})
	if err != nil {
		return nil, nil, fmt.Errorf("workflow instance %d: %w", id, err)
	}
	var names []string
	var found *workflow.Node
	for i := range g.Len() {
		n := g.Node(i)
		if n.Type != workflow.TypeSignal && n.Type != workflow.TypeApproval {
			continue
		}
		if n.ID == name || n.SignalName() == name && found == nil {
			found = n
		}
		if !slices.Contains(names, n.SignalName()) {
			names = append(names, n.SignalName())
		}
	}
	if found != nil {
		return w, found, nil
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("workflow instance %d waits for no signals at all: %w", id, engine.ErrNotFound)
	}
	return nil, nil, fmt.Errorf("workflow instance %d waits for no signal %q, it has %s: %w", id, name, strings.Join(names[:min(len(names), 20)], ", "), engine.ErrNotFound)
}

func (s *Server) sendSignal(ctx context.Context, w *engine.WorkflowInstance, request, by string, p signalPayload) error {
	if request != "" {
		request = fmt.Sprintf("%d/%s", w.ID, request) // unique among those of this workflow instance
	}
	if err := engine.CheckText("request id", request, engine.MaxKey); err != nil {
		return err
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode signal %q: %w", p.Name, err)
	}
	s.cfg.Log.Info("a signal is sent", "workflow_instance", w.ID, "signal", p.Name, "approval", p.Approval, "by", by)
	return s.order(ctx, engine.Command{Shard: w.Shard, Kind: engine.CommandSignal, Target: w.ID, Request: request, Payload: payload})
}

// PauseWorkflow lets no further node of a workflow instance start, nor of those nested in it.
func (s *Server) PauseWorkflow(ctx context.Context, id int64) error {
	return s.orderWorkflow(ctx, engine.CommandPauseWorkflow, id, false)
}

// ResumeWorkflow ends a pause.
func (s *Server) ResumeWorkflow(ctx context.Context, id int64) error {
	return s.orderWorkflow(ctx, engine.CommandResumeWorkflow, id, false)
}

// RetryWorkflow begins a further attempt of a workflow instance that is final without
// success: what failed, and what was not run because of it, is run; what succeeded stays as
// it is. It goes on with the version of the definition that it began with.
func (s *Server) RetryWorkflow(ctx context.Context, id int64) error {
	return s.orderWorkflow(ctx, engine.CommandRetryWorkflow, id, true)
}

// orderWorkflow stores a command for a workflow instance that is final, or is not.
func (s *Server) orderWorkflow(ctx context.Context, kind engine.CommandKind, id int64, final bool) error {
	w, err := s.cfg.Store.WorkflowInstance(ctx, id)
	if err != nil {
		return fmt.Errorf("workflow instance %d: %w", id, err)
	}
	switch {
	case final && w.Parent != 0:
		return fmt.Errorf("workflow instance %d is nested in %d: retry that one: %w", id, w.Parent, engine.ErrConflict)
	case final:
		again := *w
		if err := again.Retry(s.now()); err != nil {
			return err
		}
	case w.Status.Terminal():
		return fmt.Errorf("workflow instance %d is %s: %w", id, w.Status, engine.ErrConflict)
	}
	return s.order(ctx, engine.Command{Shard: w.Shard, Kind: kind, Target: id})
}
