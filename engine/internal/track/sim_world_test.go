package track_test

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

// world is a whole installation driven by one seed: a clock that jumps from event to event,
// a broker, servers around the real state machine and the real store, workers that follow
// the worker's side of the protocol, and faults.
type world struct {
	seed    uint64
	rng     *rand.Rand
	now     int64
	events  eventHeap
	seq     int64
	steps   int64
	calm    bool // no further faults
	faults  plan
	db      *storage.DB
	broker  *fakeBroker
	servers []*simServer
	workers []*simWorker
	work    map[int64]*job // by instance
	specs   map[int64]*workflow.Spec
	epochs  map[uint8]int64
	known   map[int64]engine.Status // as stored
	counts  map[int64]engine.MapRun // newest stored row of a run, by instance
	trace   []string
	failed  error
	nextID  int64
	pace    int64 // the longest of usual tasks, ms
	watch   int64 // the instance of which everything is noted
	app     *track.App
	harmed  int64 // faults that happened
	oracle
}

// plan is which faults a world has; none of them means that nothing may happen twice.
type plan struct {
	servers, workers                          int
	killServer, killWorker, freeze, broker    bool
	lossy, unknown, dropCore, poison, refusal bool
	slow                                      bool // reports are read slowly
	placedFaults
}

type simEvent struct {
	at, seq int64
	run     func()
}

type eventHeap []simEvent

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(simEvent)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

const (
	simStart = int64(1_780_000_000_000)
	ackWait  = 8000
	beatMs   = 2000
	deadMs   = 6000
	leaseMs  = 3000
)

func newWorld(seed uint64) (*world, error) {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0xFA47E7)), now: simStart,
		work: map[int64]*job{}, specs: map[int64]*workflow.Spec{}, epochs: map[uint8]int64{},
		known: map[int64]engine.Status{}, counts: map[int64]engine.MapRun{}, nextID: 1000, oracle: newOracle(),
	}
	db, err := storage.Open(context.Background(), storage.Config{
		URL: "sqlite::memory:", Synchronous: "OFF", Clock: func() time.Time { return time.UnixMilli(w.now) },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	w.db = db
	w.watch, _ = strconv.ParseInt(os.Getenv("FANJET_SIM_INSTANCE"), 10, 64)
	app, err := db.EnsureApp(context.Background(), engine.App{ID: 7, Name: "sim", CreatedAt: w.now})
	if err != nil {
		return nil, err
	}
	w.app = &track.App{ID: app.ID, Name: app.Name}
	w.broker = newFakeBroker(w)
	w.faults = plan{servers: 1 + w.rng.IntN(3), workers: 1 + w.rng.IntN(4)}
	if seed%5 != 0 { // every fifth world is without faults
		p := &w.faults
		for _, f := range []*bool{&p.killServer, &p.killWorker, &p.freeze, &p.broker, &p.lossy, &p.unknown, &p.dropCore, &p.poison, &p.refusal, &p.slow} {
			*f = w.rng.IntN(2) == 0
		}
		w.placeFaults(&p.placedFaults)
	}
	for i := range w.faults.servers {
		w.servers = append(w.servers, newSimServer(w, fmt.Sprintf("server%d", i)))
	}
	for i := range w.faults.workers {
		w.workers = append(w.workers, newSimWorker(w, fmt.Sprintf("worker%d", i)))
	}
	w.pace = []int64{5, 40, 150}[w.rng.IntN(3)]
	w.makeWork()
	return w, nil
}

func (w *world) after(ms int64, run func()) {
	w.seq++
	heap.Push(&w.events, simEvent{at: w.now + max(ms, 0), seq: w.seq, run: run})
}

func (w *world) between(lo, hi int64) int64 { return lo + w.rng.Int64N(hi-lo+1) }

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// core carries a message that may be late, lost or doubled.
func (w *world) core(run func()) {
	n := 1
	if w.faults.dropCore && !w.calm {
		if w.chance(0.05) {
			n = 0
		} else if w.chance(0.05) {
			n = 2
		}
	}
	if !w.broker.up {
		return
	}
	for range n {
		w.after(w.between(0, 3)+w.rng.Int64N(2)*w.between(0, 20), run)
	}
}

// about notes what happens to the instance that is watched.
func (w *world) about(instance int64, format string, args ...any) {
	if instance == w.watch {
		w.note(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	if len(w.trace) > 4000 {
		w.trace = slices.Delete(w.trace, 0, 2000)
	}
	w.trace = append(w.trace, fmt.Sprintf("%7d ", w.now-simStart)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if w.failed == nil {
		w.failed = fmt.Errorf(format, args...)
		w.note("FAILED: %v", w.failed)
	}
}

// run lets the world go until all work is final; faults stop after a while, and then all
// must end within a bounded time. Where one slot does all the work, its map runs alone may
// take longer than that, and have four times as long; nothing else may wait for them.
func (w *world) run() error {
	const troubled, enough = int64(40_000), int64(400_000)
	slots := 0
	for _, x := range w.workers {
		slots += x.slots
	}
	healing := enough * int64(max(4/max(slots, 1), 1))
	w.after(troubled+enough, func() {
		if text := w.unfinished("tree"); text != "" {
			w.fail("not everything beside the map runs is final %d s after the faults stopped: %s", enough/1000, text)
		}
	})
	for _, s := range w.servers {
		w.after(w.between(0, 50), s.boot)
	}
	for _, x := range w.workers {
		w.after(w.between(0, 100), x.boot)
	}
	w.after(w.between(100, 500), w.trouble)
	for w.failed == nil && len(w.events) > 0 {
		e := heap.Pop(&w.events).(simEvent)
		w.now = max(w.now, e.at)
		e.run()
		w.steps++
		if !w.calm && w.now > simStart+troubled {
			w.calm = true
			w.note("calm")
			w.heal()
		}
		if w.done() {
			break
		}
		if w.now > simStart+troubled+healing {
			w.fail("not everything is final %d s after the faults stopped: %s", healing/1000, w.unfinished(""))
		}
	}
	if w.failed == nil {
		w.checkEnd()
	}
	return w.failed
}

func (w *world) close() { _ = w.db.Close() }

// trouble makes a fault now and then.
func (w *world) trouble() {
	if w.calm {
		return
	}
	w.after(w.between(200, 2000), w.trouble)
	p := w.faults
	switch w.rng.IntN(8) {
	case 0:
		if s := w.servers[w.rng.IntN(len(w.servers))]; p.killServer && s.alive {
			w.harmed++
			s.kill()
		}
	case 1:
		if x := w.workers[w.rng.IntN(len(w.workers))]; p.killWorker && x.alive {
			w.harmed++
			x.kill()
		}
	case 2:
		if s := w.servers[w.rng.IntN(len(w.servers))]; p.freeze && s.alive {
			w.harmed++
			s.freeze(w.between(100, 9000))
		}
	case 3:
		if x := w.workers[w.rng.IntN(len(w.workers))]; p.freeze && x.alive {
			w.harmed++
			x.freeze(w.between(100, 15000))
		}
	case 4:
		if p.broker && w.broker.up {
			w.harmed++
			w.broker.restart(w.between(50, 4000), p.lossy)
		}
	case 5:
		for _, s := range w.servers {
			if p.unknown && s.alive {
				w.harmed++
				s.loseCommits += 1 + w.rng.IntN(2)
			}
		}
	case 6:
		if p.wipe && w.broker.up {
			w.harmed++
			w.broker.wipe()
			w.broker.restart(w.between(50, 1500), false)
		}
	case 7:
		if p.spoil {
			w.spoil()
		}
	}
}

func (w *world) heal() {
	for _, s := range w.servers {
		s.loseCommits = 0
	}
}

func (w *world) done() bool {
	for id, j := range w.work {
		if !w.known[id].Terminal() || !j.known {
			return false
		}
	}
	return w.calm || w.harmed == 0 && w.faults == (plan{servers: w.faults.servers, workers: w.faults.workers}) && w.allSettled()
}

func (w *world) allSettled() bool { return true }

// unfinished names the instances that are not final, but those of one kind.
func (w *world) unfinished(but string) string {
	var ids []int64
	for id, j := range w.work {
		if !w.known[id].Terminal() && j.kind != but {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	text := ""
	for _, id := range ids {
		text += fmt.Sprintf(" %d(%s %s)", id, w.work[id].kind, w.known[id])
	}
	return text
}

// stored looks at a Change that the store has taken: these are the facts everybody sees.
func (w *world) stored(c *engine.Change) {
	for _, rows := range [][]engine.Instance{c.NewInstances, c.Instances} {
		for i := range rows {
			in := &rows[i]
			old, ok := w.known[in.ID]
			if ok && old.Terminal() && old != in.Status {
				w.fail("instance %d was %s and became %s", in.ID, old, in.Status)
			}
			if ok && !old.Terminal() && old != in.Status && !engine.InstanceMoves.Can(old, in.Status) &&
				!reachable(old, in.Status) {
				w.fail("instance %d went from %s to %s", in.ID, old, in.Status)
			}
			w.known[in.ID] = in.Status
			w.about(in.ID, "stored: %s attempt %d worker %s error %.60s", in.Status, in.Attempt, in.Worker, in.Error)
			if j := w.work[in.ID]; j != nil {
				j.attempted(in)
				j.known = true
				j.row = *in
			}
		}
	}
	w.storedTasks(c)
	for _, rows := range [][]engine.MapRun{c.NewRuns, c.Runs} {
		for _, r := range rows {
			old, ok := w.counts[r.Instance]
			if ok && old.Run == r.Run && (r.Total < old.Total || r.Succeeded < old.Succeeded || r.Failed < old.Failed) {
				w.fail("run %d of instance %d went back: %+v after %+v", r.Run, r.Instance, short(r), short(old))
			}
			if r.Succeeded+r.Failed > r.Total {
				w.fail("run %d of instance %d accounts for more than it has: %+v", r.Run, r.Instance, short(r))
			}
			w.counts[r.Instance] = r
			if j := w.work[r.Instance]; j != nil {
				j.maxState = max(j.maxState, len(r.State))
			}
		}
	}
}

// reachable tells whether several moves that one commit carries lead from a to b.
func reachable(a, b engine.Status) bool {
	seen := map[engine.Status]bool{a: true}
	for todo := []engine.Status{a}; len(todo) > 0; todo = todo[1:] {
		for s := engine.StatusWaiting; s <= engine.StatusSkipped; s++ {
			if !seen[s] && engine.InstanceMoves.Can(todo[0], s) {
				seen[s] = true
				todo = append(todo, s)
			}
		}
	}
	return seen[b]
}

func short(r engine.MapRun) string {
	return fmt.Sprintf("total %d succeeded %d failed %d closed %v", r.Total, r.Succeeded, r.Failed, r.Closed)
}
