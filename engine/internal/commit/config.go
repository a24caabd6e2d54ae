package commit

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Errors a Result may carry besides those of engine.Committer.
var (
	// ErrBroken: an earlier Change of the same shard and generation was lost, or the
	// generation is over; this one was not stored. Reload, Mend, decide again.
	ErrBroken = errors.New("an earlier change of the shard was lost")
	// ErrStopped: the committer has ended; the Change was not stored.
	ErrStopped = errors.New("the committer has stopped")
)

// Config of a Committer. The zero value is usable.
type Config struct {
	// MaxRows and MaxBytes bound one transaction; default 1 000 rows and 1 MiB. A Change
	// over them travels alone.
	MaxRows  int
	MaxBytes int
	// QueueRows and QueueBytes bound what waits; default 65 536 rows and 64 MiB. Over one of
	// them Submit blocks.
	QueueRows  int
	QueueBytes int
	// Timeout bounds one transaction; default 10 s. After it the outcome is unknown.
	Timeout time.Duration
	// DrainTimeout bounds how long Run stores what is queued after its context ended;
	// default 5 s. What is left gets ErrStopped.
	DrainTimeout time.Duration
	// RetryMin and RetryMax bound the pause after a transaction that found the database
	// away; defaults 50 ms, doubled up to 1 s.
	RetryMin, RetryMax time.Duration
	// Probe asks the database for a sign of life. It is called after each pause while the
	// database is away and nothing is queued, so that Healthy recovers without traffic.
	// Nil: only the next Change finds out.
	Probe func(context.Context) error
	// Log defaults to slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.MaxRows, 1000)
	def(&c.MaxBytes, 1<<20)
	def(&c.QueueRows, 64<<10)
	def(&c.QueueBytes, 64<<20)
	dur(&c.Timeout, 10*time.Second)
	dur(&c.DrainTimeout, 5*time.Second)
	dur(&c.RetryMin, 50*time.Millisecond)
	dur(&c.RetryMax, time.Second)
	c.RetryMax = max(c.RetryMax, c.RetryMin)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Result is what became of a Change.
type Result struct {
	// Err is nil when the Change is stored. ErrFenced, ErrConflict and ErrBroken say that it
	// is not; any other error leaves the outcome unknown, except ErrStopped.
	Err error
	// CommittedAt is when the transaction returned, with Go's monotonic reading, so that a
	// publisher can tell how old its commit is. Zero when Err is not nil.
	CommittedAt time.Time
}

// Stats counts what the Committer did since it was made.
type Stats struct {
	Commits uint64 // transactions that were stored
	Failed  uint64 // transactions with an unknown outcome
	Changes uint64 // Changes stored
	Rows    uint64 // rows of them
	Refused uint64 // Changes refused as ErrBroken or by the store
}
