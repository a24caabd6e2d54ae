package track

import (
	"errors"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// run is a map run: the emitted sub-tasks of one attempt, numbered from 1 in the order in
// which the stage holds them. It keeps one position, one bitmap of what is finished and one
// of what failed, and state per mapper only while that is unfinished: nothing in it grows
// with the number of sub-tasks but the bitmaps.
type run struct {
	in    *inst
	id    int32
	fresh bool
	dirty bool

	closed   bool
	next     int64  // number of the next item
	seq      uint64 // stage messages before it are used up
	off      int32  // items used up of the message at seq
	chunkNo  int64
	mappers  map[int64]*mapper
	finished *roaring.Bitmap
	failed   *roaring.Bitmap
	accepted *roaring64.Bitmap // sequences of the results that count

	rootDone      bool
	rootFailed    string // why, if the root failed after it had emitted
	rootStatus    engine.Status
	mapFailed     bool // a sub-task that mapped has failed
	reduceAttempt int32
	reducing      bool           // as stored; set only while it is read back
	failures      int            // rows of final failures
	damaged       *engine.MapRun // the row, if its state cannot be read; its counts stay

	// What follows is not stored.
	reduceAt int64 // no further attempt of the reduce before it
	buf      []broker.Staged
	reading  bool
	readAsk  uint64 // of the page being read
	more     bool   // the stage may hold unread messages
	staged   int64
	inflight int
	pace     float64 // ns a task, smoothed
	rereads  map[uint64][]*chunk
	retrying int
	tokens   float64
	tokensAt int64
	feedAt   int64
}

// mapper is a task that emits, while it is unfinished.
type mapper struct {
	token    uint64 // the run of it whose items were taken last
	accepted int64
	hash     uint64 // over the accepted items
	emitted  int64  // what it says it has staged
	done     bool
	total    int64
	replays  map[uint64]*replay
}

// replay is how far one run of a mapper is read.
type replay struct {
	index    int64
	hash     uint64
	unproven bool // its beginning was read before this owner's time
}

const (
	readPage   = 16
	readAhead  = 4
	chunkNanos = 50e6 // planned length of a chunk
	hashSeed   = 14695981039346656037
	hashPrime  = 1099511628211
)

func hashItem(h uint64, item []byte) uint64 {
	n := uint64(len(item))
	for range 4 {
		h = (h ^ (n & 0xff)) * hashPrime
		n >>= 8
	}
	for _, b := range item {
		h = (h ^ uint64(b)) * hashPrime
	}
	return h
}

func newRun(in *inst, id int32) *run {
	return &run{
		in: in, id: id, next: 1, mappers: map[int64]*mapper{}, finished: roaring.New(), failed: roaring.New(),
		accepted: roaring64.New(), rereads: map[uint64][]*chunk{}, reduceAttempt: 1,
	}
}

func newMapper() *mapper { return &mapper{hash: hashSeed, replays: map[uint64]*replay{}} }

func (o *Owner) openRun(in *inst) {
	r := newRun(in, in.Run)
	r.fresh = true
	r.mappers[0] = newMapper()
	in.run = r
	in.q.runs = append(in.q.runs, r)
	r.touch()
}

func (r *run) touch() {
	if !r.dirty {
		r.dirty = true
		r.in.sh.runs = append(r.in.sh.runs, r)
	}
}

func (r *run) counts() (total, failed int64) { return r.next - 1, int64(r.failed.GetCardinality()) }

func (r *run) emittedAny() bool {
	m := r.mappers[0]
	return r.next > 1 || m != nil && m.emitted > 0
}

func (r *run) final(n int64) bool {
	return r.finished.Contains(uint32(n)) || r.failed.Contains(uint32(n))
}

// unfinished are the numbers of the chunk that are neither final nor moved elsewhere.
func (r *run) unfinished(c *chunk) []int64 {
	var ns []int64
	for n := c.first; n < c.first+c.count; n++ {
		if !r.final(n) && !c.moved[n] {
			ns = append(ns, n)
		}
	}
	return ns
}

// emitted: the mapper has staged something.
func (r *run) emitted(n int64, count int64) {
	r.more = true
	if count <= 0 {
		return
	}
	if m := r.mapperOf(n); m != nil && count > m.emitted {
		r.staged += count - m.emitted
		m.emitted = count
	}
}

// feedRun feeds one chunk of the run. False if there is nothing to feed now.
func (o *Owner) feedRun(r *run) bool {
	in := r.in
	if r.closed || r.retrying > o.cfg.MaxRetrying {
		return false
	}
	if in.Job != 0 && in.spec.Concurrency > 0 && o.jobs[in.Job] >= in.spec.Concurrency {
		return false
	}
	msg, m, rp := o.front(r)
	if r.closed {
		return false // the run has failed
	}
	if len(r.buf) < readAhead {
		o.readOn(r)
	}
	if msg == nil {
		return false
	}
	n := o.slice(r, msg)
	if m.done {
		n = min(n, m.total-m.accepted)
	}
	if n = o.rated(r, n); n == 0 {
		return false
	}
	c := o.newSub(in, r.next, n, msg.Seq, r.off, 1)
	tasks := make([]broker.Task, n)
	for i := range tasks {
		item := msg.Items[r.off]
		tasks[i] = broker.Task{Number: r.next, Attempt: 1, Item: item}
		m.hash = hashItem(m.hash, item)
		r.next++
		r.off++
	}
	m.accepted += n
	m.token = msg.Token
	rp.index, rp.hash = m.accepted, m.hash
	wire := o.message(in, c, tasks)
	wire.Name = msg.Name
	o.usedUp(r, msg)
	o.mapperDone(r, msg.Mapper, m)
	r.touch()
	o.dispatch(in, c, wire)
	return true
}

// front is the first stage message with an item to feed; what was fed before is skipped.
func (o *Owner) front(r *run) (*broker.Staged, *mapper, *replay) {
	for len(r.buf) > 0 {
		msg := &r.buf[0]
		if msg.Seq < r.seq || len(msg.Items) == 0 {
			r.pop(msg)
			continue
		}
		if msg.Seq > r.seq {
			r.seq, r.off = msg.Seq, 0
		}
		m := r.mapperOf(msg.Mapper)
		if m == nil {
			o.stats.Stale++
			r.pop(msg)
			continue
		}
		if r.in.spec.Emit == workflow.EmitAtomic {
			if !m.done {
				return nil, nil, nil // which of its runs counts is not known yet
			}
			if msg.Token != m.token {
				r.pop(msg)
				continue
			}
		}
		rp := m.replays[msg.Token]
		if rp == nil && msg.First+int64(r.off) > m.accepted {
			// After a gap: what lies before it is staged again further on.
			r.pop(msg)
			continue
		}
		if rp == nil {
			rp = &replay{hash: hashSeed}
			if msg.First > 0 || r.off > 0 {
				rp.index = msg.First + int64(r.off)
				rp.unproven = rp.index != m.accepted || msg.Token != m.token
				rp.hash = m.hash
			}
			m.replays[msg.Token] = rp
		}
		for int(r.off) < len(msg.Items) {
			at := msg.First + int64(r.off)
			if at < rp.index { // doubled
				r.off++
				continue
			}
			if at > rp.index || at > m.accepted || m.done && at >= m.total {
				r.off = int32(len(msg.Items)) // after a gap, or beyond what counts
				break
			}
			if at == m.accepted {
				return msg, m, rp
			}
			rp.hash = hashItem(rp.hash, msg.Items[r.off])
			rp.index++
			r.off++
			if rp.index == m.accepted && !rp.unproven && rp.hash != m.hash {
				o.failAttempt(r.in, engine.StatusFailed, fmt.Sprintf(
					"mapper is not repeatable: task %d ran again and its first %d items differ from those of its earlier run; make it emit the same items in the same order, or set emit: atomic",
					msg.Mapper, m.accepted), false, 0)
				return nil, nil, nil
			}
		}
		r.pop(msg)
	}
	return nil, nil, nil
}

// mapperOf is the state of an unfinished mapper, begun with its first message.
func (r *run) mapperOf(n int64) *mapper {
	if m := r.mappers[n]; m != nil {
		return m
	}
	if n <= 0 || n >= r.next || r.final(n) {
		return nil
	}
	m := newMapper()
	r.mappers[n] = m
	return m
}

func (r *run) pop(msg *broker.Staged) {
	r.seq, r.off = max(r.seq, msg.Seq+1), 0
	r.buf = r.buf[1:]
	r.touch()
}

func (o *Owner) usedUp(r *run, msg *broker.Staged) {
	if int(r.off) >= len(msg.Items) {
		r.pop(msg)
	}
}

// mapperDone forgets a mapper when all it emitted is accepted.
func (o *Owner) mapperDone(r *run, n int64, m *mapper) {
	if m.done && m.accepted >= m.total {
		r.staged -= max(m.emitted-m.accepted, 0)
		delete(r.mappers, n)
		r.touch()
	}
}

func (o *Owner) readOn(r *run) {
	if r.reading || !r.more {
		return
	}
	from := r.seq
	if len(r.buf) > 0 {
		from = r.buf[len(r.buf)-1].Seq + 1
	}
	o.asks++
	r.reading, r.more, r.readAsk = true, false, o.asks
	o.after(ReadStage{App: r.in.app.Name, Set: r.in.app.Set, Instance: r.in.ID, Run: r.id, From: max(from, 1), Max: readPage, Ask: o.asks})
}

// staged takes in a page of the stage.
func (o *Owner) staged(e Staged) {
	in := o.insts[e.Instance]
	if in == nil || in.run == nil || in.run.id != e.Run {
		return
	}
	r := in.run
	if !r.reading || e.Ask != r.readAsk {
		return // asked for by an earlier owner of the run: the stage may hold more by now
	}
	r.reading = false
	if e.Err != nil || len(e.Messages) >= e.Max {
		r.more = true
	}
	for _, m := range e.Messages {
		if m.Seq >= r.seq && (len(r.buf) == 0 || m.Seq > r.buf[len(r.buf)-1].Seq) {
			r.buf = append(r.buf, m)
		}
	}
	if len(r.buf) > 0 && r.buf[0].Seq > r.seq {
		r.seq, r.off = r.buf[0].Seq, 0 // what it stood in is gone
	}
	switch {
	case errors.Is(e.Err, broker.ErrUndecodable) && len(r.buf) == 0:
		// It will not get better by reading it again.
		o.failAttempt(in, engine.StatusFailed, "the stage holds what cannot be read: "+e.Err.Error(), false, 0)
		return
	case e.Err != nil: // the sweep reads on
	case len(r.buf) == 0 && !r.more:
		o.missing(r)
	default:
		o.heat(in.q)
	}
	o.runOver(r)
}

// missing: the stage has nothing more, but a finished mapper emitted more than that. Its
// messages are lost: the run cannot be completed.
func (o *Owner) missing(r *run) {
	for _, n := range sortedKeys(r.mappers) {
		m := r.mappers[n]
		if m.done && m.accepted < m.total {
			o.failAttempt(r.in, engine.StatusFailed, fmt.Sprintf(
				"the stage has lost items: task %d emitted %d, %d are left", n, m.total, m.accepted), false, 0)
			return
		}
	}
}

// slice is how many tasks the next chunk takes: one until the pace is known, then about
// 50 ms of work, never more than what is left over twice the slots.
func (o *Owner) slice(r *run, msg *broker.Staged) int64 {
	most := int64(len(msg.Items)) - int64(r.off)
	if r.pace <= 0 {
		most = 1
	} else {
		most = min(most, int64(max(chunkNanos/r.pace, 1)))
	}
	slots := max(o.fleet.Slots(r.in.app.Name, r.in.q.key.pool), 1)
	rest := -int64(r.off)
	for i := range r.buf {
		rest += int64(len(r.buf[i].Items))
	}
	rest = max(rest, r.staged-(r.next-1))
	most = min(most, max(rest/int64(2*slots), 1), broker.MaxChunkTasks)
	bytes := 0
	for i := range most {
		bytes += len(msg.Items[int64(r.off)+i])
		if i > 0 && bytes > broker.MaxChunkBytes {
			return i
		}
	}
	return most
}

// rated cuts n down to what the rate of the run allows now.
func (o *Owner) rated(r *run, n int64) int64 {
	rate := r.in.spec.Rate
	if rate <= 0 {
		return n
	}
	if r.tokensAt == 0 {
		r.tokensAt, r.tokens = o.now, 1
	}
	r.tokens = min(r.tokens+float64(o.now-r.tokensAt)*rate/1000, max(rate, 1))
	r.tokensAt = o.now
	if r.tokens < 1 {
		at := o.now + int64(math.Ceil((1-r.tokens)*1000/rate))
		if r.feedAt <= o.now {
			r.feedAt = at
			o.at(&timer{at: at, kind: timerFeed, instance: r.in.ID, attempt: r.in.Attempt})
		}
		return 0
	}
	n = min(n, int64(r.tokens))
	r.tokens -= float64(n)
	return n
}

// newSub makes a chunk of sub-tasks.
func (o *Owner) newSub(in *inst, first, count int64, seq uint64, off, attempt int32) *chunk {
	r := in.run
	c := &chunk{
		key:   broker.ChunkKey{Instance: in.ID, Attempt: in.Attempt, Run: r.id, Chunk: int64(in.Attempt)<<32 | chunkSub + r.chunkNo},
		phase: phaseSub, first: first, count: count, left: count, seq: seq, off: off, attempt: attempt,
	}
	r.chunkNo++
	o.hold(in, c)
	r.touch()
	return c
}

func (o *Owner) rootSucceeded(in *inst, rep *broker.Report) {
	r := in.run
	r.rootDone, r.more = true, true
	in.Result = rep.Result
	o.touch(in)
	o.mapped(r, 0, max(rep.Emitted, 0), rep.Token)
	r.touch()
	o.heat(in.q)
	o.runOver(r)
}

// mapped: a mapper has succeeded and emitted total items in the run of it named by token.
func (o *Owner) mapped(r *run, n, total int64, token uint64) {
	m := r.mappers[n]
	if m == nil {
		return
	}
	if total < m.accepted {
		o.failAttempt(r.in, engine.StatusFailed, fmt.Sprintf(
			"mapper is not repeatable: task %d ran again and emitted %d items, an earlier run of it %d; make it emit the same items in the same order, or set emit: atomic",
			n, total, m.accepted), false, 0)
		return
	}
	if total > m.emitted {
		r.staged += total - m.emitted
		m.emitted = total
	}
	if r.in.spec.Emit == workflow.EmitAtomic {
		m.token = token
	}
	m.done, m.total = true, total
	o.mapperDone(r, n, m)
}

// rootFailed: the root failed after it had emitted. What it emitted still runs.
func (o *Owner) rootFailed(in *inst, status engine.Status, text string) {
	r := in.run
	r.rootDone, r.rootFailed, r.rootStatus, r.more = true, text, status, true
	if m := r.mappers[0]; m != nil {
		m.done, m.total = true, max(m.emitted, m.accepted)
		o.mapperDone(r, 0, m)
	}
	r.touch()
	o.heat(in.q)
	o.runOver(r)
}

// runOver goes on when every mapper is finished and every accepted number is final.
func (o *Owner) runOver(r *run) {
	in := r.in
	if o.insts[in.ID] != in || r.closed || !r.rootDone || len(r.mappers) > 0 || r.retrying > 0 || o.now < r.reduceAt {
		return
	}
	total, failed := r.counts()
	if int64(r.finished.GetCardinality())+failed < total {
		return
	}
	for _, c := range in.chunks {
		if c.phase == phaseReduce {
			return
		}
	}
	switch {
	case r.rootFailed != "":
		o.failAttempt(in, r.rootStatus, r.rootFailed, false, 0)
	case r.mapFailed:
		o.failAttempt(in, engine.StatusFailed, "a sub-task that emitted further ones has failed: "+r.firstError(), false, 0)
	case failed > r.allowed(total):
		o.failAttempt(in, engine.StatusFailed, o.budgetText(r), false, 0)
	case in.spec.Mode == workflow.MapReduce:
		c := o.newChunk(in, phaseReduce, chunkReduce+int64(r.reduceAttempt), 0)
		c.attempt = r.reduceAttempt
		o.send(in, c)
	case in.Items != nil:
		o.finish(in, engine.StatusSucceeded, fmt.Appendf(nil, `{"total":%d,"succeeded":%d,"failed":%d}`, total, total-failed, failed), "")
	default:
		o.finish(in, engine.StatusSucceeded, in.Result, "")
	}
}

// allowed is how many of total sub-tasks may fail.
func (r *run) allowed(total int64) int64 {
	b := r.in.spec.MaxFailed
	return max(b.Count, int64(b.Percent/100*float64(total)))
}

func (o *Owner) budgetText(r *run) string {
	total, failed := r.counts()
	return fmt.Sprintf("%d of %d sub-tasks failed, %d may: %s", failed, total, r.allowed(total), r.firstError())
}

func (r *run) firstError() string {
	var best *taskRow
	for k, t := range r.in.tasks {
		if k.Kind == engine.TaskSub && k.Run == r.id && t.Status == engine.TaskFailed && (best == nil || t.Number < best.Number) {
			best = t
		}
	}
	if best == nil {
		return ""
	}
	return fmt.Sprintf("task %d: %s", best.Number, best.Error)
}

// closeRun ends a run: its row stays, its state goes.
func (o *Owner) closeRun(r *run) {
	if r.closed {
		return
	}
	r.closed = true
	r.buf = nil
	r.touch()
}
