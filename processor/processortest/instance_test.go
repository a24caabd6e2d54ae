package processortest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/processortest"
)

func words() processor.MapReduce[[]string, string, int] {
	return processor.MapReduce[[]string, string, int]{
		Split: func(_ context.Context, _ *processor.Task, lines []string, emit func(string) error) error {
			for _, l := range lines {
				if err := emit(l); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, task *processor.Task, line string) (int, error) {
			if line == "bad" {
				return 0, fmt.Errorf("attempt %d of a bad line", task.TaskAttempt())
			}
			return len(strings.Fields(line)), nil
		},
		Combine: func(_ context.Context, counts []int) (sum int) {
			for _, n := range counts {
				sum += n
			}
			return sum
		},
		Reduce: func(_ context.Context, _ *processor.Task, counts *processor.Values[int]) (any, error) {
			sum, seen := 0, 0
			for n := range counts.All() {
				sum, seen = sum+n, seen+1
			}
			return map[string]any{"words": sum, "values": seen, "failed": counts.Errors()}, nil
		},
	}
}

func TestRun_MapReduce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		out := processortest.Run(t, words(), processortest.Task{Mode: processor.ModeMapReduce, Params: []string{"a b", "c", "", "d e f"}, Workers: workers})
		require.NoError(t, out.Err)
		require.JSONEq(t, `{"words":6,"values":2,"failed":null}`, string(out.Result))
		require.Equal(t, 4, out.SubTasks)
		require.Equal(t, 6, out.Runs)
	}
}

// C19.
func TestRun_MapReduce_of_nothing(t *testing.T) {
	t.Parallel()
	out := processortest.Run(t, words(), processortest.Task{Mode: processor.ModeMapReduce})
	require.NoError(t, out.Err)
	require.JSONEq(t, `{"words":0,"values":0,"failed":null}`, string(out.Result))
}

// C11: what fails, and whether the reduce runs.
func TestRun_failures(t *testing.T) {
	t.Parallel()
	task := processortest.Task{Mode: processor.ModeMapReduce, Params: []string{"a", "bad", "c"}, Attempts: 2}
	out := processortest.Run(t, words(), task)
	require.ErrorContains(t, out.Err, "1 of 3 sub-tasks failed, 0 may; the first: sub-task 2: attempt 2 of a bad line")
	require.Empty(t, out.Result)

	task.MaxFailed = 1
	out = processortest.Run(t, words(), task)
	require.NoError(t, out.Err)
	require.JSONEq(t, `{"words":2,"values":1,"failed":[{"Number":2,"Message":"attempt 2 of a bad line"}]}`, string(out.Result))

	after := words()
	split := after.Split
	after.Split = func(ctx context.Context, task *processor.Task, p []string, emit func(string) error) error {
		return errors.Join(split(ctx, task, p, emit), errors.New("late"))
	}
	out = processortest.Run(t, after, processortest.Task{Mode: processor.ModeMapReduce, Params: []string{"a", "b"}})
	require.ErrorContains(t, out.Err, "root: late")

	out = processortest.Run(t, words(), processortest.Task{Params: []string{"a"}})
	require.ErrorContains(t, out.Err, "the mode of the instance is standalone")
}

func TestRun_one_sub_task(t *testing.T) {
	t.Parallel()
	out := processortest.Run(t, words(), processortest.Task{Item: "one two three"})
	require.NoError(t, out.Err)
	var n int
	require.NoError(t, out.Decode(&n))
	require.Equal(t, 3, n)
	out = processortest.Run(t, words(), processortest.Task{Item: 5})
	require.ErrorContains(t, out.Err, "sub-task 1: decode item of sub-task 1 as *string")
}

func TestRun_retries_with_checkpoints_and_logs(t *testing.T) {
	t.Parallel()
	p := processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		at := 0
		if _, err := task.Checkpointed(&at); err != nil {
			return nil, err
		}
		task.Logger().Info("begin", "at", at)
		if err := task.Checkpoint(at + 10); err != nil {
			return nil, err
		}
		if task.TaskAttempt() < 3 {
			return nil, processor.RetryAfter(time.Hour)
		}
		return at, nil
	})
	out := processortest.Run(t, p, processortest.Task{Attempts: 5, Checkpoint: 1})
	require.NoError(t, out.Err)
	require.Equal(t, "21", string(out.Result))
	require.Equal(t, []string{"begin at=1", "begin at=11", "begin at=21"}, out.Lines)
	require.Len(t, out.Checkpoints, 3)
}

func TestRun_survives_what_a_worker_survives(t *testing.T) {
	t.Parallel()
	for text, fn := range map[string]func(context.Context) error{
		"root: panic: no":            func(context.Context) error { panic("no") },
		"root: the processor called": func(context.Context) error { runtime.Goexit(); return nil },
		"root: the task timed out":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"root: final":                func(context.Context) error { return processor.Cancel(errors.New("final")) },
	} {
		p := processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) { return nil, fn(ctx) })
		out := processortest.Run(t, p, processortest.Task{TaskTimeout: 10 * time.Millisecond})
		require.ErrorContains(t, out.Err, text)
	}
}

type sweep struct{ fail int }

func (s sweep) PreProcess(_ context.Context, task *processor.Task) error {
	task.Logger().Info("pre")
	return nil
}

func (s sweep) Process(_ context.Context, task *processor.Task) (any, error) {
	i, n := task.Shard()
	if i == s.fail {
		return nil, errors.New("disk is gone")
	}
	return fmt.Sprintf("%d/%d", i, n), nil
}

func (s sweep) PostProcess(_ context.Context, _ *processor.Task, shares *processor.Shares) (any, error) {
	var all []string
	for s := range shares.All() {
		var r string
		if err := s.Decode(&r); err != nil {
			return nil, err
		}
		all = append(all, r+s.Error)
	}
	return map[string]any{"all": all, "failed": shares.Failed()}, nil
}

func TestRun_broadcast(t *testing.T) {
	t.Parallel()
	out := processortest.Run(t, sweep{fail: -1}, processortest.Task{Mode: processor.ModeBroadcast, Workers: 3})
	require.NoError(t, out.Err)
	require.JSONEq(t, `{"all":["0/3","1/3","2/3"],"failed":0}`, string(out.Result))
	require.Equal(t, []string{"pre"}, out.Lines)
	out = processortest.Run(t, sweep{fail: 1}, processortest.Task{Mode: processor.ModeBroadcast, Workers: 3})
	require.ErrorContains(t, out.Err, "1 of 3 shares failed, 0 may")
	require.JSONEq(t, `{"all":["0/3","disk is gone","2/3"],"failed":1}`, string(out.Result))
}

func TestRun_Context(t *testing.T) {
	t.Parallel()
	add := processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		return nil, errors.Join(task.AddContext("a", 1), task.AddContext("b", "x"), task.AddContext("a", 2))
	})
	out := processortest.Execute(t.Context(), add, processortest.Task{Node: "n"})
	require.NoError(t, out.Err)
	require.JSONEq(t, `{"a":2,"b":"x"}`, string(out.Context))
	require.Error(t, processortest.Execute(t.Context(), add, processortest.Task{}).Err, "it belongs to no workflow")
}
