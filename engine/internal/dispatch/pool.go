package dispatch

import (
	"maps"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/workflow"
)

// PoolView is a pool at one moment. The zero view is a pool without workers.
type PoolView struct {
	// Workers take new work: live, neither draining nor in maintenance. Slots and Free are
	// theirs; Free is as of the last beats.
	Workers, Slots, Free int
	// Pulling are the workers that take from the lanes, which those in maintenance do too.
	Pulling int

	takers  map[string]int
	pullers map[string]int
}

// AllHave tells whether every worker that takes from the pool's lanes has the processor,
// and there is one.
func (v PoolView) AllHave(processor string) bool {
	return v.Pulling > 0 && v.pullers[processor] == v.Pulling
}

// NoneHas tells whether no worker that takes new work has the processor.
func (v PoolView) NoneHas(processor string) bool { return v.takers[processor] == 0 }

// pool is the workers with one tag. The maps of its view are replaced, never changed, so
// that a view may be handed out.
type pool struct {
	view    PoolView
	members []*worker // by name
}

// Pool is the pool as the beats have it; two map look-ups.
func (f *Fleet) Pool(appName, poolName string) PoolView {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if p := f.pool(appName, poolName); p != nil {
		return p.view
	}
	return PoolView{}
}

func (f *Fleet) pool(appName, poolName string) *pool {
	a := f.apps[appName]
	if a == nil {
		return nil
	}
	if poolName == "" {
		poolName = workflow.PoolAny
	}
	return a.pools[poolName]
}

// each calls do for the pools of the worker, PoolAny first, none twice.
func (w *worker) each(do func(name string)) {
	do(workflow.PoolAny)
	for i, name := range w.beat.Pools {
		if name != workflow.PoolAny && !slices.Contains(w.beat.Pools[:i], name) {
			do(name)
		}
	}
}

// enter adds the worker to the app and to its pools.
func (a *app) enter(w *worker) {
	a.workers[w.name] = w
	a.caps.Store(nil)
	w.each(func(name string) {
		p := a.pools[name]
		if p == nil {
			p = &pool{}
			a.pools[name] = p
		}
		i, _ := slices.BinarySearchFunc(p.members, w.name, byName)
		p.members = slices.Insert(p.members, i, w)
		p.count(w, 1)
	})
}

// leave takes the worker out, as it was last heard.
func (a *app) leave(w *worker) {
	delete(a.workers, w.name)
	a.caps.Store(nil)
	w.each(func(name string) {
		p := a.pools[name]
		if i, ok := slices.BinarySearchFunc(p.members, w.name, byName); ok {
			p.members = slices.Delete(p.members, i, i+1)
			p.count(w, -1)
		}
		if len(p.members) == 0 {
			delete(a.pools, name)
		}
	})
}

// busy moves only the load of a worker.
func (a *app) busy(w *worker, busy int) {
	if !w.eligible() || busy == w.beat.Busy {
		return
	}
	change := free(w.beat.Slots, busy) - free(w.beat.Slots, w.beat.Busy)
	w.each(func(name string) { a.pools[name].view.Free += change })
}

func free(slots, busy int) int { return max(slots-busy, 0) }

func byName(w *worker, name string) int { return strings.Compare(w.name, name) }

func (p *pool) count(w *worker, sign int) {
	v := &p.view
	if !w.beat.Draining {
		v.Pulling += sign
		v.pullers = tally(v.pullers, w.caps, sign)
	}
	if w.eligible() {
		v.Workers += sign
		v.Slots += sign * w.beat.Slots
		v.Free += sign * free(w.beat.Slots, w.beat.Busy)
		v.takers = tally(v.takers, w.caps, sign)
	}
}

func tally(old map[string]int, caps map[string]broker.Caps, sign int) map[string]int {
	next := maps.Clone(old)
	if next == nil {
		next = make(map[string]int, len(caps))
	}
	for name := range caps {
		if next[name] += sign; next[name] == 0 {
			delete(next, name)
		}
	}
	return next
}
