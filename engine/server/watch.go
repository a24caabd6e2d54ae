package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of Event, in the order of broker.EventKind.
const (
	EventInstance EventKind = iota + 1 // an instance has moved
	EventProgress                      // a map run has moved on
	EventWorkflow                      // the workflow instance has moved
	EventNode                          // a node of a workflow has moved
	EventLost                          // something was not told: look at the rows
)

// Event is something that was committed, for live views. The newest of a node says it
// all; one may be left out when the listener is slow.
type Event struct {
	Kind     EventKind
	Workflow int64 // workflow instance
	Node     string
	Instance int64
	Job      int64
	Attempt  int32
	Status   engine.Status
	Reason   engine.Reason
	Error    string // cut
	Total    int64  // sub-tasks so far
	Done     int64
	Failed   int64
}

const watchRoom = 1024

// watchers listen to workflow instances.
type watchers struct {
	mu sync.Mutex
	m  map[int64]map[chan Event]struct{}
}

func (w *watchers) tell(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	final := e.Kind == EventWorkflow && e.Status.Terminal()
	for ch := range w.m[e.Workflow] {
		select {
		case ch <- e:
		default:
			if final {
				// The last word must get through: an older one makes room.
				select {
				case <-ch:
				default:
				}
				ch <- e
			}
		}
		if final {
			close(ch)
		}
	}
	if final {
		delete(w.m, e.Workflow)
	}
}

func (w *watchers) remove(id int64, ch chan Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.m[id][ch]; ok {
		delete(w.m[id], ch)
		close(ch)
		if len(w.m[id]) == 0 {
			delete(w.m, id)
		}
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, chans := range w.m {
		for ch := range chans {
			close(ch)
		}
	}
	w.m = nil
}

// Watch returns the events of one workflow instance from now on, whichever server decides
// them: those of its nodes and its own. The channel is closed after the final one, or when
// ctx ends.
func (s *Server) Watch(ctx context.Context, workflowInstance int64) <-chan Event {
	ch := make(chan Event, watchRoom)
	w := &s.watchers
	w.mu.Lock()
	if w.m == nil {
		w.m = map[int64]map[chan Event]struct{}{}
	}
	if w.m[workflowInstance] == nil {
		w.m[workflowInstance] = map[chan Event]struct{}{}
	}
	w.m[workflowInstance][ch] = struct{}{}
	w.mu.Unlock()
	context.AfterFunc(ctx, func() { w.remove(workflowInstance, ch) })
	s.background(func(serving context.Context) { s.watchOthers(serving, ctx, workflowInstance) })
	return ch
}

// watchOthers tells the watchers of a workflow instance what other servers decide of it.
func (s *Server) watchOthers(serving, ctx context.Context, id int64) {
	row, err := s.cfg.Store.WorkflowInstance(serving, id)
	if err != nil {
		return // there is nothing to watch
	}
	app, err := s.app(serving, row.App)
	if err != nil {
		return
	}
	look := func(serving context.Context) {
		// The word that it has ended must get through.
		if row, err := s.cfg.Store.WorkflowInstance(serving, id); err == nil && row.Status.Terminal() {
			s.watchers.tell(Event{Kind: EventWorkflow, Workflow: id, Status: row.Status, Error: row.Error})
		}
	}
	stop, err := s.live.listen(app, &listener{others: true, h: func(events []Event) {
		for i := range events {
			switch e := &events[i]; {
			case e.Kind == EventLost:
				s.background(look)
			case e.Workflow == id && e.Kind != EventInstance:
				s.watchers.tell(*e)
			}
		}
	}})
	if err != nil {
		return
	}
	context.AfterFunc(ctx, stop)
	look(serving)
}

// waits wake those who wait for an id to be final; they look at the row then.
type waits struct {
	mu sync.Mutex
	m  map[int64][]chan struct{}
}

func (w *waits) wait(id int64) chan struct{} {
	ch := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[int64][]chan struct{}{}
	}
	w.m[id] = append(w.m[id], ch)
	return ch
}

// forget takes back a wait that nobody may ever wake.
func (w *waits) forget(id int64, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := slices.DeleteFunc(w.m[id], func(x chan struct{}) bool { return x == ch }); len(left) > 0 {
		w.m[id] = left
	} else {
		delete(w.m, id)
	}
}

func (w *waits) done(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.m[id] {
		close(ch)
	}
	delete(w.m, id)
}

func (w *waits) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, chans := range w.m {
		for _, ch := range chans {
			close(ch)
		}
		delete(w.m, id)
	}
}

func (s *Server) final(e track.Final) {
	s.waits.done(e.Instance.ID)
	s.rearmed(&e.Instance)
}

// lookAgain is how often a waiter looks at the row by itself: its owner may be another
// server, which wakes nobody here.
const lookAgain = 250 * time.Millisecond

func waitFor[T any](ctx context.Context, s *Server, id int64, read func(context.Context, int64) (T, error), final func(T) bool) (T, error) {
	woken := s.waits.wait(id)
	defer func() { s.waits.forget(id, woken) }()
	for {
		v, err := read(ctx, id)
		if err != nil || final(v) {
			return v, err
		}
		t := time.NewTimer(lookAgain)
		select {
		case <-woken:
			woken = s.waits.wait(id)
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, context.Cause(ctx)
		}
		t.Stop()
	}
}

// WaitInstance returns the instance once it is final.
func (s *Server) WaitInstance(ctx context.Context, id int64) (*engine.Instance, error) {
	return waitFor(ctx, s, id, s.cfg.Store.Instance, func(in *engine.Instance) bool { return in.Status.Terminal() })
}

// WaitWorkflow returns the workflow instance once it is final.
func (s *Server) WaitWorkflow(ctx context.Context, id int64) (*engine.WorkflowInstance, error) {
	return waitFor(ctx, s, id, s.cfg.Store.WorkflowInstance, func(w *engine.WorkflowInstance) bool { return w.Status.Terminal() })
}
