package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// again stops the server cleanly and starts another one on the same database and broker.
// Workers of before are stopped too.
func (w *world) again() {
	w.t.Helper()
	w.stopServer()
	ctx, cancel := context.WithCancel(w.t.Context())
	s, err := server.New(server.Config{Store: w.store, Broker: w.broker.Broker(w.t, broker.Config{}), Log: brokertest.Quiet()})
	require.NoError(w.t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.ctx, w.server = ctx, s
	w.stopServer = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	w.t.Cleanup(w.stopServer)
	select {
	case <-s.Ready():
	case <-time.After(20 * time.Second):
		require.FailNow(w.t, "the second server is not ready")
	}
}

// reaches waits until a node stands at a status.
func (w *world) reaches(id int64, node string, status engine.Status) engine.Node {
	w.t.Helper()
	var n engine.Node
	require.Eventually(w.t, func() bool {
		n = w.node(id, node)
		return n.Status == status
	}, 20*time.Second, 5*time.Millisecond, "node %s is not %s", node, status)
	return n
}

// node is the newest row of a node.
func (w *world) node(id int64, name string) engine.Node {
	w.t.Helper()
	nodes, err := w.store.Nodes(w.ctx, id)
	require.NoError(w.t, err)
	var newest engine.Node
	for _, n := range nodes {
		if n.Node == name {
			newest = n
		}
	}
	return newest
}

func (w *world) save(doc string) error {
	d, err := workflow.Parse("saved.yaml", []byte(doc))
	require.NoError(w.t, err)
	_, err = w.server.SaveWorkflow(w.ctx, d)
	return err
}

// counted counts how often each node's processor is called, and fails as it is told.
type counted struct {
	mu    sync.Mutex
	calls map[string]int
	fails map[string]int
}

func newCounted() *counted { return &counted{calls: map[string]int{}, fails: map[string]int{}} }

// fail lets the next n calls for a node fail.
func (c *counted) fail(node string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[node] = n
}

func (c *counted) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for k, v := range c.calls {
		all[k] = v
	}
	return all
}

func (c *counted) register(p *processor.Worker) {
	p.Register("count", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[task.Node()]++
		if c.fails[task.Node()] > 0 {
			c.fails[task.Node()]--
			return nil, errors.New("told to fail")
		}
		var v any
		err := task.Params(&v)
		return v, err
	}))
	p.Register("hang", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}))
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	wi := w.waitWorkflow(w.workflow(`
kind: Workflow
name: waits
app: test
params: {at: 0}
nodes:
  - {id: short, type: wait, for: 50ms}
  - {id: past, type: wait, until: "2020-01-01T00:00:00Z"}
  - {id: given, type: wait, until: "${ params.at }"}
`, map[string]json.RawMessage{"at": json.RawMessage(fmt.Sprint(time.Now().Add(80 * time.Millisecond).UnixMilli()))}))
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	require.GreaterOrEqual(t, wi.FinishedAt, w.node(wi.ID, "given").DueAt)
	short := w.node(wi.ID, "short")
	require.Equal(t, short.StartedAt+50, short.DueAt)
	require.GreaterOrEqual(t, short.FinishedAt, short.DueAt)

	bad := w.waitWorkflow(w.workflow(`
kind: Workflow
name: waits-badly
app: test
params: {at: soon}
nodes: [{id: a, type: wait, until: "${ params.at }"}]
`, nil))
	require.Equal(t, engine.StatusFailed, bad.Status)
	require.Contains(t, bad.Error, `until of node "a" must be a time such as`)

	stopped := w.workflow("kind: Workflow\nname: waits-long\napp: test\nnodes: [{id: a, type: wait, for: 1h}, {id: b, type: wait, for: 1s, needs: [a]}]\n", nil)
	w.reaches(stopped, "a", engine.StatusRunning)
	require.NoError(t, w.server.StopWorkflow(w.ctx, stopped))
	require.Equal(t, engine.StatusStopped, w.waitWorkflow(stopped).Status)
	require.Equal(t, engine.StatusStopped, w.node(stopped, "a").Status)
	require.Equal(t, engine.StatusCanceled, w.node(stopped, "b").Status)
}

const signals = `
kind: Workflow
name: signals
app: test
nodes:
  - {id: gate, type: signal, signal: go}
  - {id: second, type: signal, signal: go, needs: [gate]}
  - {id: ok, type: approval, roles: [boss, owner], needs: [second]}
  - {id: done, type: wait, until: "${ nodes.second.result.at }", needs: [ok]}
`

func TestSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	id := w.workflow(signals, nil)
	require.ErrorIs(t, w.server.Signal(w.ctx, id, server.Signal{Name: "og"}), engine.ErrNotFound)
	require.ErrorContains(t, w.server.Signal(w.ctx, id, server.Signal{Name: "og"}), "it has go, ok")
	require.ErrorIs(t, w.server.Signal(w.ctx, id, server.Signal{Name: "ok"}), engine.ErrConflict)
	require.ErrorIs(t, w.server.Signal(w.ctx, id, server.Signal{Name: "go", Payload: json.RawMessage("{")}), engine.ErrInvalid)
	require.ErrorIs(t, w.server.Approve(w.ctx, id, server.Approval{Node: "gate"}), engine.ErrConflict)
	require.ErrorIs(t, w.server.Approve(w.ctx, id, server.Approval{Node: "ok", Roles: []string{"intern"}}), engine.ErrForbidden)

	// The approval comes before its node is reached; so does the second of two signals.
	require.NoError(t, w.server.Approve(w.ctx, id, server.Approval{Node: "ok", Roles: []string{"intern", "boss"}, By: "ann", Comment: "fine"}))
	require.NoError(t, w.server.Signal(w.ctx, id, server.Signal{Name: "go", Payload: json.RawMessage(`{"n":"first"}`), Request: "r1"}))
	require.NoError(t, w.server.Signal(w.ctx, id, server.Signal{Name: "second", Payload: json.RawMessage(`{"at":1}`)}))
	wi := w.waitWorkflow(id)
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	require.JSONEq(t, `{"n":"first"}`, string(w.node(id, "gate").Result))
	require.JSONEq(t, `{"approved":true,"by":"ann","comment":"fine"}`, string(w.node(id, "ok").Result))
	require.ErrorIs(t, w.server.Signal(w.ctx, id, server.Signal{Name: "go"}), engine.ErrConflict)

	rejected := w.workflow("kind: Workflow\nname: reject\napp: test\nnodes: [{id: ok, type: approval}, {id: next, type: wait, for: 1h, needs: [ok]}]\n", nil)
	require.NoError(t, w.server.Approve(w.ctx, rejected, server.Approval{Node: "ok", Reject: true, By: "bob", Comment: "no budget"}))
	wi = w.waitWorkflow(rejected)
	require.Equal(t, engine.StatusFailed, wi.Status)
	require.Contains(t, wi.Error, "rejected by bob: no budget")

	expired := w.waitWorkflow(w.workflow(`
kind: Workflow
name: expires
app: test
on_failure: continue
nodes:
  - {id: never, type: signal, expires: 50ms}
  - {id: default, type: signal, expires: 50ms, default: {n: 0}}
  - {id: nobody, type: approval, expires: 50ms}
`, nil))
	require.Equal(t, engine.StatusFailed, expired.Status)
	require.Contains(t, expired.Error, `no signal "never" came within 50ms`)
	require.Contains(t, expired.Error, `no approval came within 50ms`)
	require.Equal(t, engine.StatusTimedOut, w.node(expired.ID, "never").Status)
	require.JSONEq(t, `{"n":0}`, string(w.node(expired.ID, "default").Result))
}

const child = `
kind: Workflow
name: child
app: test
params: {n: {type: int, required: true}}
nodes:
  - {id: inner, processor: count, params: "${ params.n * 2 }"}
`

const parent = `
kind: Workflow
name: parent
app: test
nodes:
  - {id: first, processor: count, params: 20}
  - {id: sub, type: workflow, workflow: child, params: {n: "${ nodes.first.result + 1 }"}, needs: [first]}
  - {id: last, processor: count, params: "${ nodes.sub.result.inner }", needs: [sub]}
`

// B26: a workflow runs nested and alone.
func TestNested(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 4, c.register)

	d, err := workflow.Parse("parent.yaml", []byte(parent))
	require.NoError(t, err)
	_, err = w.server.StartWorkflow(w.ctx, server.Start{Definition: d})
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, `node "sub" of workflow "parent" nests workflow "child", which is not in app "test": save it first`)
	require.NoError(t, w.save(child))

	id := w.workflow(parent, nil)
	wi := w.waitWorkflow(id)
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	require.JSONEq(t, `{"last":42}`, string(wi.Result))
	sub, err := w.store.WorkflowInstance(w.ctx, w.node(id, "sub").Child)
	require.NoError(t, err)
	require.Equal(t, []any{id, "sub", int32(1), wi.Shard}, []any{sub.Parent, sub.ParentNode, sub.Depth, sub.Shard})

	alone := w.waitWorkflow(w.workflow(child, map[string]json.RawMessage{"n": json.RawMessage("4")}))
	require.JSONEq(t, `{"inner":8}`, string(alone.Result))
	require.Zero(t, alone.Parent)

	bad := "kind: Workflow\nname: bad\napp: test\nnodes: [{id: s, type: workflow, workflow: child, params: {m: 1}}]\n"
	err = w.save(bad)
	require.ErrorContains(t, err, `workflow "child" has no param "m"`)
	require.ErrorContains(t, err, `workflow "child" requires the param "n"`)

	late := w.waitWorkflow(w.workflow("kind: Workflow\nname: late\napp: test\nparams: {p: {default: {n: x}}}\nnodes: [{id: s, type: workflow, workflow: child, params: \"${ params.p }\"}]\n", nil))
	require.Equal(t, engine.StatusFailed, late.Status)
	require.Contains(t, late.Error, `params of nested workflow "child": param "n" must be of type int, not string`)
}

func nests(name, sub string) string {
	return fmt.Sprintf("kind: Workflow\nname: %s\napp: test\nnodes: [{id: s, type: workflow, workflow: %s}]\n", name, sub)
}

// B17: a workflow cannot be nested in itself, by whatever way, and not too deep; also where
// another one was edited meanwhile.
func TestNested_B17_Bounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	require.ErrorContains(t, w.save(nests("self", "self")), `workflow "self" is nested in itself: self -> self`)
	require.NoError(t, w.save(nests("a", "b")))
	require.ErrorContains(t, w.save(nests("b", "a")), `workflow "b" is nested in itself: b -> a -> b`)

	quiet := "kind: Workflow\nname: %s\napp: test\nnodes: [{id: s, type: wait, for: 1ms}]\n"
	require.NoError(t, w.save(fmt.Sprintf(quiet, "level1")))
	for level := 2; level <= 50; level++ {
		err := w.save(nests(fmt.Sprintf("level%d", level), fmt.Sprintf("level%d", level-1)))
		if level <= 16 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "more than 16 levels of nested workflows: level17 -> level16 -> ")
		break
	}
	wi := w.waitWorkflow(w.workflow(nests("level16", "level15"), nil))
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)

	// Each of these was right when it was saved; together they are a loop.
	require.NoError(t, w.save(fmt.Sprintf(quiet, "y")))
	require.NoError(t, w.save(nests("x", "y")))
	app, err := w.store.AppByName(w.ctx, "test")
	require.NoError(t, err)
	y, err := w.store.WorkflowByName(w.ctx, app.ID, "y")
	require.NoError(t, err)
	d, err := workflow.Parse("y.yaml", []byte(nests("y", "x")))
	require.NoError(t, err)
	y.Definition, err = json.Marshal(d)
	require.NoError(t, err)
	_, err = w.store.SaveWorkflow(w.ctx, *y) // as another server would, at the same moment
	require.NoError(t, err)
	outer, err := workflow.Parse("z.yaml", []byte(nests("z", "x")))
	require.NoError(t, err)
	_, err = w.server.StartWorkflow(w.ctx, server.Start{Definition: outer})
	require.ErrorContains(t, err, "is nested in itself: z -> x -> y -> x", "at the start it is looked at again")
}

const deep = `
kind: Workflow
name: %s
app: test
nodes:
  - {id: %s, %s}
  - {id: next, processor: count, needs: [%s]}
`

// B19: a stop, a failure and a timeout reach every level, and nothing succeeds afterwards.
func TestNested_B19_StopAllLevels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 8, c.register)
	require.NoError(t, w.save(fmt.Sprintf(deep, "inner", "long", "processor: hang", "long")))
	require.NoError(t, w.save(fmt.Sprintf(deep, "middle", "sub", "type: workflow, workflow: inner", "sub")))
	outer := fmt.Sprintf(deep, "outer", "sub", "type: workflow, workflow: middle", "sub")

	levels := func(id int64) (int64, int64) {
		middle := w.reaches(id, "sub", engine.StatusRunning).Child
		inner := w.reaches(middle, "sub", engine.StatusRunning).Child
		w.reaches(inner, "long", engine.StatusRunning)
		return middle, inner
	}
	stopped := func(id, middle, inner int64, want engine.Status) {
		t.Helper()
		require.Equal(t, want, w.waitWorkflow(id).Status)
		require.Equal(t, engine.StatusStopped, w.waitWorkflow(middle).Status)
		require.Equal(t, engine.StatusStopped, w.waitWorkflow(inner).Status)
		require.Equal(t, engine.StatusStopped, w.node(inner, "long").Status)
		require.Equal(t, engine.StatusCanceled, w.node(inner, "next").Status)
		require.Equal(t, engine.StatusCanceled, w.node(id, "next").Status)
	}

	id := w.workflow(outer, nil)
	middle, inner := levels(id)
	require.NoError(t, w.server.StopWorkflow(w.ctx, id))
	stopped(id, middle, inner, engine.StatusStopped)

	failing := w.workflow(`
kind: Workflow
name: failing
app: test
nodes:
  - {id: sub, type: workflow, workflow: middle}
  - {id: gate, type: signal}
  - {id: bad, processor: count, needs: [gate]}
  - {id: next, processor: count, needs: [sub]}
`, nil)
	middle, inner = levels(failing)
	c.fail("bad", 1)
	require.NoError(t, w.server.Signal(w.ctx, failing, server.Signal{Name: "gate"}))
	stopped(failing, middle, inner, engine.StatusFailed)

	timed := w.workflow(`
kind: Workflow
name: timed
app: test
on_failure: continue
nodes:
  - {id: sub, type: workflow, workflow: inner, timeout: 300ms}
  - {id: other, type: wait, for: 1ms}
`, nil)
	sub := w.reaches(timed, "sub", engine.StatusRunning).Child
	wi := w.waitWorkflow(timed)
	require.Equal(t, engine.StatusFailed, wi.Status)
	require.Equal(t, engine.StatusTimedOut, w.node(timed, "sub").Status)
	require.Equal(t, engine.StatusTimedOut, w.waitWorkflow(sub).Status)

	// A nested one that is stopped by itself fails its node.
	alone := w.workflow(outer, nil)
	middle, inner = levels(alone)
	require.NoError(t, w.server.StopWorkflow(w.ctx, inner))
	require.Equal(t, engine.StatusFailed, w.waitWorkflow(alone).Status)
	require.Equal(t, engine.StatusFailed, w.waitWorkflow(middle).Status)
	require.Empty(t, c.all()["next"])
}

func TestForEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	var seen sync.Map
	var roots atomic.Int64
	w.worker("w", 4, func(p *processor.Worker) {
		c.register(p)
		p.Register("item", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			if task.IsRoot() {
				roots.Add(1)
				return nil, nil
			}
			var v any
			if err := task.Item(&v); err != nil {
				return nil, err
			}
			var params struct{ Tag string }
			if err := task.Params(&params); err != nil {
				return nil, err
			}
			seen.Store(fmt.Sprint(task.Number()), fmt.Sprint(params.Tag, v, task.Name()))
			return nil, nil
		}))
		p.Register("add", sum())
	})
	id := w.workflow(`
kind: Workflow
name: each
app: test
nodes:
  - {id: list, processor: count, params: [1, two, {three: 3}]}
  - {id: items, processor: item, for_each: "${ nodes.list.result }", params: {tag: t}, needs: [list]}
  - {id: none, processor: item, for_each: []}
  - {id: sum, processor: add, mode: map_reduce, for_each: [1, 2, 3, "${ nodes.list.result[0] + 3 }"], needs: [list]}
  - {id: after, processor: count, params: "${ nodes.items.result.total }", needs: [items]}
`, nil)
	wi := w.waitWorkflow(id)
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	require.JSONEq(t, `{"total":3,"succeeded":3,"failed":0}`, string(w.node(id, "items").Result))
	require.JSONEq(t, `{"total":0,"succeeded":0,"failed":0}`, string(w.node(id, "none").Result))
	require.JSONEq(t, `20`, string(w.node(id, "sum").Result), "each of 1, 2, 3 and 4 doubled")
	require.JSONEq(t, `3`, string(w.node(id, "after").Result))
	require.Zero(t, roots.Load(), "the processor is called for the items alone")
	var got []string
	seen.Range(func(_, v any) bool { got = append(got, v.(string)); return true })
	slices.Sort(got)
	require.Equal(t, []string{"t1items", "tmap[three:3]items", "ttwoitems"}, got)

	bad := w.waitWorkflow(w.workflow("kind: Workflow\nname: each-bad\napp: test\nparams: {l: {default: {a: 1}}}\nnodes: [{id: a, processor: item, for_each: \"${ params.l }\"}]\n", nil))
	require.Equal(t, engine.StatusFailed, bad.Status)
	require.Contains(t, bad.Error, `for_each of node "a" must give a list, it gave`)
}

// B14: what succeeded is never run again. B16: a retry goes on with the old definition.
func TestRetryWorkflow_B14(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 4, c.register)
	doc := `
kind: Workflow
name: diamond
app: test
nodes:
  - {id: a, processor: count, params: 1}
  - {id: b, processor: count, needs: [a]}
  - {id: c, processor: count, params: "${ nodes.a.result }", needs: [a]}
  - {id: d, processor: count, params: "${ nodes.a.result }", needs: [b, c]}
`
	c.fail("c", 2)
	id := w.workflow(doc, nil)
	require.Equal(t, engine.StatusFailed, w.waitWorkflow(id).Status)
	require.ErrorIs(t, w.server.PauseWorkflow(w.ctx, id), engine.ErrConflict)

	// Another version, in which d is something else.
	require.NoError(t, w.save("kind: Workflow\nname: diamond\napp: test\nnodes: [{id: a, processor: count}]\n"))
	retry := func(attempt int32, want engine.Status) *engine.WorkflowInstance {
		t.Helper()
		require.NoError(t, w.server.RetryWorkflow(w.ctx, id))
		var wi *engine.WorkflowInstance
		require.Eventually(t, func() bool {
			var err error
			wi, err = w.store.WorkflowInstance(w.ctx, id)
			return err == nil && wi.Attempt == attempt && wi.Status.Terminal()
		}, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, want, wi.Status, wi.Error)
		return wi
	}
	retry(2, engine.StatusFailed)
	wi := retry(3, engine.StatusSucceeded)
	require.JSONEq(t, `{"d":1}`, string(wi.Result))
	calls := c.all()
	require.Equal(t, []int{1, 3, 1}, []int{calls["a"], calls["c"], calls["d"]})
	require.LessOrEqual(t, calls["b"], 2, "it was running when c failed, or had succeeded")
	require.ErrorIs(t, w.server.RetryWorkflow(w.ctx, id), engine.ErrConflict, "it has succeeded")
	nodes, err := w.store.Nodes(w.ctx, id)
	require.NoError(t, err)
	var attempts []int32
	for _, n := range nodes {
		if n.Node == "c" {
			attempts = append(attempts, n.Attempt)
		}
	}
	require.Equal(t, []int32{1, 2, 3}, attempts, "each attempt has its own row")
}

// A retry goes into what is nested: there too what succeeded is not run again.
func TestRetryWorkflow_Nested(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 4, c.register)
	require.NoError(t, w.save("kind: Workflow\nname: sub\napp: test\nnodes: [{id: x, processor: count, params: 5}, {id: y, processor: count, params: \"${ nodes.x.result }\", needs: [x]}]\n"))
	c.fail("y", 1)
	id := w.workflow("kind: Workflow\nname: outer\napp: test\nnodes: [{id: before, processor: count}, {id: s, type: workflow, workflow: sub, needs: [before]}, {id: after, processor: count, params: \"${ nodes.s.result.y }\", needs: [s]}]\n", nil)
	require.Equal(t, engine.StatusFailed, w.waitWorkflow(id).Status)
	sub := w.node(id, "s").Child
	require.ErrorIs(t, w.server.RetryWorkflow(w.ctx, sub), engine.ErrConflict)
	require.ErrorContains(t, w.server.RetryWorkflow(w.ctx, sub), "retry that one")
	require.NoError(t, w.server.RetryWorkflow(w.ctx, id))
	n := w.reaches(id, "after", engine.StatusSucceeded)
	require.JSONEq(t, "5", string(n.Result))
	require.Equal(t, map[string]int{"before": 1, "x": 1, "y": 2, "after": 1}, c.all())
	wi, err := w.store.WorkflowInstance(w.ctx, sub)
	require.NoError(t, err)
	require.Equal(t, []any{int32(2), engine.StatusSucceeded}, []any{wi.Attempt, wi.Status})
}

func TestPauseWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 4, c.register)
	require.NoError(t, w.save("kind: Workflow\nname: sub\napp: test\nnodes: [{id: gate, type: signal}, {id: x, processor: count, needs: [gate]}]\n"))
	id := w.workflow("kind: Workflow\nname: pausing\napp: test\nnodes: [{id: s, type: workflow, workflow: sub}, {id: last, processor: count, needs: [s]}]\n", nil)
	sub := w.reaches(id, "s", engine.StatusRunning).Child
	w.reaches(sub, "gate", engine.StatusRunning)
	require.NoError(t, w.server.PauseWorkflow(w.ctx, id))
	paused := func(id int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			wi, err := w.store.WorkflowInstance(w.ctx, id)
			return err == nil && wi.Status == engine.StatusPaused
		}, 10*time.Second, 5*time.Millisecond)
	}
	paused(id)
	paused(sub)
	require.NoError(t, w.server.Signal(w.ctx, sub, server.Signal{Name: "gate"}))
	w.reaches(sub, "gate", engine.StatusSucceeded)
	require.Zero(t, w.node(sub, "x").Status, "nothing starts while it is paused")

	w.again() // the pause outlives the server
	w.worker("w2", 4, c.register)
	paused(sub)
	require.Zero(t, w.node(sub, "x").Status)
	require.NoError(t, w.server.ResumeWorkflow(w.ctx, id))
	require.Equal(t, engine.StatusSucceeded, w.waitWorkflow(id).Status)
	require.Equal(t, map[string]int{"x": 1, "last": 1}, c.all())
}

// Waits, signals that came early and nested workflows go on after the server is gone.
func TestFlow_SurvivesRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 4, c.register)
	require.NoError(t, w.save("kind: Workflow\nname: sub\napp: test\nnodes: [{id: gate, type: signal}, {id: x, processor: count, params: 7, needs: [gate]}]\n"))
	id := w.workflow(`
kind: Workflow
name: survivor
app: test
nodes:
  - {id: wait, type: wait, for: 1500ms}
  - {id: gate, type: signal}
  - {id: late, type: signal, signal: early, needs: [gate]}
  - {id: ok, type: approval, needs: [gate]}
  - {id: s, type: workflow, workflow: sub}
  - {id: short, type: signal, expires: 1500ms, default: 1}
  - {id: last, processor: count, params: "${ [nodes.late.result, nodes.s.result.x, nodes.short.result] }", needs: [wait, late, ok, s, short]}
`, nil)
	sub := w.reaches(id, "s", engine.StatusRunning).Child
	w.reaches(sub, "gate", engine.StatusRunning)
	due := w.reaches(id, "wait", engine.StatusRunning).DueAt
	require.NoError(t, w.server.Signal(w.ctx, id, server.Signal{Name: "early", Payload: json.RawMessage(`"kept"`)}))
	require.NoError(t, w.server.Approve(w.ctx, id, server.Approval{Node: "ok"}))
	w.again()
	w.worker("w2", 4, c.register)
	require.Equal(t, due, w.node(id, "wait").DueAt, "the timer is the stored one")
	require.NoError(t, w.server.Signal(w.ctx, id, server.Signal{Name: "gate"}))
	require.NoError(t, w.server.Signal(w.ctx, sub, server.Signal{Name: "gate"}))
	wi := w.waitWorkflow(id)
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	require.JSONEq(t, `{"last":["kept",7,1]}`, string(wi.Result))
	require.GreaterOrEqual(t, w.node(id, "wait").FinishedAt, due)
	require.Equal(t, map[string]int{"x": 1, "last": 1}, c.all())
}

// B22: what is over the bound is an error with the sizes, to the byte; adding nothing is fine.
// B23: parallel nodes never lose a key of their own.
func TestContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	c := newCounted()
	w.worker("w", 8, func(p *processor.Worker) {
		c.register(p)
		p.Register("add", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			var add map[string]any
			if err := task.Params(&add); err != nil {
				return nil, err
			}
			for k, v := range add {
				if err := task.AddContext(k, v); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}))
		p.Register("early", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			return nil, task.AddContext("k", 1)
		}))
		p.Register("large", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			if err := task.AddContext("small", 1); err != nil {
				return nil, err
			}
			return nil, task.AddContext("large", strings.Repeat("x", broker.MaxContextBytes))
		}))
	})
	var doc strings.Builder
	doc.WriteString("kind: Workflow\nname: parallel\napp: test\nnodes:\n")
	var needs []string
	for i := range 50 {
		fmt.Fprintf(&doc, "  - {id: a%d, processor: add, params: {key%d: %d, n: %d}}\n", i, i, i, i)
		needs = append(needs, fmt.Sprint("a", i))
	}
	fmt.Fprintf(&doc, "  - {id: last, processor: count, params: \"${ [context, len(keys(context))] }\", needs: [%s]}\n", strings.Join(needs, ", "))
	wi := w.waitWorkflow(w.workflow(doc.String(), nil))
	require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	var got struct{ Last []json.RawMessage }
	require.NoError(t, json.Unmarshal(wi.Result, &got))
	require.Equal(t, "51", string(got.Last[1]))
	var all map[string]int
	require.NoError(t, json.Unmarshal(got.Last[0], &all))
	for i := range 50 {
		require.Equal(t, i, all[fmt.Sprint("key", i)], "a key of its own is never lost")
	}
	require.Contains(t, all, "n")
	require.JSONEq(t, string(got.Last[0]), string(wi.Context))

	// {"k":"💥💥…"}: 8 bytes around the value.
	limited := func(value string, limit int) *engine.WorkflowInstance {
		return w.waitWorkflow(w.workflow(fmt.Sprintf("kind: Workflow\nname: limited\napp: test\ncontext_limit: %d\nnodes: [{id: a, processor: add, params: {k: \"%s\"}}]\n", limit, value), nil))
	}
	value := strings.Repeat("💥", 10)
	for limit, want := range map[int]engine.Status{47: engine.StatusFailed, 48: engine.StatusSucceeded, 49: engine.StatusSucceeded} {
		wi := limited(value, limit)
		require.Equal(t, want, wi.Status, "%d bytes: %s", limit, wi.Error)
		if want == engine.StatusFailed {
			require.Contains(t, wi.Error, "the context would have 48 bytes with the 48 added, the limit is 47")
			require.Empty(t, wi.Context)
		}
	}
	none := w.waitWorkflow(w.workflow("kind: Workflow\nname: none\napp: test\nnodes: [{id: a, processor: add, params: {}}]\n", nil))
	require.Equal(t, engine.StatusSucceeded, none.Status)
	require.Empty(t, none.Context)

	for name, want := range map[string]string{
		"{id: a, processor: early, mode: map}": "only a standalone task, Reduce and PostProcess can",
		"{id: a, processor: large}":            "at most 65536 are allowed",
	} {
		bad := w.waitWorkflow(w.workflow("kind: Workflow\nname: bad\napp: test\nnodes: ["+name+"]\n", nil))
		require.Equal(t, engine.StatusFailed, bad.Status)
		require.Contains(t, bad.Error, want)
		require.Empty(t, bad.Context)
	}
	w.job("alone", workflow.Spec{Processor: "early"})
	require.Contains(t, w.run("alone", "null").Error, "the task belongs to no workflow")
}
