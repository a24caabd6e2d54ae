package track

import (
	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Fleet is what the owner asks about live workers. It is called from the owner's goroutine.
type Fleet interface {
	// Slots are those of the live workers of the pool.
	Slots(app, pool string) int
	// Has tells whether a live worker of the pool has the processor, and whether all have it.
	Has(app, pool, processor string) (some, all bool)
	// Caps are the optional steps of the processor on the workers that have it.
	Caps(app, processor string) broker.Caps
	// NeedsDirected tells whether the lane is not enough for the spec.
	NeedsDirected(app string, spec *workflow.Spec) bool
	// Pick chooses a worker for a directed chunk, or says why there is none.
	Pick(p Pick) (Target, string)
	// Shares are the workers of a broadcast, by name.
	Shares(app string, spec *workflow.Spec) []Target
	// Alive tells whether that incarnation is alive.
	Alive(app, worker string, incarnation uint64) bool
	// Holder finds the live worker whose last beat lists the chunk.
	Holder(app string, key broker.ChunkKey) (Target, bool)
	// Missing tells whether two beats or more of a live incarnation came after since (epoch
	// ms) without the chunk.
	Missing(app, worker string, incarnation uint64, key broker.ChunkKey, since int64) bool
}

// Target is one incarnation of a worker.
type Target struct {
	Worker      string
	Incarnation uint64
}

// Pick asks for a worker.
type Pick struct {
	App     string
	Spec    *workflow.Spec
	Key     string
	Seed    int64
	Exclude []string
}

// Hooks hear what the owner decides, at the moment of the decision, on its goroutine.
type Hooks interface {
	// InstanceFinal is called when an instance of a workflow becomes final.
	InstanceFinal(now int64, in *engine.Instance)
	// InstanceStarted is called when an instance of a workflow is first seen running.
	InstanceStarted(now int64, in *engine.Instance)
}
