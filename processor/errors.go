package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fanjet/fanjet/broker"
)

// ErrNoRoom is returned by Task.Map after it waited 30 s for the broker to have room for more
// items. Return it (wrapped or not): the slot is freed and the mapper runs again later without
// having used up an attempt.
var ErrNoRoom = errors.New("the broker has no room for more items")

// Causes of the end of a task's context, as context.Cause gives them.
var (
	// ErrStopped: the instance was stopped.
	ErrStopped = errors.New("the instance was stopped")
	// ErrTimeout: the timeout of the task passed.
	ErrTimeout = errors.New("the task timed out")
	// ErrDrained: the worker shuts down and DrainTimeout passed; the task is run elsewhere.
	ErrDrained = errors.New("the worker shuts down")
)

var errEnded = errors.New("the task has ended")

// Bounds of an error as it travels.
const (
	maxMessage = 16 << 10
	maxStack   = 32 << 10
)

type cancelError struct{ err error }

func (e *cancelError) Error() string { return e.err.Error() }
func (e *cancelError) Unwrap() error { return e.err }

// Cancel marks err as final: the task fails and no further attempt is made. A nil err is
// allowed and says "canceled by the processor".
func Cancel(err error) error {
	if err == nil {
		err = errors.New("canceled by the processor")
	}
	return &cancelError{err}
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter fails the task and asks for its next attempt after d (at least 1 ms), in place of
// the delay of the retry policy. It costs an attempt. The reason is optional.
func RetryAfter(d time.Duration, reason ...error) error {
	err := errors.Join(reason...)
	if len(reason) == 1 {
		err = reason[0]
	}
	if err == nil {
		err = fmt.Errorf("to be tried again after %v", d)
	}
	return &retryError{max(d, time.Millisecond), err}
}

// inputError says that params or an item could not be decoded.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// panicError is a panic of the user's code, or a runtime.Goexit in it.
type panicError struct {
	value string
	stack string
}

func (e *panicError) Error() string { return e.value }

// taskError classes what went wrong. ctx is the task's.
func taskError(ctx context.Context, err error) broker.TaskError {
	te := broker.TaskError{Kind: broker.ErrorFailed}
	cause := context.Cause(ctx)
	var (
		panicked *panicError
		input    *inputError
		final    *cancelError
		retry    *retryError
	)
	if errors.As(err, &retry) {
		te.RetryAfter = retry.after
	}
	switch {
	case errors.Is(cause, ErrStopped):
		te.Kind = broker.ErrorStopped
	case errors.As(err, &panicked):
		te.Kind = broker.ErrorPanic
		te.Stack = cut(panicked.stack, maxStack)
	case errors.Is(cause, ErrTimeout):
		te.Kind = broker.ErrorTimeout
		if !errors.Is(err, ErrTimeout) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	case errors.Is(err, ErrNoRoom):
		te.Kind = broker.ErrorRoom
	case errors.As(err, &final):
		te.Kind = broker.ErrorPermanent
	case errors.As(err, &input):
		te.Kind = broker.ErrorInput
	}
	te.Message = cut(messageOf(err), maxMessage)
	return te
}

// messageOf survives an Error method that panics: a report never fails for its text.
func messageOf(err error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("%T, whose Error method panics: %v", err, p)
		}
	}()
	if s = err.Error(); s == "" {
		s = fmt.Sprintf("%T without a message", err)
	}
	return s
}

// cut makes s valid UTF-8 of at most limit bytes; what is cut off is said at the end.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	mark := fmt.Sprintf(" … (cut: %d bytes)", len(s))
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
