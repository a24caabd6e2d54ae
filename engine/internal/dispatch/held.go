package dispatch

import (
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/workflow"
)

// Holds tells whether the worker's last beat lists the chunk, and how many beats came
// since one last did; if none ever did, how many came of this incarnation at all. A chunk
// is absent only if it is not held, beatsSince is at least 2, and two beats came since the
// worker accepted it (compare WorkerView.Beats with what it was then): the first of them
// may have been on its way before.
func (f *Fleet) Holds(appName, name string, key broker.ChunkKey) (held bool, beatsSince int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w := f.find(appName, name)
	if w == nil {
		return false, 0
	}
	last := w.held[key]
	return last == w.beats, int(w.beats - last)
}

// Missing tells whether that incarnation lives and its last two beats, both heard after
// since, do not list the chunk: it does not hold what it accepted at since. One beat would
// not do, it may have been on its way.
func (f *Fleet) Missing(appName, name string, incarnation uint64, key broker.ChunkKey, since int64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w := f.find(appName, name)
	return w != nil && w.beat.Incarnation == incarnation && w.before > since && w.beats-w.held[key] >= 2
}

// Holder finds the live worker whose last beat lists the chunk, the first by name. It
// walks over the workers of the app.
func (f *Fleet) Holder(appName string, key broker.ChunkKey) (Target, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if p := f.pool(appName, workflow.PoolAny); p != nil {
		i := slices.IndexFunc(p.members, func(w *worker) bool { return w.held[key] == w.beats })
		if i >= 0 {
			return Target{Worker: p.members[i].name, Incarnation: p.members[i].beat.Incarnation}, true
		}
	}
	return Target{}, false
}

// Caps are the optional steps that the processor has on any live worker of the app.
func (f *Fleet) Caps(appName, processor string) broker.Caps {
	f.mu.RLock()
	defer f.mu.RUnlock()
	a := f.apps[appName]
	if a == nil {
		return 0
	}
	all := a.caps.Load()
	if all == nil {
		m := map[string]broker.Caps{}
		for _, w := range a.workers {
			for name, c := range w.caps {
				m[name] |= c
			}
		}
		all = &m
		a.caps.Store(all)
	}
	return (*all)[processor]
}
