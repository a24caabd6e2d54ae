package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Request asks for the worker of one directed task.
type Request struct {
	App  string
	Spec *workflow.Spec
	// Need are capabilities the processor must have on the worker.
	Need broker.Caps
	// Key is what RoutingHash hashes if the Spec has no RoutingKey: the business key.
	Key string
	// Group is what MaxWorkers is about: the job's id, or the instance's if its spec is
	// inline. The same Group keeps to the same workers.
	Group int64
	// Seed stands for chance; for RoutingRoundRobin it is the turn and counts up.
	Seed int64
	// Exclude are workers that are not to be asked again, such as one that refused.
	Exclude []string
	// Load is how many directed tasks the owner has with a worker. A worker is full when it
	// has as many as slots. Nil: the slots taken at the last beat count. It must not call
	// the Fleet.
	Load func(worker string) int
}

// Choice is the answer to a Request.
type Choice struct {
	Worker      string // empty: nobody can take it now
	Incarnation uint64
	// Reason is ReasonNoWorker if no live worker fits, ReasonQueued if those that fit are
	// full or excluded for now; empty with a Worker.
	Reason engine.Reason
	// Why says it to people.
	Why string
}

// Target is a worker of a broadcast.
type Target struct {
	Worker      string
	Incarnation uint64
}

// miss is why a worker does not fit, in the order in which it is found out.
type miss int

const (
	fits miss = iota
	missProcessor
	missCaps
	missDesignated
	missLabels
	missDraining
	missMaintenance
	missMaxWorkers
	missCPU
	missMemory
	missDisk
	missExcluded
	missFull
	misses
)

var missWords = [misses]string{
	missProcessor: "without the processor", missCaps: "whose processor lacks a needed step", missDesignated: "not designated",
	missLabels: "with other labels", missDraining: "draining", missMaintenance: "in maintenance",
	missMaxWorkers: "beyond max_workers", missCPU: "short of CPU", missMemory: "short of memory", missDisk: "short of disk",
	missExcluded: "that refused it", missFull: "full",
}

// NeedsDirected tells whether the tasks of the spec must go to chosen workers: the spec
// asks for more than a lane and a pool can give, or a worker that takes from the pool's
// lanes lacks the processor, or is in maintenance, while another one has it. If nobody has
// the processor it is false: such work waits, it is neither sent nor failed.
func (f *Fleet) NeedsDirected(appName string, s *workflow.Spec) bool {
	if s.Routing != "" && s.Routing != workflow.RoutingLane {
		return true
	}
	if len(s.Labels) > 0 || len(s.Designated) > 0 || s.MaxWorkers > 0 || s.MinCPU > 0 || s.MinMemory > 0 || s.MinDisk > 0 {
		return true
	}
	v := f.Pool(appName, s.Pool)
	return !v.NoneHas(s.Processor) && (!v.AllHave(s.Processor) || v.Pulling != v.Workers)
}

// suits is the part of the predicate that belongs to the worker and not to the moment.
func (w *worker) suits(s *workflow.Spec, need broker.Caps) miss {
	caps, ok := w.caps[s.Processor]
	switch {
	case !ok:
		return missProcessor
	case caps&need != need:
		return missCaps
	case (s.Routing == workflow.RoutingDesignated || len(s.Designated) > 0) && !slices.Contains(s.Designated, w.name):
		return missDesignated
	}
	for k, v := range s.Labels {
		if got, ok := w.beat.Labels[k]; !ok || got != v {
			return missLabels
		}
	}
	switch {
	case w.beat.Draining:
		return missDraining
	case w.maintenance:
		return missMaintenance
	}
	return fits
}

// spares tells whether the worker has the free resources. What it does not know (below 0)
// passes: a platform that cannot measure is not shut out.
func (w *worker) spares(s *workflow.Spec) miss {
	short := func(free, want float64) bool { return free >= 0 && free < want }
	switch {
	case short(w.beat.FreeCPU, s.MinCPU):
		return missCPU
	case short(float64(w.beat.FreeMemory), float64(s.MinMemory)):
		return missMemory
	case short(float64(w.beat.FreeDisk), float64(s.MinDisk)):
		return missDisk
	}
	return fits
}

// field is the workers among which a choice is made.
type field struct {
	members []*worker
	spec    *workflow.Spec
	need    broker.Caps
	part    map[string]bool // those that take part; nil: all that suit
	count   [misses]int
}

// field finds who may take part. With MaxWorkers that is a stable subset by rendezvous
// over the workers that suit, whatever their load of the moment: a busy member does not
// bring in another one.
func (f *Fleet) field(appName string, s *workflow.Spec, need broker.Caps, group int64) field {
	fd := field{spec: s, need: need}
	if p := f.pool(appName, s.Pool); p != nil {
		fd.members = p.members
	}
	if s.MaxWorkers <= 0 {
		return fd
	}
	var suit []*worker
	for _, w := range fd.members {
		if w.suits(s, need) == fits {
			suit = append(suit, w)
		}
	}
	if len(suit) <= s.MaxWorkers {
		return fd
	}
	slices.SortFunc(suit, func(a, b *worker) int { return cmp.Compare(mix(uint64(group), b.hash), mix(uint64(group), a.hash)) })
	fd.part = make(map[string]bool, s.MaxWorkers)
	for _, w := range suit[:s.MaxWorkers] {
		fd.part[w.name] = true
	}
	return fd
}

// judge is the whole predicate but for exclusion and load.
func (fd *field) judge(w *worker) miss {
	if m := w.suits(fd.spec, fd.need); m != fits {
		return m
	}
	if fd.part != nil && !fd.part[w.name] {
		return missMaxWorkers
	}
	return w.spares(fd.spec)
}

// Shares are the live workers that take part in a broadcast, by name. group is as in
// Request.
func (f *Fleet) Shares(appName string, s *workflow.Spec, group int64) []Target {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fd := f.field(appName, s, 0, group)
	var out []Target
	for _, w := range fd.members {
		if fd.judge(w) == fits {
			out = append(out, Target{Worker: w.name, Incarnation: w.beat.Incarnation})
		}
	}
	return out
}

// Pick chooses the worker of a directed task. The same Fleet and Request give the same
// Choice. RoutingHash and RoutingDesignated do not turn from a full worker to another one
// that the key or the order would not name; RoutingLane, when something else makes the
// task directed, takes the least loaded.
func (f *Fleet) Pick(r Request) Choice {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fd := f.field(r.App, r.Spec, r.Need, r.Group)
	var w *worker
	switch r.Spec.Routing {
	case workflow.RoutingRandom:
		w = fd.best(&r, func(w *worker) uint64 { return mix(uint64(r.Seed), w.hash) })
	case workflow.RoutingRoundRobin:
		w = fd.turn(&r)
	case workflow.RoutingHash:
		w = fd.byKey(&r)
	default:
		w = fd.least(&r)
	}
	if w != nil {
		return Choice{Worker: w.name, Incarnation: w.beat.Incarnation}
	}
	return fd.nobody(&r)
}

func (fd *field) admits(w *worker, r *Request) bool {
	m := fd.judge(w)
	if m == fits && slices.Contains(r.Exclude, w.name) {
		m = missExcluded
	}
	if m == fits && r.load(w) >= w.beat.Slots {
		m = missFull
	}
	fd.count[m]++
	return m == fits
}

func (r *Request) load(w *worker) int {
	if r.Load == nil {
		return w.beat.Busy
	}
	return r.Load(w.name)
}

// best is the admitted worker with the highest weight.
func (fd *field) best(r *Request, weight func(*worker) uint64) (top *worker) {
	var high uint64
	for _, w := range fd.members {
		if !fd.admits(w, r) {
			continue
		}
		if x := weight(w); top == nil || x > high {
			top, high = w, x
		}
	}
	return top
}

// byKey is rendezvous hashing over the workers that fit: whoever comes or goes moves only
// its own keys. The worker of the key may be full; then the task waits for it.
func (fd *field) byKey(r *Request) *worker {
	key := cmp.Or(r.Spec.RoutingKey, r.Key)
	h := hashString(key)
	if key == "" {
		h = uint64(r.Seed)
	}
	var top *worker
	var high uint64
	for _, w := range fd.members {
		m := fd.judge(w)
		if m == fits && slices.Contains(r.Exclude, w.name) {
			m = missExcluded
		}
		if m != fits {
			fd.count[m]++
			continue
		}
		if x := mix(h, w.hash); top == nil || x > high {
			top, high = w, x
		}
	}
	if top != nil && r.load(top) >= top.beat.Slots {
		fd.count[missFull]++
		return nil
	}
	return top
}

// turn is the Seed-th of the workers that fit, by name, or the next one that is not full.
func (fd *field) turn(r *Request) *worker {
	n := 0
	for _, w := range fd.members {
		m := fd.judge(w)
		fd.count[m]++
		if m == fits {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	from := int(uint64(r.Seed) % uint64(n))
	var early *worker // the first admitted before from
	i := 0
	for _, w := range fd.members {
		if fd.judge(w) != fits {
			continue
		}
		i++
		if i <= from && early != nil || !fd.admits(w, r) {
			continue
		}
		if i > from {
			return w
		}
		early = w
	}
	return early
}

// least is the admitted worker with the smallest share of its slots taken; the seed breaks
// a tie.
func (fd *field) least(r *Request) (top *worker) {
	var taken int
	for _, w := range fd.members {
		if !fd.admits(w, r) {
			continue
		}
		load := max(r.load(w), w.beat.Busy)
		if top != nil {
			// load/slots against taken/top.slots
			a, b := load*top.beat.Slots, taken*w.beat.Slots
			if a > b || a == b && mix(uint64(r.Seed), w.hash) <= mix(uint64(r.Seed), top.hash) {
				continue
			}
		}
		top, taken = w, load
	}
	return top
}

func (fd *field) nobody(r *Request) Choice {
	s := r.Spec
	pool := cmp.Or(s.Pool, workflow.PoolAny)
	c := Choice{Reason: engine.ReasonNoWorker}
	if fd.count[missFull]+fd.count[missExcluded] > 0 {
		c.Reason = engine.ReasonQueued
	}
	if len(fd.members) == 0 {
		c.Why = fmt.Sprintf("no live worker of app %s is in pool %s", r.App, pool)
		return c
	}
	var parts []string
	for m := range misses {
		if n := fd.count[m]; n > 0 && m != fits {
			parts = append(parts, fmt.Sprintf("%d %s", n, missWords[m]))
		}
	}
	c.Why = fmt.Sprintf("none of %d live workers in pool %s can take processor %s now: %s", len(fd.members), pool, s.Processor, strings.Join(parts, ", "))
	return c
}

func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h, uint64(len(s)))
}

// mix spreads two numbers over 64 bits.
func mix(a, b uint64) uint64 {
	x := a*0x9E3779B97F4A7C15 ^ b
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
