package track

import (
	"fmt"
	"slices"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

const (
	deadPayload = 64 << 10
	// maxRetryAfter bounds the pause that a processor asks for.
	maxRetryAfter = 30 * 24 * time.Hour
)

// reported takes one message of the reports stream in. One at or below the cursor has been
// taken in before.
func (o *Owner) reported(e Reported) {
	sh := o.shards[e.Shard]
	if sh == nil || e.Seq <= sh.cursor {
		return
	}
	if !e.Part {
		sh.cursor, sh.moved = e.Seq, true
	}
	if e.Batch == nil {
		o.deadLetter(sh, e)
	} else {
		who := Target{e.Batch.Worker, e.Batch.Incarnation}
		for i := range e.Batch.Reports {
			o.report(sh, e.Batch.App, who, &e.Batch.Reports[i])
		}
	}
	o.caughtUp(sh)
}

func (o *Owner) deadLetter(sh *shard, e Reported) {
	reason := "cannot be decoded"
	if e.Err != nil {
		reason = e.Err.Error()
	}
	o.stats.DeadLetters++
	sh.change.DeadLetters = append(sh.change.DeadLetters, engine.DeadLetter{
		Shard: sh.id, Subject: "report", Seq: e.Seq, Payload: slices.Clone(e.Raw[:min(len(e.Raw), deadPayload)]),
		Reason: engine.CutText(reason, engine.MaxText), At: o.now,
	})
}

func (o *Owner) resetCursor(e CursorReset) {
	sh := o.shards[e.Shard]
	if sh == nil || e.End >= sh.cursor {
		return
	}
	sh.cursor, sh.reset = e.End, true
	o.recover(sortedKeys(sh.insts))
	o.caughtUp(sh)
}

// report takes in one thing that a worker of the app says in the reports of the shard. It
// can tell of nothing else: another app's instances are not its own, and what moves another
// shard must move that one's cursor.
func (o *Owner) report(sh *shard, app string, who Target, r *broker.Report) {
	in := o.insts[r.Instance]
	if in != nil && (in.sh != sh || in.app.Name != app) {
		o.stats.Stale++
		return
	}
	if in == nil || in.Attempt != r.Attempt {
		o.stale(sh, app, r)
		return
	}
	in.heard = o.now
	if r.LogTo > 0 {
		if in.LogFrom == 0 || r.LogFrom < in.LogFrom {
			in.LogFrom = r.LogFrom
			o.touchLog(in)
		}
		if r.LogTo > in.LogTo {
			in.LogTo = r.LogTo
			o.touchLog(in)
		}
	}
	c := in.chunks[r.Chunk]
	if c != nil && c.phase != r.Phase {
		o.stats.Stale++
		return
	}
	switch r.Kind {
	case broker.ReportStarted:
		if c == nil || c.holder.Worker != "" && c.holder.Worker != who.Worker && o.holds(in, c) {
			// Somebody else has it and lives: both run it, the first success counts. A worker
			// of the same name is its next incarnation, even if no beat has told so yet.
			o.stats.Stale++
			return
		}
		o.started(in, c, who)
		if c.phase == phaseShare {
			o.shareStarted(in, c)
		}
	case broker.ReportSucceeded:
		o.succeeded(in, c, who, r)
	case broker.ReportFailed:
		o.failed(in, c, who, r)
	case broker.ReportRefused:
		o.refused(in, c, who, r)
	case broker.ReportReturned:
		o.returned(in, c, who, r)
	case broker.ReportEmitted:
		if in.run != nil && len(r.Numbers) == 1 {
			in.run.emitted(r.Numbers[0], r.Emitted)
			o.heat(in.q)
		}
	case broker.ReportCheckpoint:
		o.checkpoint(in, c, who, r)
	default:
		o.stats.Stale++
	}
}

// touchLog has a moved log range stored with whatever is stored next, not by itself.
func (o *Owner) touchLog(in *inst) {
	if in.run == nil {
		o.touch(in)
	}
}

// stale is a report about something that has moved on: a no-op, but a late success of the
// whole instance is kept.
func (o *Owner) stale(sh *shard, app string, r *broker.Report) {
	o.stats.Stale++
	if r.Kind != broker.ReportSucceeded {
		return
	}
	switch r.Phase {
	case phaseRoot, phaseReduce, phasePost:
		o.after(LoadLate{ID: r.Instance, App: app, Shard: sh.id, Attempt: r.Attempt, Result: r.Result})
	default:
	}
}

// succeeded: the first success of any run of the current attempt counts.
func (o *Owner) succeeded(in *inst, c *chunk, who Target, r *broker.Report) {
	if r.Phase == phaseSub {
		if in.run != nil && in.run.id == r.Run {
			o.subSucceeded(in, c, who, r)
		}
		return
	}
	if c == nil || c.phase != r.Phase {
		o.stats.Stale++
		return
	}
	if r.Phase != phaseShare {
		o.began(in, c, who)
		in.StartedAt = min(in.StartedAt, max(o.now-r.Duration.Milliseconds(), in.CreatedAt))
		in.q.paced(int64(r.Duration))
	}
	in.Context = r.Context
	switch r.Phase {
	case phaseRoot:
		o.release(in, c)
		o.dropTask(in, taskKey(in, phaseRoot, 0))
		if in.run != nil {
			o.rootSucceeded(in, r)
			return
		}
		o.finish(in, engine.StatusSucceeded, r.Result, "")
	case phaseReduce:
		o.release(in, c)
		o.finish(in, engine.StatusSucceeded, r.Result, "")
	case phasePre, phaseShare, phasePost:
		o.broadcastSucceeded(in, c, r)
	default: // sub-tasks are their run's
	}
}

// failed: a failure counts only from the run that holds the task now.
func (o *Owner) failed(in *inst, c *chunk, who Target, r *broker.Report) {
	if c == nil || c.holder.Worker != "" && c.holder != who || c.holder.Worker == "" && c.last == who {
		o.stats.Stale++ // of somebody from whom it was taken
		return
	}
	if c.holder.Worker == "" {
		o.began(in, c, who)
	}
	r.Error.RetryAfter = min(max(r.Error.RetryAfter, 0), maxRetryAfter)
	if r.Phase == phaseSub {
		if in.run != nil && in.run.id == r.Run {
			for _, n := range r.Numbers {
				o.subFailed(in, c, n, r.TaskAttempt, r.Error, r)
			}
		}
		return
	}
	switch {
	case r.Error.Kind == broker.ErrorStopped && r.Phase != phaseShare:
		// Stopped by an order that this owner has not given for this attempt: an earlier
		// owner's, or the worker's own end. It runs again.
		o.again(in, c)
	case r.Error.Kind == broker.ErrorRoom:
		// The stage was full. The room is others' work; it costs no attempt.
		o.resendLater(in, c, 1000)
	default:
		if r.Phase == phaseRoot && in.run != nil && in.spec.Emit != workflow.EmitAtomic {
			in.run.emitted(0, r.Emitted)
		}
		o.failChunk(in, c, r.Error, true)
	}
}

// failChunk fails the chunk's unfinished tasks. ended tells that the worker has let it go,
// so that nobody has to be told to stop.
func (o *Owner) failChunk(in *inst, c *chunk, e broker.TaskError, ended bool) {
	text := e.Message
	if e.Stack != "" {
		text += "\n" + e.Stack
	}
	status := engine.StatusFailed
	if e.Kind == broker.ErrorTimeout {
		status = engine.StatusTimedOut
	}
	permanent := e.Kind == broker.ErrorPermanent || e.Kind == broker.ErrorInput
	switch c.phase {
	case phaseSub:
		for _, n := range in.run.unfinished(c) {
			o.subFailed(in, c, n, c.attempt, e, nil)
		}
	case phaseReduce:
		o.reduceFailed(in, c, e, permanent, status, text)
	case phasePre, phaseShare, phasePost:
		o.broadcastFailed(in, c, e, engine.TaskFailed)
	default:
		if ended {
			o.release(in, c)
		}
		if in.run != nil && in.run.emittedAny() {
			o.release(in, c)
			o.rootFailed(in, status, text)
			return
		}
		o.failAttempt(in, status, text, permanent, e.RetryAfter)
	}
}

// refused: the worker cannot run it. It costs no retry; somebody else is looked for.
func (o *Owner) refused(in *inst, c *chunk, who Target, r *broker.Report) {
	// Said twice, it would send the chunk twice.
	if c == nil || c.holder.Worker != "" && c.holder != who || c.holder.Worker == "" && slices.Contains(c.exclude, who.Worker) {
		o.stats.Stale++
		return
	}
	o.stats.Refused++
	if c.phase == phaseShare {
		o.broadcastFailed(in, c, broker.TaskError{Kind: broker.ErrorPermanent, Message: "refused: " + r.Error.Message}, engine.TaskFailed)
		return
	}
	if !slices.Contains(c.exclude, who.Worker) {
		c.exclude = append(c.exclude, who.Worker)
	}
	o.again(in, c)
}

// returned: tasks that were not started are given back.
func (o *Owner) returned(in *inst, c *chunk, who Target, r *broker.Report) {
	if c == nil || c.holder.Worker != "" && c.holder != who {
		o.stats.Stale++
		return
	}
	if c.phase == phaseSub {
		o.subReturned(in, c, r.Numbers)
		return
	}
	if c.phase == phaseShare {
		o.broadcastFailed(in, c, broker.TaskError{Kind: broker.ErrorFailed, Message: "the worker drained before it ran its share"}, engine.TaskLost)
		return
	}
	o.again(in, c)
}

// nobodys: nobody runs the chunk now, so nobody can be late with it.
func (o *Owner) nobodys(c *chunk) {
	if c.holder.Worker != "" {
		c.last = c.holder
	}
	c.holder, c.worker, c.accepted, c.asked = Target{}, Target{}, false, 0
	o.cancel(c.timeout)
	o.cancel(c.pause)
	c.timeout, c.pause = nil, nil
}

// again sends a chunk that is nobody's once more.
func (o *Owner) again(in *inst, c *chunk) {
	o.nobodys(c)
	o.stats.Repeated++
	if c.phase == phaseSub {
		o.reread(in, c)
		return
	}
	o.send(in, c)
}

// lostRun: the worker that ran the chunk is gone. True if the chunk may be run again as it
// is; false if it was split or has failed.
func (o *Owner) lostRun(in *inst, c *chunk) bool {
	c.lost++
	o.nobodys(c)
	if c.phase == phaseSub {
		in.run.touch()
		if c.count > 1 && c.lost >= o.cfg.MaxLost-1 {
			o.split(in, c)
			return false
		}
	}
	if c.lost >= o.cfg.MaxLost {
		o.failChunk(in, c, broker.TaskError{Kind: broker.ErrorPermanent, Message: fmt.Sprintf("the worker died %d times while running it", c.lost)}, false)
		return false
	}
	o.stats.Repeated++
	return true
}

// checkpoint keeps the last checkpoint on the task's row.
func (o *Owner) checkpoint(in *inst, c *chunk, who Target, r *broker.Report) {
	if c == nil || c.holder.Worker != "" && c.holder != who || len(r.Numbers) != 1 || len(r.Result) > engine.MaxCheckpoint {
		o.stats.Stale++
		return
	}
	n := r.Numbers[0]
	if !c.has(n) || c.phase == phaseSub && in.run.final(n) {
		o.stats.Stale++ // it has moved on to another run
		return
	}
	t := o.task(in, taskKey(in, c.phase, n))
	if moveTask(t, engine.TaskRunning) {
		t.StartedAt = o.now
	}
	t.Worker, t.Incarnation, t.Checkpoint, t.Attempt = who.Worker, who.Incarnation, slices.Clone(r.Result), max(r.TaskAttempt, 1)
	if c.phase == phaseSub {
		t.StageSeq, t.StageOff = c.seq, c.off+int32(n-c.first)
	}
}

// holds tells whether the chunk's holder still has it, as far as the beats say.
func (o *Owner) holds(in *inst, c *chunk) bool {
	h := c.holder
	return h.Worker != "" && o.fleet.Alive(in.app.Name, h.Worker, h.Incarnation) &&
		!o.fleet.Missing(in.app.Name, h.Worker, h.Incarnation, c.key, c.since)
}

// reduceFailed retries a failed reduce alone.
func (o *Owner) reduceFailed(in *inst, c *chunk, e broker.TaskError, permanent bool, status engine.Status, text string) {
	r := in.run
	o.release(in, c)
	if permanent || int(r.reduceAttempt) > in.spec.TaskRetry.Max {
		o.failAttempt(in, status, text, permanent, e.RetryAfter)
		return
	}
	after := e.RetryAfter
	if after <= 0 {
		after = engine.RetryDelay(in.spec.TaskRetry, r.reduceAttempt, in.ID)
	}
	r.reduceAttempt++
	r.reduceAt = o.now + max(after.Milliseconds(), 1)
	in.Error = engine.CutText(text, engine.MaxError)
	o.touch(in)
	o.at(&timer{at: r.reduceAt, kind: timerReduce, instance: in.ID, attempt: in.Attempt})
	r.touch()
}

// resendLater sends a chunk again that nobody holds, after a pause. Whatever sends it before
// ends the pause: it would be sent twice.
func (o *Owner) resendLater(in *inst, c *chunk, ms int64) {
	o.nobodys(c)
	c.pause = o.at(&timer{at: o.now + ms, kind: timerAgain, instance: in.ID, attempt: in.Attempt, chunk: c.key.Chunk})
}
