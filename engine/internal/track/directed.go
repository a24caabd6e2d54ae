package track

import (
	"fmt"
	"slices"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

const (
	busyPause  = 100  // ms until a directed chunk is offered again after "busy"
	awayPause  = 500  // ms after no answer
	noneToPick = 1000 // ms after no worker fitted
)

func (o *Owner) pick(in *inst, c *chunk) Pick {
	p := Pick{App: in.app.Name, Spec: in.spec, Key: in.spec.RoutingKey, Seed: in.ID}
	if p.Key == "" {
		p.Key = in.Key
	}
	if c != nil {
		p.Seed ^= c.key.Chunk
		p.Exclude = slices.Clone(c.exclude)
	}
	return p
}

// direct sends a chunk to one worker by request, chosen now unless it has one.
func (o *Owner) direct(in *inst, c *chunk, msg *broker.Chunk) {
	if c.worker.Worker == "" {
		t, why := o.fleet.Pick(o.pick(in, c))
		if t.Worker == "" {
			o.nobody(in, c, why)
			return
		}
		c.worker, c.accepted = t, false
		if c.phase == phaseRoot && in.Worker != t.Worker {
			in.Worker = t.Worker
			o.touch(in)
		}
		if c.phase == phaseSub {
			in.run.touch()
		}
	}
	msg.Directed = true
	o.asks++
	c.asked = o.asks
	in.sh.effect(Direct{Worker: c.worker.Worker, Chunk: msg, Ask: c.asked})
}

// nobody: no live worker fits a chunk that is dispatched. It is offered again, until the
// dispatch timeout if nothing of the instance has ever started.
func (o *Owner) nobody(in *inst, c *chunk, why string) {
	if d := in.spec.DispatchTimeout.Milliseconds(); d > 0 && in.StartedAt == 0 && o.now >= in.DueAt+d {
		o.finish(in, engine.StatusFailed, nil, fmt.Sprintf("no worker of app %q took it within %s: %s", in.app.Name, time.Duration(in.spec.DispatchTimeout), why))
		return
	}
	// A worker that refused may have been mended meanwhile.
	c.exclude = nil
	o.resendLater(in, c, noneToPick)
}

// sendAgain offers a directed chunk to its worker once more.
func (o *Owner) sendAgain(in *inst, c *chunk) {
	if c.phase == phaseSub {
		o.reread(in, c)
		return
	}
	o.send(in, c)
}

// directed takes in a worker's answer.
func (o *Owner) directed(e Directed) {
	in := o.insts[e.Key.Instance]
	if in == nil || in.Attempt != e.Key.Attempt {
		return
	}
	c := in.chunks[e.Key.Chunk]
	if c == nil || c.worker.Worker != e.Worker {
		return
	}
	in.heard = o.now
	switch {
	case e.Ask == c.asked:
		c.asked = 0
	case e.Err != nil || e.Reply != broker.DirectedAccepted:
		// It was asked once more since and may have said yes to that: only the newest no
		// takes the chunk away.
		o.stats.Stale++
		return
	}
	switch {
	case e.Err != nil:
		o.at(&timer{at: o.now + awayPause, kind: timerDirect, instance: in.ID, attempt: in.Attempt, chunk: c.key.Chunk})
	case e.Reply == broker.DirectedAccepted:
		c.accepted = true
		// A report may have told already that the worker is another incarnation by now.
		if c.holder.Worker != c.worker.Worker {
			c.holder, c.since = c.worker, o.now
		}
	case c.phase == phaseShare && e.Reply == broker.DirectedBusy:
		o.at(&timer{at: o.now + busyPause, kind: timerDirect, instance: in.ID, attempt: in.Attempt, chunk: c.key.Chunk})
	case c.phase == phaseShare:
		o.broadcastFailed(in, c, broker.TaskError{Kind: broker.ErrorPermanent, Message: "the worker refused its share"}, engine.TaskFailed)
	case c.accepted: // a late answer: it has said yes before
	case e.Reply == broker.DirectedBusy:
		o.resendLater(in, c, busyPause)
	default:
		c.exclude = append(c.exclude, e.Worker)
		o.again(in, c)
	}
}

// workerDead moves directed work away from a dead incarnation. What came through a lane
// is delivered again by the broker, and asked about.
func (o *Owner) workerDead(e WorkerDead) {
	dead := Target{e.Worker, e.Incarnation}
	for _, id := range sortedKeys(o.insts) {
		in := o.insts[id]
		if in == nil || in.app.Name != e.App {
			continue
		}
		for _, n := range sortedKeys(in.chunks) {
			c := in.chunks[n]
			switch {
			case c == nil || c.worker != dead || o.insts[id] != in:
			case c.accepted || c.phase == phaseShare:
				// It may have said its last word: the reports are drained first.
				in.relist, in.listed = true, 0
			default:
				o.again(in, c)
			}
		}
	}
	o.workerNews(e.App)
}

// gone: the worker a chunk was directed to is gone.
func (o *Owner) gone(in *inst, c *chunk) {
	if c.phase == phaseShare {
		o.broadcastFailed(in, c, broker.TaskError{Kind: broker.ErrorFailed, Message: fmt.Sprintf("worker %q was lost", c.worker.Worker)}, engine.TaskLost)
		return
	}
	if !c.accepted {
		o.again(in, c)
		return
	}
	had := c.worker
	if !o.lostRun(in, c) {
		return
	}
	if o.fleet.Alive(in.app.Name, had.Worker, had.Incarnation) {
		// It has finished it, and what it said is lost. It runs nothing twice under one number.
		if c.phase == phaseSub {
			o.refeed(in, c, in.run.unfinished(c))
			return
		}
		c.exclude = append(c.exclude, had.Worker)
	}
	o.again(in, c)
}

// absent has directed work looked at that its live worker no longer lists. Its last word
// may not be read yet, so the reports are drained first.
func (o *Owner) absent(in *inst) {
	if o.now < o.readyAt {
		return
	}
	for _, n := range sortedKeys(in.chunks) {
		c := in.chunks[n]
		if c == nil || c.worker.Worker == "" || !c.accepted || o.insts[in.ID] != in {
			continue
		}
		if !o.holds(in, c) {
			in.relist = true
		}
	}
}
