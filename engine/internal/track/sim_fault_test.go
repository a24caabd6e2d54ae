package track_test

import (
	"context"
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// placedFaults are those that strike at a chosen moment of the protocol.
type placedFaults struct {
	aim       bool // servers die or freeze around a commit
	overlap   bool // a worker is frozen within a chunk until another runs it
	mute      bool // that a chunk is in progress is not heard for long
	gap       bool // a stage batch in the middle is lost and sent again later
	straddle  bool // answers to the owner's reads take long
	alternate bool // shards go to and fro
	late      bool // reports overtake each other, or come again seconds later
	wipe      bool // the lanes are lost
	spoil     bool // a message of a stage or of the results is lost for good
	tardy     bool // answers to what is sent to a worker come late
}

func (w *world) placeFaults(p *placedFaults) {
	for _, f := range []*bool{&p.aim, &p.overlap, &p.mute, &p.gap, &p.straddle, &p.alternate, &p.late} {
		*f = w.rng.IntN(2) == 0
	}
	for _, f := range []*bool{&p.wipe, &p.spoil} {
		*f = w.rng.IntN(4) == 0
	}
	p.tardy = w.seed%8 == 4 // not drawn: the seeds that are kept stay the worlds that they are
}

// nap is a process that stands still; what it was about to do is done when it wakes.
type nap struct {
	on     bool
	count  int
	parked []func()
	awake  func()
}

func (n *nap) begin(w *world, ms int64, awake func()) {
	n.count++
	n.on, n.awake = true, awake
	count := n.count
	w.after(ms, func() {
		if n.count == count {
			n.end(w)
		}
	})
}

func (n *nap) end(w *world) {
	if !n.on {
		return
	}
	n.on = false
	n.count++
	parked := n.parked
	n.parked = nil
	if n.awake != nil {
		n.awake()
	}
	for _, run := range parked {
		w.after(w.rng.Int64N(20), run)
	}
}

// strike kills or freezes the server at a moment around a commit. True if what comes next
// must not happen.
func (s *simServer) strike(batch []track.Stored, when string) bool {
	w := s.w
	if !w.faults.aim || w.calm || !s.alive {
		return false
	}
	speaks := slices.ContainsFunc(batch, func(b track.Stored) bool { return len(b.Effects) > 0 && b.Gen != afterGen })
	if !speaks || !w.chance(0.004) {
		return false
	}
	w.harmed++
	w.note("aimed at %s %s", s.name, when)
	life := s.life
	switch {
	case w.chance(0.5):
		// Its effects wait until it wakes: another owner may have been there.
		s.freeze([]int64{w.between(200, 900), w.between(3500, 9000)}[w.rng.IntN(2)])
	case when == "in the middle of effects":
		w.after(w.rng.Int64N(2), func() {
			if s.life == life && s.alive {
				s.kill()
			}
		})
	default:
		s.kill()
		return true
	}
	return false
}

// overtake freezes the worker in the middle of a chunk, until somebody else has it.
func (w *world) overtake(x *simWorker, r *simRun) bool {
	p := 0.004
	switch {
	case r.emitting && r.c.Atomic:
		p = 0.3
	case r.failed && r.next < r.end:
		p = 0.4
	case !r.emitting && r.next < r.end && w.mayFail(&r.c.Tasks[r.next]): // the other fails of it, this one does not
		p = 0.15
	case r.emitting, r.next > 0 && r.c.Phase == broker.PhaseSub:
		p = 0.02
	}
	if !w.faults.overlap || w.calm || r.msg == nil || len(w.workers) < 2 || w.overtakes >= 10 || x.nap.on || !w.chance(p) {
		return false
	}
	w.overtakes++
	w.harmed++
	w.waits[r.c.ChunkKey] = x
	x.freeze(w.between(14000, 25000))
	w.note("%s is frozen in %s at %d of %d", x.name, keyOf(r.c.ChunkKey), r.next, len(r.c.Tasks))
	return true
}

// overtaken lets whoever was frozen in the chunk wake up, now that another has it.
func (w *world) overtaken(x *simWorker, r *simRun) {
	y := w.waits[r.c.ChunkKey]
	if y == nil || y == x {
		return
	}
	delete(w.waits, r.c.ChunkKey)
	granted, at := r.skip != nil, w.now
	w.after(w.between(0, 3*w.pace), func() {
		if old := y.held[r.c.ChunkKey]; old != nil && y.nap.on && granted && x.held[r.c.ChunkKey] == r && w.chance(0.6) {
			old.cut, old.cutBy, old.cutAt = true, x, at
			if j := w.work[r.c.Instance]; j.cutAt == 0 {
				j.cutAt = w.now
			}
			w.note("%s will find that it was cut off from %s", y.name, keyOf(r.c.ChunkKey))
		}
		if old := y.held[r.c.ChunkKey]; old != nil && !old.cut {
			old.lucky = w.chance(0.5)
		}
		y.nap.end(w)
	})
}

// rebuke tells workers again to stop what is final: their beats still list it.
func (s *simServer) rebuke() {
	for _, name := range sorted(s.fleet.workers) {
		seen := s.fleet.workers[name]
		for key := range seen.beats[len(seen.beats)-1].held {
			if s.w.known[key.Instance].Terminal() {
				for _, x := range s.w.workers {
					if x.name == name {
						s.w.after(s.w.between(0, 3), func() {
							x.control(broker.Control{Kind: broker.ControlStop, Instance: key.Instance, Attempt: key.Attempt})
						})
					}
				}
			}
		}
	}
}

// spoil loses a stage or result message of a run that is under way.
func (w *world) spoil() {
	var ids []int64
	for _, id := range sorted(w.work) {
		if j := w.work[id]; j.kind == "tree" && w.known[id] == engine.StatusRunning && !j.spoiled {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := ids[w.rng.IntN(len(ids))]
	if stage := w.broker.stage[id]; len(stage) > 0 && w.chance(0.5) {
		i := w.rng.IntN(len(stage))
		w.broker.stage[id] = slices.Delete(stage, i, i+1)
		w.work[id].spoiled = true
		w.harmed++
		w.note("stage message of %d is lost", id)
		return
	}
	for _, seq := range sorted(w.broker.results) {
		if w.broker.results[seq].Instance == id && w.chance(0.3) {
			delete(w.broker.results, seq)
			w.work[id].spoiled = true
			w.harmed++
			w.note("result %d of %d is lost", seq, id)
			return
		}
	}
}

// straddle has rows that were read arrive only when the server has lost a shard of theirs
// and got it back: what became of them meanwhile, it does not know from them.
func (s *simServer) straddle(ev track.Fetched) bool {
	w := s.w
	if !w.faults.straddle || !w.faults.alternate || w.calm || len(w.servers) < 2 || len(ev.Rows) == 0 || !w.chance(0.3) {
		return false
	}
	shard := ev.Rows[w.rng.IntN(len(ev.Rows))].Instance.Shard
	if !s.owner.Owns(shard) {
		return false
	}
	w.harmed++
	w.note("%s gives shard %d up while it reads what waits", s.name, shard)
	_ = w.db.ReleaseShard(context.Background(), shard, s.number, s.epochs[shard])
	s.drop(shard)
	s.shy = w.now + 2500
	for _, o := range w.servers {
		if o != s {
			o.generous = shard
		}
	}
	var wait func(left int)
	wait = func(left int) {
		if left > 0 && !s.owner.Owns(shard) {
			s.later(100, func() { wait(left - 1) })
			return
		}
		s.later(w.between(0, 300), func() { s.handle(ev) })
	}
	s.later(100, func() { wait(150) })
	return true
}
