package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

// world is a server with real parts: SQLite or MariaDB, an embedded broker, and workers
// with connections of their own.
type world struct {
	t      testing.TB
	broker *brokertest.Server
	store  *storage.DB
	server *server.Server
	ctx    context.Context
	stop   func()
	// stopServer stops the server and leaves the store open.
	stopServer func()
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	return newWorldWith(t, url, server.Config{})
}

// quick are settings under which the dead are found out in well under a second.
var quick = server.Config{AckWait: 500 * time.Millisecond, BeatEvery: 100 * time.Millisecond, Lease: time.Second, Silent: 2 * time.Second}

func newWorldWith(t testing.TB, url string, c server.Config) *world {
	t.Helper()
	if url == "" {
		url = "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db")
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, broker: brokertest.Run(t), ctx: ctx}
	db, err := storage.Open(ctx, storage.Config{URL: url, Logger: brokertest.Quiet()})
	require.NoError(t, err)
	w.store = db
	c.Broker = w.broker.Broker(t, broker.Config{AckWait: c.AckWait})
	if c.Store == nil {
		c.Store = db
	}
	if c.Log == nil {
		c.Log = brokertest.Quiet()
	}
	w.server, err = server.New(c)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx) }()
	w.stopServer = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	w.stop = sync.OnceFunc(func() {
		w.stopServer()
		require.NoError(t, db.Close())
	})
	t.Cleanup(w.stop)
	select {
	case <-w.server.Ready():
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.FailNow(t, "the server is not ready")
	}
	return w
}

// worker starts a worker and returns when the server knows it.
func (w *world) worker(name string, slots int, register func(*processor.Worker)) (stop func()) {
	w.t.Helper()
	return w.workerWith(processor.Config{Name: name, Slots: slots}, register)
}

func (w *world) workerWith(c processor.Config, register func(*processor.Worker)) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	name := c.Name
	if c.App == "" {
		c.App = "test"
	}
	if c.URL == "" {
		c.URL = w.broker.URL()
	}
	c.Logger = brokertest.Quiet()
	p := processor.NewWorker(c)
	register(p)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); require.NoError(w.t, <-ended) }) }
	w.t.Cleanup(stop)
	require.Eventually(w.t, func() bool {
		for _, b := range w.server.Workers(c.App) {
			if b.Worker == name {
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "worker %s does not show up", name)
	return stop
}

func (w *world) job(name string, spec workflow.Spec) {
	w.t.Helper()
	_, err := w.server.SaveJob(w.ctx, "test", name, "", spec)
	require.NoError(w.t, err)
}

// named saves a job under a name of its own.
func (w *world) named(prefix string, spec workflow.Spec) string {
	w.t.Helper()
	name := fmt.Sprintf("%s-%d", prefix, time.Now().UnixNano())
	w.job(name, spec)
	return name
}

func (w *world) run(job string, params string) *engine.Instance {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 60*time.Second)
	defer cancel()
	id, err := w.server.Trigger(ctx, server.Trigger{App: "test", Job: job, Params: json.RawMessage(params)})
	require.NoError(w.t, err)
	in, err := w.server.WaitInstance(ctx, id)
	require.NoError(w.t, err)
	return in
}

type sumParams struct{ N int }

// sum maps 1..N, squares each, and adds up.
func sum() processor.MapReduce[sumParams, int, int] {
	return processor.MapReduce[sumParams, int, int]{
		Split: func(_ context.Context, _ *processor.Task, p sumParams, emit func(int) error) error {
			for i := range p.N {
				if err := emit(i + 1); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, _ *processor.Task, i int) (int, error) { return i * 2, nil },
		Reduce: func(_ context.Context, _ *processor.Task, values *processor.Values[int]) (any, error) {
			total := 0
			for v := range values.All() {
				total += v
			}
			return total, nil
		},
	}
}
