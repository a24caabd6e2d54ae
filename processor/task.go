package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fanjet/fanjet/broker"
)

// Modes of an instance, as Task.Mode gives them.
const (
	ModeStandalone = "standalone"
	ModeBroadcast  = "broadcast"
	ModeMap        = "map"
	ModeMapReduce  = "map_reduce"
)

// env is the world a task runs in: a Worker's, or a Local one of a test.
type env interface {
	// stage stores one batch of items; done is called once, maybe at once.
	stage(t *Task, b *broker.StageBatch, done func(seq uint64, err error)) error
	// staged is the number of batches the map run holds in the stage.
	staged(ctx context.Context, t *Task) (uint64, error)
	// emitted tells that more items of the mapper are stored. It must not block.
	emitted(t *Task, p progress)
	checkpoint(ctx context.Context, t *Task, data []byte) error
	logHandler(t *Task) slog.Handler
	results(t *Task) source
}

// Task is one thing to do: the root task of an instance, a sub-task of a map, a share of a
// broadcast, or the reduce. It lives as long as the call it is handed to and works with that
// call's context. Its methods are safe for concurrent use, except that concurrent calls of
// Map follow one another.
type Task struct {
	c   *broker.Chunk
	t   *broker.Task
	env env
	ctx taskContext

	mu     sync.Mutex // guards what follows
	ended  bool
	logger *slog.Logger
	lines  *taskLog                   // of a Worker, once something was logged
	saved  []byte                     // the last checkpoint made by this run
	added  map[string]json.RawMessage // to the workflow's context

	mapping sync.Mutex // one Map at a time
	mapper  *mapper
}

// App is the app the instance belongs to.
func (t *Task) App() string { return t.c.App }

// Job is the name of the job, empty for an inline processor of a workflow.
func (t *Task) Job() string { return t.c.Job }

// Processor is the name this Processor is registered by.
func (t *Task) Processor() string { return t.c.Processor }

// Mode is the mode of the instance: one of the Mode constants.
func (t *Task) Mode() string { return t.c.Mode }

// Instance is the id of the firing this task belongs to.
func (t *Task) Instance() int64 { return t.c.Instance }

// Attempt is the attempt of the instance, from 1.
func (t *Task) Attempt() int { return int(t.c.Attempt) }

// Number is 0 for the root task, from 1 for sub-tasks, and the index of a share.
func (t *Task) Number() int64 { return t.t.Number }

// TaskAttempt is the attempt of this task, from 1.
func (t *Task) TaskAttempt() int { return int(t.t.Attempt) }

// Name is the name given to Map for a sub-task, and empty otherwise.
func (t *Task) Name() string { return t.c.Name }

// Key is the business key of the instance, or empty.
func (t *Task) Key() string { return t.c.Key }

// ScheduledAt is when the fire was due: the time to compute with, whatever the clock says
// while the task runs. It is the zero time when nothing was scheduled.
func (t *Task) ScheduledAt() time.Time { return fromMillis(t.c.ScheduledAt) }

// CreatedAt is when the instance was created.
func (t *Task) CreatedAt() time.Time { return fromMillis(t.c.CreatedAt) }

// Workflow is the id of the workflow instance, or 0 outside of one.
func (t *Task) Workflow() int64 { return t.c.Workflow }

// Node is the id of the workflow's node, or empty outside of one.
func (t *Task) Node() string { return t.c.Node }

// IsRoot tells the root task from sub-tasks, shares and the reduce.
func (t *Task) IsRoot() bool { return t.c.Phase == broker.PhaseRoot }

// Shard is the index of this share among all shares of a broadcast, both fixed when it
// fired; (0, 1) outside of a broadcast's shares.
func (t *Task) Shard() (index, total int) {
	if t.c.Phase != broker.PhaseShare {
		return 0, 1
	}
	return int(t.t.Number), int(t.c.ShardTotal)
}

// Params decodes the params of the instance, which are JSON, into v. Without params v is
// left as it is. Returned from Process the error fails the task as bad input.
func (t *Task) Params(v any) error {
	if len(t.c.Params) == 0 {
		return nil
	}
	if err := json.Unmarshal(t.c.Params, v); err != nil {
		return &inputError{fmt.Errorf("decode params as %T: %w", v, err)}
	}
	return nil
}

// RawParams are the params as they came. They must not be changed.
func (t *Task) RawParams() []byte { return t.c.Params }

// Item decodes the item of a sub-task into v: into a *[]byte as it is, else from JSON.
// Returned from Process the error fails the task as bad input.
func (t *Task) Item(v any) error {
	if err := decode(t.t.Item, v); err != nil {
		return &inputError{fmt.Errorf("decode item of sub-task %d as %T: %w", t.t.Number, v, err)}
	}
	return nil
}

// RawItem is the item of a sub-task as it came. It must not be changed.
func (t *Task) RawItem() []byte { return t.t.Item }

// Checkpoint keeps v, as JSON of at most broker.MaxCheckpointBytes, for the next attempt or
// run of this task; only the last one is kept. It returns when the broker has stored it, or
// with the cause of the context's end.
func (t *Task) Checkpoint(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode checkpoint: %w", err)
	}
	if len(raw) > broker.MaxCheckpointBytes {
		return fmt.Errorf("the checkpoint has %d bytes; at most %d are kept", len(raw), broker.MaxCheckpointBytes)
	}
	if t.over() {
		return errEnded
	}
	if err := t.env.checkpoint(&t.ctx, t, raw); err != nil {
		return fmt.Errorf("store checkpoint: %w", err)
	}
	t.mu.Lock()
	t.saved = raw
	t.mu.Unlock()
	return nil
}

// Checkpointed decodes the last checkpoint into v, be it of this run or of an earlier one,
// and tells whether there was one.
func (t *Task) Checkpointed(v any) (bool, error) {
	t.mu.Lock()
	raw := t.saved
	t.mu.Unlock()
	if raw == nil {
		raw = t.t.Checkpoint
	}
	if len(raw) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, &inputError{fmt.Errorf("decode checkpoint as %T: %w", v, err)}
	}
	return true, nil
}

// AddContext adds a value, as JSON, to the context of the workflow instance, where later nodes
// read it as ${ context.key }. It counts when the task succeeds, together with its result: if
// several nodes add the same key the last to end wins, and no other key is touched.
//
// Only the task whose result is that of the node can add: that of a standalone node, Reduce,
// and PostProcess; others get an error. What one task adds is at most
// broker.MaxContextBytes in all, or this call is an error and adds nothing; the whole context
// is bounded by the workflow's context_limit, or the node fails with the sizes. Outside of a
// workflow it is an error.
func (t *Task) AddContext(key string, v any) error {
	switch {
	case t.c.Workflow == 0:
		return Cancel(errors.New("add to the context: the task belongs to no workflow"))
	case t.c.Phase == broker.PhaseRoot && t.c.Mode == ModeStandalone, t.c.Phase == broker.PhaseRoot && t.c.Mode == "":
	case t.c.Phase == broker.PhaseReduce, t.c.Phase == broker.PhasePost:
	default:
		return Cancel(errors.New("add to the context: only a standalone task, Reduce and PostProcess can; let one of them add what the others give"))
	}
	if key == "" || len(key) > maxContextKey || !utf8.ValidString(key) {
		return Cancel(fmt.Errorf("add to the context: the key %.80q must be 1 to %d bytes of UTF-8", key, maxContextKey))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %q for the context: %w", key, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errEnded
	}
	size := 2
	for k, old := range t.added {
		if k != key {
			size += len(k) + len(old) + 4
		}
	}
	if size += len(key) + len(raw) + 4; size > broker.MaxContextBytes {
		return fmt.Errorf("add to the context: with the %d bytes of %q the task would add %d, at most %d are allowed; pass large values as results",
			len(raw), key, size, broker.MaxContextBytes)
	}
	if t.added == nil {
		t.added = map[string]json.RawMessage{}
	}
	t.added[key] = raw
	return nil
}

const maxContextKey = 255

// addedContext is what AddContext added, nil for nothing.
func (t *Task) addedContext() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.added) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(t.added)
	if err != nil {
		return nil, fmt.Errorf("encode what is added to the context: %w", err)
	}
	return raw, nil
}

// Logger writes to the log of the task, where the console shows it. It never blocks for
// long: when the broker cannot take lines as fast as they come, some are dropped and a mark
// says how many. A line is cut at 8 KiB with a mark.
func (t *Task) Logger() *slog.Logger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logger == nil {
		t.logger = slog.New(t.env.logHandler(t))
	}
	return t.logger
}

// Map emits items as sub-tasks: each becomes a task of this same Processor, with the given
// name as its Name and the item as its Item, run by any worker of the app. items is a slice or an
// array of any type, an iter.Seq[T], or an iter.Seq2[T, error] that ends at its first error. Items
// of type []byte travel as they are, all others by encoding/json. An iterator is read as the
// broker takes the items, in constant memory.
//
// Map returns when all items are stored. It may be called several times. A mapper that runs
// again must emit the same items in the same order, or the run fails. Errors worth knowing:
// ErrNoRoom, and an item of more than broker.MaxItemBytes (its index is named). A task whose Map
// failed fails, even if its processor returns no error: sub-tasks would be missing silently. Map
// works in the modes map and map_reduce, in the root task and in sub-tasks.
func (t *Task) Map(name string, items any) error {
	seq, err := itemsOf(items)
	if err != nil {
		return err
	}
	return t.mapEach(name, func(emit func([]byte) error) error {
		for v, err := range seq {
			if err != nil {
				return fmt.Errorf("read items of map %q: %w", name, err)
			}
			raw, err := encode(v)
			if err != nil {
				return Cancel(fmt.Errorf("encode item %d of map %q: %w", t.mapper.next, name, err))
			}
			if err := emit(raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// emitList maps a list that came with the root task: each element is an item. It stands for
// the processor, which is called for the items only.
func (t *Task) emitList(list []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return &inputError{fmt.Errorf("decode the list of the node: %w", err)}
	}
	return t.mapEach(t.c.Node, func(emit func([]byte) error) error {
		for _, item := range items {
			if err := emit(item); err != nil {
				return err
			}
		}
		return nil
	})
}

// mapEach runs fill, whose emits are staged.
func (t *Task) mapEach(name string, fill func(emit func([]byte) error) error) error {
	if t.over() {
		return errEnded
	}
	if t.c.Mode != ModeMap && t.c.Mode != ModeMapReduce {
		return Cancel(fmt.Errorf("map %q: the mode of the instance is %s; a job that maps has mode map or map_reduce", name, t.c.Mode))
	}
	if t.c.Phase != broker.PhaseRoot && t.c.Phase != broker.PhaseSub {
		return Cancel(fmt.Errorf("map %q: only the root task and sub-tasks can map", name))
	}
	t.mapping.Lock()
	defer t.mapping.Unlock()
	if t.mapper == nil {
		t.mapper = newMapper(t)
	}
	m := t.mapper
	m.name = name
	if err := fill(m.add); err != nil {
		m.fail(err)
		return err
	}
	if err := m.flush(); err != nil {
		m.fail(err)
		return err
	}
	return nil
}

func (t *Task) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// finish ends the task and tells what it mapped. The error is that of a Map that failed.
func (t *Task) finish() (p progress, mapped bool, err error) {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	if !t.mapping.TryLock() {
		return progress{}, true, errors.New("the processor returned while its call of Map still ran")
	}
	defer t.mapping.Unlock()
	if t.mapper == nil {
		return progress{}, false, nil
	}
	return t.mapper.progress(), true, t.mapper.failed
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

var errItems = errors.New("items must be a slice, an array, an iter.Seq[T] or an iter.Seq2[T, error]")
