package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/httpapi"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// worker runs a worker of the app until the test ends, and returns when the server knows it.
func (w *world) worker(app string, register func(*processor.Worker)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	p := processor.NewWorker(processor.Config{App: app, Name: "w", Slots: 4, URL: w.broker.URL(), Logger: brokertest.Quiet()})
	register(p)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w.t.Cleanup(sync.OnceFunc(func() { cancel(); require.NoError(w.t, <-ended) }))
	require.Eventually(w.t, func() bool { return len(w.server.Workers(app)) > 0 }, 60*time.Second, 5*time.Millisecond, "the worker does not show up")
}

func (w *world) job(app, name string, spec workflow.Spec) {
	w.t.Helper()
	_, err := w.server.SaveJob(w.ctx, app, name, "", spec)
	require.NoError(w.t, err)
}

// run triggers a job and waits for its end.
func (w *world) run(app, job string) int64 {
	w.t.Helper()
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: app, Job: job})
	require.NoError(w.t, err)
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(w.t, err)
	require.True(w.t, in.Status.Terminal())
	return id
}

// sse is a stream of events as bytes; each frame ends with an empty line.
type sse struct {
	t      *testing.T
	status int
	body   *bufio.Scanner
	close  func()
}

func (c *caller) stream(t *testing.T, path, last string) *sse {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.w.ctx, 60*time.Second)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.w.url+"/api/v1"+path, nil)
	require.NoError(t, err)
	if c.cookie != nil {
		q.AddCookie(c.cookie)
	}
	if last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	r, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	s := &sse{t: t, status: r.StatusCode, body: bufio.NewScanner(r.Body), close: sync.OnceFunc(func() { cancel(); _ = r.Body.Close() })}
	t.Cleanup(s.close)
	return s
}

// next is the next frame with that many fields or, with false, the end.
func (s *sse) next() (frame map[string]string, ok bool) {
	s.t.Helper()
	frame = map[string]string{}
	for s.body.Scan() {
		if s.body.Text() == "" {
			return frame, true
		}
		key, value, _ := strings.Cut(s.body.Text(), ": ")
		frame[key] = value
	}
	return frame, false
}

// until reads frames up to the first one of which f is true.
func (s *sse) until(f func(map[string]string) bool) map[string]string {
	s.t.Helper()
	for {
		frame, ok := s.next()
		require.True(s.t, ok, "the stream has ended: %v", s.body.Err())
		if f(frame) {
			return frame
		}
	}
}

func kind(k string) func(map[string]string) bool {
	return func(f map[string]string) bool { return f["event"] == k }
}

func ends(id int64) func(map[string]string) bool {
	return func(f map[string]string) bool {
		return f["event"] == api.EventInstance && strings.Contains(f["data"], `"instance":"`+itoa(id)+`"`) && strings.Contains(f["data"], `"succeeded"`)
	}
}

func ok(context.Context, *processor.Task) (any, error) { return nil, nil }

// TestEventStream: what moves is told; who comes again is told what was missed, or that it is
// gone; filters; what is not the caller's is not there.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.Live.Ring = 64 })
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	ann.post("/apps", map[string]string{"name": "theirs"}).is(http.StatusCreated)
	w.job("mine", "a", workflow.Spec{Processor: "ok"})
	w.job("mine", "b", workflow.Spec{Processor: "ok"})
	w.job("theirs", "c", workflow.Spec{Processor: "ok"})
	w.worker("mine", func(p *processor.Worker) { p.Register("ok", processor.Func(ok)) })

	s := ann.stream(t, "/apps/mine/events", "")
	require.Equal(t, http.StatusOK, s.status)
	open := s.until(kind(api.EventOpen))
	first := w.run("mine", "a")
	seen := s.until(ends(first))
	s.close()

	second := w.run("mine", "a")
	again := ann.stream(t, "/apps/mine/events?job=a", seen["id"])
	frame, _ := again.next()
	require.Equal(t, api.EventOpen, frame["event"])
	require.Equal(t, seen["id"], frame["id"])
	again.until(ends(second))

	// Of another job nothing comes; of this one run all does.
	b := w.run("mine", "b")
	one := ann.stream(t, "/apps/mine/events?instance="+itoa(b), open["id"])
	one.until(ends(b))
	third := w.run("mine", "a")
	again.until(func(f map[string]string) bool {
		require.NotContains(t, f["data"], itoa(b))
		return ends(third)(f)
	})

	// What has been pushed out, or is of another server's time, is a gap.
	for range 70 {
		w.run("mine", "b")
	}
	again.until(ends(w.run("mine", "a"))) // what is told of a run comes up to 50 ms after it
	for _, last := range []string{open["id"], "1234-1", "nonsense", open["id"] + "9999"} {
		late := ann.stream(t, "/apps/mine/events", last)
		_, _ = late.next()
		frame, _ := late.next()
		require.Equal(t, api.EventGap, frame["event"], last)
		late.close()
	}

	theirs, err := w.server.Trigger(w.ctx, server.Trigger{App: "theirs", Job: "c"})
	require.NoError(t, err)
	for _, q := range []string{"instance=" + itoa(theirs), "workflow_instance=77", "job=c"} {
		ann.get("/apps/mine/events?" + q).is(http.StatusNotFound)
	}
	ann.get("/apps/mine/events?instance=x").is(http.StatusUnprocessableEntity)
	ann.get("/apps/none/events").is(http.StatusNotFound)
}

// TestEventStreamIsWatched: a stream that has nothing to tell shows that it lives, nobody has
// too many, and one whose session has ended ends with it.
func TestEventStreamIsWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) {
		c.Live = httpapi.Live{Heartbeat: 20 * time.Millisecond, Recheck: 50 * time.Millisecond, PerUser: 2}
	})
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	bob := w.person(ann, "bob", role(engine.RoleViewer, "mine"))

	s := bob.stream(t, "/apps/mine/events", "")
	s.until(kind(api.EventOpen))
	s.until(func(f map[string]string) bool { return f[""] == "alive" && f["id"] != "" })
	two := bob.stream(t, "/apps/mine/events", "")
	two.until(kind(api.EventOpen))
	refused := bob.get("/apps/mine/events").is(http.StatusTooManyRequests)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, ann.stream(t, "/apps/mine/events", "").status)
	two.close()
	require.Eventually(t, func() bool {
		again := bob.stream(t, "/apps/mine/events", "")
		defer again.close()
		return again.status == http.StatusOK
	}, 60*time.Second, 10*time.Millisecond, "there is no room when one has gone")

	ann.put("/users/bob/roles", api.SetRoles{}).is(http.StatusOK)
	for ok := true; ok; {
		_, ok = s.next()
	}
	require.NoError(t, s.body.Err(), "the server ends the stream")
}

// TestSubTasks: a map of which some fail.
func TestSubTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	failed := processor.MapReduce[struct{}, int, int]{
		Split: func(_ context.Context, _ *processor.Task, _ struct{}, emit func(int) error) error {
			for i := range 5000 {
				if err := emit(i + 1); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, _ *processor.Task, i int) (int, error) {
			if i%100 == 0 {
				return 0, processor.Cancel(fmt.Errorf("row %d is bad", i))
			}
			return 1, nil
		},
		Reduce: func(context.Context, *processor.Task, *processor.Values[int]) (any, error) { return nil, nil },
	}
	w.worker("mine", func(p *processor.Worker) { p.Register("some", failed) })
	w.job("mine", "some", workflow.Spec{Processor: "some", Mode: workflow.MapReduce, MaxFailed: workflow.Budget{Count: 100}})
	w.job("mine", "idle", workflow.Spec{Processor: "some"})
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "mine", Job: "some", Params: []byte("{}")})
	require.NoError(t, err)
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)

	var st api.SubTasks
	ann.get("/instances/" + itoa(id) + "/subtasks?buckets=50").is(http.StatusOK).into(&st)
	require.Equal(t, []int64{5000, 4950, 50}, []int64{st.Total, st.Succeeded, st.Failed})
	require.Equal(t, int64(1), st.Heat.Failed[0])
	require.Equal(t, st.Failed, sum(st.Heat.Failed))
	require.Len(t, st.Heat.Succeeded, 50)
	require.Equal(t, int64(100), st.Heat.Size)
	require.Len(t, st.Errors, 1)
	require.Equal(t, st.Failed, st.Errors[0].Count)
	require.Contains(t, st.Errors[0].Error, "is bad")
	require.NotNil(t, st.LeftMS)
	require.Zero(t, *st.LeftMS)
	ann.get("/instances/" + itoa(id) + "/subtasks?buckets=1025").is(http.StatusUnprocessableEntity)

	var rows struct {
		Items []api.SubTask `json:"items"`
		Next  string        `json:"next"`
	}
	ann.get("/instances/" + itoa(id) + "/subtasks/failed?from=150&limit=2").is(http.StatusOK).into(&rows)
	require.Equal(t, []int64{200, 300}, []int64{rows.Items[0].Number, rows.Items[1].Number})
	require.Equal(t, "400", rows.Next)
	require.Equal(t, "failed", rows.Items[0].Status)
	ann.get("/instances/" + itoa(id) + "/subtasks/failed?from=150&to=299").is(http.StatusOK).into(&rows)
	require.Len(t, rows.Items, 1)
	require.Empty(t, rows.Next)
	ann.get("/instances/" + itoa(id) + "/subtasks/failed?limit=501").is(http.StatusUnprocessableEntity)

	none, err := w.server.Trigger(w.ctx, server.Trigger{App: "mine", Job: "idle", Delay: time.Hour, Key: "k"})
	require.NoError(t, err)
	ann.get("/instances/" + itoa(none) + "/subtasks").is(http.StatusOK).into(&st)
	require.Zero(t, st.Total)
	require.Nil(t, st.LeftMS)
}

// TestSubTasksOfARun: while a map runs, the heat strip is what its run's bitmaps say.
func TestSubTasksOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	w.worker("mine", func(p *processor.Worker) {
		p.Register("held", processor.MapReduce[struct{}, int, int]{
			Split: func(_ context.Context, _ *processor.Task, _ struct{}, emit func(int) error) error {
				for i := range 1000 {
					if err := emit(i + 1); err != nil {
						return err
					}
				}
				return nil
			},
			Work: func(ctx context.Context, _ *processor.Task, i int) (int, error) {
				if i > 200 {
					select {
					case <-held:
					case <-ctx.Done():
					}
				}
				return 1, nil
			},
			Reduce: func(context.Context, *processor.Task, *processor.Values[int]) (any, error) { return nil, nil },
		})
	})
	w.job("mine", "held", workflow.Spec{Processor: "held", Mode: workflow.MapReduce})
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "mine", Job: "held", Params: []byte("{}")})
	require.NoError(t, err)
	var st api.SubTasks
	require.Eventually(t, func() bool {
		ann.get("/instances/" + itoa(id) + "/subtasks?buckets=10").is(http.StatusOK).into(&st)
		return st.Succeeded > 0 && st.InFlight > 0
	}, 60*time.Second, 5*time.Millisecond, "nothing moves")
	require.False(t, st.Closed)
	require.Equal(t, st.Succeeded, sum(st.Heat.Succeeded))
	require.Zero(t, sum(st.Heat.Failed))
	require.LessOrEqual(t, len(st.Heat.Succeeded), 10)
	for _, n := range st.Heat.Succeeded {
		require.LessOrEqual(t, n, st.Heat.Size)
	}
	release()
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(t, err)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	ann.get("/instances/" + itoa(id) + "/subtasks?buckets=10").is(http.StatusOK).into(&st)
	require.True(t, st.Closed)
	require.Equal(t, []int64{100, 100, 100, 100, 100, 100, 100, 100, 100, 100}, st.Heat.Succeeded)
	require.Zero(t, st.InFlight)
}

func sum(ns []int64) (out int64) {
	for _, n := range ns {
		out += n
	}
	return out
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	a := w.setup().get("/metrics").is(http.StatusOK)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", a.header.Get("Content-Type"))
	require.Contains(t, string(a.body), "# TYPE fanjet_commits_total counter\nfanjet_commits_total ")
	require.True(t, strings.HasSuffix(string(a.body), "\n"))
}
