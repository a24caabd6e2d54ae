package track_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

const (
	root   = broker.PhaseRoot
	subs   = broker.PhaseSub
	reduce = broker.PhaseReduce
)

func retries(n int) workflow.Retry {
	none := 0.0
	return workflow.Retry{Max: n, Delay: workflow.Duration(100 * time.Millisecond), Jitter: &none}
}

func TestStandaloneStory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Retry: retries(1)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.says("a", failed(c, 0, broker.ErrorFailed, "boom"))
	r.wait(200 * time.Millisecond)
	c = r.sent(1, root, 0)
	require.EqualValues(t, 2, c.Attempt)
	r.says("b", started(c), succeeded(c, `"ok"`))
	require.Equal(t, "succeeded", r.status(1))
	require.Len(t, r.tries, 1)
	r.golden("standalone")
}

// One commit takes start and end of a quick task: the row is written twice in all.
func TestQuickInstanceIsWrittenTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c), succeeded(c, `1`))
	require.Equal(t, 2, strings.Count(r.log.String(), "  instance 1:"))
	require.Equal(t, "succeeded", r.status(1))
}

func TestMapReduceStory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce, TaskRetry: retries(1)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "x", "y", "z")
	r.says("a", mapped(succeeded(c, "", 0), 3, 7))
	one := r.sent(1, subs, 1)
	r.says("b", started(one), stored(succeeded(one, ""), 11))
	two := r.sent(1, subs, 2)
	r.says("b", started(two), failed(two, 2, broker.ErrorFailed, "not yet"))
	three := r.sent(1, subs, 3)
	r.says("c", started(three), stored(succeeded(three, "", 3), 12))
	r.wait(200 * time.Millisecond)
	two = r.sent(1, subs, 2)
	require.EqualValues(t, 2, two.Tasks[0].Attempt)
	r.says("b", started(two), stored(succeeded(two, ""), 13))
	last := r.sent(1, reduce, 0)
	var got *broker.AskReply
	r.event("a asks for results", track.Asked{
		Request: &broker.AskRequest{Kind: broker.AskResults, ChunkKey: last.ChunkKey, Shard: rigShard, Worker: "a", Incarnation: 1},
		After:   r.seq, Reply: func(a *broker.AskReply) { got = a },
	})
	require.Equal(t, []broker.Range{{First: 11, Last: 13}}, got.Results)
	require.EqualValues(t, 3, got.Total)
	r.says("a", started(last), succeeded(last, "6"))
	require.Equal(t, "succeeded", r.status(1))
	require.Equal(t, "6", string(r.rows[1].Result))
	require.True(t, r.runs[1].Closed)
	require.Empty(t, r.tasks)
	r.golden("map_reduce")
}

func TestNestedMapStory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "tree")
	r.says("a", mapped(succeeded(c, `"done"`, 0), 1, 7))
	inner := r.sent(1, subs, 1)
	r.says("b", started(inner))
	r.emits(inner, 1, 8, 0, "leaf", "leaf")
	r.says("b", mapped(succeeded(inner, "", 1), 2, 8))
	for n := int64(2); n <= 3; n++ {
		leaf := r.sent(1, subs, n)
		r.says("c", started(leaf), succeeded(leaf, ""))
	}
	require.Equal(t, "succeeded", r.status(1))
	require.EqualValues(t, 3, r.runs[1].Succeeded)
	r.golden("nested")
}

// C19: nothing to map is an ordinary map.
func TestMapOfZero(t *testing.T) {
	t.Parallel()
	for _, emitted := range []int64{0, -1} {
		r := newRig(t)
		r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
		c := r.sent(1, root, 0)
		r.says("a", started(c), mapped(succeeded(c, "", 0), emitted, 7))
		last := r.sent(1, reduce, 0)
		r.says("a", started(last), succeeded(last, "0"))
		require.Equal(t, "succeeded", r.status(1))
		r = newRig(t)
		r.trigger(2, workflow.Spec{Mode: workflow.Map})
		c = r.sent(2, root, 0)
		r.says("a", started(c), mapped(succeeded(c, "", 0), emitted, 7))
		require.Equal(t, "succeeded", r.status(2))
	}
}

// emit: atomic feeds nothing before the mapper's success, and then only what that run of
// it has emitted.
func TestAtomicEmit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, Emit: workflow.EmitAtomic})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "other", "items")
	r.emits(c, 0, 8, 0, "x", "y")
	require.Len(t, r.chunks(), 1)
	r.says("b", mapped(succeeded(c, "", 0), 2, 8))
	require.Equal(t, "x", string(r.sent(1, subs, 1).Tasks[0].Item))
	for n := int64(1); n <= 2; n++ {
		leaf := r.sent(1, subs, n)
		r.says("c", started(leaf), succeeded(leaf, ""))
	}
	require.Equal(t, "succeeded", r.status(1))
	require.EqualValues(t, 2, r.runs[1].Total)
}

// C11: what a failed root means.
func TestRootFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
	c := r.sent(1, root, 0)
	r.says("a", started(c), failed(c, 0, broker.ErrorFailed, "before"))
	require.Equal(t, "failed", r.status(1))

	r.trigger(2, workflow.Spec{Mode: workflow.MapReduce})
	c = r.sent(2, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "x")
	r.says("a", mapped(failed(c, 0, broker.ErrorFailed, "after"), 1, 7))
	require.Equal(t, "running", r.status(2), "what was emitted still runs")
	leaf := r.sent(2, subs, 1)
	r.says("b", started(leaf), stored(succeeded(leaf, ""), 5))
	require.Equal(t, "failed", r.status(2))
	require.Contains(t, r.rows[2].Error, "after")
	for _, c := range r.chunks() {
		require.NotEqual(t, reduce, c.Phase, "no reduce")
	}
}

// A sub-task that emitted and then failed for good: its children run, no reduce, failed.
func TestFailedMapperInside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce, MaxFailed: workflow.Budget{Percent: 90}})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "tree")
	r.says("a", mapped(succeeded(c, "", 0), 1, 7))
	inner := r.sent(1, subs, 1)
	r.says("b", started(inner))
	r.staged++
	r.stage[1] = append(r.stage[1], broker.Staged{Seq: r.staged, StageBatch: broker.StageBatch{Instance: 1, Run: 1, Mapper: 1, Token: 9, Items: [][]byte{[]byte("leaf")}}})
	r.says("b", mapped(failed(inner, 1, broker.ErrorFailed, "half way"), 1, 9))
	leaf := r.sent(1, subs, 2)
	r.says("c", started(leaf), stored(succeeded(leaf, ""), 5))
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "half way")
}

func TestFailureBudget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		budget workflow.Budget
		fail   int64
		want   string
	}{
		{workflow.Budget{}, 1, "failed"},
		{workflow.Budget{Count: 1}, 1, "running"},
		{workflow.Budget{Count: 1}, 2, "failed"},
		{workflow.Budget{Percent: 50}, 2, "running"},
		{workflow.Budget{Percent: 50}, 3, "failed"},
		{workflow.Budget{Percent: 10, Count: 3}, 3, "running"},
	} {
		r := newRig(t)
		r.trigger(1, workflow.Spec{Mode: workflow.MapReduce, MaxFailed: tc.budget})
		c := r.sent(1, root, 0)
		r.says("a", started(c))
		r.emits(c, 0, 7, 0, "1", "2", "3", "4")
		r.says("a", mapped(succeeded(c, "", 0), 4, 7))
		for n := int64(1); n <= 4; n++ {
			if r.status(1) == "failed" {
				break
			}
			leaf := r.sent(1, subs, n)
			if n <= tc.fail {
				r.says("b", started(leaf), failed(leaf, n, broker.ErrorPermanent, "bad item"))
			} else {
				r.says("b", started(leaf), stored(succeeded(leaf, ""), uint64(n)))
			}
		}
		require.Equal(t, tc.want, r.status(1), "%+v with %d failures", tc.budget, tc.fail)
		if tc.want == "failed" {
			require.Contains(t, r.rows[1].Error, "bad item")
			continue
		}
		last := r.sent(1, reduce, 0)
		var got *broker.AskReply
		r.event("", track.Asked{
			Request: &broker.AskRequest{Kind: broker.AskResults, ChunkKey: last.ChunkKey, Shard: rigShard},
			After:   r.seq, Reply: func(a *broker.AskReply) { got = a },
		})
		require.Equal(t, tc.fail, got.Failed)
		require.Len(t, got.Errors, int(tc.fail))
		r.says("a", started(last), succeeded(last, "0"))
		require.Equal(t, "succeeded", r.status(1))
	}
}

func TestPermanentAndRetryAfter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Retry: retries(5)})
	c := r.sent(1, root, 0)
	r.says("a", started(c), failed(c, 0, broker.ErrorPermanent, "no use"))
	require.Equal(t, "failed", r.status(1))

	r.trigger(2, workflow.Spec{Retry: retries(5)})
	c = r.sent(2, root, 0)
	rep := failed(c, 0, broker.ErrorFailed, "later")
	rep.Error.RetryAfter = 30 * time.Second
	r.says("a", started(c), rep)
	require.Equal(t, r.now+30_000, r.rows[2].DueAt)
	r.wait(29 * time.Second)
	require.Equal(t, "waiting", r.status(2))
	r.wait(2 * time.Second)
	require.Equal(t, "dispatched", r.status(2))
}

// The pause before a further reduce is kept whatever happens meanwhile.
func TestReduceIsRetriedAloneAndLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce, TaskRetry: retries(1)})
	c := r.sent(1, root, 0)
	r.says("a", started(c), mapped(succeeded(c, "", 0), 0, 7))
	last := r.sent(1, reduce, 0)
	rep := failed(last, 0, broker.ErrorFailed, "reduce broke")
	rep.Error.RetryAfter = 10 * time.Second
	r.says("a", started(last), rep)
	n := len(r.chunks())
	r.event("broker up", track.BrokerUp{})
	r.listed(nil)
	require.Len(t, r.chunks(), n)
	r.wait(11 * time.Second)
	require.Len(t, r.chunks(), n+1)
	last = r.sent(1, reduce, 0)
	r.says("a", started(last), failed(last, 0, broker.ErrorFailed, "again"))
	require.Equal(t, "failed", r.status(1))
}

// C02: a final status is final; a late success is kept beside it.
func TestLateSuccessIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Timeout: workflow.Duration(5 * time.Second)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.wait(6 * time.Second)
	require.Equal(t, "timed_out", r.status(1))
	r.says("a", succeeded(c, `"late"`))
	r.says("a", started(c))
	r.says("a", failed(c, 0, broker.ErrorFailed, "late too"))
	require.Equal(t, "timed_out", r.status(1))
	require.Equal(t, `"late"`, string(r.rows[1].Late))
	r.golden("late")
}

// C40: stop in every state.
func TestStop(t *testing.T) {
	t.Parallel()
	stop := func(r *rig, id int64) {
		r.event("stop", track.Command{Command: engine.Command{ID: 77, Shard: rigShard, Kind: engine.CommandStop, Target: id}})
	}
	states := map[string]func(r *rig){
		"canceled": func(r *rig) { // it waits in SQL
			r.crew.names = nil
			r.trigger(1, workflow.Spec{})
		},
		"stopped dispatched": func(r *rig) { r.trigger(1, workflow.Spec{Retry: retries(3)}) },
		"stopped running": func(r *rig) {
			r.trigger(1, workflow.Spec{Retry: retries(3)})
			r.says("a", started(r.sent(1, root, 0)))
		},
		"stopped mapping": func(r *rig) {
			r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
			r.says("a", started(r.sent(1, root, 0)))
			r.emits(r.sent(1, root, 0), 0, 7, 0, "x", "y")
		},
		"stopped reducing": func(r *rig) {
			r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
			c := r.sent(1, root, 0)
			r.says("a", started(c), mapped(succeeded(c, "", 0), 0, 7))
		},
		"stopped broadcast": func(r *rig) { r.trigger(1, workflow.Spec{Mode: workflow.Broadcast}) },
		"canceled retry": func(r *rig) {
			r.trigger(1, workflow.Spec{Retry: retries(3)})
			c := r.sent(1, root, 0)
			r.says("a", started(c), failed(c, 0, broker.ErrorFailed, "x"))
		},
	}
	for name, prepare := range states {
		r := newRig(t)
		prepare(r)
		sent := len(r.chunks())
		stop(r, 1)
		want, _, _ := strings.Cut(name, " ")
		require.Equal(t, want, r.status(1), name)
		require.Equal(t, []int64{77}, r.gone, name)
		if want == "stopped" {
			require.Contains(t, r.log.String(), "order kind 1 instance 1", name)
			require.Contains(t, r.log.String(), "purge 1", name)
		}
		for _, k := range r.keys(1) {
			require.True(t, r.tasks[k].Status.Terminal(), "%s: task %v", name, k)
		}
		r.crew.names = []string{"a"}
		r.event("", track.WorkerNews{App: "acme"})
		r.wait(10 * time.Second)
		require.Len(t, r.chunks(), sent, "%s: nothing starts after the stop", name)
		require.Equal(t, want, r.status(1), name)
		require.Zero(t, r.o.Stats().Active, name)
		stop(r, 1) // again: nothing to do, and answered
		require.Len(t, r.gone, 2, name)
	}
}
