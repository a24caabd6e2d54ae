package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// D11: 50 first registrations of one app at once make one app.
func exerciseApps(t *testing.T, s engine.Store) {
	ctx := t.Context()
	var wg sync.WaitGroup
	type result struct {
		app *engine.App
		err error
	}
	results := make(chan result, 50)
	for range 50 {
		id := newID()
		wg.Go(func() {
			a, err := s.EnsureApp(ctx, engine.App{ID: id, Name: "reports", Set: "set-1", CreatedAt: base})
			results <- result{a, err}
		})
	}
	wg.Wait()
	close(results)
	var first *engine.App
	for r := range results {
		require.NoError(t, r.err)
		if first == nil {
			first = r.app
		}
		require.Equal(t, first, r.app)
	}
	byID, err := s.App(ctx, first.ID)
	require.NoError(t, err)
	require.Equal(t, first, byID)
	byName, err := s.AppByName(ctx, "reports")
	require.NoError(t, err)
	require.Equal(t, first, byName)
	given, err := s.EnsureApp(ctx, engine.App{Name: "another", CreatedAt: base})
	require.NoError(t, err)
	require.NotZero(t, given.ID)
	all, err := s.Apps(ctx)
	require.NoError(t, err)
	require.Equal(t, []engine.App{*given, *first}, all)
	_, err = s.App(ctx, 1<<62) // ids the database gives follow the highest
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.AppByName(ctx, "none")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.EnsureApp(ctx, engine.App{ID: first.ID, Name: "third"})
	require.ErrorIs(t, err, engine.ErrConflict)
	for _, name := range []string{"", "Reports", "a.b", "-a", "💥", strings.Repeat("a", 64)} {
		_, err = s.EnsureApp(ctx, engine.App{ID: newID(), Name: name})
		require.ErrorIs(t, err, engine.ErrInvalid, "%q", name)
	}
}

func exerciseWorkers(t *testing.T, s engine.Store) {
	ctx := t.Context()
	w := engine.Worker{
		App: 7, Name: "w-1", Incarnation: 1<<63 + 1, Version: "v1", Host: "höst", Pools: []string{"gpu"}, Labels: map[string]string{"zone": "ü"},
		Processors: []string{"a", "b"}, Slots: 8, FirstSeen: base, LastSeen: base,
	}
	require.NoError(t, s.SaveWorker(ctx, w))
	require.NoError(t, s.SetMaintenance(ctx, 7, "w-1", true))
	again := w
	again.Incarnation, again.FirstSeen, again.LastSeen, again.Slots, again.Labels = 5, base+100, base+100, 4, nil
	require.NoError(t, s.SaveWorker(ctx, again))
	again.FirstSeen, again.Maintenance = base, true
	bare := engine.Worker{App: 7, Name: "w-0"}
	require.NoError(t, s.SaveWorker(ctx, bare))
	require.NoError(t, s.SaveWorker(ctx, engine.Worker{App: 8, Name: "w-1"}))
	got, err := s.Workers(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, []engine.Worker{bare, again}, got)
	require.ErrorIs(t, s.SetMaintenance(ctx, 7, "none", true), engine.ErrNotFound)

	// D04: many beats at once, none fails.
	var wg sync.WaitGroup
	errs := make(chan error, 400)
	for n := range 40 {
		wg.Go(func() {
			for k := range 10 {
				errs <- s.SaveWorker(ctx, engine.Worker{App: 9, Name: fmt.Sprintf("w-%d", n%20), LastSeen: base + int64(k)})
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	got, err = s.Workers(ctx, 9)
	require.NoError(t, err)
	require.Len(t, got, 20)
}

func exerciseJobs(t *testing.T, s engine.Store) {
	ctx := t.Context()
	spec := workflow.Spec{
		Processor: "wordcount", Mode: workflow.MapReduce, Params: json.RawMessage(`{"dir":"ü💥"}`), Timeout: workflow.Duration(time.Minute),
		Retry: workflow.Retry{Max: 3}, Labels: map[string]string{"zone": "a"},
	}
	j := engine.Job{ID: newID(), App: 7, Name: "count", Title: "Wörter 💥", Enabled: true, Spec: spec, CreatedAt: base, UpdatedAt: base}
	v1, err := s.SaveJob(ctx, j)
	require.NoError(t, err)
	j.Version = 1
	require.Equal(t, j, *v1)
	change := j
	change.Title, change.Enabled, change.Spec.Processor, change.UpdatedAt = "other", false, "p2", base+1
	v2, err := s.SaveJob(ctx, change)
	require.NoError(t, err)
	change.Version = 2
	require.Equal(t, change, *v2)
	_, err = s.SaveJob(ctx, j)
	require.ErrorIs(t, err, engine.ErrConflict, "the version has moved on")

	got, err := s.Job(ctx, j.ID)
	require.NoError(t, err)
	require.Equal(t, change, *got)
	got, err = s.JobByName(ctx, 7, "count")
	require.NoError(t, err)
	require.Equal(t, change, *got)
	got, err = s.JobVersion(ctx, j.ID, 1)
	require.NoError(t, err)
	require.Equal(t, j, *got)

	_, err = s.Job(ctx, newID())
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.JobByName(ctx, 8, "count")
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.JobVersion(ctx, j.ID, 3)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.SaveJob(ctx, engine.Job{ID: newID(), App: 7, Name: "never", Version: 4})
	require.ErrorIs(t, err, engine.ErrNotFound)

	// D11: 50 creations of one name at once: one job, 49 conflicts.
	var wg sync.WaitGroup
	errs := make(chan error, 50)
	for range 50 {
		id := newID()
		wg.Go(func() {
			_, err := s.SaveJob(ctx, engine.Job{ID: id, App: 7, Name: "race", Spec: spec})
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	made := 0
	for err := range errs {
		if err == nil {
			made++
			continue
		}
		require.ErrorIs(t, err, engine.ErrConflict)
	}
	require.Equal(t, 1, made)

	given, err := s.SaveJob(ctx, engine.Job{App: 7, Name: "zzz", Spec: spec})
	require.NoError(t, err)
	require.NotZero(t, given.ID)
	page, err := s.Jobs(ctx, 7, "", 2)
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.Equal(t, "count", page[0].Name)
	page, err = s.Jobs(ctx, 7, page[1].Name, 2)
	require.NoError(t, err)
	require.Equal(t, []engine.Job{*given}, page)
}

func exerciseWorkflows(t *testing.T, s engine.Store) {
	ctx := t.Context()
	w := engine.WorkflowDef{ID: newID(), App: 7, Name: "etl", Title: "Täglich", Enabled: true, Definition: []byte(`{"nodes":["💥"]}`), CreatedAt: base, UpdatedAt: base}
	v1, err := s.SaveWorkflow(ctx, w)
	require.NoError(t, err)
	w.Version = 1
	require.Equal(t, w, *v1)
	change := w
	change.Title, change.Enabled, change.UpdatedAt = "x", false, base+1
	change.Definition = []byte(strings.Repeat(`'"\`, engine.MaxDefinition/3))
	v2, err := s.SaveWorkflow(ctx, change)
	require.NoError(t, err)
	change.Version = 2
	require.Equal(t, change, *v2)
	_, err = s.SaveWorkflow(ctx, w)
	require.ErrorIs(t, err, engine.ErrConflict)
	got, err := s.Workflow(ctx, w.ID)
	require.NoError(t, err)
	require.Equal(t, change, *got)
	got, err = s.WorkflowByName(ctx, 7, "etl")
	require.NoError(t, err)
	require.Equal(t, change, *got)
	got, err = s.WorkflowVersion(ctx, w.ID, 1)
	require.NoError(t, err)
	require.Equal(t, w, *got)
	_, err = s.WorkflowVersion(ctx, w.ID, 9)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = s.SaveWorkflow(ctx, engine.WorkflowDef{ID: newID(), App: 7, Name: "etl", Definition: []byte(`{}`)})
	require.ErrorIs(t, err, engine.ErrConflict)
	change.Definition = []byte(strings.Repeat("a", engine.MaxDefinition+1))
	_, err = s.SaveWorkflow(ctx, change)
	require.ErrorIs(t, err, engine.ErrTooLarge)
	second, err := s.SaveWorkflow(ctx, engine.WorkflowDef{App: 7, Name: "zzz", Definition: []byte(`{}`)})
	require.NoError(t, err)
	page, err := s.Workflows(ctx, 7, "etl", 5)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkflowDef{*second}, page)
}

func exerciseContainers(t *testing.T, s engine.Store) {
	ctx := t.Context()
	c := engine.Container{ID: newID(), App: 7, Name: "words", Version: "1.0.0", Digest: strings.Repeat("a", 64), Enabled: true, CreatedAt: base}
	require.NoError(t, s.SaveContainer(ctx, c))
	again := c
	again.ID, again.Digest, again.Enabled, again.CreatedAt = newID(), strings.Repeat("b", 64), false, base+1
	require.NoError(t, s.SaveContainer(ctx, again))
	c.Digest, c.Enabled = again.Digest, false
	second := engine.Container{ID: newID(), App: 7, Name: "words", Version: "1.0.1", Digest: "c", Enabled: true, CreatedAt: base}
	require.NoError(t, s.SaveContainer(ctx, second))
	got, err := s.Containers(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, []engine.Container{c, second}, got)
	clash := second
	clash.Version = "2"
	require.ErrorIs(t, s.SaveContainer(ctx, clash), engine.ErrConflict)
}
