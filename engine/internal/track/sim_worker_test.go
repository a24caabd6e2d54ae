package track_test

import (
	"strconv"

	"github.com/fanjet/fanjet/broker"
)

// simWorker follows the worker's side of the protocol: it asks before it runs what is
// doubtful, stores results, then the report, then acks, and says in beats what it holds.
type simWorker struct {
	w           *world
	name        string
	alive       bool
	life        int
	nap         nap
	bootedAt    int64
	goneAt      int64               // when it last died, or was frozen so long that it may pass for dead
	unheard     map[*simServer]bool // its last beat was lost
	incarnation uint64
	slots       int
	free        int
	held        map[broker.ChunkKey]*simRun
	finished    map[broker.ChunkKey]bool
	stops       map[int64]int32
	epochs      map[uint8]int64
	out         []outgoing // reports to be stored, in order
	sending     bool
}

type outgoing struct {
	shard uint8
	rep   broker.Report
	done  func()
}

// simRun is one chunk held.
type simRun struct {
	c       *broker.Chunk
	msg     *taskMsg
	slot    bool
	asking  bool
	stopped bool
	skip    map[int64]bool
	next    int
	putAt   int64   // when it was asked whether it may run
	end     int     // tasks from here on were given back
	done    []int64 // finished and not yet reported
	values  [][]byte
	pending int
	over    bool
	mute    bool // that it is in progress does not reach the broker
	failed  bool // a task of it has
	// emitting: its mapper is at work.
	emitting bool
	lucky    bool // it was frozen until another had its chunk, and succeeds
	cut      bool // it was frozen until another had its chunk, and fails of it
	cutBy    *simWorker
	cutAt    int64 // when the other got it
}

func newSimWorker(w *world, name string) *simWorker {
	return &simWorker{w: w, name: name, slots: 1 + w.rng.IntN(4)}
}

func (x *simWorker) later(ms int64, f func()) {
	life := x.life
	var run func()
	run = func() {
		switch {
		case x.life != life || !x.alive:
		case x.nap.on:
			x.nap.parked = append(x.nap.parked, run)
		default:
			f()
		}
	}
	x.w.after(ms, run)
}

func (x *simWorker) boot() {
	x.life++
	x.alive, x.nap, x.free = true, nap{count: x.nap.count + 1}, x.slots
	x.unheard, x.bootedAt = map[*simServer]bool{}, x.w.now
	x.incarnation = x.w.rng.Uint64()>>1 | 1
	x.held, x.finished = map[broker.ChunkKey]*simRun{}, map[broker.ChunkKey]bool{}
	x.stops, x.epochs, x.out, x.sending = map[int64]int32{}, map[uint8]int64{}, nil, false
	x.w.note("%s boots", x.name)
	x.later(0, x.beat)
	x.later(x.w.between(1, 10), x.pull)
	x.later(2000, x.keep)
}

func (x *simWorker) kill() {
	x.w.note("%s killed, holding %d", x.name, len(x.held))
	x.alive = false
	x.life++
	x.w.lost++
	x.goneAt = x.w.now
	for _, r := range x.held {
		x.w.died(r)
		x.w.excuse(r, "its worker died")
	}
	life := x.life
	x.w.after(x.w.between(10, 12000), func() {
		if x.life == life {
			x.boot()
		}
	})
}

func (x *simWorker) freeze(ms int64) {
	x.w.note("%s frozen for %d ms", x.name, ms)
	x.nap.begin(x.w, ms, nil)
	if ms > beatMs { // it may pass for dead
		x.w.lost++
		x.goneAt = x.w.now
		for _, r := range x.held {
			x.w.died(r)
			x.w.excuse(r, "its worker was frozen")
		}
	}
}

func (x *simWorker) beat() {
	x.later(beatMs, x.beat)
	b := &broker.Beat{App: x.w.app.Name, Worker: x.name, Incarnation: x.incarnation, Slots: x.slots, Processors: x.w.processors(x)}
	for k, r := range x.held {
		if !r.asking { // to ask is not to hold
			b.Held = append(b.Held, k)
		}
	}
	for _, s := range x.w.servers {
		if !x.w.broker.up {
			continue
		}
		if x.w.faults.dropCore && !x.w.calm && !x.unheard[s] && x.w.chance(0.1) {
			x.unheard[s] = true // not twice in a row: it would pass for dead
			continue
		}
		x.unheard[s] = false
		x.w.after(x.w.between(0, 20), func() {
			if s.alive {
				s.later(0, func() { s.beat(b) })
			}
		})
	}
}

// keep keeps what is held in progress.
func (x *simWorker) keep() {
	x.later(2000, x.keep)
	for _, r := range x.held {
		if r.msg != nil && !r.mute {
			x.w.broker.inProgress(r.msg)
		}
	}
}

func (x *simWorker) pull() {
	x.later(x.w.between(2, 12), x.pull)
	for x.free > 0 && !x.nap.on {
		m, _ := x.w.broker.pull()
		if m == nil {
			return
		}
		x.receive(m)
	}
}

func (x *simWorker) receive(m *taskMsg) {
	c := m.chunk
	stale := c.Epoch < x.epochs[c.Shard]
	x.epochs[c.Shard] = max(x.epochs[c.Shard], c.Epoch)
	if a, ok := x.stops[c.Instance]; ok && c.Attempt <= a {
		x.w.broker.ack(m)
		return
	}
	if r := x.held[c.ChunkKey]; r != nil {
		r.msg, r.mute = m, false
		return
	}
	r := &simRun{c: c, msg: m, slot: true, end: len(c.Tasks)}
	x.held[c.ChunkKey] = r
	if !x.w.runs(x, c) {
		rep := x.report(r, broker.ReportRefused)
		rep.Error = broker.TaskError{Kind: broker.ErrorFailed, Message: "no such processor"}
		r.slot, r.over = false, true
		x.send(r, rep)
		return
	}
	x.free--
	if stale || x.finished[c.ChunkKey] || m.delivered > 1 || x.w.now-m.storedAt > ackWait {
		r.asking = true
		x.ask(r)
		return
	}
	x.start(r)
}

func (x *simWorker) question(r *simRun, kind broker.AskKind, from uint64) *broker.AskRequest {
	return &broker.AskRequest{Kind: kind, ChunkKey: r.c.ChunkKey, App: r.c.App, Shard: r.c.Shard, Worker: x.name, Incarnation: x.incarnation, From: from}
}

// put asks until there is an answer that decides.
func (x *simWorker) put(q *broker.AskRequest, r *simRun, then func(*broker.AskReply)) {
	answered := false
	reply := func(a *broker.AskReply) {
		if answered {
			return
		}
		answered = true
		raw, err := broker.EncodeAskReply(a)
		if err == nil {
			a, err = broker.DecodeAskReply(raw)
		}
		if err != nil {
			x.w.fail("ask reply: %v", err)
			return
		}
		x.w.about(r.c.Instance, "%s asked %s: %d %v", x.name, keyOf(r.c.ChunkKey), a.Verdict, a.Done)
		x.later(0, func() {
			switch {
			case x.held[r.c.ChunkKey] != r:
			case a.Verdict == broker.VerdictRetry:
				x.later(x.w.between(50, 1000), func() { x.put(q, r, then) })
			default:
				then(a)
			}
		})
	}
	for _, s := range x.w.servers {
		x.w.core(func() { s.ask(q, reply) })
	}
	x.later(2000, func() {
		if !answered {
			answered = true
			if x.held[r.c.ChunkKey] == r {
				x.put(q, r, then)
			}
		}
	})
}

func (x *simWorker) ask(r *simRun) {
	r.putAt = x.w.now
	x.put(x.question(r, broker.AskRun, 0), r, func(a *broker.AskReply) {
		switch {
		case !r.asking:
		case a.Verdict == broker.VerdictHeld:
			x.forget(r, false)
			x.w.broker.nak(r.msg, 5000)
		case a.Verdict == broker.VerdictDone:
			x.forget(r, false)
			x.w.broker.ack(r.msg)
		default:
			r.asking = false
			r.skip = map[int64]bool{}
			for _, n := range a.Done {
				r.skip[n] = true
			}
			x.start(r)
		}
	})
}

func (x *simWorker) forget(r *simRun, ran bool) {
	delete(x.held, r.c.ChunkKey)
	if ran {
		x.finished[r.c.ChunkKey] = true
	}
	if r.slot {
		r.slot = false
		x.free++
	}
}

func (x *simWorker) report(r *simRun, kind broker.ReportKind) broker.Report {
	return broker.Report{ChunkKey: r.c.ChunkKey, Kind: kind, Phase: r.c.Phase, Emitted: -1}
}

// send stores a report; when the last one of a run that is over is stored, it is acked.
func (x *simWorker) send(r *simRun, rep broker.Report) {
	r.pending++
	x.tell(outgoing{r.c.Shard, rep, func() {
		r.pending--
		x.settle(r)
	}})
}

func (x *simWorker) tell(o outgoing) {
	x.out = append(x.out, o)
	if !x.sending {
		x.sending = true
		x.later(x.w.between(0, 4), x.flush)
	}
}

func (x *simWorker) flush() {
	x.sending = false
	if len(x.out) == 0 {
		return
	}
	shard := x.out[0].shard
	b := &broker.ReportBatch{App: x.w.app.Name, Worker: x.name, Incarnation: x.incarnation}
	var done []func()
	var rest []outgoing
	for _, o := range x.out {
		if o.shard != shard {
			rest = append(rest, o)
			continue
		}
		b.Reports = append(b.Reports, o.rep)
		if o.done != nil {
			done = append(done, o.done)
		}
	}
	if x.w.faults.late && !x.w.calm && x.w.chance(0.05) { // later ones overtake it
		x.out = nil
		x.w.note("%s has %d reports overtaken", x.name, len(b.Reports))
		x.later(x.w.between(5, 1500), func() { x.put1(shard, b, done) })
	} else {
		if err := x.w.broker.addReports(shard, b); err != nil {
			x.sending = true
			x.later(x.w.between(20, 200), x.flush)
			return
		}
		x.stored(shard, b, done)
	}
	x.out = rest
	if len(rest) > 0 {
		x.sending = true
		x.later(0, x.flush)
	}
}

// put1 stores a batch that was held up.
func (x *simWorker) put1(shard uint8, b *broker.ReportBatch, done []func()) {
	if x.w.broker.addReports(shard, b) != nil {
		x.later(x.w.between(20, 200), func() { x.put1(shard, b, done) })
		return
	}
	x.stored(shard, b, done)
}

// stored: the stream has the reports.
func (x *simWorker) stored(shard uint8, b *broker.ReportBatch, done []func()) {
	if x.w.faults.broker && !x.w.calm && x.w.chance(0.02) {
		// Stored, but the ack was lost: it is sent again.
		_ = x.w.broker.addReports(shard, b)
	}
	if x.w.faults.late && !x.w.calm && x.w.chance(0.05) { // and once more, when much may have happened
		x.w.after(x.w.between(100, 8000), func() { _ = x.w.broker.addReports(shard, b) })
	}
	for _, rep := range b.Reports {
		x.w.reported(&rep)
		x.w.valuesTold(&rep)
		x.w.about(rep.Instance, "%s reports %s kind %d numbers %v result %d emitted %d error %s", x.name, keyOf(rep.ChunkKey), rep.Kind, rep.Numbers, rep.ResultSeq, rep.Emitted, rep.Error.Message)
	}
	for _, f := range done {
		x.later(x.w.between(0, 2), f)
	}
}

func (x *simWorker) settle(r *simRun) {
	if !r.over || r.pending > 0 || x.held[r.c.ChunkKey] != r {
		return
	}
	x.forget(r, true)
	if r.msg != nil {
		x.w.broker.ack(r.msg)
	}
}

func (x *simWorker) start(r *simRun) {
	x.tell(outgoing{r.c.Shard, x.report(r, broker.ReportStarted), nil})
	x.w.overtaken(x, r)
	x.step(r)
}

// step runs the next task of the chunk.
func (x *simWorker) step(r *simRun) {
	for r.next < r.end && r.skip[r.c.Tasks[r.next].Number] {
		r.next++
	}
	if r.next >= r.end || r.stopped {
		x.handOver(r)
		r.over = true
		if r.pending == 0 {
			x.settle(r)
		}
		return
	}
	if x.w.overtake(x, r) {
		x.later(0, func() {
			if x.held[r.c.ChunkKey] == r {
				x.step(r)
			}
		})
		return
	}
	t := &r.c.Tasks[r.next]
	r.next++
	if r.next < r.end && x.w.chance(0.02) && x.w.harmed > 0 { // a long chunk gives the rest back
		rep := x.report(r, broker.ReportReturned)
		for _, t := range r.c.Tasks[r.next:r.end] {
			if !r.skip[t.Number] {
				rep.Numbers = append(rep.Numbers, t.Number)
			}
		}
		r.end = r.next
		if len(rep.Numbers) > 0 {
			x.send(r, rep)
		}
	}
	x.w.began(x, r, t)
	ms := x.w.between(1, x.w.pace)
	if x.w.chance(0.01) {
		ms = x.w.between(1000, 12000)
	}
	if r.msg != nil && x.w.faults.mute && !x.w.calm && x.w.chance(0.005) {
		x.w.harmed++
		r.mute, ms = true, x.w.between(9000, 14000)
		x.w.note("%s is not heard to have %s in progress", x.name, keyOf(r.c.ChunkKey))
	}
	ms = x.w.takes(r, ms)
	x.later(ms, func() {
		if x.held[r.c.ChunkKey] != r {
			return
		}
		if r.stopped {
			rep := x.report(r, broker.ReportFailed)
			rep.Numbers, rep.TaskAttempt, rep.Error = []int64{t.Number}, t.Attempt, broker.TaskError{Kind: broker.ErrorStopped, Message: "stopped"}
			x.send(r, rep)
			x.step(r)
			return
		}
		x.w.execute(x, r, t)
	})
}

// succeed books the success of one task; successes of sub-tasks go together.
func (x *simWorker) succeed(r *simRun, t *broker.Task, value []byte) {
	x.w.executed(r, t)
	if r.c.Phase != broker.PhaseSub {
		rep := x.report(r, broker.ReportSucceeded)
		rep.Numbers, rep.TaskAttempt, rep.Result, rep.Duration = []int64{t.Number}, t.Attempt, value, 5e6
		x.send(r, rep)
		x.step(r)
		return
	}
	r.done, r.values = append(r.done, t.Number), append(r.values, value)
	if r.lucky || x.w.chance(0.2) {
		x.handOver(r)
	}
	x.step(r)
}

func (x *simWorker) fail(r *simRun, t *broker.Task, e broker.TaskError, emitted int64, token uint64) {
	r.failed = true
	rep := x.report(r, broker.ReportFailed)
	rep.Numbers, rep.TaskAttempt, rep.Error, rep.Emitted, rep.Token = []int64{t.Number}, t.Attempt, e, emitted, token
	x.send(r, rep)
	x.step(r)
}

func (x *simWorker) handOver(r *simRun) {
	if len(r.done) == 0 {
		return
	}
	rep := x.report(r, broker.ReportSucceeded)
	rep.Numbers, rep.Duration = r.done, 1e6
	if len(r.done) == len(r.c.Tasks) && len(r.skip) == 0 && x.w.whole(r) {
		rep.Numbers = nil
	}
	numbers, values := r.done, r.values
	r.done, r.values = nil, nil
	x.deliver(r, rep, numbers, values)
}

// deliver stores the values, then the report.
func (x *simWorker) deliver(r *simRun, rep broker.Report, numbers []int64, values [][]byte) {
	if !r.c.Collect {
		x.send(r, rep)
		return
	}
	r.pending++
	var store func()
	store = func() {
		seq, err := x.w.broker.addResult(&broker.ResultBatch{Instance: r.c.Instance, Run: r.c.Run, Numbers: numbers, Values: values})
		switch {
		case r.stopped:
		case err != nil:
			x.later(x.w.between(20, 200), store)
			return
		}
		rep.ResultSeq = seq
		r.pending--
		x.send(r, rep)
	}
	x.later(x.w.between(0, 3), store)
}

// reduce adds up what counts, read in pages.
func (x *simWorker) reduce(r *simRun, t *broker.Task, from uint64, sum, count int64, seen map[int64]bool) {
	x.put(x.question(r, broker.AskResults, from), r, func(a *broker.AskReply) {
		for _, rg := range a.Results {
			for seq := rg.First; seq <= rg.Last; seq++ {
				b := x.w.broker.results[seq]
				if j := x.w.work[r.c.Instance]; b == nil && j.spoiled {
					x.fail(r, t, broker.TaskError{Kind: broker.ErrorPermanent, Message: "a result is gone"}, -1, 0)
					return
				}
				if b == nil || b.Instance != r.c.Instance || b.Run != r.c.Run {
					if x.w.current(r) {
						x.w.fail("instance %d: accepted result %d is not there", r.c.Instance, seq)
					}
					return
				}
				for i, n := range b.Numbers {
					if seen[n] {
						x.w.fail("instance %d: number %d is accepted twice", r.c.Instance, n)
					}
					seen[n] = true
					v, _ := strconv.ParseInt(string(b.Values[i]), 10, 64)
					sum += v
					count++
				}
			}
		}
		if a.Verdict == broker.VerdictDone {
			x.fail(r, t, broker.TaskError{Kind: broker.ErrorFailed, Message: "the owner says it is done"}, -1, 0)
			return
		}
		if a.Next > 0 {
			x.reduce(r, t, a.Next, sum, count, seen)
			return
		}
		if count != a.Total-a.Failed && x.w.current(r) {
			x.w.fail("instance %d: %d values for %d of %d sub-tasks", r.c.Instance, count, a.Total-a.Failed, a.Total)
		}
		x.succeed(r, t, []byte(strconv.FormatInt(sum, 10)))
	})
}

func (x *simWorker) control(c broker.Control) {
	if !x.alive {
		return
	}
	x.later(0, func() {
		switch c.Kind {
		case broker.ControlStop:
			x.stops[c.Instance] = max(x.stops[c.Instance], c.Attempt)
			for k, r := range x.held {
				if k.Instance == c.Instance && k.Attempt <= c.Attempt {
					r.stopped = true
					if r.asking {
						x.forget(r, false)
						x.w.broker.ack(r.msg)
					}
				}
			}
		case broker.ControlEpoch:
			x.epochs[c.Shard] = max(x.epochs[c.Shard], c.Epoch)
		default:
		}
	})
}

func (x *simWorker) directed(c *broker.Chunk) broker.DirectedReply {
	stale := c.Epoch < x.epochs[c.Shard]
	x.epochs[c.Shard] = max(x.epochs[c.Shard], c.Epoch)
	if a, ok := x.stops[c.Instance]; ok && c.Attempt <= a {
		return broker.DirectedRefused
	}
	if x.held[c.ChunkKey] != nil || x.finished[c.ChunkKey] {
		return broker.DirectedAccepted
	}
	if !x.w.runs(x, c) {
		return broker.DirectedRefused
	}
	beside := c.Phase >= broker.PhasePre
	if stale || !beside && x.free == 0 {
		return broker.DirectedBusy
	}
	clone := *c
	r := &simRun{c: &clone, slot: !beside, end: len(c.Tasks)}
	if !beside {
		x.free--
	}
	x.held[c.ChunkKey] = r
	x.start(r)
	return broker.DirectedAccepted
}
