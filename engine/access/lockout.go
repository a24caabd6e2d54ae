package access

import (
	"fmt"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// LockedError says that logins of the user wait, after too many that failed.
type LockedError struct{ Wait time.Duration }

// Error tells how long.
func (e *LockedError) Error() string {
	return fmt.Sprintf("too many logins failed: try again in %s", e.Wait.Round(time.Second))
}

// Unwrap makes it an engine.ErrLimit.
func (*LockedError) Unwrap() error { return engine.ErrLimit }

// Lockout slows guessing down: after Free failed logins the next waits for First, and each
// further one twice as long, up to Max. The delay is of the user, not of the address, and ends
// by itself, so that nobody can lock somebody else out for good.
type Lockout struct {
	Free   int32         // default 5
	First  time.Duration // default 30 s
	Max    time.Duration // default 15 min
	Forget time.Duration // without a further login all is forgotten; default 24 h
}

func (l Lockout) defaults() Lockout {
	if l.Free <= 0 {
		l.Free = 5
	}
	if l.First <= 0 {
		l.First = 30 * time.Second
	}
	if l.Max < l.First {
		l.Max = max(l.First, 15*time.Minute)
	}
	if l.Forget <= l.Max {
		l.Forget = max(2*l.Max, 24*time.Hour)
	}
	return l
}

// Begin decides on a login at the time now, after failed ones of which the last was at last:
// it returns their number with this one in it, or a *LockedError. It is what
// engine.UserStore.BeginLogin asks, before the password is looked at.
func (l Lockout) Begin(failed int32, last, now int64) (int32, error) {
	l = l.defaults()
	since := time.Duration(now-last) * time.Millisecond
	if failed <= 0 || since > l.Forget {
		return 1, nil
	}
	if wait := min(l.delay(failed)-since, l.Max); wait > 0 { // a clock that went back waits no longer than Max
		return failed, &LockedError{Wait: wait}
	}
	return min(failed, 1<<30) + 1, nil
}

// delay is how long the next login waits after so many.
func (l Lockout) delay(failed int32) time.Duration {
	over := failed - l.Free
	if over < 0 {
		return 0
	}
	d := l.First
	for ; over > 0 && d < l.Max; over-- {
		d *= 2
	}
	return min(d, l.Max)
}
