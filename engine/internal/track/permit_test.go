package track_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// A server died when one of its instances had been granted a permit and was not on its way yet.
// Whoever takes over finds others before it in the queue, and lets the one run that may.
func TestPermitOfOneThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for id := int64(1); id <= 3; id++ {
		in := r.instance(id, workflow.Spec{MaxRunning: 1})
		r.rows[id] = in
	}
	r.held = []engine.Permit{{Job: 9, Instance: 2, Max: 1}}
	r.begin()
	r.event("", track.Heads{Heads: []engine.QueueHead{{Queue: engine.QueueOf(1, workflow.LaneNormal, workflow.PoolAny), DueAt: r.now}}})
	require.Equal(t, "waiting", r.status(1))
	require.Equal(t, "dispatched", r.status(2))
	require.Equal(t, "waiting", r.status(3))
	r.says("a", succeeded(r.sent(2, root, 0), "1"))
	require.Equal(t, "succeeded", r.status(2))
}
