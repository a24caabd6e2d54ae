// Package worldtest is a server with real parts for the tests of built-in processors: SQLite, an
// embedded broker, and workers with connections of their own.
package worldtest

import (
	"context"
	"encoding/json"
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

// App is the app of all jobs and workers.
const App = "test"

// World is one server and its broker; they end with the test.
type World struct {
	Server *server.Server
	Ctx    context.Context

	t      testing.TB
	broker *brokertest.Server
}

// New starts a world.
func New(t testing.TB) *World {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &World{t: t, broker: brokertest.Run(t), Ctx: ctx}
	db, err := storage.Open(ctx, storage.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db"), Logger: brokertest.Quiet()})
	require.NoError(t, err)
	w.Server, err = server.New(server.Config{Store: db, Broker: w.broker.Broker(t, broker.Config{}), Log: brokertest.Quiet()})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, db.Close())
	})
	select {
	case <-w.Server.Ready():
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the server is not ready")
	}
	return w
}

// Worker starts a worker and returns when the server knows it. stop drains it.
func (w *World) Worker(c processor.Config, register func(*processor.Worker)) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	c.App, c.URL, c.Logger = App, w.broker.URL(), brokertest.Quiet()
	p := processor.NewWorker(c)
	register(p)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); require.NoError(w.t, <-ended) }) }
	w.t.Cleanup(stop)
	require.Eventually(w.t, func() bool {
		for _, b := range w.Server.Workers(App) {
			if b.Worker == c.Name {
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond, "worker %s does not show up", c.Name)
	return stop
}

// Start saves a job and triggers it.
func (w *World) Start(name string, spec workflow.Spec, params any) (instance int64) {
	w.t.Helper()
	_, err := w.Server.SaveJob(w.Ctx, App, name, "", spec)
	require.NoError(w.t, err)
	raw, err := json.Marshal(params)
	require.NoError(w.t, err)
	id, err := w.Server.Trigger(w.Ctx, server.Trigger{App: App, Job: name, Params: raw})
	require.NoError(w.t, err)
	return id
}

// Wait waits for the end of an instance.
func (w *World) Wait(instance int64) *engine.Instance {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, 90*time.Second)
	defer cancel()
	in, err := w.Server.WaitInstance(ctx, instance)
	require.NoError(w.t, err)
	return in
}
