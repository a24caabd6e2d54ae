package dispatch

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/workflow"
)

// DefaultDeadAfter is how long a worker may be silent.
const DefaultDeadAfter = 6 * time.Second

// Fleet is every worker that is believed to live, of all apps. Safe for concurrent use.
// Times are ms of one clock, best a monotonic one; if it steps, deaths come late, not early.
type Fleet struct {
	deadAfter int64

	mu       sync.RWMutex
	apps     map[string]*app
	upkeep   map[workerKey]bool // in maintenance, live or not
	expired  int64              // when Expire was last called, or 0
	severed  bool               // it was without broker connection then
	amnesty  int64              // silence counts from here at the earliest
	recently map[workerKey][]uint64
}

type workerKey struct{ app, name string }

type app struct {
	workers map[string]*worker
	pools   map[string]*pool
	caps    atomic.Pointer[map[string]broker.Caps] // of each processor, over all workers; nil: to be made
}

// worker is one live worker. beat is not changed after it was observed.
type worker struct {
	name        string
	hash        uint64
	beat        *broker.Beat
	caps        map[string]broker.Caps
	heard       int64
	before      int64  // when the beat before the last one was heard
	beats       uint64 // of this incarnation
	held        map[broker.ChunkKey]uint64
	maintenance bool
}

// eligible tells whether new work may go to the worker.
func (w *worker) eligible() bool { return !w.beat.Draining && !w.maintenance }

// NewFleet makes an empty Fleet; deadAfter 0 is DefaultDeadAfter.
func NewFleet(deadAfter time.Duration) *Fleet {
	if deadAfter <= 0 {
		deadAfter = DefaultDeadAfter
	}
	return &Fleet{
		deadAfter: deadAfter.Milliseconds(), apps: map[string]*app{},
		upkeep: map[workerKey]bool{}, recently: map[workerKey][]uint64{},
	}
}

// News is what a beat changed.
type News struct {
	// Stale: the beat is older than one seen, or of an incarnation that another one
	// replaced; it changed nothing.
	Stale bool
	// New: no worker of that name was live.
	New bool
	// Restarted: another incarnation took the name. What Former held is lost.
	Restarted bool
	Former    uint64
	// Gone are processors that the former beat listed and this one does not.
	Gone []string
	// Draining: the worker has begun to drain.
	Draining bool
	// Changed: pools, processors or slots differ from the former beat; always with New.
	Changed bool
}

// rememberedIncarnations is how many replaced incarnations of a name are known as stale.
const rememberedIncarnations = 8

// heldBeats is for how many beats a chunk is remembered after it was last listed.
const heldBeats = 16

// Observe takes a beat into account. It keeps b; the caller must not change it any more.
func (f *Fleet) Observe(now int64, b *broker.Beat) News {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := workerKey{b.App, b.Worker}
	if slices.Contains(f.recently[key], b.Incarnation) {
		return News{Stale: true}
	}
	a := f.apps[b.App]
	if a == nil {
		a = &app{workers: map[string]*worker{}, pools: map[string]*pool{}}
		f.apps[b.App] = a
	}
	w := a.workers[b.Worker]
	if w != nil && w.beat.Incarnation == b.Incarnation && b.Seq != 0 && b.Seq <= w.beat.Seq {
		return News{Stale: true}
	}
	var news News
	switch {
	case w == nil:
		news.New, news.Changed = true, true
		w = &worker{name: b.Worker, hash: hashString(b.Worker), maintenance: f.upkeep[key]}
	case w.beat.Incarnation != b.Incarnation:
		news.Restarted, news.Former, news.Changed = true, w.beat.Incarnation, true
		news.Gone = missing(w.beat.Processors, b.Processors)
		f.forget(key, w.beat.Incarnation)
		a.leave(w)
		w = &worker{name: w.name, hash: w.hash, maintenance: w.maintenance}
	default:
		news.Draining = b.Draining && !w.beat.Draining
		news.Changed = w.beat.Slots != b.Slots || !slices.Equal(w.beat.Pools, b.Pools) || !slices.Equal(w.beat.Processors, b.Processors)
		if news.Changed {
			news.Gone = missing(w.beat.Processors, b.Processors)
		}
		if !news.Changed && w.beat.Draining == b.Draining {
			a.busy(w, b.Busy) // by far the most beats: only the load moves
			w.hear(now, b)
			return news
		}
		a.leave(w)
	}
	if news.Changed {
		w.caps = make(map[string]broker.Caps, len(b.Processors))
		for _, p := range b.Processors {
			w.caps[p.Name] = p.Caps
		}
	}
	w.hear(now, b)
	a.enter(w)
	return news
}

func (w *worker) hear(now int64, b *broker.Beat) {
	w.before = w.heard
	if w.beats == 0 {
		w.before = math.MinInt64
	}
	w.beat, w.heard = b, now
	w.beats++
	if w.held == nil && len(b.Held) > 0 {
		w.held = make(map[broker.ChunkKey]uint64, len(b.Held))
	}
	for _, k := range b.Held {
		w.held[k] = w.beats
	}
	if len(w.held) > len(b.Held) {
		maps.DeleteFunc(w.held, func(_ broker.ChunkKey, last uint64) bool { return w.beats-last >= heldBeats })
	}
}

// forget remembers an incarnation as gone, so that a late beat of it changes nothing.
func (f *Fleet) forget(key workerKey, incarnation uint64) {
	list := append(f.recently[key], incarnation)
	if len(list) > rememberedIncarnations {
		list = list[1:]
	}
	f.recently[key] = list
}

func missing(old, now []broker.ProcessorInfo) (gone []string) {
	for _, p := range old {
		if !slices.ContainsFunc(now, func(q broker.ProcessorInfo) bool { return q.Name == p.Name }) {
			gone = append(gone, p.Name)
		}
	}
	return gone
}

// Dead is a worker that was given up.
type Dead struct {
	App, Worker string
	Incarnation uint64
}

// Expire gives up the workers that were silent for too long and returns them by app and
// name; they are gone from the Fleet, and come back as new with their next beat. Call it
// about every second. Silence counts only while the broker connection was up: after a
// reconnect, and after a pause of Expire itself (a frozen server has beats to catch up
// with), everybody gets a fresh period.
func (f *Fleet) Expire(now int64, connected bool) []Dead {
	f.mu.Lock()
	defer f.mu.Unlock()
	if connected && (f.severed || f.expired != 0 && now-f.expired > f.deadAfter/2) {
		f.amnesty = now
	}
	f.expired, f.severed = now, !connected
	if !connected {
		return nil
	}
	var dead []Dead
	for name, a := range f.apps {
		for _, w := range a.workers {
			if now-max(w.heard, f.amnesty) < f.deadAfter {
				continue
			}
			dead = append(dead, Dead{App: name, Worker: w.name, Incarnation: w.beat.Incarnation})
			a.leave(w)
			delete(f.recently, workerKey{name, w.name})
		}
		if len(a.workers) == 0 {
			delete(f.apps, name)
		}
	}
	slices.SortFunc(dead, func(x, y Dead) int {
		if c := strings.Compare(x.App, y.App); c != 0 {
			return c
		}
		return strings.Compare(x.Worker, y.Worker)
	})
	return dead
}

// Amnesty gives everybody a fresh period, as after a reconnect or a take-over.
func (f *Fleet) Amnesty(now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.amnesty = now
}

// SetMaintenance switches the maintenance of a worker, whether it lives or not: it keeps
// what it has and gets nothing new.
func (f *Fleet) SetMaintenance(appName, name string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := workerKey{appName, name}
	if on {
		f.upkeep[key] = true
	} else {
		delete(f.upkeep, key)
	}
	a := f.apps[appName]
	if a == nil || a.workers[name] == nil || a.workers[name].maintenance == on {
		return
	}
	w := a.workers[name]
	a.leave(w)
	w.maintenance = on
	a.enter(w)
}

// WorkerView is a live worker as last heard. Its Beat must not be changed.
type WorkerView struct {
	Beat        *broker.Beat
	Maintenance bool
	HeardAt     int64
	Beats       uint64 // beats heard of this incarnation
}

func (w *worker) view() WorkerView {
	return WorkerView{Beat: w.beat, Maintenance: w.maintenance, HeardAt: w.heard, Beats: w.beats}
}

// Worker is the live worker of that name.
func (f *Fleet) Worker(appName, name string) (WorkerView, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if w := f.find(appName, name); w != nil {
		return w.view(), true
	}
	return WorkerView{}, false
}

// Workers are the live workers of an app by name; of every app if appName is empty.
func (f *Fleet) Workers(appName string) []WorkerView {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []WorkerView
	for _, name := range slices.Sorted(maps.Keys(f.apps)) {
		if appName != "" && name != appName {
			continue
		}
		if p := f.apps[name].pools[workflow.PoolAny]; p != nil {
			for _, w := range p.members {
				out = append(out, w.view())
			}
		}
	}
	return out
}

// Alive tells whether that incarnation of the worker is believed to live.
func (f *Fleet) Alive(appName, name string, incarnation uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w := f.find(appName, name)
	return w != nil && w.beat.Incarnation == incarnation
}

func (f *Fleet) find(appName, name string) *worker {
	if a := f.apps[appName]; a != nil {
		return a.workers[name]
	}
	return nil
}
