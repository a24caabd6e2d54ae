package processortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/processor"
)

// Task is the instance to run. The zero value is a standalone one without params.
type Task struct {
	// Mode is one of the Mode constants of processor; default standalone.
	Mode string
	// Params are encoded as JSON; a json.RawMessage travels as it is.
	Params any
	// Item, if not nil, makes this one sub-task with that item instead of a whole instance, and
	// Name is its name. A []byte travels as it is.
	Item any
	Name string
	// Workers is the number of shares of a broadcast, and of sub-tasks that run at once. Default 1,
	// which makes the order of sub-tasks certain.
	Workers int
	// Attempts of each task; default 1.
	Attempts int
	// MaxFailed is how many sub-tasks or shares may fail.
	MaxFailed int
	// TaskTimeout of each task; 0 is none.
	TaskTimeout time.Duration
	// Checkpoint, if not nil, is what an earlier attempt of the root task left behind.
	Checkpoint any
	// What the task tells of itself. With a Node it belongs to a workflow and may add to the
	// context.
	Job, Key, Node  string
	ScheduledAt     time.Time
	Instance        int64 // default 1
	InstanceAttempt int   // default 1
}

// Outcome is what came of it.
type Outcome struct {
	// Err is nil if the instance succeeded. A *TaskError if a task failed it.
	Err error
	// Result of the instance, JSON; of a single sub-task its value as it travels.
	Result json.RawMessage
	// Context is what the last step added to the context of its workflow; nil for nothing.
	Context json.RawMessage
	// SubTasks is how many sub-tasks were mapped.
	SubTasks int
	// Failed are the sub-tasks that failed in their last attempt.
	Failed []processor.Failure
	// Shares of a broadcast, by index.
	Shares []processor.Share
	// Runs is how many times a step of the processor ran, all attempts counted.
	Runs int
	// Lines are what was logged, as text.
	Lines []string
	// Checkpoints are all that were made, in order.
	Checkpoints []json.RawMessage
}

// Decode decodes the result into v.
func (o *Outcome) Decode(v any) error {
	if err := json.Unmarshal(o.Result, v); err != nil {
		return fmt.Errorf("decode result as %T: %w", v, err)
	}
	return nil
}

// TaskError is the failure of a task.
type TaskError struct {
	Step string // "root", "sub-task 7", "reduce", "pre", "share 2", "post"
	broker.TaskError
}

// Error gives the step and the message.
func (e *TaskError) Error() string { return e.Step + ": " + e.Message }

// Run runs the instance to its end, with the context of the test. It fails the test only if the
// Task itself is wrong; what the processor did is in the Outcome.
func Run(t testing.TB, p processor.Processor, task Task) *Outcome {
	t.Helper()
	out, err := execute(t.Context(), p, task)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Execute is Run without a test, for examples. What is wrong with the Task is the Outcome's Err.
func Execute(ctx context.Context, p processor.Processor, task Task) *Outcome {
	out, err := execute(ctx, p, task)
	if err != nil {
		return &Outcome{Err: err}
	}
	return out
}

// instance is one running instance.
type instance struct {
	p     processor.Processor
	task  Task
	chunk broker.Chunk

	mu    sync.Mutex
	out   *Outcome
	items []broker.Task // sub-tasks not run yet
	names []string      // and their names
	ran   []value
}

// value is what a sub-task returned.
type value struct {
	number int64
	raw    []byte
	plain  any
}

func execute(ctx context.Context, p processor.Processor, task Task) (*Outcome, error) {
	if p == nil {
		return nil, errors.New("processortest: the processor is nil")
	}
	task.Workers, task.Attempts = max(1, task.Workers), max(1, task.Attempts)
	if task.Mode == "" {
		task.Mode = processor.ModeStandalone
	}
	in := &instance{p: p, task: task, out: &Outcome{}}
	in.chunk = broker.Chunk{
		ChunkKey: broker.ChunkKey{Instance: max(1, task.Instance), Attempt: int32(max(1, task.InstanceAttempt)), Run: 1, Chunk: 1},
		App:      "test", Mode: task.Mode, Processor: "test", Job: task.Job, Key: task.Key, Node: task.Node,
		CreatedAt: time.Now().UnixMilli(), TaskTimeout: task.TaskTimeout,
		Collect: task.Mode == processor.ModeMapReduce,
	}
	if task.Node != "" {
		in.chunk.Workflow = 1
	}
	if !task.ScheduledAt.IsZero() {
		in.chunk.ScheduledAt = task.ScheduledAt.UnixMilli()
	}
	var root broker.Task
	for _, x := range []struct {
		what string
		from any
		to   *[]byte
	}{{"params", task.Params, &in.chunk.Params}, {"checkpoint", task.Checkpoint, &root.Checkpoint}} {
		if x.from == nil {
			continue
		}
		raw, err := json.Marshal(x.from)
		if err != nil {
			return nil, fmt.Errorf("processortest: encode %s: %w", x.what, err)
		}
		*x.to = raw
	}
	switch task.Mode {
	case processor.ModeBroadcast:
		in.broadcast(ctx)
	case processor.ModeStandalone, processor.ModeMap, processor.ModeMapReduce:
		if task.Item != nil {
			return in.out, in.single(ctx)
		}
		in.whole(ctx, root)
	default:
		return nil, fmt.Errorf("processortest: no mode %q", task.Mode)
	}
	return in.out, nil
}

// step runs one task with its attempts.
func (in *instance) step(ctx context.Context, phase broker.Phase, name string, t broker.Task, more func(*broker.Chunk, *processor.Local)) (processor.Outcome, *TaskError) {
	c := in.chunk
	c.Phase, c.Name = phase, name
	first := 0 // where the items of an earlier attempt end
	for attempt := 1; ; attempt++ {
		t.Attempt = int32(attempt)
		var staged [][]byte
		l := &processor.Local{
			Checkpoint: func(data []byte) error {
				in.mu.Lock()
				defer in.mu.Unlock()
				t.Checkpoint = data
				in.out.Checkpoints = append(in.out.Checkpoints, data)
				return nil
			},
			Log: func(_ slog.Level, _ time.Time, line string) {
				in.mu.Lock()
				defer in.mu.Unlock()
				in.out.Lines = append(in.out.Lines, line)
			},
			Stage: func(b *broker.StageBatch) error {
				in.mu.Lock()
				defer in.mu.Unlock()
				for _, item := range b.Items {
					staged = append(staged, item)
					if len(staged) > first { // an earlier attempt emitted the ones before
						in.emit(b.Name, item)
					}
				}
				return nil
			},
		}
		if more != nil {
			more(&c, l)
		}
		in.mu.Lock()
		in.out.Runs++
		in.mu.Unlock()
		task := t
		o := l.Run(ctx, in.p, &c, &task)
		first = max(first, len(staged))
		if o.Err == nil {
			return o, nil
		}
		if attempt >= in.task.Attempts || o.Err.Kind == broker.ErrorPermanent || ctx.Err() != nil {
			return o, &TaskError{stepName(phase, t.Number), *o.Err}
		}
	}
}

func stepName(phase broker.Phase, number int64) string {
	switch phase {
	case broker.PhaseSub:
		return fmt.Sprintf("sub-task %d", number)
	case broker.PhaseShare:
		return fmt.Sprintf("share %d", number)
	case broker.PhaseReduce:
		return "reduce"
	case broker.PhasePre:
		return "pre"
	case broker.PhasePost:
		return "post"
	case broker.PhaseRoot:
		return "root"
	default:
		return fmt.Sprintf("step %d", phase)
	}
}

// emit adds a sub-task. The caller holds mu.
func (in *instance) emit(name string, item []byte) {
	in.out.SubTasks++
	in.items = append(in.items, broker.Task{Number: int64(in.out.SubTasks), Item: item})
	in.names = append(in.names, name)
}

// single runs one sub-task.
func (in *instance) single(ctx context.Context) error {
	raw, ok := in.task.Item.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(in.task.Item); err != nil {
			return fmt.Errorf("processortest: encode item: %w", err)
		}
	}
	in.chunk.Collect = true
	if in.chunk.Mode == processor.ModeStandalone {
		in.chunk.Mode = processor.ModeMapReduce
	}
	o, failed := in.step(ctx, broker.PhaseSub, in.task.Name, broker.Task{Number: 1, Item: raw}, nil)
	in.out.Result = o.Result
	if failed != nil {
		in.out.Err = failed
	}
	return nil
}

// whole runs the root task, what it maps, and the reduce.
func (in *instance) whole(ctx context.Context, root broker.Task) {
	o, failed := in.step(ctx, broker.PhaseRoot, "", root, nil)
	mapperFailed := failed
	in.subTasks(ctx, &mapperFailed)
	switch {
	case mapperFailed != nil:
		in.out.Err = mapperFailed
	case len(in.out.Failed) > in.task.MaxFailed:
		in.out.Err = fmt.Errorf("%d of %d sub-tasks failed, %d may; the first: sub-task %d: %s",
			len(in.out.Failed), in.out.SubTasks, in.task.MaxFailed, in.out.Failed[0].Number, in.out.Failed[0].Message)
	case in.task.Mode == processor.ModeMapReduce:
		in.reduce(ctx)
	default:
		in.out.Result, in.out.Context = o.Result, o.Context
	}
}

// subTasks runs what was mapped, and what that maps, Workers at a time.
func (in *instance) subTasks(ctx context.Context, mapperFailed **TaskError) {
	for {
		in.mu.Lock()
		items, names := in.items, in.names
		in.items, in.names = nil, nil
		in.mu.Unlock()
		if len(items) == 0 {
			return
		}
		next := make(chan int)
		var wg sync.WaitGroup
		for range in.task.Workers {
			wg.Go(func() {
				for i := range next {
					in.subTask(ctx, names[i], items[i], mapperFailed)
				}
			})
		}
		for i := range items {
			next <- i
		}
		close(next)
		wg.Wait()
	}
}

func (in *instance) subTask(ctx context.Context, name string, t broker.Task, mapperFailed **TaskError) {
	o, failed := in.step(ctx, broker.PhaseSub, name, t, nil)
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case failed == nil:
		in.ran = append(in.ran, value{t.Number, o.Result, o.Value})
	case o.Emitted > 0 && *mapperFailed == nil:
		*mapperFailed = failed
	default:
		in.out.Failed = append(in.out.Failed, processor.Failure{Number: t.Number, Message: failed.Message})
	}
}

// foldOf is how many values share a fold: few, so that a Combine sees its own folds in a reduce.
const foldOf = 3

func (in *instance) reduce(ctx context.Context) {
	var batches []*broker.ResultBatch
	for rest := in.ran; len(rest) > 0; {
		part := rest[:min(foldOf, len(rest))]
		rest = rest[len(part):]
		b := &broker.ResultBatch{}
		var plain []any
		for _, v := range part {
			b.Numbers, b.Values, plain = append(b.Numbers, v.number), append(b.Values, v.raw), append(plain, v.plain)
		}
		if raw, ok := new(processor.Local).Combine(ctx, in.p, plain); ok {
			b.Folded, b.Values = true, [][]byte{raw}
		}
		batches = append(batches, b)
	}
	page := &broker.AskReply{Failed: int64(len(in.out.Failed)), Total: int64(in.out.SubTasks)}
	for _, f := range in.out.Failed[:min(100, len(in.out.Failed))] {
		page.Errors = append(page.Errors, broker.NumberedError{Number: f.Number, Message: f.Message})
	}
	if len(batches) > 0 {
		page.Results = []broker.Range{{First: 1, Last: uint64(len(batches))}}
	}
	o, failed := in.step(ctx, broker.PhaseReduce, "", broker.Task{}, func(_ *broker.Chunk, l *processor.Local) {
		l.Page = func(broker.AskKind, uint64) (*broker.AskReply, error) { return page, nil }
		l.Read = func(_ []broker.Range, each func(*broker.ResultBatch) error) error {
			for _, b := range batches {
				if err := each(b); err != nil {
					return err
				}
			}
			return nil
		}
	})
	in.out.Result, in.out.Context = o.Result, o.Context
	if failed != nil {
		in.out.Err = failed
	}
}

// broadcast runs pre, one share per worker, and post.
func (in *instance) broadcast(ctx context.Context) {
	if _, failed := in.step(ctx, broker.PhasePre, "", broker.Task{}, nil); failed != nil {
		in.out.Err = failed
		return
	}
	n := in.task.Workers
	in.chunk.ShardTotal = int32(n)
	in.out.Shares = make([]processor.Share, n)
	page := &broker.AskReply{Total: int64(n), Shares: make([]broker.Share, n)}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			o, failed := in.step(ctx, broker.PhaseShare, "", broker.Task{Number: int64(i)}, nil)
			s := processor.Share{Index: i, Worker: fmt.Sprintf("worker-%d", i), OK: failed == nil, Result: o.Result}
			if failed != nil {
				s.Error = failed.Message
			}
			in.out.Shares[i] = s
			page.Shares[i] = broker.Share{Index: int64(i), Worker: s.Worker, OK: s.OK, Result: s.Result, Error: s.Error}
		})
	}
	wg.Wait()
	for _, s := range in.out.Shares {
		if !s.OK {
			page.Failed++
		}
	}
	o, failed := in.step(ctx, broker.PhasePost, "", broker.Task{}, func(_ *broker.Chunk, l *processor.Local) {
		l.Page = func(broker.AskKind, uint64) (*broker.AskReply, error) { return page, nil }
	})
	in.out.Result, in.out.Context = o.Result, o.Context
	switch {
	case failed != nil:
		in.out.Err = failed
	case page.Failed > int64(in.task.MaxFailed):
		in.out.Err = fmt.Errorf("%d of %d shares failed, %d may", page.Failed, n, in.task.MaxFailed)
	}
}
