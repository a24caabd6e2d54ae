package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// How live views are told. What is told of one object at one time is its newest word, so
// that what an app sends has a bound that does not grow with what it does; what is over the
// bound is told as lost, which costs those who look a look at the rows.
const (
	liveMost      = 1024                   // objects of an app that are told at one time
	livePause     = 50 * time.Millisecond  // from one time to the next, of an app
	progressPause = 200 * time.Millisecond // from one word about a map run to the next
	interestEvery = 2 * time.Second
	interestLasts = 3 * interestEvery
	liveText      = 1 << 10 // bytes of an error's text
)

// live tells of what was committed, to listeners here and on other servers. An app that
// nobody looks at costs one load of a pointer.
type live struct {
	s      *Server
	source uint64
	// wanted are the apps that somebody wants to hear of; nil if there are none.
	wanted atomic.Pointer[map[int64]struct{}]
	wake   chan struct{}

	mu     sync.Mutex
	apps   map[int64]*liveApp
	ended  bool
	nextID int
}

// liveApp is an app that somebody wants to hear of. All under live.mu.
type liveApp struct {
	id        int64
	name      string
	until     int64 // mono, ms: servers that want to hear of it have said so until then
	listeners map[int]*listener
	heard     map[uint64]uint64 // source → its last batch
	stop      func()            // hearing of others; nil while nobody listens here

	pending []Event // Kind 0: told anew further on
	at      map[liveKey]int
	later   map[int64]Event // progress that is not due, by instance
	told    map[int64]int64 // when progress was told last, mono, by instance
	lost    bool
	fresh   bool // a server began to listen: what was before has not been told to it
	seq     uint64
	flushed int64 // mono
}

type liveKey struct {
	kind EventKind
	id   int64
	node string
}

type listener struct {
	others bool // wants to hear of what other servers decide only
	h      func([]Event)
}

func newLive(s *Server) *live {
	return &live{s: s, source: token(), wake: make(chan struct{}, 1), apps: map[int64]*liveApp{}}
}

func (l *live) wants(app int64) bool {
	m := l.wanted.Load()
	if m == nil {
		return false
	}
	_, ok := (*m)[app]
	return ok
}

// look finds out anew which apps are wanted, and forgets those that nobody wants.
func (l *live) look() {
	now := l.s.mono()
	m := map[int64]struct{}{}
	for id, a := range l.apps {
		here := false
		for _, x := range a.listeners {
			here = here || !x.others
		}
		if here || a.until > now {
			m[id] = struct{}{}
		} else if len(a.listeners) == 0 {
			delete(l.apps, id)
		}
	}
	if len(m) == 0 {
		l.wanted.Store(nil)
		return
	}
	l.wanted.Store(&m)
}

func (l *live) app(id int64, name string) *liveApp {
	a := l.apps[id]
	if a == nil {
		a = &liveApp{
			id: id, name: name, listeners: map[int]*listener{}, heard: map[uint64]uint64{}, at: map[liveKey]int{},
			later: map[int64]Event{}, told: map[int64]int64{},
		}
		l.apps[id] = a
	}
	return a
}

// interest is what another server says.
func (l *live) interest(name string, n *broker.Interest) {
	if n.Source == l.source {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.app(n.App, name)
	now := l.s.mono()
	if a.until <= now {
		// What was decided since it began to listen may not have been told.
		a.fresh = true
		l.nudge()
	}
	a.until = now + interestLasts.Milliseconds()
	l.look()
}

func (l *live) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell takes what was committed. It is called between two transactions and never blocks.
func (l *live) tell(app int64, events ...Event) {
	if !l.wants(app) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.apps[app]
	if a == nil {
		return
	}
	now := l.s.mono()
	for _, e := range events {
		if e.Kind == EventProgress {
			if at, ok := a.told[e.Instance]; ok && now < at+progressPause.Milliseconds() {
				if _, ok := a.later[e.Instance]; ok || len(a.later) < liveMost {
					a.later[e.Instance] = e
				}
				continue
			}
			a.told[e.Instance] = now
			delete(a.later, e.Instance)
		}
		if e.Kind == EventInstance && e.Status.Terminal() {
			if last, ok := a.later[e.Instance]; ok {
				delete(a.later, e.Instance)
				a.add(last)
			}
			delete(a.told, e.Instance)
		}
		a.add(e)
	}
	l.nudge()
}

func (a *liveApp) add(e Event) {
	if a.lost {
		return // the rows say it
	}
	k := liveKey{e.Kind, e.Instance, e.Node}
	if e.Kind == EventWorkflow || e.Kind == EventNode {
		k.id = e.Workflow
	}
	if at, ok := a.at[k]; ok {
		a.pending[at].Kind = 0
	}
	if len(a.at) >= liveMost || len(a.pending) >= 2*liveMost {
		a.pending, a.lost = nil, true
		clear(a.at)
		return
	}
	e.Error = engine.CutText(e.Error, liveText)
	a.at[k] = len(a.pending)
	a.pending = append(a.pending, e)
}

// run tells until ctx ends.
func (l *live) run(ctx context.Context) {
	every := time.NewTicker(interestEvery)
	defer every.Stop()
	soon := time.NewTimer(time.Hour)
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-soon.C:
		case <-every.C:
			l.announce()
		}
		if wait := l.flush(); wait > 0 {
			soon.Reset(wait)
		}
	}
}

// announce says again what is listened to here.
func (l *live) announce() {
	l.mu.Lock()
	names := map[string]int64{}
	for id, a := range l.apps {
		if len(a.listeners) > 0 {
			names[a.name] = id
		}
	}
	l.look()
	l.mu.Unlock()
	for name, id := range names {
		l.say(name, id)
	}
}

func (l *live) say(name string, id int64) {
	_ = l.s.cfg.Broker.PublishInterest(name, &broker.Interest{Source: l.source, App: id}) // a lost one costs until the next
}

// flush tells what is due of every app, and returns when to come again; 0: when there is
// something new.
func (l *live) flush() (wait time.Duration) {
	l.mu.Lock()
	var batches []liveBatch
	now, next := l.s.mono(), int64(0)
	due := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	for _, a := range l.apps {
		for id, at := range a.told {
			if at += progressPause.Milliseconds(); at > now {
				if _, ok := a.later[id]; ok {
					due(at)
				}
				continue
			}
			if e, ok := a.later[id]; ok {
				delete(a.later, id)
				a.told[id] = now
				a.add(e)
			} else {
				delete(a.told, id)
			}
		}
		if !a.lost && !a.fresh && len(a.pending) == 0 {
			continue
		}
		if at := a.flushed + livePause.Milliseconds(); a.flushed != 0 && at > now {
			due(at)
			continue
		}
		batches = append(batches, a.batch(now))
	}
	l.mu.Unlock()
	for i := range batches {
		l.send(&batches[i])
	}
	if next == 0 {
		return 0
	}
	return max(time.Duration(next-now)*time.Millisecond, time.Millisecond)
}

// liveBatch is what is told of an app at one time.
type liveBatch struct {
	app    string
	seq    uint64
	lost   bool
	others bool // servers want to hear of it
	events []Event
	to     []func([]Event)
}

func (a *liveApp) batch(now int64) liveBatch {
	a.seq++
	b := liveBatch{app: a.name, seq: a.seq, lost: a.lost || a.fresh, others: a.until > now}
	if a.lost {
		b.events = append(b.events, Event{Kind: EventLost})
	}
	for i := range a.pending {
		if a.pending[i].Kind != 0 {
			b.events = append(b.events, a.pending[i])
		}
	}
	for _, x := range a.listeners {
		if !x.others {
			b.to = append(b.to, x.h)
		}
	}
	a.pending, a.lost, a.fresh, a.flushed = a.pending[:0], false, false, now
	clear(a.at)
	return b
}

func (l *live) send(b *liveBatch) {
	if len(b.events) > 0 {
		for _, h := range b.to {
			h(b.events)
		}
	}
	if !b.others {
		return
	}
	wire := broker.EventBatch{Source: l.source, Seq: b.seq, Lost: b.lost, Events: make([]broker.Event, 0, len(b.events))}
	for i := range b.events {
		if e := &b.events[i]; e.Kind != EventLost {
			wire.Events = append(wire.Events, wireEvent(e))
		}
	}
	_ = l.s.cfg.Broker.PublishEvents(b.app, &wire) // the next number shows that one is missing
}

// hear takes what another server tells.
func (l *live) hear(id int64, b *broker.EventBatch) {
	if b.Source == l.source {
		return
	}
	l.mu.Lock()
	a := l.apps[id]
	if a == nil {
		l.mu.Unlock()
		return
	}
	var events []Event
	if last, ok := a.heard[b.Source]; !ok || b.Seq != last+1 || b.Lost {
		events = append(events, Event{Kind: EventLost})
	}
	if len(a.heard) > 1000 {
		clear(a.heard) // servers that have gone
	}
	a.heard[b.Source] = b.Seq
	to := make([]func([]Event), 0, len(a.listeners))
	for _, x := range a.listeners {
		to = append(to, x.h)
	}
	l.mu.Unlock()
	for i := range b.Events {
		if e := &b.Events[i]; e.Kind >= broker.EventInstance && e.Kind <= broker.EventNode {
			events = append(events, eventOf(e))
		}
	}
	if len(events) > 0 {
		for _, h := range to {
			h(events)
		}
	}
}

// missed tells all listeners to look at the rows: there may have been something.
func (l *live) missed() {
	l.mu.Lock()
	var to []func([]Event)
	for _, a := range l.apps {
		for _, x := range a.listeners {
			to = append(to, x.h)
		}
	}
	l.mu.Unlock()
	for _, h := range to {
		h([]Event{{Kind: EventLost}})
	}
}

// close tells all listeners that nothing more comes.
func (l *live) close() {
	l.mu.Lock()
	l.ended = true
	var to []func([]Event)
	for _, a := range l.apps {
		for _, x := range a.listeners {
			to = append(to, x.h)
		}
	}
	l.apps = map[int64]*liveApp{}
	l.wanted.Store(nil)
	l.mu.Unlock()
	for _, h := range to {
		h(nil)
	}
}

// Listen calls h with what moves in an app from now on, whichever server decides it, until
// stop is called. h is called from several goroutines, must not block, and must leave the
// events as they are. What h is told is the newest of each object, a run's progress at most
// five times a second; EventLost says that there was more, and that who wants to know must
// look at the rows. With no events it says that the server has stopped. What is committed
// here is told; what other servers decide may be missing until the first EventLost, which
// comes when they have heard of the interest.
func (s *Server) Listen(app *engine.App, h func([]Event)) (stop func(), err error) {
	return s.live.listen(app, &listener{h: h})
}

func (l *live) listen(app *engine.App, x *listener) (stop func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, fmt.Errorf("the server is stopping: %w", engine.ErrUnavailable)
	}
	a := l.app(app.ID, app.Name)
	if a.stop == nil {
		id := app.ID
		if a.stop, err = l.s.cfg.Broker.OnEvents(app.Name, func(b *broker.EventBatch) { l.hear(id, b) }); err != nil {
			return nil, fmt.Errorf("hear of app %q: %w", app.Name, err)
		}
		clear(a.heard)
		l.say(app.Name, app.ID)
	}
	n := l.nextID
	l.nextID++
	a.listeners[n] = x
	l.look()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(a.listeners, n)
		if len(a.listeners) == 0 && a.stop != nil {
			a.stop()
			a.stop = nil
		}
		l.look()
	}), nil
}

func wireEvent(e *Event) broker.Event {
	return broker.Event{
		Kind: broker.EventKind(e.Kind), Status: uint8(e.Status), Workflow: e.Workflow, Instance: e.Instance, Job: e.Job, Attempt: e.Attempt,
		Node: e.Node, Reason: string(e.Reason), Error: e.Error, Total: e.Total, Done: e.Done, Failed: e.Failed,
	}
}

func eventOf(e *broker.Event) Event {
	return Event{
		Kind: EventKind(e.Kind), Status: engine.Status(e.Status), Workflow: e.Workflow, Instance: e.Instance, Job: e.Job, Attempt: e.Attempt,
		Node: e.Node, Reason: engine.Reason(e.Reason), Error: e.Error, Total: e.Total, Done: e.Done, Failed: e.Failed,
	}
}

// instanceEvent is what live views are told of an instance.
func instanceEvent(in *engine.Instance) Event {
	return Event{
		Kind: EventInstance, Workflow: in.Workflow, Node: in.Node, Instance: in.ID, Job: in.Job, Status: in.Status, Reason: in.Reason,
		Attempt: in.Attempt, Error: in.Error,
	}
}
