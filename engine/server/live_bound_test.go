package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

// heard is what a listener of an app of its own is told when it is flushed.
func heard(l *live) *[]Event {
	out := &[]Event{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.app(1, "a").listeners[0] = &listener{h: func(events []Event) { *out = append(*out, events...) }}
	l.look()
	return out
}

// An object is told once at a time, by its newest word; above the bound all are told as lost.
func TestWhatLiveViewsAreToldIsBounded(t *testing.T) {
	t.Parallel()
	l := newLive(&Server{start: time.Now()})
	out := heard(l)
	l.tell(2, Event{Kind: EventInstance, Instance: 1, Status: engine.StatusRunning}) // of an app that nobody looks at
	for _, st := range []engine.Status{engine.StatusDispatched, engine.StatusRunning, engine.StatusSucceeded} {
		l.tell(1, Event{Kind: EventInstance, Instance: 7, Status: st}, Event{Kind: EventInstance, Instance: 8, Status: st})
	}
	l.flush()
	require.Equal(t, []Event{
		{Kind: EventInstance, Instance: 7, Status: engine.StatusSucceeded}, {Kind: EventInstance, Instance: 8, Status: engine.StatusSucceeded},
	}, *out)

	// A run's progress is told, then kept back, and told in any case before the run's end.
	l = newLive(&Server{start: time.Now()})
	out = heard(l)
	for i := range int64(1000) {
		l.tell(1, Event{Kind: EventProgress, Instance: 7, Done: i})
	}
	l.tell(1, Event{Kind: EventInstance, Instance: 7, Status: engine.StatusSucceeded})
	l.flush()
	require.Equal(t, []Event{
		{Kind: EventProgress, Instance: 7, Done: 999}, {Kind: EventInstance, Instance: 7, Status: engine.StatusSucceeded},
	}, *out)

	l = newLive(&Server{start: time.Now()})
	out = heard(l)
	for i := range int64(100 * liveMost) {
		l.tell(1, Event{Kind: EventInstance, Instance: i + 1})
		require.LessOrEqual(t, len(l.apps[1].pending), 2*liveMost)
	}
	l.flush()
	require.Equal(t, []Event{{Kind: EventLost}}, *out)
	l.mu.Lock()
	l.apps[1].flushed = 0
	l.mu.Unlock()
	l.tell(1, Event{Kind: EventInstance, Instance: 1})
	l.flush()
	require.Equal(t, []Event{{Kind: EventLost}, {Kind: EventInstance, Instance: 1}}, *out)
}

// BenchmarkTellNobody is what each row costs that nobody looks at.
func BenchmarkTellNobody(b *testing.B) {
	l := newLive(&Server{start: time.Now()})
	for b.Loop() {
		l.tell(1, Event{Kind: EventInstance, Instance: 1})
	}
}
