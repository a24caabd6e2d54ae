package processor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	// stopMemory is how long the ids of stopped instances are refused.
	stopMemory = 10 * time.Minute
	// finishedMemory is how long a directed chunk that is sent again counts as accepted, and one
	// from a lane as worth a question.
	finishedMemory = time.Minute
	// surplusPause keeps a message without a slot from bouncing at once to the next open request of
	// this same worker.
	surplusPause = 20 * time.Millisecond
	// maxBeside bounds what runs beside the slots.
	maxBeside = 256
)

type stopOrder struct {
	attempt int32
	at      time.Time
}

// recent remembers the chunks that finished lately: the last maxRecent of them, for finishedMemory.
type recent struct {
	at   map[broker.ChunkKey]time.Time
	ring []broker.ChunkKey
	next int
}

const maxRecent = 16 << 10

func (f *recent) add(key broker.ChunkKey, now time.Time) {
	if f.at == nil {
		f.at = map[broker.ChunkKey]time.Time{}
	}
	if len(f.ring) < maxRecent {
		f.ring = append(f.ring, key)
	} else {
		delete(f.at, f.ring[f.next])
		f.ring[f.next] = key
		f.next = (f.next + 1) % maxRecent
	}
	f.at[key] = now
}

func (f *recent) has(key broker.ChunkKey, now time.Time) bool {
	at, ok := f.at[key]
	return ok && now.Sub(at) <= finishedMemory
}

// receive takes a message from a lane: it is held and kept in progress from here on.
func (w *Worker) receive(l *lane, d *delivery) {
	slot := w.slots.came(l)
	used := false
	defer func() {
		if slot && !used {
			w.slots.free(l.name)
		}
	}()
	c := d.chunk
	w.mu.Lock()
	stale := w.sawEpoch(c.Shard, c.Epoch)
	if w.isStopped(c) {
		w.mu.Unlock()
		w.count.stopped.Add(1)
		w.tell(d.Ack())
		return
	}
	if r := w.held[c.ChunkKey]; r != nil {
		w.mu.Unlock()
		w.count.redelivered.Add(1)
		r.adopt(d)
		return
	}
	if w.draining {
		w.mu.Unlock()
		w.tell(d.Nak(0))
		return
	}
	reg, why := w.canRun(c)
	if why != "" {
		r := w.hold(c, nil, d.answer)
		w.mu.Unlock()
		w.refuse(r, why)
		return
	}
	again := w.finished.has(c.ChunkKey, time.Now())
	if !slot {
		w.mu.Unlock()
		w.count.surplus.Add(1)
		w.tell(d.Nak(surplusPause))
		return
	}
	r := w.hold(c, reg, d.answer)
	r.slot, r.lane, used = true, l.name, true
	w.beside--
	doubtful := stale || again || d.delivered > 1 || d.age > w.ackWait
	r.asking = true
	w.mu.Unlock()
	if doubtful {
		go r.mayRun()
		return
	}
	go r.start()
}

// hold books a chunk, beside the slots until told otherwise. The caller holds mu.
func (w *Worker) hold(c *broker.Chunk, reg *registered, msg answer) *run {
	ctx, cancel := context.WithCancelCause(w.life)
	r := &run{w: w, c: c, reg: reg, ctx: ctx, cancel: cancel, msg: msg, end: len(c.Tasks), asking: true}
	w.held[c.ChunkKey] = r
	w.beside++
	return r
}

// canRun tells why this worker cannot run the chunk, or is empty.
func (w *Worker) canRun(c *broker.Chunk) (*registered, string) {
	if c.App != w.cfg.App {
		return nil, fmt.Sprintf("worker %s works for app %s, not for %s", w.cfg.Name, w.cfg.App, c.App)
	}
	reg := w.procs[c.Processor]
	if reg == nil {
		var names []string
		for n := range w.procs {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, fmt.Sprintf("worker %s has no processor %q; it has %q", w.cfg.Name, c.Processor, names)
	}
	if step := reg.lacks(c); step != "" {
		return nil, fmt.Sprintf("processor %q of worker %s has no %s", c.Processor, w.cfg.Name, step)
	}
	if len(c.Tasks) == 0 {
		return nil, "the chunk is empty"
	}
	return reg, ""
}

// refuse reports that the chunk cannot be run here, and then acks it.
func (w *Worker) refuse(r *run, why string) {
	w.count.refused.Add(1)
	rep := r.report(broker.ReportRefused)
	rep.Error = broker.TaskError{Kind: broker.ErrorFailed, Message: cut(why, maxMessage)}
	r.mu.Lock()
	r.pending++
	r.executed = true
	r.mu.Unlock()
	w.reports.add(r.c.Shard, &entry{rep: rep, done: func() { r.stored(0) }}, nil)
}

// onDirected answers a chunk sent to this worker. It is asked again until the answer arrives, so
// the same chunk may come twice.
func (w *Worker) onDirected(c *broker.Chunk) broker.DirectedReply {
	w.mu.Lock()
	defer w.mu.Unlock()
	stale := w.sawEpoch(c.Shard, c.Epoch)
	if w.isStopped(c) {
		w.count.stopped.Add(1)
		return broker.DirectedRefused
	}
	if w.held[c.ChunkKey] != nil {
		w.count.redelivered.Add(1)
		return broker.DirectedAccepted
	}
	if w.finished.has(c.ChunkKey, time.Now()) {
		return broker.DirectedAccepted
	}
	reg, why := w.canRun(c)
	if why != "" {
		w.count.refused.Add(1)
		w.log.Warn("directed chunk refused", "instance", c.Instance, "reason", why)
		return broker.DirectedRefused
	}
	if w.draining {
		return broker.DirectedRefused
	}
	if stale {
		return broker.DirectedBusy // its sender owns the shard no longer; the owner sends it again
	}
	beside := c.Phase == broker.PhaseShare || c.Phase == broker.PhasePre || c.Phase == broker.PhasePost
	if beside && w.beside >= maxBeside || !beside && !w.slots.take("") {
		w.count.surplus.Add(1)
		return broker.DirectedBusy
	}
	r := w.hold(c, reg, nil)
	if !beside {
		r.slot = true
		w.beside--
	}
	go r.start()
	return broker.DirectedAccepted
}

func (w *Worker) onControl(o broker.Control) {
	switch o.Kind {
	case broker.ControlStop:
		w.mu.Lock()
		w.stops[o.Instance] = stopOrder{max(o.Attempt, w.stops[o.Instance].attempt), time.Now()}
		var hit []*run
		for key, r := range w.held {
			if key.Instance == o.Instance && key.Attempt <= o.Attempt {
				hit = append(hit, r)
			}
		}
		w.mu.Unlock()
		for _, r := range hit {
			w.count.stopped.Add(1)
			r.stop(ErrStopped)
		}
	case broker.ControlDrain:
		if o.Worker == w.cfg.Name {
			select {
			case w.drainme <- struct{}{}:
			default:
			}
		}
	case broker.ControlDrop:
		w.mu.Lock()
		r := w.held[o.Chunk]
		w.mu.Unlock()
		if o.Worker == w.cfg.Name && r != nil {
			w.count.stopped.Add(1)
			r.stop(ErrStopped)
		}
	case broker.ControlEpoch:
		w.mu.Lock()
		w.sawEpoch(o.Shard, o.Epoch)
		w.mu.Unlock()
	}
}

// sawEpoch notes the epoch of a shard and tells whether it is an old one. The caller holds mu.
func (w *Worker) sawEpoch(shard uint8, epoch int64) (stale bool) {
	e := &w.epochs[shard%broker.Shards]
	if epoch < *e {
		return true
	}
	*e = epoch
	return false
}

// isStopped tells whether the chunk belongs to what was stopped. The caller holds mu.
func (w *Worker) isStopped(c *broker.Chunk) bool {
	s, ok := w.stops[c.Instance]
	return ok && c.Attempt <= s.attempt
}

// prune forgets what is old.
func (w *Worker) prune(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.stops {
		if now.Sub(s.at) > stopMemory {
			delete(w.stops, id)
		}
	}
}
