package server_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

func TestServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for i := range 3 {
		w.worker("w"+strconv.Itoa(i), 4, func(p *processor.Worker) {
			p.Register("echo", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
				var v any
				err := task.Params(&v)
				return v, err
			}))
			p.Register("fail", processor.Func(func(context.Context, *processor.Task) (any, error) {
				return nil, errors.New("no luck 💥")
			}))
			p.Register("sum", sum())
			p.Register("share", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
				i, n := task.Shard()
				return []int{i, n}, nil
			}))
		})
	}
	w.job("echo", workflow.Spec{Processor: "echo"})
	w.job("fail", workflow.Spec{Processor: "fail", Retry: workflow.Retry{Max: 2, Delay: workflow.Duration(1e6)}})
	w.job("sum", workflow.Spec{Processor: "sum", Mode: workflow.MapReduce})
	w.job("share", workflow.Spec{Processor: "share", Mode: workflow.Broadcast})

	in := w.run("echo", `{"a":"💥"}`)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"a":"💥"}`, string(in.Result))

	in = w.run("fail", `null`)
	require.Equal(t, engine.StatusFailed, in.Status)
	require.EqualValues(t, 3, in.Attempt)
	require.Contains(t, in.Error, "no luck 💥")

	for _, n := range []int{0, 1, 1000, 20_000} {
		in = w.run("sum", `{"N":`+strconv.Itoa(n)+`}`)
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
		require.Equal(t, strconv.Itoa(n*(n+1)), string(in.Result))
	}

	in = w.run("share", `null`)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"total":3,"succeeded":3,"failed":0}`, string(in.Result))
}
