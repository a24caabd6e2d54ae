package commit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/engine"
)

type entry struct {
	change     engine.Change
	generation uint32
	rows, size int
	done       func(Result)
}

type shardState struct {
	generation uint32
	broken     bool
}

// yields is how often the committer lets others run before it takes the queue.
const yields = 10

// maxSolo bounds how many Changes go one by one after a transaction failed for another
// reason than an absent database.
const maxSolo = 256

// Committer is the one writer of a server. Safe for concurrent use.
type Committer struct {
	cfg   Config
	store engine.Committer

	mu      sync.Mutex
	room    *sync.Cond // queue has shrunk, or stopped
	queue   []entry    // queue[head:] waits
	head    int
	rows    int // of queue[head:]; an empty Change counts as one
	size    int // bytes of queue[head:], estimated
	shards  [engine.Shards]shardState
	stopped bool
	lastErr error

	queued atomic.Int64 // len(queue[head:]), read without the lock while yielding
	wake   chan struct{}
	solo   int // only Run's goroutine

	commits, failed, changes, stored, refused atomic.Uint64
}

// New makes a Committer over the store. Nothing moves before Run.
func New(cfg Config, store engine.Committer) *Committer {
	c := &Committer{cfg: cfg.withDefaults(), store: store, wake: make(chan struct{}, 1)}
	c.room = sync.NewCond(&c.mu)
	return c
}

// Submit queues a Change, which the Committer owns from here on. Changes are stored in the
// order they were handed in, many to a transaction. For a fenced Change generation is what
// Mend returned for its shard (0 before the first Mend); for others it is ignored. A Change
// without rows and cursor is a barrier: it costs no transaction and its done comes in turn.
//
// done is called once, in the order of submission, on the goroutine of Run, between two
// transactions: it holds up every writer of the server. It should first wake its waiters,
// then publish at most 64 messages itself and leave more to another goroutine. It must not
// call Submit, nor wait for anything that waits for Submit. After the Committer has stopped,
// done gets ErrStopped from a goroutine of its own.
//
// Submit blocks while QueueRows rows or QueueBytes bytes wait.
func (c *Committer) Submit(change engine.Change, generation uint32, done func(Result)) {
	e := entry{change: change, generation: generation, rows: change.Rows(), done: done}
	e.size = size(&e.change)
	c.mu.Lock()
	for c.fullLocked() && !c.stopped {
		c.room.Wait()
	}
	if c.stopped {
		c.mu.Unlock()
		go done(Result{Err: ErrStopped})
		return
	}
	c.queue = append(c.queue, e)
	c.rows += max(e.rows, 1)
	c.size += e.size
	c.queued.Add(1)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Committer) fullLocked() bool {
	return c.rows >= c.cfg.QueueRows || c.size >= c.cfg.QueueBytes
}

// Store submits a Change and waits for its Result: for callers that have no shard's state
// to protect. If ctx ends first the outcome is unknown.
func (c *Committer) Store(ctx context.Context, change engine.Change, generation uint32) Result {
	got := make(chan Result, 1)
	c.Submit(change, generation, func(r Result) { got <- r })
	select {
	case r := <-got:
		return r
	case <-ctx.Done():
		return Result{Err: fmt.Errorf("wait for the commit: %w", context.Cause(ctx))}
	}
}

// Mend begins a new generation of the shard and returns it; Changes of older ones, queued
// or still to come, are refused with ErrBroken. An owner calls it when it gains the shard
// and, after a lost Change, before it loads the shard's state again. A Change that is in
// flight cannot be called back: load only after the done of all that was handed in (a
// barrier tells).
func (c *Committer) Mend(shard uint8) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shards[shard]
	s.generation++
	s.broken = false
	return s.generation
}

// Break refuses all Changes of that shard and generation that are not in flight, as after a
// lost one. An owner calls it from done when it cannot live with an ErrConflict. Changes
// that shared the transaction with the lost one may be stored.
func (c *Committer) Break(shard uint8, generation uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := &c.shards[shard]; s.generation == generation {
		s.broken = true
	}
}

// Broken tells whether Changes of that shard and generation are refused.
func (c *Committer) Broken(shard uint8, generation uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokenLocked(shard, generation)
}

func (c *Committer) brokenLocked(shard uint8, generation uint32) bool {
	s := &c.shards[shard]
	return s.broken || s.generation != generation
}

// Healthy tells whether the last transaction or probe was answered. It is for health pages
// and for turning callers away early, and is true before the first transaction.
func (c *Committer) Healthy() bool { return c.LastError() == nil }

// LastError is why the Committer is not healthy, or nil.
func (c *Committer) LastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// Queued is how many Changes wait.
func (c *Committer) Queued() int { return int(c.queued.Load()) }

// Stats is a snapshot of the counters.
func (c *Committer) Stats() Stats {
	return Stats{
		Commits: c.commits.Load(), Failed: c.failed.Load(), Changes: c.changes.Load(),
		Rows: c.stored.Load(), Refused: c.refused.Load(),
	}
}

// Run stores until ctx ends, then what is queued, at most DrainTimeout long. It may be
// called once. A transaction in flight is never cut by ctx.
func (c *Committer) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	pause := c.cfg.RetryMin
	for {
		select {
		case <-ctx.Done():
			c.drain(base)
			return nil
		case <-c.wake:
		}
		for c.queued.Load() > 0 && ctx.Err() == nil {
			if err := c.step(base); !away(err) {
				pause = c.cfg.RetryMin
				continue
			}
			pause = c.awaitDatabase(ctx, pause)
		}
	}
}

// away tells whether the database could not be reached, rather than refused.
func away(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// awaitDatabase pauses, longer each time, until something is queued to try or a probe is
// answered. It returns the next pause.
func (c *Committer) awaitDatabase(ctx context.Context, pause time.Duration) time.Duration {
	for {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return pause
		case <-t.C:
		}
		pause = min(2*pause, c.cfg.RetryMax)
		if c.queued.Load() > 0 || c.cfg.Probe == nil {
			return pause
		}
		probe, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		err := c.cfg.Probe(probe)
		cancel()
		if err == nil {
			c.health(nil)
			return c.cfg.RetryMin
		}
	}
}

func (c *Committer) drain(base context.Context) {
	base, cancel := context.WithTimeout(base, c.cfg.DrainTimeout)
	defer cancel()
	for c.queued.Load() > 0 && base.Err() == nil {
		if away(c.step(base)) {
			break
		}
	}
	c.mu.Lock()
	rest := c.queue[c.head:]
	c.queue, c.head, c.rows, c.size, c.stopped = nil, 0, 0, 0, true
	c.queued.Store(0)
	c.room.Broadcast()
	c.mu.Unlock()
	for i := range rest {
		rest[i].done(Result{Err: ErrStopped})
	}
}

// step stores one transaction's worth and calls its dones.
func (c *Committer) step(base context.Context) error {
	c.gather()
	batch, refusals, changes := c.take()
	var errs []error
	var err error
	if len(changes) > 0 {
		ctx, cancel := context.WithTimeout(base, c.cfg.Timeout)
		errs, err = c.store.Commit(ctx, changes)
		cancel()
		if err == nil && len(errs) != len(changes) {
			err = fmt.Errorf("store answered %d changes of %d", len(errs), len(changes))
		}
		if err != nil {
			err = fmt.Errorf("commit %d changes: %w", len(changes), err)
		}
		c.settle(changes, err)
	}
	at := time.Now()
	results := make([]Result, len(batch))
	n := 0
	for i := range batch {
		switch e := &batch[i]; {
		case refusals[i]:
			results[i].Err = ErrBroken
		case e.change.Empty():
			results[i].CommittedAt = at
		case err != nil:
			results[i].Err = err
			n++
		default:
			if results[i].Err = errs[n]; errs[n] == nil {
				results[i].CommittedAt = at
				c.changes.Add(1)
				c.stored.Add(uint64(e.rows))
			}
			n++
		}
	}
	c.breakLost(batch, results)
	for i := range batch {
		batch[i].done(results[i])
	}
	return err
}

// gather lets the callers that the last commit released run, so that what they submit
// rides in the next one. Without it eight callers split over two transactions.
func (c *Committer) gather() {
	seen := c.queued.Load()
	for range yields {
		runtime.Gosched()
		now := c.queued.Load()
		if now == seen || now >= int64(c.cfg.MaxRows) {
			return
		}
		seen = now
	}
}

// take removes the next transaction's worth from the queue. refusals marks what is broken;
// changes are those that go to the store, in order.
func (c *Committer) take() (batch []entry, refusals []bool, changes []engine.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := c.queue[c.head:]
	rows, bytes, n := 0, 0, 0
	refusals = make([]bool, 0, min(len(wait), c.cfg.MaxRows))
	for ; n < len(wait) && n < c.cfg.MaxRows; n++ {
		e := &wait[n]
		refuse := e.change.Fenced && c.brokenLocked(e.change.Shard, e.generation)
		if !refuse && !e.change.Empty() {
			over := rows+e.rows > c.cfg.MaxRows || bytes+e.size > c.cfg.MaxBytes || c.solo > 0
			if over && len(changes) > 0 {
				break
			}
			rows += e.rows
			bytes += e.size
			changes = append(changes, e.change)
		}
		refusals = append(refusals, refuse)
		c.rows -= max(e.rows, 1)
		c.size -= e.size
	}
	batch = append([]entry(nil), wait[:n]...)
	clear(wait[:n])
	if c.head += n; c.head == len(c.queue) {
		c.queue, c.head = c.queue[:0], 0
	} else if c.head > len(c.queue)/2 {
		left := copy(c.queue, c.queue[c.head:])
		clear(c.queue[left:])
		c.queue, c.head = c.queue[:left], 0
	}
	c.queued.Store(int64(len(c.queue) - c.head))
	if !c.fullLocked() {
		c.room.Broadcast()
	}
	return batch, refusals, changes
}

// settle counts the transaction and moves the health.
func (c *Committer) settle(changes []engine.Change, err error) {
	if err == nil {
		c.commits.Add(1)
		c.solo = max(c.solo-1, 0)
		c.health(nil)
		return
	}
	c.failed.Add(1)
	c.health(err)
	// One Change that the database will never take must not take others with it again and
	// again: what follows goes one by one for a while.
	if !away(err) && len(changes) > 1 {
		c.solo = min(len(changes), maxSolo)
	} else {
		c.solo = max(c.solo-1, 0)
	}
}

func (c *Committer) health(err error) {
	c.mu.Lock()
	was := c.lastErr
	c.lastErr = err
	c.mu.Unlock()
	switch {
	case err != nil && was == nil:
		c.cfg.Log.Error("commits fail", "err", err)
	case err == nil && was != nil:
		c.cfg.Log.Info("commits work again")
	}
}

// breakLost breaks the generation of every fenced Change that was fenced off or whose
// outcome is unknown, before any done runs and before the next transaction is taken.
func (c *Committer) breakLost(batch []entry, results []Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		e, err := &batch[i], results[i].Err
		if err == nil {
			// A barrier behind a lost Change in the same transaction.
			if e.change.Fenced && e.change.Empty() && c.brokenLocked(e.change.Shard, e.generation) {
				results[i] = Result{Err: ErrBroken}
			}
			continue
		}
		if errors.Is(err, ErrBroken) || errors.Is(err, engine.ErrFenced) || dropped(err) {
			c.refused.Add(1)
		}
		if !e.change.Fenced || dropped(err) || errors.Is(err, ErrBroken) {
			continue
		}
		if s := &c.shards[e.change.Shard]; s.generation == e.generation {
			s.broken = true
		}
	}
}

// dropped tells whether the Change alone was refused, as its owner may have expected.
func dropped(err error) bool {
	return errors.Is(err, engine.ErrConflict) || errors.Is(err, engine.ErrLimit)
}
