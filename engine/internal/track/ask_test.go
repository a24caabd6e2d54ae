package track_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second) // beats have been heard
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	require.Equal(t, broker.VerdictYours, r.asks("a", c).Verdict, "nobody is known to have it")
	require.Equal(t, broker.VerdictHeld, r.asks("b", c).Verdict, "a was given it")
	require.Equal(t, broker.VerdictYours, r.asks("a", c).Verdict, "it adopts the delivery")
	r.crew.inc["a"] = 9
	require.Equal(t, broker.VerdictYours, r.asks("b", c).Verdict, "that incarnation is gone")
	r.says("b", started(c), succeeded(c, "1"))
	require.Equal(t, broker.VerdictDone, r.asks("c", c).Verdict)
	other := *c
	other.Attempt = 7
	require.Equal(t, broker.VerdictDone, r.asks("c", &other).Verdict)
}

// A question is answered after the reports stored before it.
func TestAskWaitsForReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	var got *broker.AskReply
	q := &broker.AskRequest{Kind: broker.AskRun, ChunkKey: c.ChunkKey, Shard: rigShard, Worker: "b", Incarnation: 2}
	r.event("", track.Asked{Request: q, After: r.seq + 1, Reply: func(a *broker.AskReply) { got = a }})
	require.Nil(t, got)
	r.says("a", started(c), succeeded(c, "1"))
	require.Equal(t, broker.VerdictDone, got.Verdict)
}

// A new owner has heard no beats yet: it says so instead of guessing.
func TestAskOfNewOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.begin()
	require.Equal(t, broker.VerdictRetry, r.asks("b", c).Verdict)
	r.crew.holders[c.ChunkKey] = track.Target{Worker: "a", Incarnation: 1}
	require.Equal(t, broker.VerdictHeld, r.asks("b", c).Verdict)
	require.Equal(t, broker.VerdictYours, r.asks("a", c).Verdict)
}

// A task whose runs were lost three times fails (C26).
func TestLostThreeTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Retry: retries(5)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	for i := range 3 {
		r.crew.inc["a"] += 100 // it died and came back
		want := broker.VerdictYours
		if i == 2 {
			want = broker.VerdictDone
		}
		require.Equal(t, want, r.asks("a", c).Verdict, i)
	}
	require.Equal(t, "failed", r.status(1), "lost runs are not retried")
	require.Contains(t, r.rows[1].Error, "the worker died 3 times while running it")
}

// A chunk lost twice is split, so that the task that kills its worker is found alone; the
// others do not pay for it.
func TestLostChunkIsSplit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.names, r.crew.slots = []string{"a"}, 1
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, MaxFailed: workflow.Budget{Count: 1}})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 40)...)
	one := r.sent(1, subs, 1)
	r.says("a", mapped(succeeded(c, "", 0), 40, 7), started(one), succeeded(one, "")) // now the pace is known
	var many *broker.Chunk
	for _, c := range r.chunks() {
		if len(c.Tasks) > 2 {
			many = c
		}
	}
	require.NotNil(t, many)
	r.says("a", started(many))
	poison := many.Tasks[1].Number
	r.crew.inc["a"]++
	require.Equal(t, broker.VerdictYours, r.asks("a", many).Verdict)
	r.crew.inc["a"]++
	require.Equal(t, broker.VerdictDone, r.asks("a", many).Verdict)
	for _, task := range many.Tasks {
		single := r.sent(1, subs, task.Number)
		require.Len(t, single.Tasks, 1)
		r.says("a", started(single))
		if task.Number != poison {
			r.says("a", succeeded(single, ""))
			continue
		}
		for range 3 {
			r.crew.inc["a"]++
			r.asks("a", single)
		}
	}
	for n := int64(1); n <= 40; n++ {
		if n != poison {
			c := r.sent(1, subs, n)
			r.says("a", started(c), succeeded(c, "", n))
		}
	}
	require.Equal(t, "succeeded", r.status(1))
	require.EqualValues(t, 39, r.runs[1].Succeeded)
	require.EqualValues(t, 1, r.runs[1].Failed)
	require.Contains(t, r.tasks[engine.TaskKey{Instance: 1, Run: 1, Kind: engine.TaskSub, Number: poison}].Error, "died 3 times")
}

// permutations of 0..n-1.
func permutations(n int) (out [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			out = append(out, append(append(append([]int{}, p[:i]...), n-1), p[i:]...))
		}
	}
	return out
}

// Reports in every order, each of them twice: the rows in the end are the same.
func TestReportsInAnyOrder(t *testing.T) {
	t.Parallel()
	var want string
	for _, order := range permutations(6) {
		r := newRig(t)
		r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
		c := r.sent(1, root, 0)
		r.emits(c, 0, 7, 0, "x", "y")
		one, two := r.sent(1, subs, 1), r.sent(1, subs, 2)
		reps := []broker.Report{
			started(c), mapped(succeeded(c, "", 0), 2, 7),
			started(one), stored(succeeded(one, ""), 21), started(two), stored(succeeded(two, "", 2), 22),
		}
		for _, i := range order {
			r.says("a", reps[i])
			r.says("a", reps[i])
		}
		last := r.sent(1, reduce, 0)
		r.says("b", succeeded(last, "3"))
		r.says("b", started(last))
		r.says("b", succeeded(last, "4"))
		in := r.rows[1]
		got := fmt.Sprintf("%s %s %q %d %d %v %d", in.Status, in.Result, in.Error, r.runs[1].Total, r.runs[1].Succeeded, r.runs[1].Closed, len(r.tasks))
		if want == "" {
			want = got
			require.Equal(t, "succeeded", in.Status.String())
		}
		require.Equal(t, want, got, "order %v\n%s", order, r.log.String())
	}
}

// A failure counts only from the run that holds the task; a success of any run does.
func TestFailureOfAnotherRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.says("b", failed(c, 0, broker.ErrorFailed, "not mine"))
	require.Equal(t, "running", r.status(1))
	r.says("b", succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
}

// Values are accepted as a whole message or not at all.
func TestResultsArePartlyAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.names, r.crew.slots = []string{"a"}, 1
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 40)...)
	one := r.sent(1, subs, 1)
	r.says("a", mapped(succeeded(c, "", 0), 40, 7), started(one), stored(succeeded(one, ""), 100))
	var many *broker.Chunk
	for _, c := range r.chunks() {
		if len(c.Tasks) > 2 {
			many = c
		}
	}
	require.NotNil(t, many)
	a, b, d := many.Tasks[0].Number, many.Tasks[1].Number, many.Tasks[2].Number
	r.says("a", started(many), stored(succeeded(many, "", a, b), 101))
	r.says("a", stored(succeeded(many, "", b, d), 102)) // b is final: d must run again
	require.NotEqual(t, many.Chunk, r.sent(1, subs, d).Chunk)
	require.EqualValues(t, 3, r.runs[1].Succeeded)
	again := r.sent(1, subs, d)
	r.says("a", started(again), stored(succeeded(again, ""), 103))
	require.EqualValues(t, 4, r.runs[1].Succeeded)
	for n := int64(2); n <= 40; n++ {
		c := r.sent(1, subs, n)
		if n != a && n != b && n != d {
			r.says("a", started(c), stored(succeeded(c, "", n), 200+uint64(n)))
		}
	}
	last := r.sent(1, reduce, 0)
	var got *broker.AskReply
	r.event("", track.Asked{
		Request: &broker.AskRequest{Kind: broker.AskResults, ChunkKey: last.ChunkKey, Shard: rigShard},
		After:   r.seq, Reply: func(a *broker.AskReply) { got = a },
	})
	require.Equal(t, broker.Range{First: 100, Last: 101}, got.Results[0])
	require.Equal(t, broker.Range{First: 103, Last: 103}, got.Results[1])
}

// A mapper that runs again is skipped by index; other items, or fewer, fail the run.
func TestMapperRunsAgain(t *testing.T) {
	t.Parallel()
	for name, second := range map[string][]string{"": {"x", "y", "z"}, "first 2 items differ": {"x", "other", "z"}, "emitted 1 items, an earlier run of it 2": {"x"}} {
		r := newRig(t)
		r.wait(10 * time.Second)
		r.trigger(1, workflow.Spec{Mode: workflow.Map})
		c := r.sent(1, root, 0)
		r.says("a", started(c))
		r.emits(c, 0, 7, 0, "x", "y")
		r.crew.inc["a"] = 50
		require.Equal(t, broker.VerdictYours, r.asks("b", c).Verdict)
		r.emits(c, 0, 8, 0, second...)
		r.says("b", mapped(succeeded(c, "", 0), int64(len(second)), 8))
		if name != "" {
			require.Equal(t, "failed", r.status(1), name)
			require.Contains(t, r.rows[1].Error, "mapper is not repeatable")
			require.Contains(t, r.rows[1].Error, name)
			continue
		}
		for n := int64(1); n <= 3; n++ {
			leaf := r.sent(1, subs, n)
			require.Equal(t, second[n-1], string(leaf.Tasks[0].Item))
			r.says("c", started(leaf), succeeded(leaf, ""))
		}
		require.Equal(t, "succeeded", r.status(1))
		require.EqualValues(t, 3, r.runs[1].Total)
	}
}

// A batch staged twice, or out of order after a failure of the broker, counts once.
func TestStageDoubledAndAfterGap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 2, "3", "4") // the one before it was lost
	r.begin()                     // and a new owner begins to read here
	r.emits(c, 0, 7, 0, "1", "2")
	r.emits(c, 0, 7, 0, "1", "2")
	r.emits(c, 0, 7, 2, "3", "4")
	r.says("a", mapped(succeeded(c, "", 0), 4, 7))
	for n := int64(1); n <= 4; n++ {
		leaf := r.sent(1, subs, n)
		require.Equal(t, fmt.Sprint(n), string(leaf.Tasks[0].Item))
		r.says("b", started(leaf), succeeded(leaf, ""))
	}
	require.Equal(t, "succeeded", r.status(1))
}

func TestLostStageFailsTheRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c), mapped(succeeded(c, "", 0), 4, 7))
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "the stage has lost items")
}

func TestUndecodableAndUnknownReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	r.seq++
	r.event("", track.Reported{Shard: rigShard, Seq: r.seq, Raw: []byte("rubbish"), Err: broker.ErrUndecodable})
	require.Len(t, r.dead, 1)
	require.Equal(t, "rubbish", string(r.dead[0].Payload))
	require.Equal(t, r.seq, r.cursor)
	c := *r.sent(1, root, 0)
	c.Instance = 404
	odd := succeeded(&c, "1")
	odd.Kind = 99
	r.says("z", succeeded(&c, "1"), odd, started(&c))
	require.Equal(t, "dispatched", r.status(1))
	require.Positive(t, r.o.Stats().Stale)
	// A report that changed nothing moves the cursor in time.
	b := r.o.MoveCursors()
	require.Len(t, b.Changes, 1)
	require.Equal(t, r.seq, b.Changes[0].Change.Cursor)
	require.Empty(t, r.o.MoveCursors().Changes)
}

// The cursor must not be stored ahead of what the reports changed.
func TestMoveCursorsWaitsForTheRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.o.Handle(r.now, track.Reported{Shard: rigShard, Seq: 5, Batch: &broker.ReportBatch{App: "acme", Worker: "a", Incarnation: 1, Reports: []broker.Report{started(c)}}})
	require.Empty(t, r.o.MoveCursors().Changes)
	require.Len(t, r.o.Take().Changes, 1)
}
