package track

import (
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Recovery is one procedure, at take-over, after the broker was away, and for what was
// silent for long: list the messages of the instances, take in the reports up to the last
// one read after that, and send again what was sent, is not finished and was not listed.

// listPatience is how long, in silences, the answer to a listing is waited for: longer than
// a listing may take, so that a broker that lists slowly is not asked for ever.
const listPatience = 3

// recover begins it for the given instances.
func (o *Owner) recover(ids []int64) {
	lists := map[int64]*List{}
	for _, id := range ids {
		in := o.insts[id]
		if in == nil {
			continue
		}
		if in.listing != 0 && o.now-in.listed < listPatience*o.cfg.Silent {
			in.relist = true // once that one is answered
			continue
		}
		l := lists[in.app.ID]
		if l == nil {
			o.asks++
			l = &List{App: in.app, Ask: o.asks}
			lists[in.app.ID] = l
		}
		in.listed, in.listing, in.relist = o.now, l.Ask, false
		l.Instances = append(l.Instances, id)
		if in.run != nil {
			l.Runs = append(l.Runs, id)
		}
		if !slices.Contains(l.Shards, in.Shard) {
			l.Shards = append(l.Shards, in.Shard)
		}
	}
	for _, app := range sortedKeys(lists) {
		l := lists[app]
		slices.Sort(l.Instances)
		slices.Sort(l.Runs)
		slices.Sort(l.Shards)
		o.after(*l)
	}
}

func (o *Owner) recoverAll() {
	o.readyAt, o.newAt = max(o.readyAt, o.now+2*o.cfg.BeatEvery+500), o.now
	o.recover(sortedKeys(o.insts))
	for _, q := range o.sorted() {
		o.unblock(q)
	}
}

// recoverSilent begins it for instances nobody has said a word about for long, and for
// those of which a message is known to be lost.
func (o *Owner) recoverSilent() {
	var ids []int64
	for _, id := range sortedKeys(o.insts) {
		in := o.insts[id]
		if in == nil {
			continue
		}
		quiet := o.now-max(in.heard, in.listed) > o.cfg.Silent
		if quiet || in.relist && o.now-in.listed >= 1000 {
			ids = append(ids, id)
		}
		o.absent(in)
	}
	o.recover(ids)
}

// unpublished: nobody knows whether the chunk is in its lane. The listing will tell.
func (o *Owner) unpublished(e Unpublished) {
	if in := o.insts[e.Key.Instance]; in != nil && in.Attempt == e.Key.Attempt && in.chunks[e.Key.Chunk] != nil {
		in.relist = true
	}
}

// listed sends again what is missing, once the reports are taken in. An answer to an earlier
// question, of this owner or of the one before, says nothing of what was sent since.
func (o *Owner) listed(e Listed) {
	if e.Err != nil {
		for _, id := range e.Instances {
			if in := o.insts[id]; in != nil && in.listing == e.Ask {
				in.relist, in.listing = true, 0
			}
		}
		return
	}
	for id, last := range e.After {
		if sh := o.shards[id]; sh != nil && sh.cursor < last {
			o.lists = append(o.lists, e)
			return
		}
	}
	for _, id := range e.Instances {
		if in := o.insts[id]; in != nil && in.listing == e.Ask {
			in.listing = 0
			o.resend(in, e.Present[id])
		}
	}
}

// resend sends every chunk of the instance again that is not in its lane and that no live
// worker holds.
func (o *Owner) resend(in *inst, present []int64) {
	for _, id := range sortedKeys(in.chunks) {
		c := in.chunks[id]
		if c == nil || o.insts[in.ID] != in {
			continue
		}
		if c.timeout == nil && in.spec.TaskTimeout > 0 && c.holder.Worker == "" && c.worker.Worker == "" {
			// Its timeout went with the owner before, unless its worker is found.
			if t, ok := o.fleet.Holder(in.app.Name, c.key); ok {
				o.started(in, c, t)
			}
		}
		switch {
		case c.unsent && in.run != nil && slices.Contains(in.run.rereads[c.seq], c):
		case c.pause != nil && c.holder.Worker == "": // it is sent after its pause
		case slices.Contains(present, id) || c.sentAt >= in.listed || o.holds(in, c):
		case c.worker.Worker != "" && o.now < o.readyAt:
			in.relist = true
		case c.worker.Worker != "" && !c.accepted && o.found(in, c):
		case c.worker.Worker != "" && !c.accepted && o.fleet.Alive(in.app.Name, c.worker.Worker, c.worker.Incarnation):
			if c.asked == 0 { // else its answer is on the way
				o.sendAgain(in, c)
			}
		case c.worker.Worker != "":
			o.gone(in, c)
		case o.now < o.readyAt && (in.Worker != "" || o.byRequest(in, c)):
			// Whether a worker has it shows in the beats.
			in.relist = true
		case o.found(in, c):
		default:
			o.stats.Republished++
			o.again(in, c)
		}
	}
	if r := in.run; r != nil && o.insts[in.ID] == in {
		r.more = true
		o.heat(in.q)
		o.readOn(r)
		o.runOver(r)
	}
	if in.bc != nil && o.insts[in.ID] == in {
		o.advance(in)
	}
}

// found tells whether a live worker lists the chunk, which then has it. One that was
// directed to a worker may be half finished there, accepted in the time of an owner before:
// what is left of it would be sent in a chunk of another number, which that worker does not
// know.
func (o *Owner) found(in *inst, c *chunk) bool {
	t, ok := o.fleet.Holder(in.app.Name, c.key)
	if !ok || c.worker.Worker != "" && t != c.worker {
		return false
	}
	c.holder, c.since, c.accepted = t, o.now, true
	o.watchTask(in, c)
	if o.byRequest(in, c) {
		c.worker = t
	}
	return true
}

// byRequest tells whether the chunk goes to a worker by request, not through a lane.
func (o *Owner) byRequest(in *inst, c *chunk) bool {
	return c.phase == phasePre || c.phase == phaseShare || c.phase == phasePost ||
		in.spec.Routing != "" && in.spec.Routing != workflow.RoutingLane
}

// revive rebuilds what was on its way from the stored rows.
func (o *Owner) revive(in *inst, row engine.MapRun, tasks []engine.Task) {
	for _, t := range tasks {
		if t.Run != max(in.Run, in.Attempt) { // an earlier attempt's
			if t.Kind == engine.TaskRoot && t.Run == in.Attempt-1 {
				in.checkpoint = t.Checkpoint
			}
			continue
		}
		if in.tasks == nil {
			in.tasks = map[engine.TaskKey]*taskRow{}
		}
		in.tasks[t.TaskKey] = &taskRow{Task: t}
	}
	if in.StartedAt > 0 {
		if d := in.spec.Timeout.Milliseconds(); d > 0 {
			in.timeout = o.at(&timer{at: in.StartedAt + d, kind: timerInstance, instance: in.ID, attempt: in.Attempt})
		}
	}
	switch in.spec.Mode {
	case workflow.Broadcast:
		o.reviveBroadcast(in)
	case workflow.Map, workflow.MapReduce:
		o.reviveRun(in, row)
	default:
		c := o.newChunk(in, phaseRoot, chunkRoot, 0)
		c.sentAt = o.now - 1
	}
}

// reviveRun rebuilds a map run. Chunks on their way are as stored; whether their messages
// still are in the lane is for the listing to tell.
func (o *Owner) reviveRun(in *inst, row engine.MapRun) {
	if row.Instance == 0 || row.Closed {
		o.failAttempt(in, engine.StatusFailed, "the state of its map run is gone", false, 0)
		return
	}
	r := newRun(in, row.Run)
	in.run = r
	in.Run = row.Run
	in.q.runs = append(in.q.runs, r)
	if err := r.decode(o, row.State); err != nil {
		for _, n := range sortedKeys(in.chunks) {
			o.release(in, in.chunks[n])
		}
		in.q.runs = slices.DeleteFunc(in.q.runs, func(x *run) bool { return x == r })
		in.run = newRun(in, row.Run)
		in.run.damaged = &row
		o.failAttempt(in, engine.StatusFailed, "the state of its map run cannot be read: "+err.Error(), false, 0)
		return
	}
	r.more = true
	if !r.rootDone {
		c := o.newChunk(in, phaseRoot, chunkRoot, 0)
		c.sentAt = o.now - 1
	}
	for _, k := range sortedTasks(in.tasks) {
		t := in.tasks[k]
		switch {
		case k.Kind != engine.TaskSub:
		case t.Status == engine.TaskFailed:
			if r.failures++; r.failures > keptErrors {
				delete(in.tasks, k)
			}
		case t.Status == engine.TaskWaiting && t.NextTryAt > 0:
			r.retrying++
			o.at(&timer{at: t.NextTryAt, kind: timerRetry, instance: in.ID, attempt: in.Attempt, number: k.Number})
		}
	}
	if r.reducing {
		c := o.newChunk(in, phaseReduce, chunkReduce+int64(r.reduceAttempt), 0)
		c.attempt, c.sentAt = r.reduceAttempt, o.now-1
	}
}
