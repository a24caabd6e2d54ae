package track

import (
	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

const (
	heldAsks   = 4096
	answerMost = 2048
	shareBytes = 256 << 10
)

// asked answers a question once the reports up to e.After are taken in: only then does the
// owner know whether the work is done.
func (o *Owner) asked(e Asked) {
	sh := o.shards[e.Request.Shard]
	switch {
	case sh == nil || e.After > sh.cursor && len(sh.asks) >= heldAsks:
		o.after(Answer{Reply: e.Reply, With: &broker.AskReply{Verdict: broker.VerdictRetry}})
	case e.After > sh.cursor:
		sh.asks = append(sh.asks, e)
	default:
		sh.effect(Answer{Reply: e.Reply, With: o.answer(e.Request)})
	}
}

// caughtUp answers and recovers what waited for reports.
func (o *Owner) caughtUp(sh *shard) {
	if len(sh.asks) > 0 {
		asks := sh.asks
		sh.asks = nil
		for _, a := range asks {
			o.asked(a)
		}
	}
	if len(o.lists) > 0 {
		lists := o.lists
		o.lists = nil
		for _, l := range lists {
			o.listed(l)
		}
	}
}

func (o *Owner) answer(q *broker.AskRequest) *broker.AskReply {
	in := o.insts[q.Instance]
	if in == nil || in.Attempt != q.Attempt || q.App != "" && q.App != in.app.Name {
		return &broker.AskReply{Verdict: broker.VerdictDone}
	}
	c := in.chunks[q.Chunk]
	if c == nil {
		return &broker.AskReply{Verdict: broker.VerdictDone}
	}
	switch q.Kind {
	case broker.AskRun:
		return o.mayRun(in, c, Target{q.Worker, q.Incarnation})
	case broker.AskResults:
		if in.run != nil {
			return in.run.results(q.From)
		}
	case broker.AskShares:
		return in.sharesFrom(q.From)
	}
	return &broker.AskReply{Verdict: broker.VerdictDone}
}

// mayRun says whether the asker may run the chunk that was delivered to it.
func (o *Owner) mayRun(in *inst, c *chunk, asker Target) *broker.AskReply {
	if !o.fleet.Alive(in.app.Name, asker.Worker, asker.Incarnation) {
		// A question may be older than the death of who asked. Who lives asks again.
		return &broker.AskReply{Verdict: broker.VerdictRetry}
	}
	if c.holder.Worker == "" {
		// A worker may list what it only asks about.
		if t, ok := o.fleet.Holder(in.app.Name, c.key); ok && t != asker {
			c.holder, c.since = t, o.now
			o.watchTask(in, c)
		}
	}
	switch {
	case c.holder == asker:
	case c.holder.Worker == "":
		// Of a chunk sent before this owner's time, somebody may have it and not be heard yet.
		if o.now < o.readyAt && c.sentAt < o.newAt {
			return &broker.AskReply{Verdict: broker.VerdictRetry}
		}
	case o.holds(in, c):
		return &broker.AskReply{Verdict: broker.VerdictHeld}
	case o.now < o.readyAt:
		// The holder may not have been heard yet by this owner.
		return &broker.AskReply{Verdict: broker.VerdictRetry}
	case !o.lostRun(in, c):
		return &broker.AskReply{Verdict: broker.VerdictDone}
	}
	if c.holder != asker {
		c.holder, c.since = asker, o.now
	}
	o.watchTask(in, c) // the answer may not arrive, and nobody ever say that it has begun
	c.unsent = false   // what waits to be sent again need not be
	rep := &broker.AskReply{Verdict: broker.VerdictYours}
	if c.phase == phaseSub {
		for n := c.first; n < c.first+c.count; n++ {
			if in.run.final(n) || c.moved[n] {
				rep.Done = append(rep.Done, n)
			}
		}
	}
	return rep
}

// results pages through the results that count, for the reduce.
func (r *run) results(from uint64) *broker.AskReply {
	total, failed := r.counts()
	rep := &broker.AskReply{Verdict: broker.VerdictYours, Total: total, Failed: failed}
	it := r.accepted.Iterator()
	it.AdvanceIfNeeded(from)
	for it.HasNext() {
		seq := it.Next()
		if n := len(rep.Results); n > 0 && rep.Results[n-1].Last+1 == seq {
			rep.Results[n-1].Last = seq
			continue
		}
		if len(rep.Results) == answerMost {
			rep.Next = seq
			break
		}
		rep.Results = append(rep.Results, broker.Range{First: seq, Last: seq})
	}
	if from == 0 {
		for _, k := range sortedTasks(r.in.tasks) {
			t := r.in.tasks[k]
			if k.Kind == engine.TaskSub && k.Run == r.id && t.Status == engine.TaskFailed {
				rep.Errors = append(rep.Errors, broker.NumberedError{Number: t.Number, Message: engine.CutText(t.Error, 1<<10)})
			}
		}
	}
	return rep
}

// sharesFrom pages through the shares of a broadcast, for PostProcess.
func (in *inst) sharesFrom(from uint64) *broker.AskReply {
	rep := &broker.AskReply{Verdict: broker.VerdictYours}
	if in.bc == nil {
		return rep
	}
	rep.Total = int64(len(in.bc.shares))
	size := 0
	for i, t := range in.bc.shares {
		ok := t.Status == engine.TaskSucceeded
		if !ok {
			rep.Failed++
		}
		if uint64(i) < from || rep.Next > 0 {
			continue
		}
		if size += len(t.Result) + len(t.Error) + 64; size > shareBytes && len(rep.Shares) > 0 {
			rep.Next = uint64(i)
			continue
		}
		rep.Shares = append(rep.Shares, broker.Share{Index: t.Number, Worker: t.Worker, OK: ok, Result: t.Result, Error: engine.CutText(t.Error, 4<<10)})
	}
	return rep
}

// asksAgain lets go of questions whose reports do not come: the worker asks again.
func (o *Owner) asksAgain() {
	for _, sh := range o.shards {
		if sh == nil || len(sh.asks) == 0 {
			continue
		}
		if len(sh.asks) > heldAsks/2 {
			for _, a := range sh.asks {
				o.after(Answer{Reply: a.Reply, With: &broker.AskReply{Verdict: broker.VerdictRetry}})
			}
			sh.asks = nil
		}
	}
}
