package track_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// A take-over lists, takes in the reports and sends again what is missing: no more.
func TestTakeOverStory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.MapReduce})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "x", "y", "z")
	one, two, three := r.sent(1, subs, 1), r.sent(1, subs, 2), r.sent(1, subs, 3)
	r.says("b", started(one), stored(succeeded(one, ""), 31))
	r.begin()
	n := len(r.chunks())
	r.wait(10 * time.Second) // beats are heard; nothing is sent on a guess
	require.Len(t, r.chunks(), n)
	// The root is in its lane, 2 is held, 3 is nowhere, and 2's report is on its way.
	r.crew.holders[two.ChunkKey] = track.Target{Worker: "b", Incarnation: 2}
	r.listed(map[int64][]int64{1: {c.Chunk}})
	require.Len(t, r.chunks(), n+1)
	require.Equal(t, three.ChunkKey, r.chunks()[n].ChunkKey)
	r.says("b", stored(succeeded(two, ""), 32), stored(succeeded(r.chunks()[n], ""), 33))
	r.says("a", mapped(succeeded(c, "", 0), 3, 7))
	last := r.sent(1, reduce, 0)
	r.begin() // once more, while it reduces
	r.wait(10 * time.Second)
	r.listed(map[int64][]int64{1: {last.Chunk}})
	r.says("a", started(last), succeeded(last, "6"))
	require.Equal(t, "succeeded", r.status(1))
	r.golden("take_over")
}

// The difference is sent after the reports up to the listing are taken in, not before.
func TestListedWaitsForReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.begin()
	r.wait(10 * time.Second)
	late := lastEffect[track.List](r)
	r.event("", track.Listed{App: 1, Ask: late.Ask, Instances: late.Instances, After: map[uint8]uint64{rigShard: r.seq + 1}})
	require.Len(t, r.chunks(), 1)
	r.says("a", started(c), succeeded(c, "1"))
	require.Len(t, r.chunks(), 1)
	require.Equal(t, "succeeded", r.status(1))
}

func TestUnpublishedIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.event("", track.Unpublished{Shard: rigShard, Key: c.ChunkKey, Err: broker.ErrUnavailable})
	r.wait(2 * time.Second)
	r.listed(nil)
	require.Len(t, r.chunks(), 2)
	// It is in its lane now: another listing sends nothing.
	r.event("", track.BrokerUp{})
	r.listed(map[int64][]int64{1: {c.Chunk}})
	require.Len(t, r.chunks(), 2)
}

// C20: nobody says a word for long: it is looked for.
func TestSilentInstanceIsLookedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	r.wait(20 * time.Second)
	r.fresh = nil
	r.wait(15 * time.Second)
	r.listed(nil)
	require.Len(t, r.chunks(), 2)
}

func TestCursorReset(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.seq = 0
	r.event("", track.CursorReset{Shard: rigShard, End: 0})
	require.Zero(t, r.o.Cursor(rigShard))
	require.Zero(t, r.cursor)
	r.listed(map[int64][]int64{1: {c.Chunk}})
	r.says("a", succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
}

// A row read before the shard was lost may be old: it is not started.
func TestFetchedForAnEarlierOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.instance(5, workflow.Spec{})
	r.rows[5] = in
	r.o.Handle(r.now, track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, in.Lane, in.Pool), DueAt: in.DueAt}}})
	b := r.o.Take()
	var fetch *track.Fetch
	for _, e := range b.After {
		if f, ok := e.(track.Fetch); ok {
			fetch = &f
		}
	}
	require.NotNil(t, fetch)
	old := r.waiting(*fetch)
	in.Status = engine.StatusSucceeded
	r.rows[5] = in
	r.event("", track.Lost{Shard: rigShard})
	r.gen++
	r.load()
	r.event("", track.Fetched{Queue: fetch.Queue, Rows: old, Due: fetch.Due, Limit: fetch.Limit})
	require.Empty(t, r.chunks())
}

func TestLostShardAnswersItsCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var got error
	r.o.Handle(r.now, track.Triggered{Row: r.row(r.instance(1, workflow.Spec{})), Done: func(err error) { got = err }})
	r.event("", track.Lost{Shard: rigShard})
	require.ErrorIs(t, got, engine.ErrFenced)
	r.event("", track.Triggered{Row: r.row(r.instance(2, workflow.Spec{})), Done: func(err error) { got = err }})
	require.ErrorIs(t, got, engine.ErrFenced)
	require.Empty(t, r.rows)
}

// A checkpoint is handed to the next run, the next owner, and the next attempt.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Retry: retries(2)})
	c := r.sent(1, root, 0)
	point := broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportCheckpoint, Phase: root, Numbers: []int64{0}, TaskAttempt: 1, Emitted: -1, Result: []byte("half")}
	r.says("a", started(c), point)
	r.begin()
	r.wait(10 * time.Second)
	r.listed(nil)
	require.Equal(t, "half", string(r.sent(1, root, 0).Tasks[0].Checkpoint))
	r.says("b", started(c), failed(c, 0, broker.ErrorFailed, "x"))
	r.wait(time.Second)
	c = r.sent(1, root, 0)
	require.EqualValues(t, 2, c.Attempt)
	require.Equal(t, "half", string(c.Tasks[0].Checkpoint))
	r.begin()
	r.wait(10 * time.Second)
	r.listed(nil)
	require.Equal(t, "half", string(r.sent(1, root, 0).Tasks[0].Checkpoint))
	r.says("b", started(c), succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
}

// A checkpoint that comes after the task's failure does not undo its retry.
func TestLateCheckpointOfSubTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, TaskRetry: retries(1)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "x", "y")
	r.says("a", mapped(succeeded(c, "", 0), 2, 7))
	one, two := r.sent(1, subs, 1), r.sent(1, subs, 2)
	point := broker.Report{ChunkKey: one.ChunkKey, Kind: broker.ReportCheckpoint, Phase: subs, Numbers: []int64{1}, TaskAttempt: 1, Emitted: -1, Result: []byte("half")}
	r.says("b", started(one), failed(one, 1, broker.ErrorFailed, "x"), point)
	r.says("b", started(two), succeeded(two, ""))
	r.wait(time.Second)
	one = r.sent(1, subs, 1)
	require.EqualValues(t, 2, one.Tasks[0].Attempt)
	r.says("b", started(one), succeeded(one, ""))
	require.Equal(t, "succeeded", r.status(1))
}

// A damaged row fails its instance with a reason; the others of the shard go on (C23).
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	r.trigger(2, workflow.Spec{Mode: workflow.Map})
	r.trigger(3, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 30)...)
	for n := int64(1); n < 12; n++ {
		s := r.sent(1, subs, n)
		r.says("b", started(s), succeeded(s, ""))
	}
	good := r.runs[1].State
	dice := rand.New(rand.NewPCG(1, 2))
	readable := 0
	for i := range 4000 {
		state := slices.Clone(good)
		switch i % 3 {
		case 0:
			state = state[:dice.IntN(len(state))]
		case 1:
			for range 1 + dice.IntN(4) {
				state[dice.IntN(len(state))] = byte(dice.Uint32())
			}
		default:
			state = append(state, make([]byte, 1+dice.IntN(9))...)
		}
		o := track.New(track.Config{}, r.crew, nil)
		in := r.rows[1]
		o.Handle(r.now, track.Gained{
			State: &engine.ShardState{Shard: engine.Shard{Shard: rigShard}, Instances: []engine.Instance{in}, Runs: []engine.MapRun{{Instance: 1, Run: 1, State: state}}},
			Rows:  []track.Row{r.row(in)},
		})
		b := o.Take()
		if len(b.Changes) == 0 || len(b.Changes[0].Change.Instances) == 0 {
			readable++
			continue
		}
		require.Contains(t, b.Changes[0].Change.Instances[0].Error, "the state of its map run cannot be read")
	}
	require.Less(t, readable, 2500)
	run := r.runs[1]
	run.State = []byte{250}
	r.runs[1] = run
	delete(r.runs, 2)
	r.begin()
	require.Equal(t, "failed", r.status(1))
	require.Equal(t, "failed", r.status(2))
	require.Contains(t, r.rows[2].Error, "the state of its map run is gone")
	require.Equal(t, "dispatched", r.status(3))
}

// Whatever the run has come to, a new owner ends with the same as the old one: the state is
// stored and read back after every step.
func TestStateSurvivesAnyMoment(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		dice := rand.New(rand.NewPCG(seed, 9))
		r := newRig(t)
		r.wait(10 * time.Second)
		r.trigger(1, workflow.Spec{Mode: workflow.MapReduce, TaskRetry: retries(3)})
		c := r.sent(1, root, 0)
		r.says("a", started(c))
		total := int64(1 + dice.IntN(60))
		for at := int64(0); at < total; {
			n := min(1+dice.Int64N(10), total-at)
			r.emits(c, 0, 7, at, slices.Repeat([]string{"x"}, int(n))...)
			at += n
		}
		r.says("a", mapped(succeeded(c, "", 0), total, 7))
		result, tried := uint64(0), map[int64]int{}
		for step := 0; r.status(1) == "running"; step++ {
			require.Less(t, step, 2000)
			if dice.IntN(4) == 0 {
				r.begin()
				r.wait(10 * time.Second)
				r.listed(nil) // all that is not finished is sent again
			}
			all := r.chunks()
			c := all[len(all)-1-dice.IntN(min(len(all), 20))]
			if c.Phase == reduce {
				r.says("a", started(c), succeeded(c, "1"))
				continue
			}
			n := c.Tasks[dice.IntN(len(c.Tasks))].Number
			switch dice.IntN(3) {
			case 0:
				result++
				r.says("b", started(c), stored(succeeded(c, ""), result))
			case 1:
				result++
				r.says("b", started(c), stored(succeeded(c, "", n), result))
			default:
				if tried[n]++; tried[n] <= 3 {
					r.says("b", started(c), failed(c, n, broker.ErrorFailed, "x"))
				}
			}
			r.wait(500 * time.Millisecond)
			if step > 200 { // enough: everything that is left succeeds
				for _, c := range all {
					result++
					r.says("b", started(c), stored(succeeded(c, ""), result))
				}
			}
		}
		require.Equal(t, "succeeded", r.status(1), "seed %d\n%s", seed, r.rows[1].Error)
		require.Equal(t, total, r.runs[1].Succeeded)
		require.Empty(t, r.tasks, fmt.Sprint(seed))
	}
}
