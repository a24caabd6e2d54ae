package fire

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/schedule"
)

// Fence is an owner's right to write to a shard.
type Fence struct {
	Shard uint8
	Owner int16
	Epoch int64
	Gen   uint32 // for the committer
}

// Host is what a Scheduler stands on. All methods are safe for concurrent use.
type Host interface {
	// Now is the database's clock, epoch ms. It goes back when that is put back: a scheduled
	// time that was decided before is not decided again.
	Now() int64
	// Fences are those of the shards that are owned and loaded.
	Fences() []Fence
	// Due and Row read schedules, as engine.ScheduleStore does.
	Due(ctx context.Context, shards []uint8, until int64, after engine.SchedulePos, limit int) ([]engine.Schedule, error)
	Row(ctx context.Context, kind engine.DefKind, id int64) (*engine.Schedule, error)
	// Compile gives the schedule its meaning, with the calendars it names.
	Compile(ctx context.Context, s *engine.Schedule) (*schedule.Schedule, error)
	// Superseded are the fires, not in the ledger yet, that were due after a time by versions of
	// the schedule that others have taken the place of since.
	Superseded(ctx context.Context, s *engine.Schedule, after int64) ([]engine.Skip, error)
	// Make makes what a fire runs. An error that is engine.ErrNotFound or ErrInvalid lasts.
	Make(ctx context.Context, s *engine.Schedule, at int64) (engine.FiringRun, error)
	// Prepare reads ahead what Make will want for these schedules; it may do nothing.
	Prepare(ctx context.Context, rows []engine.Schedule)
	// Depends tells how the due fire stands to the jobs that it follows.
	Depends(ctx context.Context, s *engine.Schedule) (Depends, error)
	// Commit stores a Change in turn and calls done with the outcome, on a goroutine that must
	// not be held up.
	Commit(c engine.Change, gen uint32, done func(error))
	// Lost tells that a fenced Change was lost, or nobody knows.
	Lost(f Fence, err error)
	// Made tells of what was stored: instances and workflow instances that wait to be run.
	Made(f *engine.Firing)
}

// Config of a Scheduler. The zero value is the stock setting.
type Config struct {
	// Ahead is how far ahead schedules are read; default 4 s.
	Ahead time.Duration
	// Every is how often they are read; default 1 s. Once in five times everything that is due
	// is read again.
	Every time.Duration
	// Most bounds the schedules in memory; default 20 000. What is over it is read when there
	// is room.
	Most int
	Log  *slog.Logger
}

// page is how many firings go into one round, the size of a transaction in section 4 of the
// architecture.
const page = 500

type key struct {
	kind engine.DefKind
	id   int64
}

func keyOf(s *engine.Schedule) key { return key{s.Kind, s.ID} }

// Scheduler fires schedules. Run it on one goroutine; Look, LookAt and Stats may be called
// from any.
type Scheduler struct {
	cfg  Config
	host Host

	mu      sync.Mutex
	results []result
	looks   map[key]struct{}
	all     bool
	again   bool // the next read is one of everything
	wake    chan struct{}
	stats   Stats

	// Of Run alone.
	queue    queue
	known    map[key]*entry
	flying   map[key]struct{} // a firing is being stored
	readTo   int64            // everything that wakes by then was read
	full     bool             // and something was left out
	rounds   int
	warned   map[key]int32 // by version
	released map[key]int64 // when the jobs had ended for which a fire waited
}

// Stats counts since the start.
type Stats struct {
	Fired    int64 // runs made
	Skipped  int64 // fires that did not run, with their reason in the ledger
	Moved    int64 // firings about schedules that had changed meanwhile
	Existing int64 // fires whose run was there already
	LateMax  int64 // ms, of the last minute's fires that were on time
}

type result struct {
	fence  Fence
	firing []engine.Firing
	err    error
}

// New makes a Scheduler. Nothing happens before Run.
func New(cfg Config, host Host) *Scheduler {
	if cfg.Ahead <= 0 {
		cfg.Ahead = 4 * time.Second
	}
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.Most <= 0 {
		cfg.Most = 20_000
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Scheduler{
		cfg: cfg, host: host, wake: make(chan struct{}, 1), looks: map[key]struct{}{},
		known: map[key]*entry{}, flying: map[key]struct{}{}, warned: map[key]int32{}, released: map[key]int64{},
	}
}

// Look has everything that is due read again soon.
func (s *Scheduler) Look() {
	s.mu.Lock()
	s.all = true
	s.mu.Unlock()
	s.poke()
}

// LookSoon is Look for who may ask often: the next read is one of everything.
func (s *Scheduler) LookSoon() {
	s.mu.Lock()
	s.again = true
	s.mu.Unlock()
}

// LookAt has one schedule read again soon: it was saved, or a run of it has ended.
func (s *Scheduler) LookAt(kind engine.DefKind, id int64) {
	s.mu.Lock()
	if len(s.looks) < 10_000 {
		s.looks[key{kind, id}] = struct{}{}
	} else {
		s.all = true
	}
	s.mu.Unlock()
	s.poke()
}

// Stats is a copy of the counters.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run fires until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	read := time.NewTicker(s.cfg.Every)
	defer read.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	s.read(ctx, true)
	for {
		timer.Reset(s.untilNext())
		select {
		case <-ctx.Done():
			return
		case <-read.C:
			s.rounds++
			s.mu.Lock()
			again := s.again
			s.again = false
			s.mu.Unlock()
			s.read(ctx, again || s.rounds%5 == 0)
		case <-s.wake:
		case <-timer.C:
		}
		s.settle()
		s.look(ctx)
		s.round(ctx)
	}
}

// untilNext is how long to sleep: never more than a second of a wall clock, which may be set.
func (s *Scheduler) untilNext() time.Duration {
	if len(s.queue) == 0 {
		return time.Second
	}
	d := time.Duration(s.queue[0].wake-s.host.Now()) * time.Millisecond
	return min(max(d, 0), time.Second)
}

// look reads what was asked for.
func (s *Scheduler) look(ctx context.Context) {
	s.mu.Lock()
	looks, all := s.looks, s.all
	s.all = false
	s.looks = map[key]struct{}{}
	s.mu.Unlock()
	if all || len(looks) > page {
		s.read(ctx, true)
		return
	}
	for k := range looks {
		if _, busy := s.flying[k]; busy {
			s.mu.Lock()
			s.looks[k] = struct{}{} // once its firing is stored
			s.mu.Unlock()
			continue
		}
		row, err := s.host.Row(ctx, k.kind, k.id)
		if err != nil {
			continue // the next read finds it
		}
		s.keep(row)
	}
}

// read reads what wakes in the next seconds: what comes into view, or all of it.
func (s *Scheduler) read(ctx context.Context, all bool) {
	var shards []uint8
	for _, f := range s.host.Fences() {
		shards = append(shards, f.Shard)
	}
	until := s.host.Now() + s.cfg.Ahead.Milliseconds()
	if len(shards) == 0 {
		return
	}
	all = all || until < s.readTo // the clock was put back
	after := engine.SchedulePos{WakeAt: s.readTo, Kind: 1 << 14}
	if all || s.full {
		after = engine.SchedulePos{}
	}
	s.full = false
	for {
		rows, err := s.host.Due(ctx, shards, until, after, page)
		if err != nil {
			s.full = true // the database is away: all of it is read when it is back
			return
		}
		s.host.Prepare(ctx, rows)
		for i := range rows {
			r := &rows[i]
			after = engine.SchedulePos{WakeAt: r.WakeAt, Kind: r.Kind, ID: r.ID}
			if _, busy := s.flying[keyOf(r)]; !busy {
				s.keep(r)
			}
		}
		switch {
		case len(rows) < page:
			s.readTo = until
			return
		case len(s.queue) >= s.cfg.Most:
			s.full = true
			return
		}
	}
}

// keep takes a row in as it is stored now.
func (s *Scheduler) keep(row *engine.Schedule) {
	k := keyOf(row)
	old := s.known[k]
	if old != nil && old.row.Version == row.Version && old.row.HandledAt > row.HandledAt {
		return // read before its last firing was stored
	}
	if row.WakeAt == 0 || !row.Enabled || row.Paused() {
		if old != nil {
			heap.Remove(&s.queue, old.at)
			delete(s.known, k)
		}
		return
	}
	if old != nil {
		old.row, old.wake = *row, row.WakeAt
		heap.Fix(&s.queue, old.at)
		return
	}
	e := &entry{row: *row, wake: row.WakeAt}
	s.known[k] = e
	heap.Push(&s.queue, e)
}

// round hands in the firings that are due, a page at a time.
func (s *Scheduler) round(ctx context.Context) {
	fences := map[uint8]Fence{}
	for _, f := range s.host.Fences() {
		fences[f.Shard] = f
	}
	for ctx.Err() == nil {
		now := s.host.Now()
		changes := map[uint8]*engine.Change{}
		n := 0
		for ; n < page && len(s.queue) > 0 && s.queue[0].wake <= now; n++ {
			e := heap.Pop(&s.queue).(*entry)
			delete(s.known, keyOf(&e.row))
			fence, ours := fences[e.row.Shard]
			if !ours {
				continue
			}
			if e.reread {
				row, err := s.host.Row(ctx, e.row.Kind, e.row.ID)
				if err == nil {
					e.row, e.reread = *row, false
				}
				if err == nil && (row.WakeAt == 0 || row.WakeAt > now || !row.Enabled || row.Paused()) {
					s.keep(row)
					continue
				}
			}
			f, again, err := s.decide(ctx, e, now)
			switch {
			case err != nil:
				s.later(e, now, err)
				continue
			case again > 0: // nothing to store yet
				e.wake, e.reread = again, true
				s.known[keyOf(&e.row)] = e
				heap.Push(&s.queue, e)
				continue
			}
			c := changes[e.row.Shard]
			if c == nil {
				c = &engine.Change{Fenced: true, Shard: fence.Shard, Owner: fence.Owner, Epoch: fence.Epoch}
				changes[e.row.Shard] = c
			}
			f.Done = &engine.FiringDone{}
			c.Firings = append(c.Firings, f)
			s.flying[keyOf(&e.row)] = struct{}{}
		}
		for shard, c := range changes {
			s.commit(fences[shard], *c)
		}
		if n < page {
			return
		}
	}
}

func (s *Scheduler) commit(f Fence, c engine.Change) {
	s.host.Commit(c, f.Gen, func(err error) {
		s.mu.Lock()
		s.results = append(s.results, result{f, c.Firings, err})
		s.mu.Unlock()
		s.poke()
	})
}

// later tries a schedule again that cannot be decided about now.
func (s *Scheduler) later(e *entry, now int64, err error) {
	e.wake, e.reread = now+1000, true
	if errors.Is(err, engine.ErrInvalid) || errors.Is(err, engine.ErrNotFound) {
		s.warn(&e.row, err)
		e.wake = now + 60_000
	}
	s.known[keyOf(&e.row)] = e
	heap.Push(&s.queue, e)
}

// warn says once a version what keeps a schedule from firing.
func (s *Scheduler) warn(row *engine.Schedule, err error) {
	k := keyOf(row)
	if s.warned[k] == row.Version {
		return
	}
	if len(s.warned) >= 10_000 {
		clear(s.warned)
	}
	s.warned[k] = row.Version
	s.cfg.Log.Error("a schedule cannot fire as it should", "kind", row.Kind.String(), "id", row.ID, "version", row.Version, "err", err)
}

// settle takes in what was stored.
func (s *Scheduler) settle() {
	s.mu.Lock()
	results := s.results
	s.results = nil
	s.mu.Unlock()
	for _, r := range results {
		for i := range r.firing {
			delete(s.flying, key{r.firing[i].Kind, r.firing[i].ID})
		}
		switch {
		case r.err == nil:
			for i := range r.firing {
				s.stored(&r.firing[i])
			}
		case errors.Is(r.err, engine.ErrConflict):
			s.existing(r)
		default:
			s.host.Lost(r.fence, r.err)
			s.mu.Lock()
			s.all = true // what was not stored is read again
			s.mu.Unlock()
		}
	}
}

func (s *Scheduler) stored(f *engine.Firing) {
	d := f.Done
	s.mu.Lock()
	if d.Moved {
		s.stats.Moved++
		s.looks[key{f.Kind, f.ID}] = struct{}{}
	} else {
		s.stats.Fired += int64(len(d.Admitted)) + d.Failed
		s.stats.Skipped += d.Skipped
		for _, sk := range f.Skips {
			s.stats.Skipped += sk.Count
		}
	}
	s.mu.Unlock()
	if d.Moved {
		return
	}
	if w := d.Schedule.WakeAt; w > 0 && w <= s.readTo {
		s.keep(&d.Schedule)
	}
	if len(d.Admitted) > 0 {
		s.host.Made(f)
	}
}

// existing handles a Change of which a run was there already (somebody has fired it by hand):
// each firing goes by itself, and one that meets its run again goes without it.
func (s *Scheduler) existing(r result) {
	for _, f := range r.firing {
		switch {
		case len(r.firing) > 1:
		case len(f.Runs) > 1:
			// One of several: the oldest alone, then on from there. What is behind it will be
			// decided again.
			f.Runs, f.Until = f.Runs[:1], runAt(&f.Runs[0])
			f.Skips = slices.DeleteFunc(slices.Clone(f.Skips), func(k engine.Skip) bool { return k.From > f.Until })
			f.NextAt, f.WakeAt = f.Until, s.host.Now()
		case len(f.Runs) == 1:
			f.Runs = nil
			s.mu.Lock()
			s.stats.Existing++
			s.mu.Unlock()
		default:
			s.cfg.Log.Error("a firing without runs is in conflict", "kind", f.Kind.String(), "id", f.ID)
			continue
		}
		f.Done = &engine.FiringDone{}
		s.flying[key{f.Kind, f.ID}] = struct{}{}
		s.commit(r.fence, engine.Change{
			Fenced: true, Shard: r.fence.Shard, Owner: r.fence.Owner, Epoch: r.fence.Epoch, Firings: []engine.Firing{f},
		})
	}
}

func runAt(r *engine.FiringRun) int64 {
	if r.Instance != nil {
		return r.Instance.FireAt
	}
	return r.Workflow.FireAt
}

// entry is a schedule that wakes soon.
type entry struct {
	row  engine.Schedule
	wake int64
	at   int // in the queue
	// reread is that its row is to be read again before it is decided about.
	reread bool
}

// queue is a heap by wake.
type queue []*entry

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.wake != b.wake {
		return a.wake < b.wake
	}
	return a.row.ID < b.row.ID
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.at = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
