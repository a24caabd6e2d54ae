package server

import (
	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/internal/dispatch"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// fleetView is the fleet as the owner asks about it.
type fleetView struct {
	fleet *dispatch.Fleet
	now   func() int64     // of the owner
	mono  func() int64     // of the fleet
	turns map[string]int64 // of round robin, by app and processor
}

func (v *fleetView) Slots(app, pool string) int { return v.fleet.Pool(app, pool).Slots }

func (v *fleetView) Has(app, pool, processor string) (some, all bool) {
	p := v.fleet.Pool(app, pool)
	return !p.NoneHas(processor), p.AllHave(processor)
}

func (v *fleetView) Caps(app, processor string) broker.Caps { return v.fleet.Caps(app, processor) }

func (v *fleetView) NeedsDirected(app string, spec *workflow.Spec) bool {
	return v.fleet.NeedsDirected(app, spec)
}

func (v *fleetView) Pick(p track.Pick) (track.Target, string) {
	seed := p.Seed
	if p.Spec.Routing == workflow.RoutingRoundRobin {
		k := p.App + "/" + p.Spec.Processor
		seed = v.turns[k]
		v.turns[k]++
	}
	c := v.fleet.Pick(dispatch.Request{App: p.App, Spec: p.Spec, Key: p.Key, Group: p.Seed, Seed: seed, Exclude: p.Exclude})
	return track.Target{Worker: c.Worker, Incarnation: c.Incarnation}, c.Why
}

func (v *fleetView) Shares(app string, spec *workflow.Spec) []track.Target {
	var out []track.Target
	for _, t := range v.fleet.Shares(app, spec, 0) {
		out = append(out, track.Target{Worker: t.Worker, Incarnation: t.Incarnation})
	}
	return out
}

func (v *fleetView) Alive(app, worker string, incarnation uint64) bool {
	return v.fleet.Alive(app, worker, incarnation)
}

func (v *fleetView) Holder(app string, key broker.ChunkKey) (track.Target, bool) {
	t, ok := v.fleet.Holder(app, key)
	return track.Target{Worker: t.Worker, Incarnation: t.Incarnation}, ok
}

// Missing translates the owner's time, which is the database's, into the fleet's.
func (v *fleetView) Missing(app, worker string, incarnation uint64, key broker.ChunkKey, since int64) bool {
	return v.fleet.Missing(app, worker, incarnation, key, v.mono()-(v.now()-since))
}
