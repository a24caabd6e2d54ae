package server_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// looker keeps what a listener was told.
type looker struct {
	mu       sync.Mutex
	finals   map[int64]int // words that an instance has ended, by instance
	last     map[int64]server.Event
	progress int
	lost     int
	ended    bool
}

func look(t *testing.T, s *server.Server, app *engine.App) *looker {
	t.Helper()
	l := &looker{finals: map[int64]int{}, last: map[int64]server.Event{}}
	stop, err := s.Listen(app, l.hear)
	require.NoError(t, err)
	t.Cleanup(stop)
	return l
}

func (l *looker) hear(events []server.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(events) == 0 {
		l.ended = true
	}
	for _, e := range events {
		switch e.Kind {
		case server.EventLost:
			l.lost++
		case server.EventInstance:
			if e.Status.Terminal() {
				l.finals[e.Instance]++
			}
		case server.EventProgress:
			l.progress++
			l.last[e.Instance] = e
		case server.EventWorkflow, server.EventNode:
		}
	}
}

func (l *looker) sees(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return f()
	}, 60*time.Second, time.Millisecond, what)
}

// second is another server on the same database and broker.
func (w *world) second() *server.Server {
	w.t.Helper()
	s, err := server.New(server.Config{Store: w.store, Broker: w.broker.Broker(w.t, broker.Config{}), Log: brokertest.Quiet()})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	select {
	case <-s.Ready():
	case <-time.After(60 * time.Second):
		require.FailNow(w.t, "the second server is not ready")
	}
	return s
}

// Whichever server decides, listeners on all of them are told, and once.
func TestEventsReachAllServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	other := w.second()
	w.worker("w", 8, func(p *processor.Worker) {
		p.Register("sum", sum())
		p.Register("ok", processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, nil }))
	})
	app, err := w.server.EnsureApp(w.ctx, "test")
	require.NoError(t, err)
	lookers := []*looker{look(t, w.server, app), look(t, other, app)}
	for _, l := range lookers {
		l.sees(t, "the other server has heard of the interest", func() bool { return l.lost > 0 })
	}
	var ids []int64
	for i := range 40 { // of jobs in different shards
		name := "job" + strconv.Itoa(i)
		w.job(name, workflow.Spec{Processor: "ok"})
		s := []*server.Server{w.server, other}[i%2]
		id, err := s.Trigger(w.ctx, server.Trigger{App: "test", Job: name})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	w.job("map", workflow.Spec{Processor: "sum", Mode: workflow.MapReduce})
	begun := time.Now()
	in := w.run("map", `{"N":20000}`)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	ids = append(ids, in.ID)
	for _, l := range lookers {
		l.sees(t, "all ends", func() bool {
			for _, id := range ids {
				if l.finals[id] == 0 {
					return false
				}
			}
			return l.last[in.ID].Total == 20_000 && l.last[in.ID].Done == 20_000
		})
	}
	spent := time.Since(begun)
	for _, l := range lookers {
		l.mu.Lock()
		for _, id := range ids {
			require.Equal(t, 1, l.finals[id], "instance %d", id)
		}
		require.LessOrEqual(t, l.progress, int(spent/(200*time.Millisecond))+3)
		l.mu.Unlock()
	}

	// A workflow is watched from both, wherever it runs.
	for i := range 8 {
		d, err := workflow.Parse("flow.yaml", fmt.Appendf(nil, "kind: Workflow\napp: test\nname: flow%d\nnodes:\n  - {id: a, processor: ok}\n  - {id: b, processor: ok, needs: [a]}\n", i))
		require.NoError(t, err)
		id, err := w.server.StartWorkflow(w.ctx, server.Start{Definition: d})
		require.NoError(t, err)
		for _, s := range []*server.Server{w.server, other} {
			var last server.Event
			for e := range s.Watch(w.ctx, id) {
				last = e
			}
			require.Equal(t, server.EventWorkflow, last.Kind)
			require.Equal(t, engine.StatusSucceeded, last.Status)
		}
	}
}

// Nothing is sent of an app that nobody looks at; a new listener is told that it has missed
// something; one of a server that stops is told so.
func TestEventsAreOnlyForThoseWhoLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 2, func(p *processor.Worker) {
		p.Register("ok", processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, nil }))
	})
	w.job("ok", workflow.Spec{Processor: "ok"})
	b := w.broker.Broker(t, broker.Config{})
	batches := make(chan *broker.EventBatch, 100)
	stop, err := b.OnEvents("test", func(e *broker.EventBatch) { batches <- e })
	require.NoError(t, err)
	defer stop()
	require.NoError(t, b.Flush(t.Context()))
	app, err := w.server.EnsureApp(w.ctx, "test")
	require.NoError(t, err)

	w.run("ok", "{}")
	here := look(t, w.server, app)
	one := w.run("ok", "{}")
	here.sees(t, "it here", func() bool { return here.finals[one.ID] == 1 })
	require.Empty(t, batches)

	go func() { // as a server does
		for t.Context().Err() == nil {
			_ = b.PublishInterest("test", &broker.Interest{Source: 5, App: app.ID})
			select {
			case <-t.Context().Done():
			case <-time.After(time.Second):
			}
		}
	}()
	next := func() *broker.EventBatch {
		select {
		case e := <-batches:
			return e
		case <-time.After(60 * time.Second):
			require.FailNow(t, "nothing is told")
			return nil
		}
	}
	e := next()
	require.True(t, e.Lost)
	two := w.run("ok", "{}")
	for ended := false; !ended; {
		after := next()
		require.Equal(t, e.Source, after.Source)
		require.Equal(t, e.Seq+1, after.Seq)
		require.False(t, after.Lost)
		e = after
		for _, ev := range after.Events {
			ended = ended || ev.Instance == two.ID && engine.Status(ev.Status).Terminal()
		}
	}
	w.stopServer()
	here.sees(t, "the end", func() bool { return here.ended })
	_, err = w.server.Listen(app, func([]server.Event) {})
	require.ErrorIs(t, err, engine.ErrUnavailable)
}
