package processor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// taskContext is the context of one task: canceled with its parent, at its deadline, and when the
// task returns. A task that looks at neither Done nor a passed deadline, as tiny ones do, costs no
// context of the standard library and no timer: that is made on demand, and from then on does
// all.
type taskContext struct {
	parent   context.Context
	timeout  time.Duration // 0 is none
	deadline time.Time

	mu     sync.Mutex
	real   context.Context // nil until wanted
	cancel context.CancelCauseFunc
	ended  error
}

func (c *taskContext) init(parent context.Context, timeout time.Duration, now time.Time) {
	c.parent, c.timeout = parent, timeout
	if timeout > 0 {
		c.deadline = now.Add(timeout)
	}
}

// made makes the real context. The caller holds mu.
func (c *taskContext) made() context.Context {
	if c.real == nil {
		c.real, c.cancel = context.WithCancelCause(c.parent)
		if c.timeout > 0 {
			outer := c.cancel
			inner, stop := context.WithDeadlineCause(c.real, c.deadline, fmt.Errorf("%w after %v", ErrTimeout, c.timeout))
			c.real, c.cancel = inner, func(err error) { outer(err); stop() }
		}
		if c.ended != nil {
			c.cancel(c.ended)
		}
	}
	return c.real
}

// end cancels the context with cause, once.
func (c *taskContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = cause
		if c.cancel != nil {
			c.cancel(cause)
		}
	}
}

func (c *taskContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

func (c *taskContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil && c.ended == nil && (c.timeout == 0 || time.Now().Before(c.deadline)) {
		return c.parent.Err()
	}
	return c.made().Err()
}

func (c *taskContext) Deadline() (time.Time, bool) {
	at, ok := c.parent.Deadline()
	if c.timeout > 0 && (!ok || c.deadline.Before(at)) {
		return c.deadline, true
	}
	return at, ok
}

// Value also serves context.Cause, which looks for the real context by a key of its own.
func (c *taskContext) Value(key any) any {
	c.mu.Lock()
	real := c.real
	c.mu.Unlock()
	if real != nil {
		return real.Value(key)
	}
	return c.parent.Value(key)
}
