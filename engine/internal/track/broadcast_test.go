package track_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// answers answers the last directed send of the chunk.
func (r *rig) answers(c *broker.Chunk, worker string, reply broker.DirectedReply) {
	var err error
	if reply == 0 {
		err = broker.ErrNoResponders
	}
	r.event(worker+" answers", track.Directed{Shard: rigShard, Key: c.ChunkKey, Worker: worker, Ask: r.lastAsk(c), Reply: reply, Err: err})
}

// lastAsk names the last directed send of the chunk.
func (r *rig) lastAsk(c *broker.Chunk) (ask uint64) {
	for _, e := range r.done {
		if d, ok := e.(track.Direct); ok && d.Chunk.ChunkKey == c.ChunkKey {
			ask = d.Ask
		}
	}
	return ask
}

func (r *rig) share(n int64) *broker.Chunk { return r.sent(1, broker.PhaseShare, n) }

func (r *rig) directs(worker string) (n int) {
	for _, e := range r.done {
		if d, ok := e.(track.Direct); ok && d.Worker == worker {
			n++
		}
	}
	return n
}

func TestBroadcastStory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.caps = broker.CapPre | broker.CapPost
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast})
	pre := r.sent(1, broker.PhasePre, 0)
	r.answers(pre, "a", broker.DirectedAccepted)
	r.says("a", started(pre), succeeded(pre, ""))
	for i, w := range []string{"a", "b", "c"} {
		c := r.share(int64(i))
		require.EqualValues(t, 3, c.ShardTotal)
		r.answers(c, w, broker.DirectedAccepted)
		r.says(w, started(c), succeeded(c, `"`+w+`"`, int64(i)))
	}
	post := r.sent(1, broker.PhasePost, 0)
	var got *broker.AskReply
	r.event("a asks for shares", track.Asked{
		Request: &broker.AskRequest{Kind: broker.AskShares, ChunkKey: post.ChunkKey, Shard: rigShard},
		After:   r.seq, Reply: func(a *broker.AskReply) { got = a },
	})
	require.Len(t, got.Shares, 3)
	require.Equal(t, `"b"`, string(got.Shares[1].Result))
	r.says("a", started(post), succeeded(post, `"all"`))
	require.Equal(t, "succeeded", r.status(1))
	require.Equal(t, `"all"`, string(r.rows[1].Result))
	r.golden("broadcast")
}

// C16: a worker that leaves loses its share; nobody else runs it.
func TestBroadcastLosesAWorker(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{"all": "failed", "any": "succeeded", "60%": "succeeded", "70%": "failed"} {
		r := newRig(t)
		r.wait(10 * time.Second)
		r.trigger(1, workflow.Spec{Mode: workflow.Broadcast, Rule: rule, TaskRetry: retries(2)})
		for i, w := range []string{"a", "b", "c"} {
			r.answers(r.share(int64(i)), w, broker.DirectedAccepted)
			r.says(w, started(r.share(int64(i))))
		}
		r.says("a", succeeded(r.share(0), "1", 0))
		r.crew.names = []string{"a", "c"}
		r.event("b is dead", track.WorkerDead{App: "acme", Worker: "b", Incarnation: 2})
		r.wait(2 * time.Second)
		r.listed(nil)
		r.says("c", succeeded(r.share(2), "1", 2))
		require.Equal(t, want, r.status(1), rule)
		k := engine.TaskKey{Instance: 1, Run: 1, Kind: engine.TaskShare, Number: 1}
		require.Equal(t, engine.TaskLost, r.tasks[k].Status)
		require.Equal(t, []int{1, 1, 1}, []int{r.directs("a"), r.directs("b"), r.directs("c")}, "each ran once")
	}
}

// C17: who joins later takes part from the next run on.
func TestBroadcastMembershipIsFixed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast, Waves: []int{40, 100}})
	require.Zero(t, r.directs("c"), "the first wave has two")
	r.crew.names = append(r.crew.names, "d")
	r.crew.inc["d"] = 4
	r.event("d joins", track.WorkerNews{App: "acme"})
	for i, w := range []string{"a", "b", "c"} {
		c := r.share(int64(i))
		r.answers(c, w, broker.DirectedAccepted)
		r.says(w, started(c), succeeded(c, "", int64(i)))
	}
	require.Equal(t, "succeeded", r.status(1))
	require.Zero(t, r.directs("d"))
	require.JSONEq(t, `{"total":3,"succeeded":3,"failed":0}`, string(r.rows[1].Result))
}

// A wave is not begun when the rule cannot be met any more.
func TestBroadcastCallsWavesOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast, Waves: []int{30, 100}})
	c := r.share(0)
	r.answers(c, "a", broker.DirectedAccepted)
	r.says("a", started(c), failed(c, 0, broker.ErrorPermanent, "disk full"))
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "disk full")
	require.Zero(t, r.directs("b")+r.directs("c"))
	for _, k := range r.keys(1) {
		require.True(t, r.tasks[k].Status.Terminal())
	}
}

// A share that is tried again travels under another chunk number: its worker runs no chunk
// of one number twice.
func TestShareIsRetriedByItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.names = []string{"a"}
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast, TaskRetry: retries(1)})
	first := r.share(0)
	r.answers(first, "a", broker.DirectedAccepted)
	r.says("a", started(first), failed(first, 0, broker.ErrorFailed, "x"))
	r.wait(time.Second)
	second := r.share(0)
	require.NotEqual(t, first.Chunk, second.Chunk)
	require.EqualValues(t, 2, second.Tasks[0].Attempt)
	r.begin()
	r.wait(10 * time.Second)
	r.listed(nil)
	third := r.share(0)
	require.Equal(t, second.ChunkKey, third.ChunkKey, "a new owner knows it by the same number")
	r.says("a", started(third), succeeded(third, "", 0))
	require.Equal(t, "succeeded", r.status(1))
}

func TestBroadcastPreProcessFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew.caps = broker.CapPre
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast})
	pre := r.sent(1, broker.PhasePre, 0)
	r.says("a", started(pre), failed(pre, 0, broker.ErrorFailed, "nope"))
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "PreProcess failed: nope")
	require.Len(t, r.chunks(), 1)
}

func TestBroadcastWithoutWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	names := r.crew.names
	r.crew.names = nil
	r.trigger(1, workflow.Spec{Mode: workflow.Broadcast, DispatchTimeout: workflow.Duration(5 * time.Second)})
	r.trigger(2, workflow.Spec{Mode: workflow.Broadcast})
	r.wait(10 * time.Second)
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "no live worker")
	require.Equal(t, "waiting", r.status(2))
	r.crew.names = names
	r.event("", track.WorkerNews{App: "acme"})
	require.Equal(t, "dispatched", r.status(2))
}

func TestDirected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Routing: workflow.RoutingRandom})
	c := r.sent(1, root, 0)
	r.answers(c, "a", broker.DirectedBusy)
	r.wait(200 * time.Millisecond)
	require.Equal(t, 2, r.directs("a"), "busy is asked again")
	r.answers(c, "a", broker.DirectedRefused)
	require.Equal(t, 1, r.directs("b"), "refused goes elsewhere")
	r.answers(c, "b", 0)
	r.wait(time.Second)
	require.Equal(t, 2, r.directs("b"), "no answer: offered again, to the same")
	r.answers(c, "b", broker.DirectedAccepted)
	r.says("b", started(c))
	r.wait(5 * time.Second)
	require.Equal(t, 2, r.directs("b"))
	// It dies: the reports are drained before the work moves.
	r.crew.names = []string{"a", "c"}
	r.event("", track.WorkerDead{App: "acme", Worker: "b", Incarnation: 2})
	require.Equal(t, 2, r.directs("a"))
	r.wait(2 * time.Second)
	r.listed(nil)
	require.Equal(t, 1, r.directs("c"), "a had refused it")
	r.says("c", started(c), succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
	require.Equal(t, "c", r.rows[1].Worker)
}

// Work that its live worker no longer lists is moved, but not before its last word is read.
func TestDirectedIsAbsentFromBeats(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wait(10 * time.Second)
	r.trigger(1, workflow.Spec{Routing: workflow.RoutingRandom})
	c := r.sent(1, root, 0)
	r.answers(c, "a", broker.DirectedAccepted)
	r.crew.missing = true
	r.wait(2500 * time.Millisecond)
	require.Equal(t, 1, r.directs("a"))
	r.listed(nil)
	// It lives, so it has finished it and would not run it again.
	require.Equal(t, 1, r.directs("a"))
	require.Equal(t, 1, r.directs("b"))
}

// An answer does not tell which incarnation gave it; a report does.
func TestDirectedToTheNextIncarnation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Routing: workflow.RoutingRandom})
	c := r.sent(1, root, 0)
	r.says2("a", 99, started(c))
	r.answers(c, "a", broker.DirectedAccepted)
	r.says2("a", 99, failed(c, 0, broker.ErrorFailed, "it says"))
	require.Equal(t, "failed", r.status(1))
}

func (r *rig) says2(worker string, incarnation uint64, reps ...broker.Report) {
	r.seq++
	r.event("", track.Reported{Shard: rigShard, Seq: r.seq, Batch: &broker.ReportBatch{App: "acme", Worker: worker, Incarnation: incarnation, Reports: reps}})
}

func TestDirectedWithoutAnybody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Routing: workflow.RoutingRandom, DispatchTimeout: workflow.Duration(4 * time.Second)})
	c := r.sent(1, root, 0)
	for _, w := range []string{"a", "b", "c"} {
		r.answers(c, w, broker.DirectedRefused)
	}
	r.crew.names = nil
	r.wait(10 * time.Second)
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "no worker of app")
}

// C22: a worker without the processor refuses; it costs no attempt.
func TestRefusedFromALane(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportRefused, Phase: root, Emitted: -1, Error: broker.TaskError{Message: "unknown processor"}})
	require.Equal(t, 1, r.directs("b"))
	require.Equal(t, "dispatched", r.status(1))
	require.Empty(t, r.tries)
}

// C38: what a draining worker gives back runs elsewhere.
func TestReturned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.says("a", started(c), broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportReturned, Phase: root, Emitted: -1, Numbers: []int64{0}})
	require.Len(t, r.chunks(), 2)
	r.says("b", started(c), succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
	require.Empty(t, r.tries)
}
