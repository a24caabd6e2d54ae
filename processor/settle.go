package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// outcome is how one task ended.
type outcome struct {
	failed  *broker.TaskError // nil for success
	drained bool              // ended by the worker's end: given back
	value   any               // of a collected sub-task: []byte, or as returned if it is to be combined
	bytes   int
	result  []byte // of a whole step, JSON
	context []byte // what it adds to the workflow's, JSON
	mapped  bool
	emitted progress
	took    time.Duration
}

// conclude makes an outcome of what a processor returned.
func conclude(t *Task, reg *registered, collect bool, v any, err error) outcome {
	ctx := &t.ctx
	var out outcome
	p, mapped, merr := t.finish()
	out.mapped, out.emitted = mapped, p
	if err == nil {
		err = merr
	}
	switch {
	case err != nil:
	case t.c.Phase == broker.PhaseSub && !collect:
	case t.c.Phase == broker.PhaseSub && reg.combine != nil && !mapped:
		out.value, out.bytes = v, 64
	case t.c.Phase == broker.PhaseSub:
		var raw []byte
		raw, err = safely(func() ([]byte, error) { return encodeValue(v) })
		out.value, out.bytes = raw, len(raw)
	default:
		out.result, err = safely(func() ([]byte, error) { return encodeResult(v) })
		if err == nil {
			out.context, err = t.addedContext()
		}
	}
	if err != nil {
		te := taskError(ctx, err)
		out.failed = &te
		out.drained = errors.Is(context.Cause(ctx), ErrDrained)
	}
	return out
}

// safely runs an encoder that may call the user's MarshalJSON.
func safely(encode func() ([]byte, error)) (raw []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Cancel(fmt.Errorf("encode what the processor returned: %s", panicText(p)))
		}
	}()
	return encode()
}

// batch is what one report says: one failed or single task, or all successes since the last.
type batch struct {
	rep     broker.Report
	numbers []int64
	values  []any
	bytes   int
	logs    []*taskLog
	collect bool
	last    bool // with it the chunk is over
}

// batchBytes is what a batch counts for besides its data, so that room bounds their number too.
const batchBytes = 2 << 10

// account books an outcome; it returns what must be reported at once. The caller holds mu.
func (r *run) account(t *Task, out outcome) (ready []*batch) {
	t.mu.Lock()
	lines := t.lines
	t.mu.Unlock()
	number, attempt := t.t.Number, t.t.Attempt
	if out.failed != nil && out.drained {
		r.returned([]int64{number})
		return nil
	}
	if out.failed != nil || r.c.Phase != broker.PhaseSub || out.mapped {
		b := &batch{rep: r.report(broker.ReportSucceeded), numbers: []int64{number}, bytes: batchBytes + out.bytes + len(out.result) + len(out.context)}
		b.rep.Numbers, b.rep.TaskAttempt, b.rep.Duration, b.rep.Result = b.numbers, attempt, out.took, out.result
		if out.failed == nil {
			b.rep.Context = out.context
		}
		if out.mapped {
			p := out.emitted
			b.rep.Emitted, b.rep.EmittedHash, b.rep.StageFirst, b.rep.StageSeq, b.rep.Token = p.items, p.hash, p.first, p.last, p.token
		}
		if out.failed != nil {
			r.w.count.failed.Add(1)
			b.rep.Kind, b.rep.Error = broker.ReportFailed, *out.failed
			b.bytes += len(out.failed.Message) + len(out.failed.Stack)
		} else {
			r.w.count.succeeded.Add(1)
			if r.c.Phase == broker.PhaseSub && r.c.Collect {
				b.collect, b.values = true, []any{out.value}
			}
		}
		if lines != nil {
			b.logs = []*taskLog{lines}
		}
		b.last = len(r.c.Tasks) == 1
		r.pending++
		r.w.room.take(b.bytes)
		return []*batch{b}
	}
	r.w.count.succeeded.Add(1)
	if n := len(r.buf.numbers); n > 0 && (r.buf.rep.TaskAttempt != attempt || r.buf.bytes+out.bytes > maxBatchBytes) {
		ready = append(ready, r.handOver(time.Now()))
	}
	b := &r.buf
	if b.numbers == nil {
		b.rep = r.report(broker.ReportSucceeded)
		b.rep.TaskAttempt = attempt
		b.collect = r.c.Collect
		left := r.end - r.next + 1
		b.numbers = make([]int64, 0, left)
		if b.collect {
			b.values = make([]any, 0, left)
		}
	}
	b.numbers = append(b.numbers, number)
	b.rep.Duration += out.took
	b.bytes += out.bytes
	if b.collect {
		b.values = append(b.values, out.value)
	}
	if lines != nil {
		b.logs = append(b.logs, lines)
	}
	return ready
}

// handOver takes the finished tasks out of the run. The caller holds mu.
func (r *run) handOver(now time.Time) *batch {
	b := r.buf
	r.buf = batch{}
	r.handed = now
	b.rep.Numbers = b.numbers
	if len(b.numbers) == len(r.c.Tasks) {
		b.rep.Numbers = nil // the whole chunk
	}
	b.bytes += batchBytes + 8*len(b.numbers)
	r.pending++
	r.w.room.take(b.bytes)
	return &b
}

// settle stores the values of b and then its report. apart says that it already runs in a
// goroutine of its own; otherwise it returns as soon as nothing of the user's is left to run.
func (w *Worker) settle(r *run, b *batch, apart bool) {
	if !b.collect && len(b.logs) == 0 {
		w.tellOwner(r, b)
		return
	}
	var values [][]byte
	folded := false
	if b.collect {
		values, folded = w.fold(r, b)
	}
	if apart {
		w.store(r, b, values, folded)
		return
	}
	go w.store(r, b, values, folded)
}

func (w *Worker) tellOwner(r *run, b *batch) {
	var started *entry
	if b.last {
		started = r.started
	}
	bytes := b.bytes
	w.reports.add(r.c.Shard, &entry{rep: b.rep, done: func() { r.stored(bytes) }}, started)
}

// fold encodes the values of b, combined into one if the processor can.
func (w *Worker) fold(r *run, b *batch) (values [][]byte, folded bool) {
	if r.reg.combine != nil && len(b.values) > 1 && b.rep.Emitted < 0 {
		raw, err := combined(r.ctx, r.reg.combine, b.values)
		if err == nil {
			return [][]byte{raw}, true
		}
		w.log.Warn("values travel uncombined", "processor", r.reg.name, "instance", r.c.Instance, "err", err)
	}
	values = make([][]byte, 0, len(b.values))
	kept := make([]int64, 0, len(b.numbers))
	for i, v := range b.values {
		raw, err := safely(func() ([]byte, error) { return encodeValue(v) })
		if err != nil {
			w.failLate(r, b.numbers[i], b.rep.TaskAttempt, err)
			continue
		}
		values, kept = append(values, raw), append(kept, b.numbers[i])
	}
	if len(kept) < len(b.numbers) {
		b.numbers, b.rep.Numbers = kept, kept
	}
	return values, false
}

func combined(ctx context.Context, c Combiner, values []any) (raw []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("combine: %s", panicText(p))
		}
	}()
	v, err := c.Combine(ctx, values)
	if err != nil {
		return nil, fmt.Errorf("combine: %w", err)
	}
	return encodeValue(v)
}

// failLate fails a task that returned well, but whose value cannot travel.
func (w *Worker) failLate(r *run, number int64, attempt int32, err error) {
	w.count.succeeded.Add(-1)
	w.count.failed.Add(1)
	rep := r.report(broker.ReportFailed)
	rep.Numbers, rep.TaskAttempt = []int64{number}, attempt
	rep.Error = taskError(context.WithoutCancel(r.ctx), err)
	r.mu.Lock()
	r.pending++
	r.mu.Unlock()
	w.reports.add(r.c.Shard, &entry{rep: rep, done: func() { r.stored(0) }}, nil)
}

// store waits for the lines of the tasks, stores their values, and tells the owner. The values
// of a batch whose fold is small still go in as many messages as their bytes need.
func (w *Worker) store(r *run, b *batch, values [][]byte, folded bool) {
	for _, l := range b.logs {
		from, to := w.logs.shipped(l, lastPatience)
		if from > 0 && (b.rep.LogFrom == 0 || from < b.rep.LogFrom) {
			b.rep.LogFrom = from
		}
		b.rep.LogTo = max(b.rep.LogTo, to)
	}
	if !b.collect {
		w.tellOwner(r, b)
		return
	}
	if len(b.numbers) == 0 {
		r.stored(b.bytes)
		return
	}
	for len(values) > 0 && !folded {
		n := fitting(values)
		if n == len(values) {
			break
		}
		part := *b
		part.numbers, part.rep.Numbers, part.bytes, part.last = b.numbers[:n], b.numbers[:n], 0, false
		r.mu.Lock()
		r.pending++
		r.mu.Unlock()
		w.storeValues(r, &part, values[:n], false)
		b.numbers, values = b.numbers[n:], values[n:]
		b.rep.Numbers, b.rep.Duration = b.numbers, 0
	}
	w.storeValues(r, b, values, folded)
}

// fitting is how many of the values go into one message.
func fitting(values [][]byte) int {
	bytes := 0
	for i, v := range values {
		if bytes += len(v); i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(values)
}

func (w *Worker) storeValues(r *run, b *batch, values [][]byte, folded bool) {
	rb := &broker.ResultBatch{Instance: r.c.Instance, Run: r.c.Run, Numbers: b.numbers, Folded: folded, Values: values}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		seq, err := w.link.PublishResult(w.life, w.cfg.App, w.set(), rb)
		if err == nil {
			b.rep.ResultSeq = seq
			break
		}
		if w.life.Err() != nil {
			return
		}
		r.mu.Lock()
		quiet := r.quiet
		r.mu.Unlock()
		if quiet {
			break // stopped: the report without a sequence is stale, like all of this run
		}
		if errors.Is(err, broker.ErrTooLarge) {
			for _, n := range b.numbers {
				w.failLate(r, n, b.rep.TaskAttempt, Cancel(fmt.Errorf("store the value: %w", err)))
			}
			r.stored(b.bytes)
			return
		}
		if pause > time.Second {
			w.log.Warn("values cannot be stored; they are kept and tried again", "instance", r.c.Instance, "err", err)
		}
		sleep(w.life, pause)
	}
	w.tellOwner(r, b)
}

// stage and the other methods of env.

func (r *run) stage(_ *Task, b *broker.StageBatch, done func(uint64, error)) error {
	return r.w.link.Stage(r.w.cfg.App, r.w.set(), b, done)
}

func (r *run) staged(ctx context.Context, _ *Task) (uint64, error) {
	return r.w.link.StageUsed(ctx, r.w.cfg.App, r.w.set(), r.c.Instance, r.c.Run)
}

func (r *run) emitted(t *Task, p progress) {
	if r.c.Atomic {
		return
	}
	rep := r.report(broker.ReportEmitted)
	rep.Numbers, rep.TaskAttempt = []int64{t.t.Number}, t.t.Attempt
	rep.Emitted, rep.EmittedHash, rep.StageFirst, rep.StageSeq, rep.Token = p.items, p.hash, p.first, p.last, p.token
	r.w.reports.add(r.c.Shard, &entry{rep: rep}, nil)
}

func (r *run) checkpoint(ctx context.Context, t *Task, data []byte) error {
	rep := r.report(broker.ReportCheckpoint)
	rep.Numbers, rep.TaskAttempt, rep.Result = []int64{t.t.Number}, t.t.Attempt, data
	done := make(chan struct{})
	r.w.reports.add(r.c.Shard, &entry{rep: rep, done: func() { close(done) }}, nil)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) logHandler(t *Task) slog.Handler {
	l := &taskLog{instance: r.c.Instance, attempt: r.c.Attempt, number: t.t.Number}
	return newLineHandler(func(level slog.Level, at time.Time, text string) {
		t.mu.Lock()
		t.lines = l
		t.mu.Unlock()
		r.w.logs.add(l, level, at, text)
	})
}

func (r *run) results(*Task) source { return asked{r} }
