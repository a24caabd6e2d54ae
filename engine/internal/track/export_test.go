package track

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// Check walks everything that the owner keeps and says what does not fit together. Between
// two events all of it must hold.
func (o *Owner) Check() error {
	var bad []error
	wrong := func(in *inst, format string, args ...any) {
		bad = append(bad, fmt.Errorf("owner's memory of instance %d: %s", in.ID, fmt.Sprintf(format, args...)))
	}
	inflight, jobs, runs := map[*queue]int{}, map[int64]int{}, 0
	alarms := o.alarms()
	for i, t := range o.timers {
		if t.index != i {
			bad = append(bad, fmt.Errorf("a timer at %d believes to be at %d", i, t.index))
		}
	}
	for _, id := range sortedKeys(o.insts) {
		in := o.insts[id]
		if sh := o.shards[in.Shard]; sh == nil || sh != in.sh || sh.insts[id] != in {
			wrong(in, "it is not in its shard")
		}
		if in.Status != engine.StatusDispatched && in.Status != engine.StatusRunning {
			wrong(in, "it is %s and in memory", in.Status)
		}
		counted := 0
		for n, c := range in.chunks {
			if c.key.Chunk != n || c.key.Instance != id || c.key.Attempt != in.Attempt {
				wrong(in, "chunk %x lies at %x", c.key.Chunk, n)
			}
			if c.timeout != nil && c.timeout.index < 0 && c.timeout.at > o.now {
				wrong(in, "chunk %x keeps a timer that is not set", n)
			}
			if c.phase != phaseShare && c.phase != phasePre && c.phase != phasePost {
				counted++
			}
		}
		inflight[in.q] += counted
		if in.Job != 0 {
			jobs[in.Job] += counted
		}
		if in.run != nil {
			runs++
			in.run.check(alarms, wrong)
		}
		if in.bc != nil {
			o.checkBroadcast(in, alarms, wrong)
		}
		if in.run == nil && in.bc == nil && len(in.chunks) == 0 {
			wrong(in, "nothing of it is on its way")
		}
	}
	for _, q := range o.sorted() {
		if q.inflight != inflight[q] {
			bad = append(bad, fmt.Errorf("a queue counts %d chunks in flight, there are %d", q.inflight, inflight[q]))
		}
		runs -= len(q.runs)
		for _, r := range q.runs {
			if o.insts[r.in.ID] != r.in || r.in.run != r || r.closed {
				bad = append(bad, fmt.Errorf("a queue still feeds run %d of instance %d", r.id, r.in.ID))
			}
		}
	}
	if runs != 0 {
		bad = append(bad, fmt.Errorf("%d runs more than the queues feed", runs))
	}
	maps.DeleteFunc(jobs, func(_ int64, n int) bool { return n == 0 })
	if !maps.Equal(jobs, o.jobs) {
		bad = append(bad, fmt.Errorf("the jobs count %v chunks in flight, there are %v", o.jobs, jobs))
	}
	for _, sh := range o.shards {
		if sh == nil {
			continue
		}
		for id, in := range sh.insts {
			if o.insts[id] != in {
				bad = append(bad, fmt.Errorf("shard %d keeps instance %d, which is forgotten", sh.id, id))
			}
		}
		for _, a := range sh.asks {
			if a.After <= sh.cursor {
				bad = append(bad, fmt.Errorf("a question of shard %d waits for report %d, taken in is %d", sh.id, a.After, sh.cursor))
			}
		}
	}
	return errors.Join(bad...)
}

// alarm is what a timer is for.
type alarm struct {
	kind     timerKind
	instance int64
	attempt  int32
	chunk    int64
	number   int64
}

func (o *Owner) alarms() map[alarm]bool {
	set := make(map[alarm]bool, len(o.timers))
	for _, t := range o.timers {
		set[alarm{t.kind, t.instance, t.attempt, t.chunk, t.number}] = true
	}
	return set
}

// check: every number of the run is final, in exactly one chunk, or waits for its next
// attempt, and what is counted is there.
func (r *run) check(alarms map[alarm]bool, wrong func(*inst, string, ...any)) {
	in := r.in
	if r.closed {
		wrong(in, "its run is closed")
	}
	if r.finished.Intersects(r.failed) {
		wrong(in, "a number is finished and failed")
	}
	where, subs := make([]int8, r.next), 0
	for n, c := range in.chunks {
		if c.phase != phaseSub {
			continue
		}
		subs++
		open := r.unfinished(c)
		if c.left != int64(len(open)) || c.left == 0 {
			wrong(in, "chunk %x says %d are left, %d are: %v", n, c.left, len(open), open)
		}
		if c.first < 1 || c.first+c.count > r.next {
			wrong(in, "chunk %x has %d tasks from %d of %d", n, c.count, c.first, r.next-1)
			continue
		}
		for _, k := range open {
			where[k]++
		}
		resent := alarms[alarm{timerAgain, in.ID, in.Attempt, n, 0}]
		if c.unsent && c.holder.Worker == "" && !slices.Contains(r.rereads[c.seq], c) && !resent {
			wrong(in, "chunk %x waits to be sent and nobody reads its items", n)
		}
	}
	if subs != r.inflight {
		wrong(in, "its run counts %d chunks in flight, there are %d", r.inflight, subs)
	}
	waiting := 0
	for k, t := range in.tasks {
		if k.Kind != engine.TaskSub || k.Run != r.id {
			continue
		}
		if t.Status == engine.TaskWaiting && t.NextTryAt > 0 {
			waiting++
			if k.Number < r.next {
				where[k.Number]++
			}
			if !alarms[alarm{timerRetry, in.ID, in.Attempt, 0, k.Number}] {
				wrong(in, "number %d waits for its next attempt without an alarm", k.Number)
			}
		}
		if r.final(k.Number) && !t.Status.Terminal() {
			wrong(in, "number %d is final, its row is %v", k.Number, t.Status)
		}
	}
	if waiting != r.retrying {
		wrong(in, "its run counts %d that wait for an attempt, there are %d", r.retrying, waiting)
	}
	for n := int64(1); n < r.next; n++ {
		if is := where[n]; is != 1 && !r.final(n) || is != 0 && r.final(n) {
			wrong(in, "number %d (final %v) is on its way %d times", n, r.final(n), is)
		}
	}
	for n, m := range r.mappers {
		if m.done && m.accepted >= m.total {
			wrong(in, "mapper %d is done and kept", n)
		}
		if m.accepted > m.emitted && m.done {
			wrong(in, "mapper %d has %d items accepted of %d", n, m.accepted, m.emitted)
		}
	}
	if r.off < 0 || len(r.buf) > 0 && r.buf[0].Seq > r.seq && r.off > 0 {
		wrong(in, "it stands at item %d of message %d, the next one is %d", r.off, r.seq, r.buf[0].Seq)
	}
	for i := 1; i < len(r.buf); i++ {
		if r.buf[i].Seq <= r.buf[i-1].Seq {
			wrong(in, "stage message %d is read after %d", r.buf[i].Seq, r.buf[i-1].Seq)
		}
	}
}

// checkBroadcast: a share that has been sent has its chunk, one that waits for its next
// attempt its alarm.
func (o *Owner) checkBroadcast(in *inst, alarms map[alarm]bool, wrong func(*inst, string, ...any)) {
	chunks := map[int64]int{}
	for _, c := range in.chunks {
		if c.phase == phaseShare {
			chunks[c.first]++
		}
	}
	moving := len(in.chunks)
	for i, t := range in.bc.shares {
		on := t.Status == engine.TaskDispatched || t.Status == engine.TaskRunning
		if on != (chunks[int64(i)] == 1) || chunks[int64(i)] > 1 {
			wrong(in, "share %d is %v and has %d chunks", i, t.Status, chunks[int64(i)])
		}
		if t.Status == engine.TaskWaiting && t.NextTryAt > 0 {
			moving++
			if !alarms[alarm{timerShare, in.ID, in.Attempt, int64(phaseShare), int64(i)}] {
				wrong(in, "share %d waits for its next attempt without an alarm", i)
			}
		}
	}
	for k, t := range in.tasks {
		if k.Kind != engine.TaskShare && t.Status == engine.TaskWaiting && t.NextTryAt > 0 {
			moving++
		}
	}
	if moving == 0 && in.listing == 0 {
		wrong(in, "nothing of the broadcast is on its way")
	}
}

// Accounts are the books of one map run.
type Accounts struct {
	Instance int64
	Run      int32
	Next     int64
	Finished []uint32
	Failed   []uint32
	Accepted []uint64 // sequences of the result messages that count
	Values   bool     // it collects values
}

// Accounts are the books of the map runs in memory, by instance.
func (o *Owner) Accounts() (all []Accounts) {
	for _, id := range sortedKeys(o.insts) {
		if r := o.insts[id].run; r != nil {
			all = append(all, Accounts{id, r.id, r.next, r.finished.ToArray(), r.failed.ToArray(), r.accepted.ToArray(), o.insts[id].spec.Mode == "map_reduce"})
		}
	}
	return all
}

// Finals are the numbers of each map run in memory that are final.
func (o *Owner) Finals() map[int64]*roaring.Bitmap {
	all := map[int64]*roaring.Bitmap{}
	for id, in := range o.insts {
		if in.run != nil {
			all[id] = roaring.Or(in.run.finished, in.run.failed)
		}
	}
	return all
}

// Gone are the numbers of a chunk that nobody is to run as part of it any more.
func (o *Owner) Gone(key broker.ChunkKey) (ns []int64) {
	in := o.insts[key.Instance]
	if in == nil || in.run == nil || in.Attempt != key.Attempt || in.chunks[key.Chunk] == nil {
		return nil
	}
	c := in.chunks[key.Chunk]
	for n := c.first; n < c.first+c.count; n++ {
		if c.phase == phaseSub && (in.run.final(n) || c.moved[n]) {
			ns = append(ns, n)
		}
	}
	return ns
}
