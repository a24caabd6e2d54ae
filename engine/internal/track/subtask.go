package track

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// subSucceeded takes in numbers that succeeded. Values count as a whole message or not at
// all: if one of its numbers is final already, the message is refused and the others run
// again.
func (o *Owner) subSucceeded(in *inst, c *chunk, who Target, rep *broker.Report) {
	r := in.run
	numbers := rep.Numbers
	if len(numbers) == 0 {
		if c == nil {
			o.stats.Stale++
			return
		}
		numbers = c.numbers()
	}
	var open []int64
	for _, n := range numbers {
		if n <= 0 || n >= r.next {
			o.stats.Stale++
			return
		}
		if !r.final(n) {
			open = append(open, n)
		}
	}
	if c != nil {
		c.spent += int64(rep.Duration)
		r.paced(int64(rep.Duration) / int64(len(numbers)))
		if c.holder.Worker == "" {
			o.began(in, c, who)
		}
		o.watchTask(in, c)
	}
	if len(open) == 0 {
		o.stats.Stale++
		return
	}
	if in.spec.Mode == workflow.MapReduce {
		if len(open) < len(numbers) || rep.ResultSeq == 0 {
			// Another run that holds the open ones now will report them itself.
			o.stats.Stale++
			if c != nil && c.holder == who {
				o.refeed(in, c, open)
			}
			return
		}
		r.accepted.Add(rep.ResultSeq)
	}
	for _, n := range open {
		if !r.finished.CheckedAdd(uint32(n)) {
			continue // named twice
		}
		o.settle(in, c, n)
		if t := in.tasks[taskKey(in, phaseSub, n)]; t != nil {
			if t.Status == engine.TaskWaiting && t.NextTryAt > 0 {
				r.retrying--
			}
			o.dropTask(in, t.TaskKey)
		}
	}
	for _, n := range open {
		// A sub-task that mapped further. Its state may be new: its number is final now, so
		// it is begun here rather than by its first message.
		emitted := max(rep.Emitted, 0)
		if r.mappers[n] == nil && emitted > 0 && len(open) == 1 {
			r.mappers[n] = newMapper()
		}
		if r.mappers[n] != nil {
			o.mapped(r, n, emitted, rep.Token)
			r.more = true
			o.heat(in.q)
		}
	}
	r.touch()
	o.runOver(r)
}

// keptErrors is how many failed sub-tasks of a run memory keeps.
const keptErrors = 100

// settle takes a final number off the chunk that has it on its way.
func (o *Owner) settle(in *inst, c *chunk, n int64) {
	if c == nil || !c.has(n) {
		c = nil
		for _, x := range in.chunks {
			if x.phase == phaseSub && x.has(n) {
				c = x
				break
			}
		}
		if c == nil {
			return
		}
	}
	if c.left--; c.left <= 0 {
		o.done(in, c)
	}
}

func (c *chunk) has(n int64) bool { return n >= c.first && n < c.first+c.count && !c.moved[n] }

// numbers are all numbers of the chunk: every message of it carries all of them.
func (c *chunk) numbers() []int64 {
	ns := make([]int64, c.count)
	for i := range ns {
		ns[i] = c.first + int64(i)
	}
	return ns
}

// done lets a chunk of sub-tasks go.
func (o *Owner) done(in *inst, c *chunk) {
	if c.spent > 0 {
		in.q.paced(c.spent)
	}
	o.release(in, c)
}

func (r *run) paced(nanos int64) {
	x := float64(max(nanos, 50))
	if r.pace <= 0 {
		r.pace = x
		return
	}
	r.pace += (x - r.pace) * paceShare
}

// move takes numbers out of a chunk, to be sent in another.
func (o *Owner) moveOut(in *inst, c *chunk, ns []int64) {
	for _, n := range ns {
		if c.has(n) {
			if c.moved == nil {
				c.moved = map[int64]bool{}
			}
			c.moved[n] = true
			c.left--
		}
	}
	in.run.touch()
	if c.left <= 0 {
		o.done(in, c)
	}
}

// refeed sends numbers again that are in chunk c, or in none.
func (o *Owner) refeed(in *inst, c *chunk, ns []int64) {
	if c == nil {
		return // whoever has them now will report
	}
	ns = slices.DeleteFunc(slices.Clone(ns), func(n int64) bool { return !c.has(n) })
	slices.Sort(ns)
	ns = slices.Compact(ns)
	for len(ns) > 0 {
		k := 1
		for k < len(ns) && ns[k] == ns[0]+int64(k) {
			k++
		}
		x := o.part(in, c, ns[0], int64(k))
		o.moveOut(in, c, ns[:k])
		o.stats.Repeated += int64(k)
		o.reread(in, x)
		ns = ns[k:]
	}
}

// part makes a chunk of some of the numbers of c. How often c was lost says little about
// one of its tasks: a task that travels alone begins to count anew.
func (o *Owner) part(in *inst, c *chunk, first, count int64) *chunk {
	x := o.newSub(in, first, count, c.seq, c.off+int32(first-c.first), c.attempt)
	if count > 1 || c.count == 1 {
		x.lost = c.lost
	}
	x.exclude = slices.Clone(c.exclude)
	return x
}

// split sends every unfinished task of a chunk on its own, so that the one that kills its
// worker is found.
func (o *Owner) split(in *inst, c *chunk) {
	ns := in.run.unfinished(c)
	for _, n := range ns {
		o.reread(in, o.part(in, c, n, 1))
	}
	o.stats.Repeated += int64(len(ns))
	o.moveOut(in, c, ns)
}

// subReturned: tasks of the chunk were not started.
func (o *Owner) subReturned(in *inst, c *chunk, ns []int64) {
	if len(ns) == 0 {
		ns = in.run.unfinished(c)
	}
	o.refeed(in, c, slices.DeleteFunc(slices.Clone(ns), in.run.final))
}

// subFailed: one sub-task failed in the run that holds it.
func (o *Owner) subFailed(in *inst, c *chunk, n int64, attempt int32, e broker.TaskError, rep *broker.Report) {
	r := in.run
	if in.chunks[c.key.Chunk] != c || r.final(n) || !c.has(n) || attempt != c.attempt {
		o.stats.Stale++
		return
	}
	if rep != nil {
		c.spent += int64(rep.Duration)
		r.paced(int64(rep.Duration))
	}
	if e.Kind == broker.ErrorRoom || e.Kind == broker.ErrorStopped {
		o.later(in, c, n, attempt, 1000, e)
		return
	}
	permanent := e.Kind == broker.ErrorPermanent || e.Kind == broker.ErrorInput
	if !permanent && int(attempt) <= in.spec.TaskRetry.Max {
		ms := e.RetryAfter.Milliseconds()
		if ms <= 0 {
			ms = engine.RetryDelay(in.spec.TaskRetry, attempt, in.ID^n).Milliseconds()
		}
		o.later(in, c, n, attempt+1, ms, e)
		return
	}
	if rep != nil && rep.Emitted > 0 {
		r.emitted(n, rep.Emitted)
	}
	r.failed.Add(uint32(n))
	if m := r.mappers[n]; m != nil {
		r.mapFailed, r.more = true, true
		m.done, m.total = true, max(m.accepted, m.emitted)
		o.mapperDone(r, n, m)
	}
	text := e.Message
	if e.Stack != "" {
		text += "\n" + e.Stack
	}
	k := taskKey(in, phaseSub, n)
	counted := in.tasks[k] != nil && in.tasks[k].Status == engine.TaskWaiting && in.tasks[k].NextTryAt > 0
	if in.tasks[k] != nil || r.failures < o.cfg.MaxFailedRows {
		r.failures++
		t := o.task(in, k)
		if counted {
			r.retrying--
		}
		moveTask(t, engine.TaskFailed)
		t.Attempt, t.Worker, t.Error, t.FinishedAt = attempt, c.holder.Worker, engine.CutText(text, engine.MaxError), o.now
		t.StageSeq, t.StageOff, t.Checkpoint, t.NextTryAt = c.seq, c.off+int32(n-c.first), nil, 0
		if r.failures > keptErrors {
			delete(in.tasks, k) // its row is stored; memory keeps the first ones
		}
	}
	o.settle(in, c, n)
	r.touch()
	total, failed := r.counts()
	b := in.spec.MaxFailed
	if failed > b.Count && b.Percent <= 0 || r.rootDone && len(r.mappers) == 0 && failed > r.allowed(total) {
		o.failAttempt(in, engine.StatusFailed, o.budgetText(r), false, 0)
		return
	}
	o.runOver(r)
}

// later has a sub-task tried again after a pause, on a row of its own.
func (o *Owner) later(in *inst, c *chunk, n int64, attempt int32, ms int64, e broker.TaskError) {
	t := o.task(in, taskKey(in, phaseSub, n))
	moveTask(t, engine.TaskWaiting)
	t.Attempt, t.NextTryAt, t.Lost = attempt, o.now+max(ms, 1), 0
	if c.count == 1 {
		t.Lost = c.lost
	}
	t.StageSeq, t.StageOff = c.seq, c.off+int32(n-c.first)
	t.Error, t.Worker = engine.CutText(e.Message, engine.MaxError), c.holder.Worker
	in.run.retrying++
	o.at(&timer{at: t.NextTryAt, kind: timerRetry, instance: in.ID, attempt: in.Attempt, number: n})
	o.moveOut(in, c, []int64{n})
}

// retryDue sends a sub-task whose next attempt is due.
func (o *Owner) retryDue(in *inst, n int64) {
	if in.run == nil {
		return
	}
	t := in.tasks[taskKey(in, phaseSub, n)]
	if t == nil || t.Status != engine.TaskWaiting || t.NextTryAt == 0 || t.NextTryAt > o.now || in.run.final(n) {
		return
	}
	in.run.retrying--
	moveTask(t, engine.TaskDispatched)
	t.NextTryAt = 0
	o.touchTask(in, t)
	c := o.newSub(in, n, 1, t.StageSeq, t.StageOff, t.Attempt)
	c.lost = t.Lost
	o.reread(in, c)
}

// reread has the items of a chunk read from the stage again, to send it.
func (o *Owner) reread(in *inst, c *chunk) {
	c.unsent = true
	r := in.run
	asked := len(r.rereads[c.seq]) > 0
	r.rereads[c.seq] = append(r.rereads[c.seq], c)
	if !asked {
		o.after(Reread{App: in.app.Name, Set: in.app.Set, Instance: in.ID, Run: r.id, Seq: c.seq})
	}
}

// restaged sends the chunks that waited for a stage message.
func (o *Owner) restaged(e Restaged) {
	in := o.insts[e.Instance]
	if in == nil || in.run == nil || in.run.id != e.Run {
		return
	}
	r := in.run
	chunks := r.rereads[e.Seq]
	delete(r.rereads, e.Seq)
	for _, c := range chunks {
		if in.chunks[c.key.Chunk] != c || !c.unsent || c.holder.Worker != "" {
			continue
		}
		if e.Err != nil && !errors.Is(e.Err, broker.ErrUndecodable) {
			o.resendLater(in, c, 500)
			continue
		}
		if e.Message == nil || int64(c.off)+c.count > int64(len(e.Message.Items)) {
			o.failChunk(in, c, broker.TaskError{Kind: broker.ErrorPermanent, Message: fmt.Sprintf("the stage has lost message %d with the task's item", e.Seq)}, false)
			continue
		}
		for _, x := range o.whole(in, c) {
			var tasks []broker.Task
			for _, n := range x.numbers() {
				t := broker.Task{Number: n, Attempt: x.attempt, Item: e.Message.Items[int64(x.off)+n-x.first]}
				if row := in.tasks[taskKey(in, phaseSub, n)]; row != nil {
					t.Checkpoint = row.Checkpoint
				}
				tasks = append(tasks, t)
			}
			wire := o.message(in, x, tasks)
			wire.Name = e.Message.Name
			o.dispatch(in, x, wire)
		}
	}
}

// whole is the chunk if all of it is to be sent; else chunks of what is left of it, because
// a worker may report "the whole chunk", which must mean the same for every message of it.
func (o *Owner) whole(in *inst, c *chunk) []*chunk {
	ns := in.run.unfinished(c)
	if int64(len(ns)) == c.count {
		return []*chunk{c}
	}
	var parts []*chunk
	for rest := ns; len(rest) > 0; {
		k := 1
		for k < len(rest) && rest[k] == rest[0]+int64(k) {
			k++
		}
		parts = append(parts, o.part(in, c, rest[0], int64(k)))
		rest = rest[k:]
	}
	o.moveOut(in, c, ns)
	return parts
}
