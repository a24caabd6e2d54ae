package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

func (w *world) workflow(doc string, params map[string]json.RawMessage) int64 {
	w.t.Helper()
	d, err := workflow.Parse("test.yaml", []byte(doc))
	require.NoError(w.t, err)
	id, err := w.server.StartWorkflow(w.ctx, server.Start{Definition: d, Params: params})
	require.NoError(w.t, err)
	return id
}

func (w *world) waitWorkflow(id int64) *engine.WorkflowInstance {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 60*time.Second)
	defer cancel()
	wi, err := w.server.WaitWorkflow(ctx, id)
	require.NoError(w.t, err)
	return wi
}

func TestWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	w.worker("w", 8, func(p *processor.Worker) {
		p.Register("echo", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			var v any
			err := task.Params(&v)
			return v, err
		}))
		p.Register("fail", processor.Func(func(context.Context, *processor.Task) (any, error) { return nil, errors.New("broken") }))
		p.Register("hang", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-release:
				return "released", nil
			}
		}))
		p.Register("sum", sum())
	})

	t.Run("results flow downstream", func(t *testing.T) {
		id := w.workflow(`
kind: Workflow
name: flow
app: test
params: {n: 100}
nodes:
  - {id: a, processor: echo, params: {n: "${ params.n }"}}
  - {id: b, processor: sum, mode: map_reduce, params: {N: "${ nodes.a.result.n }"}, needs: [a]}
  - {id: big, type: decision, expr: nodes.b.result > 10, needs: [b]}
  - {id: c, processor: echo, params: "sum is ${ nodes.b.result }", needs: [{node: big, when: true}]}
  - {id: d, processor: echo, params: {}, needs: [{node: big, when: false}]}
`, map[string]json.RawMessage{"n": json.RawMessage("1000")})
		wi := w.waitWorkflow(id)
		require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
		require.JSONEq(t, `{"c":"sum is 1001000"}`, string(wi.Result))
		require.Equal(t, engine.StatusSkipped, w.node(id, "d").Status)
	})
	t.Run("a failure stops what runs", func(t *testing.T) {
		id := w.workflow(`
kind: Workflow
name: failing
app: test
nodes:
  - {id: hang, processor: hang}
  - {id: fail, processor: fail}
  - {id: next, processor: echo, needs: [hang]}
`, nil)
		wi := w.waitWorkflow(id)
		require.Equal(t, engine.StatusFailed, wi.Status)
		require.Contains(t, wi.Error, "broken")
		require.Equal(t, engine.StatusStopped, w.node(id, "hang").Status)
		require.Equal(t, engine.StatusCanceled, w.node(id, "next").Status)
	})
	t.Run("stop", func(t *testing.T) {
		id := w.workflow(`
kind: Workflow
name: stopping
app: test
nodes:
  - {id: hang, processor: hang}
  - {id: next, processor: echo, needs: [hang]}
`, nil)
		require.Eventually(t, func() bool { return w.node(id, "hang").Status == engine.StatusRunning }, 10*time.Second, 5*time.Millisecond)
		require.NoError(t, w.server.StopWorkflow(w.ctx, id))
		wi := w.waitWorkflow(id)
		require.Equal(t, engine.StatusStopped, wi.Status)
		require.Equal(t, engine.StatusStopped, w.node(id, "hang").Status)
	})
	t.Run("a thousand nodes in ten layers", func(t *testing.T) {
		wi := w.waitWorkflow(w.workflow(layers(10, 100), nil))
		require.Equal(t, engine.StatusSucceeded, wi.Status, wi.Error)
	})
	t.Run("a job that is not there", func(t *testing.T) {
		wi := w.waitWorkflow(w.workflow("kind: Workflow\nname: nojob\napp: test\nnodes: [{id: a, job: missing}]\n", nil))
		require.Equal(t, engine.StatusFailed, wi.Status)
		require.Contains(t, wi.Error, `job "missing" is not in app "test"`)
	})
}

// layers is a workflow of layers of width nodes, each needing three of the layer before.
func layers(depth, width int) string {
	var b strings.Builder
	b.WriteString("kind: Workflow\nname: layers\napp: test\nnodes:\n")
	for d := range depth {
		for i := range width {
			fmt.Fprintf(&b, "  - {id: n%d-%d, processor: echo, params: {i: %d}", d, i, i)
			if d > 0 {
				fmt.Fprintf(&b, ", needs: [n%d-%d, n%d-%d, n%d-%d]", d-1, i, d-1, (i+1)%width, d-1, (i+2)%width)
			}
			b.WriteString("}\n")
		}
	}
	return b.String()
}
