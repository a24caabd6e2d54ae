package track_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// lastEffect is the last effect of its kind; the zero value if there was none.
func lastEffect[T track.Effect](r *rig) (last T) {
	for _, e := range r.done {
		if x, ok := e.(T); ok {
			last = x
		}
	}
	return last
}

// reload is the same owner that loads its shard again, after a commit whose outcome it
// does not know. Answers to what it asked before still come.
func (r *rig) reload() {
	r.event("", track.Lost{Shard: rigShard})
	require.False(r.t, r.o.Owns(rigShard))
	r.gen++
	r.load()
}

// A page of the stage that was read before the shard was loaded again tells nothing: what is
// not in it may have come since, and what is in it may lie behind what is to be read.
func TestPageForAnEarlierOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.slow = true
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	emitted := mapped(started(c), 1, 7)
	emitted.Kind, emitted.Numbers = broker.ReportEmitted, []int64{0}
	r.says("a", started(c), emitted)
	old := lastEffect[track.ReadStage](r)
	require.NotZero(t, old.Ask)
	page := func(ask track.ReadStage, messages ...broker.Staged) {
		r.event("", track.Staged{Instance: 1, Run: 1, From: ask.From, Max: ask.Max, Ask: ask.Ask, Messages: messages})
	}
	r.reload()
	now := lastEffect[track.ReadStage](r)
	require.NotEqual(t, old.Ask, now.Ask)
	require.Equal(t, old.From, now.From)
	r.says("a", mapped(succeeded(c, "", 0), 1, 7))
	page(old)
	require.Equal(t, "running", r.status(1), "the item is not lost")
	page(old, broker.Staged{Seq: 50, StageBatch: broker.StageBatch{Instance: 1, Run: 1, Token: 7, First: 40, Items: [][]byte{[]byte("far")}}})
	page(now, broker.Staged{Seq: 1, StageBatch: broker.StageBatch{Instance: 1, Run: 1, Token: 7, Items: [][]byte{[]byte("x")}}})
	require.Equal(t, "x", string(r.sent(1, subs, 1).Tasks[0].Item))
}

// The owner stood in the middle of a stage message that is gone: it stands before the next.
func TestPositionInALostStageMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, Rate: 1})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, "x", "y")
	r.emits(c, 0, 7, 2, "z")
	x := r.sent(1, subs, 1)
	require.Equal(t, "x", string(x.Tasks[0].Item))
	r.stage[1] = r.stage[1][1:]
	r.crew.names = nil // nothing can be fed: the page that the recovery reads stays
	r.reload()
	r.wait(10 * time.Second)
	r.says("a", mapped(succeeded(c, "", 0), 3, 7))
	r.listed(map[int64][]int64{1: {x.Chunk}})
	require.NoError(t, r.o.Check())
	r.crew.names = []string{"a"}
	r.wait(time.Minute)
	r.listed(map[int64][]int64{1: {x.Chunk}})
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "the stage has lost items: task 0 emitted 3, 1 are left")
}

// A listing that was read before the shard was loaded again does not have what was sent
// between: that would be sent twice.
func TestListingForAnEarlierOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.event("", track.BrokerUp{})
	old := lastEffect[track.List](r)
	answer := func(l track.List, present ...int64) {
		r.event("", track.Listed{App: l.App.ID, Ask: l.Ask, Instances: l.Instances, Present: map[int64][]int64{1: present}, After: map[uint8]uint64{rigShard: r.seq}})
	}
	r.reload()
	r.wait(10 * time.Second)
	now := lastEffect[track.List](r)
	require.NotEqual(t, old.Ask, now.Ask)
	answer(old)
	require.Len(t, r.chunks(), 1, "of an earlier owner")
	answer(now, c.Chunk)
	require.Len(t, r.chunks(), 1, "it is in its lane")
	// Nobody waits for the same listing twice.
	answer(now)
	require.Len(t, r.chunks(), 1)
}

// What waits for its pause is not lost, and whatever sends it before ends the pause.
func TestPauseIsNoReasonToSendTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.event("", track.Unpublished{Shard: rigShard, Key: c.ChunkKey, Err: broker.ErrUnavailable})
	r.wait(2 * time.Second)
	r.says("a", failed(c, 0, broker.ErrorRoom, "the stage is full"))
	r.listed(nil)
	require.Len(t, r.chunks(), 1, "it is sent after its pause")
	r.wait(2 * time.Second)
	require.Len(t, r.chunks(), 2)
	r.says("a", started(c), failed(c, 0, broker.ErrorRoom, "the stage is full"))
	back := started(c)
	back.Kind = broker.ReportReturned
	r.says("b", back)
	require.Len(t, r.chunks(), 3)
	r.wait(5 * time.Second)
	require.Len(t, r.chunks(), 3)
}

// The answer to a request from before the shard was loaded again begins a pause; what the
// recovery finds missing meanwhile is sent once.
func TestPauseEndsWithTheRecovery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.crew.lacking["b"] = true
	r.emits(c, 0, 7, 0, "x")
	x := r.sent(1, subs, 1)
	require.True(t, x.Directed)
	old := lastEffect[track.Direct](r)
	r.reload()
	r.wait(10 * time.Second)
	r.event("", track.Directed{Shard: rigShard, Key: x.ChunkKey, Worker: old.Worker, Ask: old.Ask, Reply: broker.DirectedBusy})
	delete(r.crew.lacking, "b")
	r.listed(map[int64][]int64{1: {c.Chunk}})
	r.wait(5 * time.Second)
	require.Len(t, r.chunks(), 3)
}

// A worker that is asked twice may say no to one and yes to the other: it has the chunk.
func TestNoToAnOlderRequest(t *testing.T) {
	t.Parallel()
	for _, no := range []broker.DirectedReply{broker.DirectedBusy, broker.DirectedRefused} {
		r := newRig(t)
		r.wait(10 * time.Second)
		r.trigger(1, workflow.Spec{Routing: workflow.RoutingRandom})
		c := r.sent(1, root, 0)
		ask := func() uint64 { return lastEffect[track.Direct](r).Ask }
		answer := func(ask uint64, reply broker.DirectedReply, err error) {
			r.event("", track.Directed{Shard: rigShard, Key: c.ChunkKey, Worker: "a", Ask: ask, Reply: reply, Err: err})
		}
		first := ask()
		r.wait(10 * time.Millisecond)
		r.event("", track.BrokerUp{})
		r.wait(5 * time.Second)
		r.listed(nil)
		require.Equal(t, first, ask(), "its answer is on the way")
		answer(first, 0, broker.ErrUnavailable)
		r.wait(2 * time.Second)
		second := ask()
		require.NotEqual(t, first, second)
		answer(first, no, nil)
		require.Len(t, r.chunks(), 2)
		answer(second, broker.DirectedAccepted, nil)
		r.wait(5 * time.Second)
		require.Len(t, r.chunks(), 2)
		r.says("a", started(c), succeeded(c, "1"))
		require.Equal(t, "succeeded", r.status(1))
	}
}

// The answer that gives a chunk away may be long on its way. Beats of that time do not list
// it; who says then that it has begun has it all the same.
func TestBeatsFromBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	require.Equal(t, broker.VerdictYours, r.asks("b", c).Verdict)
	r.wait(3 * time.Second)
	r.crew.beatAt = r.now
	r.says("b", started(c))
	r.says("a", started(c), failed(c, 0, broker.ErrorPermanent, "it had been frozen"))
	require.Equal(t, "running", r.status(1))
	require.Equal(t, "b", r.rows[1].Worker)
	r.says("b", succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
}

// A directed chunk that is half finished when its owner changes stays with its worker: sent
// again, what is left of it would go in another chunk, which the worker does not know.
func TestHalfFinishedChunkStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Mode: workflow.Map, Routing: workflow.RoutingRandom})
	c := r.sent(1, root, 0)
	r.answers(c, "a", broker.DirectedAccepted)
	r.says("a", started(c))
	r.emits(c, 0, 7, 0, slices.Repeat([]string{"x"}, 400)...)
	one := r.sent(1, subs, 1)
	r.answers(one, "a", broker.DirectedAccepted)
	r.says("a", mapped(succeeded(c, "", 0), 400, 7), started(one), succeeded(one, "")) // now the pace is known
	var many *broker.Chunk
	for _, c := range r.chunks() {
		if len(c.Tasks) > 2 {
			many = c
		}
	}
	require.NotNil(t, many)
	r.answers(many, "a", broker.DirectedAccepted)
	first, second := many.Tasks[0].Number, many.Tasks[1].Number
	r.says("a", started(many), succeeded(many, "", first))
	r.crew.holders[many.ChunkKey] = track.Target{Worker: "a", Incarnation: 1}
	r.begin()
	r.wait(10 * time.Second)
	r.listed(nil)
	require.Equal(t, many.ChunkKey, r.sent(1, subs, second).ChunkKey)
	r.says("a", succeeded(many, "", second))
	require.EqualValues(t, 3, r.runs[1].Succeeded)
}

// The worker that a chunk was given to died before it could say that it had begun, while the
// one before it still keeps the message in progress: the task's timeout ends it all the same.
func TestTimeoutOfAChunkGivenAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{TaskTimeout: workflow.Duration(time.Second)})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	r.crew.names = []string{"b", "c"}
	require.Equal(t, broker.VerdictYours, r.asks("b", c).Verdict)
	r.crew.names = []string{"a", "c"}
	r.wait(20 * time.Second)
	require.Equal(t, "timed_out", r.status(1))
	require.Contains(t, r.rows[1].Error, `worker "b" did not say so`)
}
