package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/internal/child"
)

// turn is one task and the program that has it.
type turn struct {
	ctx  context.Context
	task *processor.Task
	p    *program
	id   int64

	heard     bool  // the program said something about the task
	over      bool  // the program ended the task
	alive     bool  // the program can take another one
	untouched bool  // the program ended before it read the task
	ahead     *said // read and not handled
	progress  time.Time
}

// maxTries bounds the programs tried for one task.
const maxTries = 3

// run runs a step of a task. feed, if not nil, writes the lines that follow the task.
func (p *Pool) run(ctx context.Context, task *processor.Task, name, step string, feed func(write func(input) error) error) (any, error) {
	for try := 1; ; try++ {
		x, err := p.take(ctx)
		if err != nil {
			return nil, err
		}
		x.tasks++
		t := &turn{ctx: ctx, task: task, p: x, id: x.tasks}
		v, err := t.run(name, step, feed)
		if t.alive {
			p.park(x)
		} else {
			x.end()
			p.drop()
		}
		if t.untouched && try < maxTries && ctx.Err() == nil {
			p.cfg.Logger.Warn("a program ended between two tasks; another one is tried", "program", x.c.PID(), "err", err)
			continue
		}
		return v, err
	}
}

func (t *turn) run(name, step string, feed func(write func(input) error) error) (any, error) {
	t.alive = true
	first, err := t.order(name, step)
	if err != nil {
		return nil, err
	}
	x := t.p
	x.stderr.Forget()
	x.out.Switch(t.task.Logger())
	defer func() { x.out.Switch(x.quiet()) }()
	stop := make(chan struct{})
	var feeding sync.WaitGroup
	var fed error // complete after feeding.Wait
	feeding.Go(func() { fed = t.feed(first, feed, stop) })
	v, err := t.converse()
	var bad *protocolError
	switch {
	case t.ctx.Err() != nil:
		t.alive = t.cancel(reason(context.Cause(t.ctx)))
		err = context.Cause(t.ctx)
	case errors.As(err, &bad), errors.Is(err, errClosed):
		t.untouched = errors.Is(err, errClosed) && !t.heard
		err, t.alive = x.fail(err), false
	case errors.Is(err, errRefused):
		t.alive = t.cancel("refused")
	}
	close(stop)
	if t.alive {
		x.hurry(x.cfg.Grace)
	}
	feeding.Wait()
	t.untouched = t.untouched && (x.unread || errors.Is(fed, errFirst))
	if errors.Is(fed, errHalf) {
		t.alive = false // the next task would begin in the middle of a line
	}
	return v, err
}

// order is the task line.
func (t *turn) order(name, step string) (*order, error) {
	task := t.task
	o := &order{
		Type: typeTask, ID: t.id, Processor: name, Step: step, Mode: task.Mode(), App: task.App(), Job: task.Job(),
		Instance: task.Instance(), Attempt: task.Attempt(), Number: task.Number(), TaskTry: task.TaskAttempt(), Key: task.Key(),
		Name: task.Name(), Workflow: task.Workflow(), Node: task.Node(), Params: task.RawParams(),
	}
	if at := task.ScheduledAt(); !at.IsZero() {
		o.Scheduled = at.UTC().Format(time.RFC3339Nano)
	}
	if step == stepShare {
		i, n := task.Shard()
		o.Shard, o.Shards = &i, n
	}
	if at, ok := t.ctx.Deadline(); ok {
		o.Timeout = max(1, time.Until(at).Milliseconds())
	}
	if _, err := task.Checkpointed(&o.Checkpoint); err != nil {
		return nil, err
	}
	if item := task.RawItem(); item != nil {
		o.Item, o.ItemBytes = jsonOrBytes(item)
	}
	return o, nil
}

// jsonOrBytes tells JSON from other bytes.
func jsonOrBytes(raw []byte) (json.RawMessage, []byte) {
	if utf8.Valid(raw) && json.Valid(raw) {
		return raw, nil
	}
	return nil, raw
}

var (
	errHalf  = errors.New("a line was written in part")
	errFirst = fmt.Errorf("the task line: %w", errHalf)
	errStale = errors.New("the task is over")
	// errRefused is wrapped by errors that end a task on the worker's side.
	errRefused = errors.New("refused")
)

// feed writes the task and what follows it, until stop is closed.
func (t *turn) feed(first *order, more func(write func(input) error) error, stop <-chan struct{}) error {
	if t.p.write(first) != nil {
		return errFirst
	}
	if more == nil {
		return nil
	}
	return more(func(in input) error {
		select {
		case <-stop:
			return errStale
		default:
		}
		in.ID = t.id
		if t.p.write(in) != nil {
			return errHalf
		}
		return nil
	})
}

// next is the next line about this task.
func (t *turn) next() (*said, error) {
	if s := t.ahead; s != nil {
		t.ahead = nil
		return s, nil
	}
	for {
		select {
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx)
		case l := <-t.p.lines:
			switch {
			case l.err != nil:
				return nil, l.err
			case l.said.ID == t.id:
				t.heard = true
				return l.said, nil
			case l.said.ID > 0 && l.said.ID < t.id || l.said.Type == typeLog || l.said.Type == typeProgress:
				continue // of an earlier task
			}
			return nil, broken("the program wrote a line of type %q with id %d while it has task %d", l.said.Type, l.said.ID, t.id)
		}
	}
}

// converse handles what the program says, to the end of the task.
func (t *turn) converse() (any, error) {
	for {
		s, err := t.next()
		if err != nil {
			return nil, err
		}
		switch s.Type {
		case typeLog, typeProgress:
			t.note(s)
		case typeCheckpoint:
			if err := t.task.Checkpoint(s.Value); err != nil {
				return nil, refused(err)
			}
		case typeMap:
			if err := t.task.Map(s.Name, t.items(s)); err != nil {
				return nil, refused(err)
			}
		case typeResult:
			t.over = true
			if len(s.Value) == 0 {
				return nil, nil
			}
			return []byte(s.Value), nil
		case typeError:
			t.over = true
			return nil, t.failure(s)
		default:
			return nil, broken("the program wrote a line of type %q, which this protocol does not have", s.Type)
		}
	}
}

// refused ends the task for an error of the worker's side, unless the program is the cause.
func refused(err error) error {
	var bad *protocolError
	if errors.As(err, &bad) || errors.Is(err, errClosed) {
		return err
	}
	return &refusal{err}
}

type refusal struct{ err error }

func (r *refusal) Error() string        { return r.err.Error() }
func (r *refusal) Unwrap() error        { return r.err }
func (r *refusal) Is(target error) bool { return target == errRefused }

// items are those of s and of all that follow under the same name: they share batches. Lines are
// read as the broker takes the items.
func (t *turn) items(s *said) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for name := s.Name; ; {
			for _, item := range s.Items {
				if !yield(item, nil) {
					return
				}
			}
			var err error
			for {
				if s, err = t.next(); err != nil {
					yield(nil, err)
					return
				}
				if s.Type != typeLog && s.Type != typeProgress {
					break
				}
				t.note(s)
			}
			if s.Type != typeMap || s.Name != name {
				t.ahead = s
				return
			}
		}
	}
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// note logs a log line or progress.
func (t *turn) note(s *said) {
	if s.Type == typeLog {
		t.p.out.Line(levels[s.Level], s.Text)
		return
	}
	now := time.Now()
	if now.Sub(t.progress) < time.Second && s.Done != s.Total {
		return
	}
	t.progress = now
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	text := "progress " + number(s.Done)
	if s.Total > 0 {
		text += " of " + number(s.Total)
	}
	if s.Text != "" {
		text += ": " + s.Text
	}
	t.p.out.Line(slog.LevelInfo, text)
}

// failure is the error the program ended the task with.
func (t *turn) failure(s *said) error {
	text := child.Clean([]byte(s.Message))
	if text == "" {
		text = "the program gave no reason"
	}
	err := errors.New(text)
	switch {
	case s.Final:
		return processor.Cancel(err)
	case s.Retry > 0:
		return processor.RetryAfter(time.Duration(min(s.Retry, int64(24*time.Hour/time.Millisecond)))*time.Millisecond, err)
	}
	return err
}

func reason(cause error) string {
	switch {
	case errors.Is(cause, processor.ErrStopped):
		return "stop"
	case errors.Is(cause, processor.ErrDrained):
		return "drain"
	}
	return "timeout"
}

// cancel tells the program that the task is over and waits for its end; false means that the
// program had to be ended.
func (t *turn) cancel(why string) (alive bool) {
	if t.over {
		return true
	}
	t.p.hurry(t.p.cfg.Grace)
	written := make(chan error, 1)
	go func() { written <- t.p.write(input{Type: typeCancel, ID: t.id, Reason: why}) }()
	alive = t.answered()
	if !alive {
		t.p.c.Stop(termGrace)
	}
	if err := <-written; err != nil {
		return false
	}
	return alive
}

// answered waits for the last line about the task, and drops what comes before it.
func (t *turn) answered() bool {
	limit := time.NewTimer(t.p.cfg.Grace)
	defer limit.Stop()
	if s := t.ahead; s != nil && (s.Type == typeResult || s.Type == typeError) {
		return true
	}
	for {
		select {
		case <-limit.C:
			return false
		case l := <-t.p.lines:
			if l.err != nil {
				return false
			}
			if l.said.ID != t.id {
				continue
			}
			if l.said.Type == typeResult || l.said.Type == typeError {
				return true
			}
			if l.said.Type == typeLog || l.said.Type == typeProgress {
				t.note(l.said)
			}
		}
	}
}
