package server

import (
	"context"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/flow"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// hooks hear the owner and remember for settle; the flow must not be called while the owner
// is in the middle of an event.
type hooks struct{ s *Server }

type moved struct {
	instance engine.Instance
	final    bool
}

func (h hooks) InstanceFinal(_ int64, in *engine.Instance) {
	h.s.moved = append(h.s.moved, moved{*in, true})
}

func (h hooks) InstanceStarted(_ int64, in *engine.Instance) {
	h.s.moved = append(h.s.moved, moved{*in, false})
}

// sink is where the flow's decisions go.
type sink struct{ s *Server }

func (k sink) Pending(shard uint8) *engine.Change { return k.s.owner.Pending(shard) }

func (k sink) Admit(app *engine.App, n flow.Node) {
	k.s.owner.Advance(k.s.now())
	k.s.owner.Admit(track.Row{Instance: n.Instance, App: trackApp(app), Spec: n.Spec, Job: n.Job, Err: n.Err})
}

func (k sink) Stop(shard uint8, instance int64, why string) {
	if !k.s.owner.Stop(instance, why) {
		k.s.owner.Handle(k.s.now(), track.Command{Command: engine.Command{Shard: shard, Kind: engine.CommandStop, Target: instance}})
	}
}

func (k sink) Child(w *engine.WorkflowInstance, node string, child int64, row *engine.WorkflowInstance) {
	s, parent := k.s, *w
	s.owner.After(w.Shard, track.Wake{Done: func(err error) {
		if err == nil {
			s.background(func(ctx context.Context) { s.beginChild(ctx, parent, node, child, row) })
		}
	}})
}

func (k sink) Room() { k.s.lookSoon() }

func (k sink) NextID() int64 { return k.s.cluster.NextID() }

func (k sink) Moved(w *engine.WorkflowInstance, n engine.Node) {
	s := k.s
	if n.Instance != 0 {
		if n.Status.Terminal() {
			delete(s.nodes, n.Instance)
		} else {
			s.nodes[n.Instance] = nodeRef{w.ID, n.Node, w.Shard}
		}
	}
	ev := Event{Kind: EventNode, Workflow: w.ID, Node: n.Node, Instance: n.Instance, Status: n.Status, Reason: engine.Reason(n.Reason), Error: n.Error}
	app := w.App
	s.news = append(s.news, func() { s.watchers.tell(ev); s.live.tell(app, ev) })
}

func (k sink) Ended(w engine.WorkflowInstance) {
	s := k.s
	ev := Event{Kind: EventWorkflow, Workflow: w.ID, Status: w.Status, Error: w.Error}
	s.news = append(s.news, func() {
		s.watchers.tell(ev)
		s.live.tell(w.App, ev)
		if w.Status.Terminal() {
			if w.FireAt != 0 {
				s.fire.LookAt(engine.KindWorkflow, w.Workflow)
			}
			s.waits.done(w.ID)
		}
	})
}

type nodeRef struct {
	workflow int64
	node     string
	shard    uint8
}

// progress tells live views of instances and map runs that a Change moves.
func (s *Server) progress(c *engine.Change) {
	if s.live.wanted.Load() != nil {
		for _, rows := range [][]engine.Instance{c.NewInstances, c.Instances} {
			for i := range rows {
				if app := rows[i].App; s.live.wants(app) {
					ev := instanceEvent(&rows[i])
					s.news = append(s.news, func() { s.live.tell(app, ev) })
				}
			}
		}
	}
	for _, runs := range [][]engine.MapRun{c.NewRuns, c.Runs} {
		for i := range runs {
			r := &runs[i]
			ev := Event{Kind: EventProgress, Instance: r.Instance, Total: r.Total, Done: r.Succeeded, Failed: r.Failed}
			if ref, ok := s.nodes[r.Instance]; ok {
				ev.Workflow, ev.Node = ref.workflow, ref.node
				s.news = append(s.news, func() { s.watchers.tell(ev) })
			}
			if in, ok := s.owner.Instance(r.Instance); ok && s.live.wants(in.App) {
				app := in.App
				ev.Job, ev.Attempt, ev.Status = in.Job, in.Attempt, in.Status
				s.news = append(s.news, func() { s.live.tell(app, ev) })
			}
		}
	}
}
