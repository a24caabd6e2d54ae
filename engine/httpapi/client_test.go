package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// flaky stands before the API: it can refuse, and break connections before or after the server
// has answered.
type flaky struct {
	*httptest.Server
	before, after, refuse atomic.Int64 // so many requests
	asked                 atomic.Int64
	mu                    sync.Mutex
	streams               map[*context.CancelFunc]struct{}
}

func newFlaky(t *testing.T, target string) *flaky {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	p := httputil.NewSingleHostReverseProxy(u)
	p.FlushInterval = -1
	p.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	f := &flaky{streams: map[*context.CancelFunc]struct{}{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		switch {
		case f.refuse.Add(-1) >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case f.before.Add(-1) >= 0:
			panic(http.ErrAbortHandler)
		case f.after.Add(-1) >= 0:
			p.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		f.mu.Lock()
		f.streams[&cancel] = struct{}{}
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			delete(f.streams, &cancel)
			f.mu.Unlock()
		}()
		p.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() { f.cut(); f.Close() })
	return f
}

// cut breaks what goes through now.
func (f *flaky) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cancel := range f.streams {
		(*cancel)()
	}
}

// program is a client with a token of ann.
func (w *world) program(ann *caller, address string, options ...api.Option) (*api.Client, api.Token) {
	w.t.Helper()
	var token api.Token
	ann.post("/me/tokens", api.NewToken{Name: "t", Permissions: []string{"*"}, Apps: []string{"*"}}).is(http.StatusCreated).into(&token)
	c, err := api.New(address, token.Secret, options...)
	require.NoError(w.t, err)
	return c, token
}

// TestClient drives the API with the Go client: definitions, runs, pages, and errors by kind.
func TestClient(t *testing.T) {
	t.Parallel()
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, database(t), nil)
			ann := w.setup()
			c, _ := w.program(ann, w.url)
			ctx := t.Context()
			me, err := c.Me(ctx)
			require.NoError(t, err)
			require.Equal(t, "ann", me.Name)

			_, err = c.CreateApp(ctx, "mine")
			require.NoError(t, err)
			w.worker("mine", func(p *processor.Worker) { p.Register("ok", processor.Func(ok)) })
			job, err := c.SaveJob(ctx, "mine", "a", api.SaveJob{Spec: []byte(`{"processor":"ok"}`)}, 0)
			require.NoError(t, err)
			require.Equal(t, int32(1), job.Version)
			_, err = c.SaveJob(ctx, "mine", "a", api.SaveJob{Spec: []byte(`{"processor":"ok2"}`)}, 7)
			require.ErrorIs(t, err, api.ErrConflict)
			_, err = c.SaveJob(ctx, "mine", "a", api.SaveJob{Spec: []byte(`{"procesor":"ok"}`)}, 0)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, "procesor")
			_, err = c.Job(ctx, "mine", "none", 0)
			require.ErrorIs(t, err, api.ErrNotFound)
			var p *api.Problem
			require.ErrorAs(t, err, &p)
			require.NotEmpty(t, p.Request)

			id, err := c.Trigger(ctx, "mine", "a", api.Trigger{Params: []byte(`{"x":1}`)}, "")
			require.NoError(t, err)
			in, err := c.WaitInstance(ctx, id)
			require.NoError(t, err)
			require.Equal(t, "succeeded", in.Status)
			twice, err := c.Trigger(ctx, "mine", "a", api.Trigger{}, "key")
			require.NoError(t, err)
			same, err := c.Trigger(ctx, "mine", "a", api.Trigger{}, "key")
			require.NoError(t, err)
			require.Equal(t, twice, same)

			doc := api.Document{Document: "kind: Workflow\napp: mine\nname: flow\nnodes:\n  - {id: x, job: a}\n"}
			_, err = c.SaveWorkflow(ctx, "mine", "flow", doc, 0)
			require.NoError(t, err)
			flow, err := c.StartWorkflow(ctx, "mine", "flow", api.StartWorkflow{}, "")
			require.NoError(t, err)
			run, err := c.WaitWorkflow(ctx, flow)
			require.NoError(t, err)
			require.Equal(t, "succeeded", run.Status, run.Error)
			nodes := 0
			for n, err := range c.Nodes(ctx, flow) {
				require.NoError(t, err)
				require.Equal(t, "x", n.Node)
				nodes++
			}
			require.Equal(t, 1, nodes)

			// Pages: more than one of names, and of history.
			for i := range 510 {
				_, err := w.server.SaveJob(ctx, "mine", fmt.Sprintf("job-%04d", i), "", workflow.Spec{Processor: "ok"})
				require.NoError(t, err)
			}
			last, n := "", 0
			for j, err := range c.Jobs(ctx, "mine") {
				require.NoError(t, err)
				require.Greater(t, j.Name, last)
				last = j.Name
				n++
			}
			require.Equal(t, 511, n)
			n = 0
			for _, err := range c.Instances(ctx, "mine", "a", "") {
				require.NoError(t, err)
				if n++; n == 2 {
					break
				}
			}
			require.Equal(t, 2, n)
			for _, err := range c.Jobs(ctx, "none") {
				require.ErrorIs(t, err, api.ErrNotFound)
			}
			st, err := c.Schedule(ctx, "mine", api.KindJobs, "a")
			require.NoError(t, err)
			require.True(t, st.Enabled)
			text, err := c.Metrics(ctx)
			require.NoError(t, err)
			require.Contains(t, text, "fanjet_commits_total")
		})
	}
}

// TestClientAsksAgain: what may be asked twice is, and does its work once; what may not is not.
func TestClientAsksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	w.job("mine", "a", workflow.Spec{Processor: "ok"})
	f := newFlaky(t, w.url)
	c, _ := w.program(ann, f.URL)
	ctx := t.Context()

	f.refuse.Store(2)
	_, err := c.Job(ctx, "mine", "a", 0)
	require.NoError(t, err)
	f.before.Store(2)
	_, err = c.Job(ctx, "mine", "a", 0)
	require.NoError(t, err)

	// The run was started and the answer lost: it is started once.
	f.after.Store(2)
	id, err := c.Trigger(ctx, "mine", "a", api.Trigger{}, "")
	require.NoError(t, err)
	runs := 0
	for in, err := range c.Instances(ctx, "mine", "a", "") {
		require.NoError(t, err)
		require.Equal(t, id, in.ID)
		runs++
	}
	require.Equal(t, 1, runs)

	// A user is made once or not: nobody knows when the answer is lost.
	f.before.Store(1)
	before := f.asked.Load()
	_, err = c.CreateUser(ctx, api.NewUser{Name: "bob"})
	require.Error(t, err)
	require.Equal(t, before+1, f.asked.Load())

	// It gives up, and says why; and at once when its context has ended.
	f.refuse.Store(1000)
	_, err = c.Job(ctx, "mine", "a", 0)
	require.ErrorIs(t, err, api.ErrUnavailable)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Job(ended, "mine", "a", 0)
	require.ErrorIs(t, err, context.Canceled)
	f.refuse.Store(0)

	other, err := api.New(f.URL, "fj_nonsense")
	require.NoError(t, err)
	_, err = other.Me(ctx)
	require.ErrorIs(t, err, api.ErrUnauthenticated)
	for _, bad := range []string{"", "localhost:80", "ftp://x", "http://u:p@x", "http://x?q"} {
		_, err := api.New(bad, "")
		require.Error(t, err, bad)
	}
}

// TestClientEvents: a stream that breaks goes on where it was; one whose token is revoked ends.
func TestClientEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	ann.post("/apps", map[string]string{"name": "mine"}).is(http.StatusCreated)
	w.job("mine", "a", workflow.Spec{Processor: "ok"})
	w.worker("mine", func(p *processor.Worker) { p.Register("ok", processor.Func(ok)) })
	f := newFlaky(t, w.url)
	c, token := w.program(ann, f.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()

	ended := map[int64]int{}
	var runs []int64
	var refused error
	opened := 0
	for e, err := range c.Events(ctx, "mine", api.EventFilter{Job: "a"}) {
		if err != nil {
			refused = err
			break
		}
		require.NotEqual(t, api.EventGap, e.Kind)
		if e.Kind == api.EventOpen {
			opened++
		}
		if e.Kind == api.EventInstance && api.Final(e.Status) {
			ended[e.Instance]++
		}
		if len(ended) < len(runs) {
			continue
		}
		if len(runs) == 5 {
			ann.del("/me/tokens/" + itoa(token.ID)).is(http.StatusNoContent)
			f.cut()
			runs = append(runs, 0)
			continue
		}
		// While nobody is connected something runs and ends.
		f.refuse.Store(1)
		f.cut()
		runs = append(runs, w.run("mine", "a"))
	}
	require.ErrorIs(t, refused, api.ErrUnauthenticated)
	require.Equal(t, 1, opened)
	for _, id := range runs[:5] {
		require.Equal(t, 1, ended[id], "run %d", id)
	}

	done, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	why := errors.New("enough")
	c2, _ := w.program(ann, w.url)
	for e, err := range c2.Events(done, "mine", api.EventFilter{}) {
		if err != nil {
			require.ErrorIs(t, err, why)
			break
		}
		require.Equal(t, api.EventOpen, e.Kind)
		stop(why)
	}
}
