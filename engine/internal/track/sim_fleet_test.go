package track_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// simFleet is one server's view of the workers, from the beats that reached it.
type simFleet struct {
	w       *world
	workers map[string]*seen
}

type seen struct {
	beat  *broker.Beat
	at    int64
	beats []heard // the last two
}

type heard struct {
	at   int64
	held map[broker.ChunkKey]bool
}

func newSimFleet(w *world) *simFleet { return &simFleet{w: w, workers: map[string]*seen{}} }

func (f *simFleet) hear(b *broker.Beat) (news bool, dead track.Target) {
	s := f.workers[b.Worker]
	if s != nil && s.beat.Incarnation != b.Incarnation {
		dead = track.Target{Worker: b.Worker, Incarnation: s.beat.Incarnation}
		s = nil
	}
	if s == nil {
		s, news = &seen{}, true
		f.workers[b.Worker] = s
	}
	h := heard{f.w.now, map[broker.ChunkKey]bool{}}
	for _, k := range b.Held {
		h.held[k] = true
	}
	s.beat, s.at = b, f.w.now
	s.beats = append(s.beats, h)
	if len(s.beats) > 2 {
		s.beats = s.beats[1:]
	}
	return news, dead
}

func (f *simFleet) expire() (dead []track.Target) {
	for _, name := range sorted(f.workers) {
		if s := f.workers[name]; f.w.now-s.at >= deadMs && f.w.broker.up {
			dead = append(dead, track.Target{Worker: name, Incarnation: s.beat.Incarnation})
			delete(f.workers, name)
		}
	}
	return dead
}

// refresh gives everybody time anew, after the server or its connection was away.
func (f *simFleet) refresh() {
	for _, s := range f.workers {
		s.at = f.w.now
	}
}

func (f *simFleet) Slots(_, _ string) (n int) {
	for _, s := range f.workers {
		n += s.beat.Slots
	}
	return n
}

func (f *simFleet) has(s *seen, processor string) bool {
	return slices.ContainsFunc(s.beat.Processors, func(p broker.ProcessorInfo) bool { return p.Name == processor })
}

func (f *simFleet) Has(_, _, processor string) (some, all bool) {
	all = true
	for _, s := range f.workers {
		if f.has(s, processor) {
			some = true
		} else {
			all = false
		}
	}
	return some, all && some
}

func (f *simFleet) Caps(_, processor string) (c broker.Caps) {
	for _, s := range f.workers {
		for _, p := range s.beat.Processors {
			if p.Name == processor {
				c |= p.Caps
			}
		}
	}
	return c
}

func (f *simFleet) NeedsDirected(_ string, spec *workflow.Spec) bool {
	_, all := f.Has("", "", spec.Processor)
	return spec.Routing != "" && spec.Routing != workflow.RoutingLane || !all
}

func (f *simFleet) Pick(p track.Pick) (track.Target, string) {
	var fit []track.Target
	for _, t := range f.Shares(p.App, p.Spec) {
		if !slices.Contains(p.Exclude, t.Worker) {
			fit = append(fit, t)
		}
	}
	if len(fit) == 0 {
		return track.Target{}, "no live worker fits"
	}
	return fit[uint64(p.Seed)%uint64(len(fit))], ""
}

func (f *simFleet) Shares(_ string, spec *workflow.Spec) (out []track.Target) {
	for _, name := range sorted(f.workers) {
		if s := f.workers[name]; f.has(s, spec.Processor) {
			out = append(out, track.Target{Worker: name, Incarnation: s.beat.Incarnation})
		}
	}
	return out
}

func (f *simFleet) Alive(_, worker string, incarnation uint64) bool {
	s := f.workers[worker]
	return s != nil && s.beat.Incarnation == incarnation && f.w.now-s.at < deadMs
}

func (f *simFleet) Holder(_ string, key broker.ChunkKey) (track.Target, bool) {
	for _, name := range sorted(f.workers) {
		s := f.workers[name]
		if n := len(s.beats); n > 0 && s.beats[n-1].held[key] && f.w.now-s.at < deadMs {
			return track.Target{Worker: name, Incarnation: s.beat.Incarnation}, true
		}
	}
	return track.Target{}, false
}

func (f *simFleet) Missing(_, worker string, incarnation uint64, key broker.ChunkKey, since int64) bool {
	s := f.workers[worker]
	if s == nil || s.beat.Incarnation != incarnation || len(s.beats) < 2 {
		return false
	}
	for _, b := range s.beats {
		if b.at <= since || b.held[key] {
			return false
		}
	}
	return true
}
