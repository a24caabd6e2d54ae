package server

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// takenMost bounds how many carried out commands are remembered.
const takenMost = 8192

// taken remembers the commands that were carried out, whose rows may have been read again
// before they were deleted.
type taken struct {
	shards map[int64]uint8
	order  []int64 // a ring
	next   int
}

// add is false if the command is there already.
func (t *taken) add(id int64, shard uint8) bool {
	if _, ok := t.shards[id]; ok {
		return false
	}
	if t.shards == nil {
		t.shards = map[int64]uint8{}
	}
	t.shards[id] = shard
	if len(t.order) < takenMost {
		t.order = append(t.order, id)
		return true
	}
	delete(t.shards, t.order[t.next])
	t.order[t.next] = id
	t.next = (t.next + 1) % takenMost
	return true
}

// forget is for a shard that went: what was decided for it may not be stored.
func (t *taken) forget(shard uint8) {
	for id, of := range t.shards {
		if of == shard {
			delete(t.shards, id)
		}
	}
}

// takeCommand carries a command out, on the loop.
func (s *Server) takeCommand(c engine.Command) {
	if !workflowCommand(c.Kind) {
		s.handle(track.Command{Command: c})
		return
	}
	if _, ok := s.taken.shards[c.ID]; ok || s.owner.Pending(c.Shard) == nil {
		return
	}
	if c.Kind == engine.CommandReplace {
		s.background(func(ctx context.Context) {
			if err := s.replace(ctx, c); err == nil || errors.Is(err, engine.ErrNotFound) {
				s.inbox.put(item{do: func(int64) { s.answered(c) }}, false)
			} // else it is still there, and read again
		})
		return
	}
	if c.Kind == engine.CommandRetryWorkflow {
		s.background(func(ctx context.Context) { s.retryWorkflow(ctx, c) })
		return
	}
	if s.carryOut(c) {
		s.answered(c)
		return
	}
	s.background(func(ctx context.Context) {
		w, err := s.cfg.Store.WorkflowInstance(ctx, c.Target)
		if err == nil && w.Reason == engine.ReasonQueued && c.Kind == engine.CommandStopWorkflow {
			e := s.execution(ctx, *w)
			s.inbox.put(item{do: func(now int64) {
				if s.flow.CancelQueued(now, e, "stopped by request before it began") {
					s.answered(c)
				}
			}}, false)
			return
		}
		if err == nil && !w.Status.Terminal() {
			return // it is about to begin; the command is read again
		}
		if err == nil || errors.Is(err, engine.ErrNotFound) {
			s.inbox.put(item{do: func(int64) { s.answered(c) }}, false)
		}
	})
}

func workflowCommand(k engine.CommandKind) bool {
	switch k {
	case engine.CommandStopWorkflow, engine.CommandPauseWorkflow, engine.CommandResumeWorkflow, engine.CommandSignal, engine.CommandRetryWorkflow,
		engine.CommandReplace:
		return true
	default:
		return false
	}
}

// carryOut is false if the workflow instance is not in memory.
func (s *Server) carryOut(c engine.Command) bool {
	now := s.now()
	switch c.Kind {
	case engine.CommandStopWorkflow:
		return s.flow.Stop(now, c.Target, "stopped by request")
	case engine.CommandPauseWorkflow:
		return s.flow.Pause(now, c.Target)
	case engine.CommandResumeWorkflow:
		return s.flow.Resume(now, c.Target)
	default:
		var p signalPayload
		if err := json.Unmarshal(c.Payload, &p); err != nil {
			s.cfg.Log.Error("a stored signal cannot be read and is dropped", "command", c.ID, "err", err)
			return true
		}
		return s.flow.Signal(now, engine.Signal{ID: c.ID, Workflow: c.Target, Name: p.Name, Approval: p.Approval, Payload: p.Payload, At: c.CreatedAt})
	}
}

// answered deletes a command with the Change that it made.
func (s *Server) answered(c engine.Command) {
	if p := s.owner.Pending(c.Shard); p != nil && s.taken.add(c.ID, c.Shard) {
		p.GoneCommands = append(p.GoneCommands, c.ID)
	}
}

// retryWorkflow reads the workflow instance and begins its further attempt. What cannot be
// read now is left for the next sweep.
func (s *Server) retryWorkflow(ctx context.Context, c engine.Command) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	e, err := s.loaded(ctx, c.Target)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return
	}
	s.inbox.put(item{do: func(now int64) {
		if _, ok := s.taken.shards[c.ID]; ok {
			return
		}
		newest := true
		if err == nil {
			var refused error
			if newest, refused = s.flow.Retry(now, e); refused != nil {
				s.cfg.Log.Warn("a workflow instance is not retried", "workflow_instance", c.Target, "err", refused)
			}
		}
		if newest {
			s.answered(c)
		}
	}}, false)
}
