package track

import (
	"fmt"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

const (
	phaseRoot   = broker.PhaseRoot
	phaseSub    = broker.PhaseSub
	phaseReduce = broker.PhaseReduce
	phasePre    = broker.PhasePre
	phaseShare  = broker.PhaseShare
	phasePost   = broker.PhasePost
)

// Chunk numbers within an attempt. Those of sub-tasks come from the run.
const (
	chunkRoot   = 0
	chunkPre    = 1
	chunkPost   = 2
	chunkReduce = 3 // + the reduce's attempt
	chunkShare  = 1 << 10
	chunkSub    = 1 << 20
	// chunkAgain lies between the attempts of a step of a broadcast: a worker that has
	// finished a chunk runs no other of the same number.
	chunkAgain = 1 << 20
)

// trigger admits a new instance: straight to its lane when there is room and nothing waits
// before it, else as a waiting row.
func (o *Owner) trigger(e Triggered) {
	sh := o.shards[e.Row.Instance.Shard]
	if sh == nil {
		o.after(Wake{Done: e.Done, Err: engine.ErrFenced})
		return
	}
	if o.insts[e.Row.Instance.ID] != nil {
		o.after(Wake{Done: e.Done, Err: engine.ErrConflict})
		return
	}
	o.Admit(e.Row)
	if e.Done != nil {
		sh.effect(Wake{Done: e.Done})
	}
}

// Admit makes a new instance, whose shard is owned. It is used by hooks for the instances
// of workflow nodes.
func (o *Owner) Admit(row Row) {
	sh := o.shards[row.Instance.Shard]
	if sh == nil {
		return
	}
	in := o.adopt(sh, row)
	in.fresh = true
	in.Status, in.Attempt = engine.StatusWaiting, max(in.Attempt, 1)
	if row.Err != nil {
		o.finish(in, engine.StatusFailed, nil, row.Err.Error())
		return
	}
	reason := engine.ReasonDue
	if in.DueAt <= o.now && !in.q.wait.backlog {
		if reason = o.holdBack(in); reason == "" {
			o.start(in)
			return
		}
	}
	in.Reason = reason
	o.touch(in)
	o.noteWaiting(in)
	o.forget(in)
}

// holdBack says why the instance cannot start now; empty if it can.
func (o *Owner) holdBack(in *inst) engine.Reason {
	if in.spec.Concurrency > 0 && in.Job != 0 && o.jobs[in.Job] >= in.spec.Concurrency {
		return engine.ReasonQueued
	}
	if some, _ := o.fleet.Has(in.app.Name, in.q.key.pool, in.spec.Processor); !some {
		return engine.ReasonNoWorker
	}
	if in.spec.Mode == workflow.Broadcast {
		if len(o.fleet.Shares(in.app.Name, in.spec)) == 0 {
			return engine.ReasonNoWorker
		}
		return o.holdForPermit(in)
	}
	if o.fleet.NeedsDirected(in.app.Name, in.spec) {
		if t, _ := o.fleet.Pick(o.pick(in, nil)); t.Worker == "" {
			return engine.ReasonNoWorker
		}
	}
	if o.room(in.q) == 0 {
		return engine.ReasonDue
	}
	return o.holdForPermit(in)
}

// dispatchLate ends an instance that has waited for a worker longer than it may.
func (o *Owner) dispatchLate(in *inst) bool {
	limit := in.spec.DispatchTimeout.Milliseconds()
	if limit <= 0 || o.now < in.DueAt+limit {
		return false
	}
	reason := o.holdBack(in)
	if reason != engine.ReasonNoWorker {
		return false
	}
	o.finish(in, engine.StatusFailed, nil, fmt.Sprintf(
		"no worker of app %q took it within %s: no live worker of pool %q has processor %q and fits; start one, or look at the names it registers",
		in.app.Name, time.Duration(in.spec.DispatchTimeout), in.q.key.pool, in.spec.Processor))
	return true
}

// move moves the status by its table. An illegal move is refused and counted: the caller
// was told of something that has already been decided.
func (o *Owner) move(in *inst, to engine.Status) bool {
	if in.Status == to {
		return true
	}
	if !engine.InstanceMoves.Can(in.Status, to) {
		o.stats.Stale++
		return false
	}
	in.Status = to
	o.touch(in)
	return true
}

// start hands an instance to its worker or workers.
func (o *Owner) start(in *inst) {
	if !o.move(in, engine.StatusDispatched) {
		return
	}
	in.Reason, in.heard = "", o.now
	switch in.spec.Mode {
	case workflow.Broadcast:
		o.startBroadcast(in)
	case workflow.Map, workflow.MapReduce:
		in.Run = in.Attempt
		o.openRun(in)
		o.send(in, o.newChunk(in, phaseRoot, chunkRoot, 0))
	default:
		o.send(in, o.newChunk(in, phaseRoot, chunkRoot, 0))
	}
}

// newChunk makes a chunk of one task and counts it into its queue.
func (o *Owner) newChunk(in *inst, phase broker.Phase, n, number int64) *chunk {
	c := &chunk{
		key:   broker.ChunkKey{Instance: in.ID, Attempt: in.Attempt, Run: in.Run, Chunk: int64(in.Attempt)<<32 | n},
		phase: phase, first: number, count: 1, left: 1, attempt: 1,
	}
	o.hold(in, c)
	return c
}

// message is the chunk as it travels.
func (o *Owner) message(in *inst, c *chunk, tasks []broker.Task) *broker.Chunk {
	params := in.Params
	if params == nil {
		params = in.spec.Params
	}
	scheduled := in.FireAt
	if scheduled == 0 {
		scheduled = in.DueAt
	}
	return &broker.Chunk{
		ChunkKey: c.key, App: in.app.Name, Shard: in.Shard, Epoch: in.sh.epoch, Phase: c.phase,
		Collect: in.spec.Mode == workflow.MapReduce, Atomic: in.spec.Emit == workflow.EmitAtomic,
		Directed: c.worker.Worker != "", Mode: string(in.spec.Mode), Processor: in.spec.Processor,
		Job: in.job, JobID: in.Job, Workflow: in.Workflow, Node: in.Node, Key: in.Key,
		Params: params, ScheduledAt: scheduled, CreatedAt: in.CreatedAt,
		TaskTimeout: time.Duration(in.spec.TaskTimeout), StageQuota: in.spec.StageBytes, Tasks: tasks,
	}
}

// send sends a chunk of one task that is no sub-task.
func (o *Owner) send(in *inst, c *chunk) {
	task := broker.Task{Number: c.first, Attempt: c.attempt}
	if t := in.tasks[taskKey(in, c.phase, c.first)]; t != nil {
		task.Checkpoint = t.Checkpoint
	} else if c.phase == phaseRoot {
		task.Checkpoint = in.checkpoint
	}
	if c.phase == phaseRoot {
		task.Item = in.Items // a list that the worker emits itself
	}
	msg := o.message(in, c, []broker.Task{task})
	if c.phase == phaseShare {
		msg.ShardTotal = int32(in.bc.total())
	}
	o.dispatch(in, c, msg)
}

// dispatch puts the chunk into its lane, or directs it to a worker.
func (o *Owner) dispatch(in *inst, c *chunk, msg *broker.Chunk) {
	c.sentAt, c.unsent = o.now, false
	o.cancel(c.pause)
	c.pause = nil
	if c.worker.Worker == "" && c.phase != phaseShare && !o.fleet.NeedsDirected(in.app.Name, in.spec) &&
		len(c.exclude) == 0 && c.phase != phasePre && c.phase != phasePost {
		in.sh.effect(Publish{Set: in.app.Set, Lane: string(in.q.key.lane), Pool: in.q.key.pool, Chunk: msg})
		return
	}
	o.direct(in, c, msg)
}

func taskKey(in *inst, phase broker.Phase, number int64) engine.TaskKey {
	run := in.Run
	if in.run == nil {
		run = in.Attempt
	}
	return engine.TaskKey{Instance: in.ID, Run: run, Kind: engine.TaskKind(phase), Number: number}
}

// began notes that a worker has the chunk.
func (o *Owner) began(in *inst, c *chunk, who Target) {
	// It has it now, whatever its beats said while the answer that gave it was on the way.
	c.holder, c.since, c.accepted = who, o.now, true
	if in.StartedAt == 0 {
		in.StartedAt = o.now
	}
	if c.phase == phaseRoot {
		in.Worker = who.Worker
	}
	if in.Status == engine.StatusDispatched && o.move(in, engine.StatusRunning) && in.Workflow != 0 && o.hooks != nil {
		o.hooks.InstanceStarted(o.now, &in.Instance)
	}
}

// started is began for a chunk that goes on running: its timeouts begin.
func (o *Owner) started(in *inst, c *chunk, who Target) {
	o.began(in, c, who)
	if d := in.spec.Timeout.Milliseconds(); d > 0 && in.timeout == nil {
		in.timeout = o.at(&timer{at: in.StartedAt + d, kind: timerInstance, instance: in.ID, attempt: in.Attempt})
	}
	o.watchTask(in, c)
}

// watchTask sets when the chunk's worker must have spoken.
func (o *Owner) watchTask(in *inst, c *chunk) {
	d := in.spec.TaskTimeout.Milliseconds()
	if d <= 0 || in.chunks[c.key.Chunk] != c {
		return
	}
	o.cancel(c.timeout)
	c.timeout = o.at(&timer{at: o.now + d*max(c.left, 1) + o.cfg.LateGrace, kind: timerTask, instance: in.ID, attempt: in.Attempt, chunk: c.key.Chunk})
}

func (o *Owner) instanceTimeout(in *inst) {
	o.failAttempt(in, engine.StatusTimedOut, fmt.Sprintf("timed out: attempt %d ran longer than %s", in.Attempt, time.Duration(in.spec.Timeout)), false, 0)
}

// taskTimeout fails tasks whose worker let their timeout pass without a word.
func (o *Owner) taskTimeout(in *inst, id int64) {
	c := in.chunks[id]
	if c == nil || c.holder.Worker == "" {
		return
	}
	err := broker.TaskError{Kind: broker.ErrorTimeout, Message: fmt.Sprintf(
		"task timed out after %s and worker %q did not say so", time.Duration(in.spec.TaskTimeout), c.holder.Worker)}
	o.failChunk(in, c, err, false)
}

// failAttempt ends the attempt: a further one is due later, or the instance is final.
func (o *Owner) failAttempt(in *inst, status engine.Status, text string, permanent bool, after time.Duration) {
	if o.insts[in.ID] != in {
		return
	}
	if permanent || int(in.Attempt) > in.spec.Retry.Max {
		o.finish(in, status, nil, text)
		return
	}
	if !o.move(in, engine.StatusWaiting) {
		return
	}
	ended := in.Instance
	if t := in.tasks[taskKey(in, phaseRoot, 0)]; t != nil && len(t.Checkpoint) > 0 && moveTask(t, engine.TaskFailed) {
		t.FinishedAt = o.now
		o.touchTask(in, t) // the next attempt takes its checkpoint
	}
	o.callOff(in)
	if after <= 0 {
		after = engine.RetryDelay(in.spec.Retry, in.Attempt, in.ID)
	}
	in.sh.change.NewAttempts = append(in.sh.change.NewAttempts, engine.Attempt{
		Instance: in.ID, Attempt: in.Attempt + 1, Status: status, Error: engine.CutText(text, engine.MaxError),
		Worker: in.Worker, StartedAt: ended.StartedAt, FinishedAt: o.now,
	})
	in.Attempt++
	in.Run, in.StartedAt, in.Result, in.Reason = 0, 0, nil, engine.ReasonRetry
	in.DueAt = o.now + max(after.Milliseconds(), 1)
	in.Error = engine.CutText(text, engine.MaxError)
	o.touch(in)
	o.noteWaiting(in)
	o.forget(in)
}

// callOff ends everything that is on its way for the current attempt.
func (o *Owner) callOff(in *inst) {
	active := len(in.chunks) > 0
	for _, n := range sortedKeys(in.chunks) {
		o.release(in, in.chunks[n])
	}
	if active {
		in.sh.effect(Order{App: in.app.Name, Control: broker.Control{Kind: broker.ControlStop, Instance: in.ID, Attempt: in.Attempt}})
	}
	if in.run != nil {
		o.closeRun(in.run)
	}
	o.endBroadcast(in)
	for _, k := range sortedTasks(in.tasks) {
		if k.Kind != engine.TaskShare && !in.tasks[k].Status.Terminal() {
			o.dropTask(in, k)
		}
	}
}

// finish makes an instance final. Everything that hangs on it is let go.
func (o *Owner) finish(in *inst, status engine.Status, result []byte, text string) {
	if o.insts[in.ID] != in {
		return
	}
	if in.Status == engine.StatusWaiting && (status == engine.StatusStopped || status == engine.StatusTimedOut) {
		status = engine.StatusCanceled
	}
	if in.Status == engine.StatusWaiting && status == engine.StatusSucceeded || !o.move(in, status) {
		return
	}
	var total, failed int64
	hadRun := in.run != nil
	if hadRun {
		total, failed = in.run.counts()
	}
	unfinished := len(in.chunks) > 0
	o.callOff(in)
	if err := engine.CheckBytes("result", result, engine.MaxResult); err != nil {
		// The worker checks first; this is for one that does not.
		result, text = nil, err.Error()
	}
	in.Reason, in.Result, in.Error = "", result, engine.CutText(text, engine.MaxError)
	in.FinishedAt = o.now
	o.touch(in)
	if in.Job != 0 {
		in.sh.change.Ended = append(in.sh.change.Ended, engine.Ended{
			Kind: engine.KindJob, ID: in.Job, Run: in.ID, Status: status, Fired: in.Fired(), StartAt: in.StartedAt, EndAt: o.now,
		})
		o.givePermit(in)
	}
	if hadRun || unfinished {
		p := Purge{App: in.app.Name, Set: in.app.Set, Instance: in.ID, Tasks: unfinished}
		if hadRun {
			p.Run = -1
		}
		in.sh.effect(p)
	}
	row := in.Instance
	in.sh.effect(Final{App: in.app.Name, Instance: row, Total: total, Failed: failed})
	o.forget(in)
	if in.Workflow != 0 && o.hooks != nil {
		o.hooks.InstanceFinal(o.now, &row)
	}
}

// Stop stops an instance that is in memory; false if it is not.
func (o *Owner) Stop(id int64, why string) bool {
	in := o.insts[id]
	if in == nil {
		return false
	}
	o.finish(in, engine.StatusStopped, nil, why)
	return true
}

// command carries a command out and deletes it in the same Change.
func (o *Owner) command(e Command) {
	sh := o.shards[e.Command.Shard]
	if sh == nil {
		return
	}
	switch {
	case e.Command.Kind != engine.CommandStop:
	case o.Stop(e.Command.Target, "stopped by request"):
	case e.Loaded && e.Ask != 0 && e.Ask != o.newest[e.Command.Target].ask:
		return // of an older Load; the newest counts
	case !e.Loaded && e.Command.ID != 0 && o.now < o.newest[e.Command.Target].at+loadPatience:
		return // its answer is on the way
	case !e.Loaded || o.outdated(e):
		o.loading[e.Command.Target] = false
		o.loads++
		o.newest[e.Command.Target] = asking{o.loads, o.now}
		o.after(Load{ID: e.Command.Target, Command: e.Command, Ask: o.loads})
		return
	case e.Row != nil && e.Row.Instance.Status == engine.StatusWaiting && e.Row.Instance.Shard == sh.id:
		in := o.adopt(sh, *e.Row)
		o.finish(in, engine.StatusCanceled, nil, "stopped by request before it was dispatched")
		if o.fetches > 0 {
			o.tombs[in.ID] = struct{}{}
		}
	}
	sh.change.GoneCommands = append(sh.change.GoneCommands, e.Command.ID)
}

// loadPatience is how long the answer to a Load is waited for, ms.
const loadPatience = 5000

// outdated tells whether the row that came for a command may be older than what was decided
// about the instance meanwhile.
func (o *Owner) outdated(e Command) bool {
	touched, ok := o.loading[e.Command.Target]
	delete(o.loading, e.Command.Target)
	delete(o.newest, e.Command.Target)
	if !ok || touched {
		return true
	}
	return e.Row != nil && !e.Row.Instance.Status.Terminal() && e.Row.Instance.Status != engine.StatusWaiting
}

// lateLoaded keeps the result of a run that succeeded after its instance was final.
func (o *Owner) lateLoaded(e LateLoaded) {
	if e.Row == nil {
		return
	}
	sh := o.shards[e.Row.Instance.Shard]
	if sh == nil || !e.Row.Instance.Status.Terminal() || e.Row.Instance.Status == engine.StatusSucceeded || len(e.Row.Instance.Late) > 0 {
		return
	}
	row := e.Row.Instance
	row.Late = e.Result
	if len(row.Late) == 0 {
		row.Late = []byte("null")
	}
	o.stats.Late++
	sh.change.Instances = append(sh.change.Instances, row)
}
