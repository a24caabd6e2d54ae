package track_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// A worker tells of its own app's instances, in the reports of their shard, and of nothing else.
func TestForeignReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{})
	c := r.sent(1, root, 0)
	r.event("", track.Gained{State: &engine.ShardState{Shard: engine.Shard{Shard: 9, Owner: 1, Epoch: 1}}, Gen: 1, Number: 1})
	r.seq++
	r.event("", track.Reported{Shard: rigShard, Seq: r.seq, Batch: &broker.ReportBatch{App: "other", Worker: "x", Incarnation: 9, Reports: []broker.Report{started(c), succeeded(c, "1")}}})
	r.event("", track.Reported{Shard: 9, Seq: 1, Batch: &broker.ReportBatch{App: "acme", Worker: "a", Incarnation: 1, Reports: []broker.Report{started(c), succeeded(c, "1")}}})
	require.Equal(t, "dispatched", r.status(1))
	require.EqualValues(t, 4, r.o.Stats().Stale)
	// A report about something else than the chunk is.
	odd := failed(c, 0, broker.ErrorFailed, "odd")
	odd.Phase = subs
	r.says("a", odd)
	require.Equal(t, "dispatched", r.status(1))
	r.says("a", started(c), succeeded(c, "1"))
	require.Equal(t, "succeeded", r.status(1))
	// The late result of one that is final is the app's own as well.
	r.fresh = nil
	r.says("b", succeeded(c, "2"))
	require.Contains(t, r.fresh, track.Effect(track.LoadLate{ID: 1, App: "acme", Shard: rigShard, Attempt: 1, Result: []byte("2")}))
}

// A number that is named twice counts once.
func TestNumbersNamedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c))
	// The pace is made known, so that chunks hold many.
	r.emits(c, 0, 7, 0, "x")
	first := r.sent(1, subs, 1)
	fast := succeeded(first, "", 1)
	fast.Duration = 1000
	r.says("b", started(first), fast)
	var items []string
	for i := range 500 {
		items = append(items, fmt.Sprint(i))
	}
	r.emits(c, 0, 7, 1, items...)
	many := r.sent(1, subs, 2)
	require.Greater(t, len(many.Tasks), 2)
	r.says("b", started(many), succeeded(many, "", 2, 2, 2))
	require.EqualValues(t, 2, r.runs[1].Succeeded)
	var rest []int64
	for _, task := range many.Tasks[1:] {
		rest = append(rest, task.Number, task.Number)
	}
	returned := started(many)
	returned.Kind, returned.Numbers = broker.ReportReturned, rest
	r.says("b", returned)
	again := 0
	for _, e := range r.fresh {
		if p, ok := e.(track.Publish); ok && p.Chunk.Phase == subs && p.Chunk.Tasks[0].Number == 3 {
			again++
		}
	}
	require.Equal(t, 1, again, "sent again once")
}

// A message of the stage that cannot be read fails the run; it would be read for ever.
func TestUnreadableStage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.trigger(1, workflow.Spec{Mode: workflow.Map})
	c := r.sent(1, root, 0)
	r.says("a", started(c), broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportEmitted, Phase: c.Phase, Numbers: []int64{0}, Emitted: 1, Token: 7})
	require.Equal(t, "running", r.status(1))
	// The rig has answered the read with nothing; the next one brings the damage.
	r.o.Handle(r.now, track.Reported{Shard: rigShard, Seq: r.seq + 1, Batch: &broker.ReportBatch{App: "acme", Worker: "a", Incarnation: 1, Reports: []broker.Report{
		{ChunkKey: c.ChunkKey, Kind: broker.ReportEmitted, Phase: c.Phase, Numbers: []int64{0}, Emitted: 2, Token: 7},
	}}})
	r.seq++
	for _, e := range r.o.Take().After {
		if e, ok := e.(track.ReadStage); ok {
			r.event("", track.Staged{Instance: 1, Run: e.Run, From: e.From, Max: e.Max, Ask: e.Ask, Err: fmt.Errorf("stage message 5: %w", broker.ErrUndecodable)})
		}
	}
	require.Equal(t, "failed", r.status(1))
	require.Contains(t, r.rows[1].Error, "the stage holds what cannot be read")
}
