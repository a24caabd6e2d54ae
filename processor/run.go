package processor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	// patience is how long a processor may ignore the end of its context before it is left
	// behind.
	patience = 5 * time.Second
	// plannedChunk is what the owner slices chunks for; one that runs longTimes as long gives
	// its unstarted tasks back.
	plannedChunk = 50 * time.Millisecond
	longTimes    = 20
	// minHandOver is the least time between two hand-overs of finished tasks within a chunk,
	// so that a chunk of tiny tasks is one report, not two.
	minHandOver = 5 * time.Millisecond
)

// run is one chunk this worker holds, from its receipt until its reports are stored and it is
// acked.
//
// The tasks run one after the other in one goroutine. gen names that goroutine: when a task ignores
// the end of its context the run moves on in another one, and what the old one still brings is
// dropped.
type run struct {
	w      *Worker
	c      *broker.Chunk
	reg    *registered
	ctx    context.Context
	cancel context.CancelCauseFunc
	lane   string // empty for directed chunks
	slot   bool   // takes a slot

	mu       sync.Mutex
	msg      answer // nil for directed chunks
	asking   bool
	gen      int
	next     int // first task not started
	end      int // past the last one that may start
	skip     map[int64]struct{}
	task     *Task // the one that runs
	taskAt   time.Time
	begun    time.Time
	handed   time.Time
	overAt   time.Time // when ctx was canceled
	buf      batch
	pending  int // batches not yet stored
	executed bool
	settled  bool
	quiet    bool // was stopped: nobody waits for values
	started  *entry
}

func (r *run) key() broker.ChunkKey { return r.c.ChunkKey }

// start begins the tasks. The caller has taken the slot.
func (r *run) start() {
	r.mu.Lock()
	r.asking = false
	r.begun = time.Now()
	r.handed = r.begun
	r.started = &entry{rep: r.report(broker.ReportStarted)}
	started := r.started
	r.mu.Unlock()
	r.w.reports.add(r.c.Shard, started, nil)
	r.w.count.chunks.Add(1)
	r.loop(0)
}

func (r *run) report(kind broker.ReportKind) broker.Report {
	return broker.Report{ChunkKey: r.c.ChunkKey, Kind: kind, Phase: r.c.Phase, Emitted: -1}
}

// loop runs the tasks as goroutine gen of this run.
func (r *run) loop(gen int) {
	whole := false
	defer func() {
		if !whole { // runtime.Goexit in the user's code ends this goroutine, not the chunk
			go r.loop(gen)
		}
	}()
	for {
		t := r.take(gen)
		if t == nil {
			break
		}
		if !r.execute(gen, t) {
			whole = true
			return
		}
	}
	whole = true
	r.finish(gen)
}

// take starts the next task, or gives nil.
func (r *run) take(gen int) *Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gen != r.gen {
		return nil
	}
	now := r.taskAt // the end of the last task, if nothing came between: reading the clock costs as much as a tiny task
	if now.IsZero() {
		now = time.Now()
	}
	if now.Sub(r.begun) > longTimes*plannedChunk {
		r.giveBack()
	}
	for r.next < r.end && r.ctx.Err() == nil {
		bt := &r.c.Tasks[r.next]
		r.next++
		if _, done := r.skip[bt.Number]; done {
			continue
		}
		t := &Task{c: r.c, t: bt, env: r}
		t.ctx.init(r.ctx, r.c.TaskTimeout, now)
		r.task, r.taskAt = t, now
		return t
	}
	r.task = nil
	return nil
}

// execute runs one task; false means that this goroutine was left behind.
func (r *run) execute(gen int, t *Task) (mine bool) {
	var (
		v   any
		err error = &panicError{value: "the processor called runtime.Goexit"}
	)
	defer func() { // also on Goexit
		mine = r.record(gen, t, v, err)
	}()
	v, err = r.reg.protected(&t.ctx, t)
	return true
}

// protected turns a panic into an error with its stack.
func (r *registered) protected(ctx context.Context, t *Task) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, &panicError{panicText(p), string(debug.Stack())}
		}
	}()
	return r.invoke(ctx, t)
}

func panicText(p any) (s string) {
	defer func() {
		if q := recover(); q != nil {
			s = fmt.Sprintf("panic with a %T that cannot be printed", p)
		}
	}()
	return fmt.Sprintf("panic: %v", p)
}

// record accounts a task that returned.
func (r *run) record(gen int, t *Task, v any, err error) bool {
	out := conclude(t, r.reg, r.c.Collect, v, err)
	t.ctx.end(errEnded)
	r.mu.Lock()
	if gen != r.gen {
		r.mu.Unlock()
		r.w.leftBehind(-1)
		return false
	}
	now := time.Now()
	out.took = now.Sub(r.taskAt)
	r.task, r.taskAt = nil, now
	ready := r.account(t, out)
	if len(r.buf.numbers) > 0 && (r.buf.bytes > broker.MaxStageBytes || r.pending == 0 && now.Sub(r.handed) > minHandOver && r.next < r.end) {
		ready = append(ready, r.handOver(now))
	}
	r.mu.Unlock()
	for _, b := range ready {
		r.w.settle(r, b, false)
	}
	if len(ready) > 0 {
		r.w.room.wait(r.w.life)
		r.mu.Lock()
		if gen == r.gen {
			r.taskAt = time.Time{}
		}
		r.mu.Unlock()
	}
	return true
}

// giveBack returns the tasks that have not started. The caller holds mu.
func (r *run) giveBack() {
	var numbers []int64
	for _, bt := range r.c.Tasks[r.next:r.end] {
		if _, done := r.skip[bt.Number]; !done {
			numbers = append(numbers, bt.Number)
		}
	}
	r.end = r.next
	if len(numbers) > 0 {
		r.returned(numbers)
	}
}

// returned reports numbers as given back. The caller holds mu.
func (r *run) returned(numbers []int64) {
	r.w.count.returned.Add(int64(len(numbers)))
	rep := r.report(broker.ReportReturned)
	rep.Numbers = numbers
	r.pending++
	r.w.reports.add(r.c.Shard, &entry{rep: rep, done: func() { r.stored(0) }}, nil)
}

// finish ends the execution: the slot is free, the reports may still be on their way.
func (r *run) finish(gen int) {
	r.mu.Lock()
	if gen != r.gen || r.executed {
		r.mu.Unlock()
		return
	}
	if r.next < r.end { // canceled before it came to them; after a stop there are none
		r.giveBack()
	}
	var last *batch
	if len(r.buf.numbers) > 0 {
		last = r.handOver(time.Now())
		last.last = true
	}
	r.pending++ // holds the run until everything is handed over
	r.executed = true
	r.mu.Unlock()
	if last != nil {
		r.w.settle(r, last, false)
		r.w.room.wait(r.w.life)
	}
	r.cancel(errEnded)
	if r.slot {
		r.w.slots.free(r.lane)
	}
	r.stored(0)
}

// stored notes that a batch is stored; with the last one of an executed run the chunk is acked.
func (r *run) stored(bytes int) {
	r.w.room.give(bytes)
	r.mu.Lock()
	r.pending--
	over := r.executed && r.pending == 0 && !r.settled
	if over {
		r.settled = true
	}
	msg := r.msg
	r.mu.Unlock()
	if over {
		if msg != nil {
			r.w.tell(msg.Ack())
		}
		r.w.forget(r, true)
	}
}

// adopt takes a redelivery of what this run already is.
func (r *run) adopt(d *delivery) {
	r.mu.Lock()
	settled := r.settled
	if !settled {
		r.msg = d.answer
	}
	r.mu.Unlock()
	if settled {
		r.w.tell(d.Ack())
	}
}

// yield gives back what has not started; the running task goes on.
func (r *run) yield() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asking && !r.executed {
		r.giveBack()
	}
}

// stop ends the run for good (ErrStopped) or for this worker (ErrDrained).
func (r *run) stop(cause error) {
	r.mu.Lock()
	if r.overAt.IsZero() {
		r.overAt = time.Now()
	}
	if errors.Is(cause, ErrStopped) {
		r.quiet = true
		r.end = r.next // nobody wants the rest
	} else if !r.asking {
		r.giveBack()
	}
	r.mu.Unlock()
	r.cancel(cause)
}

// tend is the keeper's visit: it keeps the message, hands over what waits behind a slow task, gives
// back what a long chunk has not started, and leaves behind who ignores the end of its context.
func (r *run) tend(now time.Time) {
	r.mu.Lock()
	msg, settled := r.msg, r.settled
	var b *batch
	leave := false
	if !r.asking && !r.executed {
		if len(r.buf.numbers) > 0 && r.pending == 0 {
			b = r.handOver(now)
		}
		if r.next < r.end && now.Sub(r.begun) > longTimes*plannedChunk {
			r.giveBack()
		}
		leave = r.ignoring(now)
	}
	r.mu.Unlock()
	if msg != nil && !settled {
		r.w.tell(msg.InProgress())
	}
	if b != nil {
		go r.w.settle(r, b, true)
	}
	if leave {
		r.leave(false)
	}
}

// ignoring tells whether the running task ignores the end of its context. The caller holds mu.
func (r *run) ignoring(now time.Time) bool {
	if r.task == nil || r.task.ctx.Err() == nil {
		return false
	}
	if !r.overAt.IsZero() {
		return now.Sub(r.overAt) >= patience
	}
	d, ok := r.task.ctx.Deadline()
	return ok && now.Sub(d) >= patience
}

// leave reports the running task for what ended its context and goes on without it. Its
// goroutine may run for ever; as long as there are not more of them than slots, the slot
// serves others.
// force is for the end of the worker, where slots no longer count.
func (r *run) leave(force bool) {
	r.mu.Lock()
	t := r.task
	if t == nil || !r.w.leftBehind(+1) && !force {
		r.mu.Unlock()
		return
	}
	r.gen++
	gen := r.gen
	r.task = nil
	ctx := &t.ctx
	cause := context.Cause(ctx)
	out := outcome{took: time.Since(r.taskAt)}
	te := taskError(ctx, fmt.Errorf("%w; the processor did not return within %v and was left behind", cause, patience))
	out.failed, out.drained = &te, errors.Is(cause, ErrDrained)
	ready := r.account(t, out)
	r.taskAt = time.Time{}
	r.mu.Unlock()
	for _, b := range ready {
		r.w.settle(r, b, true)
	}
	go r.loop(gen)
}
