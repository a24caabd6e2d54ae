package track_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// Each run of a limited job that ends has the next one looked for at the head of the queue.
// What waits behind thousands of them is reached all the same, and the limited job goes on.
func TestLimitedRunsDoNotHideWhatIsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const many = 3000
	for id := int64(1); id <= many; id++ {
		r.rows[id] = r.instance(id, workflow.Spec{MaxRunning: 1})
	}
	other := r.instance(many+1, workflow.Spec{})
	other.Job = 10
	r.rows[other.ID] = other
	r.o.Handle(r.now, track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny), DueAt: r.now}}})
	var pages []track.Fetch
	read, ended := 0, 0
	for ; read < 40; read++ {
		// All that is at hand is stored and answered, and a run takes no longer than the reading
		// of a page.
		for {
			b := r.o.Take()
			if len(b.Changes)+len(b.After) == 0 {
				break
			}
			for _, c := range b.Changes {
				r.store(&c.Change)
				if c.Permit != nil {
					r.o.Handle(r.now, track.Permitted{Shard: rigShard, Permit: *c.Permit, Granted: true})
				}
				for _, e := range c.Effects {
					if p, ok := e.(track.Publish); ok && p.Chunk.JobID == 9 {
						ended++
						r.seq++
						done := succeeded(p.Chunk, "1")
						r.o.Handle(r.now, track.Reported{Shard: rigShard, Seq: r.seq, Batch: &broker.ReportBatch{App: "acme", Worker: "a", Incarnation: 1, Reports: []broker.Report{done}}})
					}
				}
			}
			for _, e := range b.After {
				if f, ok := e.(track.Fetch); ok {
					pages = append(pages, f)
				}
			}
		}
		require.NotEmpty(t, pages, "it goes on reading: %d pages, %d ended, other %s", read, ended, r.status(other.ID))
		f := pages[0]
		pages = pages[1:]
		r.o.Handle(r.now, track.Fetched{Queue: f.Queue, Rows: r.waiting(f), Due: f.Due, Limit: f.Limit})
	}
	require.NotEqual(t, "waiting", r.status(other.ID), "after %d pages", read)
	require.GreaterOrEqual(t, ended, 8, "the limited job goes on, too")
}
