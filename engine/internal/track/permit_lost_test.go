package track_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// A permit was asked for when another shard was lost. That it is granted counts: others that
// wait before it in the queue would be refused for ever.
func TestPermitGrantedWhileAnotherShardGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.event("", track.Gained{State: &engine.ShardState{Shard: engine.Shard{Shard: 5, Owner: 1, Epoch: 1}}, Gen: 1, Number: 1})
	heads := track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny), DueAt: r.now}}}
	r.rows[2] = r.instance(2, workflow.Spec{MaxRunning: 1})
	r.event("", heads)
	r.event("", track.Lost{Shard: 5})
	r.rows[1] = r.instance(1, workflow.Spec{MaxRunning: 1})
	r.event("", heads)
	r.event("", track.Permitted{Shard: rigShard, Permit: engine.Permit{Job: 9, Instance: 2, Max: 1}, Granted: true})
	r.wait(2 * time.Second)
	require.Equal(t, "waiting", r.status(1))
	require.Equal(t, "dispatched", r.status(2))
}

// What ends because its definition is gone gives its permit back, though nobody knows whether
// it needed one.
func TestPermitOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.instance(1, workflow.Spec{})
	queue := engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny)
	r.o.Handle(r.now, track.Heads{Heads: []engine.QueueHead{{Queue: queue, DueAt: r.now}}})
	require.Len(t, r.o.Take().After, 1, "it reads what waits")
	r.o.Handle(r.now, track.Fetched{
		Queue: queue, Due: r.now, Limit: 10,
		Rows: []track.Row{{Instance: in, App: rigApp, Err: errors.New("version 1 of its job is gone")}},
	})
	b := r.o.Take()
	require.Len(t, b.Changes, 1)
	c := b.Changes[0].Change
	require.Equal(t, engine.StatusFailed, c.Instances[0].Status)
	require.Equal(t, []engine.Permit{{Job: 9, Instance: 1}}, c.GonePermits)
}

// A permit that somebody's end has left behind is given back by whoever loads the shard.
func TestSparePermits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spare := []engine.Permit{{Job: 9, Instance: 1, Max: 1}}
	r.o.Handle(r.now, track.Gained{
		State: &engine.ShardState{Shard: engine.Shard{Shard: rigShard, Owner: 1, Epoch: r.epoch}, SparePermits: spare}, Gen: r.gen, Number: 1,
	})
	b := r.o.Take()
	require.Len(t, b.Changes, 1)
	require.Equal(t, spare, b.Changes[0].Change.GonePermits)
}

// A limit that was raised holds for what waits of an older version, too: it would be refused
// for as long as newer ones keep on running.
func TestPermitOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rows[1] = r.instance(1, workflow.Spec{MaxRunning: 1})
	for id := int64(2); id <= 3; id++ {
		in := r.instance(id, workflow.Spec{MaxRunning: 2})
		in.JobVersion = 2
		r.rows[id] = in
	}
	r.held = []engine.Permit{{Job: 9, Instance: 2, Max: 2}}
	r.begin()
	r.event("", track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny), DueAt: r.now}}})
	require.Equal(t, "dispatched", r.status(2))
	r.o.Handle(r.now, track.Permitted{Shard: rigShard, Permit: engine.Permit{Job: 9, Instance: 3, Max: 2}})
	var asked []engine.Permit
	for range 20 {
		b := r.o.Take()
		for _, c := range b.Changes {
			r.store(&c.Change)
			if c.Permit != nil {
				asked = append(asked, *c.Permit)
			}
		}
		r.perform(b.After)
		r.now += 200
		r.o.Handle(r.now, track.Tick{})
	}
	require.NotEmpty(t, asked)
	require.Equal(t, engine.Permit{Job: 9, Instance: 1, Max: 2}, asked[0])
}
