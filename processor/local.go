package processor

import (
	"context"
	"log/slog"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// Local runs single tasks in this process, without a broker, just as a Worker would: with its
// bounds, its handling of panics, and its encoding. Package processortest builds whole instances
// on it; use that in tests. The functions may be called from several goroutines. A nil one is
// a place where nothing is kept.
type Local struct {
	// Stage gets the batches a Map emits.
	Stage func(b *broker.StageBatch) error
	// Checkpoint gets the JSON of each checkpoint.
	Checkpoint func(data []byte) error
	// Log gets each line.
	Log func(level slog.Level, at time.Time, line string)
	// Page answers a reduce and a PostProcess: see broker.AskReply.
	Page func(kind broker.AskKind, from uint64) (*broker.AskReply, error)
	// Read gives the results in the ranges of the pages.
	Read func(ranges []broker.Range, each func(*broker.ResultBatch) error) error
}

// Outcome is how a task of a Local ended.
type Outcome struct {
	Err     *broker.TaskError // nil for success
	Value   any               // what the processor returned
	Result  []byte            // JSON; of a sub-task its value as it travels
	Emitted int64             // sub-tasks mapped; -1 if Map was not called
	Context []byte            // JSON object of what AddContext added; nil for nothing
}

// Run runs one task of the chunk. Sub-tasks of a chunk with Collect give their value.
func (l *Local) Run(ctx context.Context, p Processor, c *broker.Chunk, t *broker.Task) Outcome {
	reg := newRegistered(c.Processor, p)
	if step := reg.lacks(c); step != "" {
		return Outcome{Err: &broker.TaskError{Kind: broker.ErrorFailed, Message: "the processor has no " + step}, Emitted: -1}
	}
	reg.combine = nil
	task := &Task{c: c, t: t, env: local{l}}
	task.ctx.init(ctx, c.TaskTimeout, time.Now())
	var (
		v   any
		err error = &panicError{value: "the processor called runtime.Goexit"}
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = reg.protected(&task.ctx, task)
	}()
	<-done
	out := conclude(task, reg, c.Collect, v, err)
	task.ctx.end(errEnded)
	o := Outcome{Err: out.failed, Value: v, Result: out.result, Emitted: -1, Context: out.context}
	if out.mapped {
		o.Emitted = out.emitted.items
	}
	if raw, ok := out.value.([]byte); ok {
		o.Result = raw
	}
	return o
}

// Combine folds what Process returned with the processor's Combine, into a value as it travels; ok
// is false if there is no Combine or it failed.
func (l *Local) Combine(ctx context.Context, p Processor, values []any) (raw []byte, ok bool) {
	reg := newRegistered("", p)
	if reg.combine == nil {
		return nil, false
	}
	raw, err := combined(ctx, reg.combine, values)
	return raw, err == nil
}

// local is the env of a Local.
type local struct{ l *Local }

func (e local) stage(_ *Task, b *broker.StageBatch, done func(uint64, error)) error {
	var err error
	if e.l.Stage != nil {
		err = e.l.Stage(b)
	}
	done(uint64(b.First)+1, err)
	return nil
}

func (e local) staged(context.Context, *Task) (uint64, error) { return 0, nil }
func (e local) emitted(*Task, progress)                       {}

func (e local) checkpoint(_ context.Context, _ *Task, data []byte) error {
	if e.l.Checkpoint == nil {
		return nil
	}
	return e.l.Checkpoint(data)
}

func (e local) logHandler(*Task) slog.Handler {
	return newLineHandler(func(level slog.Level, at time.Time, line string) {
		if e.l.Log != nil {
			e.l.Log(level, at, line)
		}
	})
}

func (e local) results(*Task) source { return e }

func (e local) page(_ context.Context, kind broker.AskKind, from uint64) (*broker.AskReply, error) {
	if e.l.Page == nil {
		return &broker.AskReply{}, nil
	}
	return e.l.Page(kind, from)
}

func (e local) read(_ context.Context, ranges []broker.Range, each func(*broker.ResultBatch) error) error {
	if e.l.Read == nil || len(ranges) == 0 {
		return nil
	}
	return e.l.Read(ranges, each)
}
