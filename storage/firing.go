package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// checkSchedules refuses what a Change says of schedules and permits and no database should
// see.
func checkSchedules(d *door, c *engine.Change) {
	d.hold(c.Fenced || len(c.Firings)+len(c.Ended)+len(c.Permits)+len(c.GonePermits) == 0, "only the owner of a shard fires, ends runs and takes permits")
	for i := range c.Firings {
		f := &c.Firings[i]
		d.hold(f.Kind == engine.KindJob || f.Kind == engine.KindWorkflow, "a firing of kind %d", f.Kind)
		d.hold(f.NextAt >= 0 && f.WakeAt >= 0 && f.MaxRunning >= 0, "a firing of %s %d with a negative number", f.Kind, f.ID)
		for k := range f.Runs {
			checkRun(d, c, f, &f.Runs[k])
		}
		for _, k := range f.Skips {
			d.hold(k.Kind == f.Kind && k.ID == f.ID && k.From > 0 && k.To >= k.From && k.Count >= 1 && k.Reason != "",
				"a skip of %s %d: %d times from %d to %d for %q", k.Kind, k.ID, k.Count, k.From, k.To, k.Reason)
			d.text("reason of a skip", string(k.Reason), maxReason)
		}
	}
	for _, p := range c.Permits {
		d.hold(p.Job > 0 && p.Instance > 0 && p.Max >= 1, "a permit of job %d for instance %d of at most %d", p.Job, p.Instance, p.Max)
	}
}

func checkRun(d *door, c *engine.Change, f *engine.Firing, r *engine.FiringRun) {
	switch {
	case r.Instance != nil && r.Workflow == nil && f.Kind == engine.KindJob:
		i := r.Instance
		d.hold(i.Job == f.ID && i.FireAt > 0 && !i.Status.Terminal() && i.Shard == c.Shard, "instance %d is no fire of job %d in shard %d", i.ID, f.ID, c.Shard)
		checkInstance(d, i)
	case r.Workflow != nil && r.Instance == nil && f.Kind == engine.KindWorkflow:
		w := r.Workflow
		d.hold(w.Workflow == f.ID && w.FireAt > 0 && !w.Status.Terminal() && w.Shard == c.Shard, "workflow instance %d is no fire of workflow %d in shard %d", w.ID, f.ID, c.Shard)
		checkWorkflowInstance(d, w)
	default:
		d.hold(false, "a fire of %s %d is neither one instance nor one workflow instance", f.Kind, f.ID)
	}
	if r.Stop != nil {
		checkCommand(d, r.Stop)
	}
}

// book is how schedules and permits stand within a transaction, and what its Changes make of
// them. The schedules that fire are locked and moved here; of the others only what ended is
// added up.
type book struct {
	schedules map[scheduleKey]*engine.Schedule
	specs     map[scheduleKey][]byte // as stored
	counts    map[int64]int64        // permits of a job
	held      map[permitKey]bool     // of those that the Changes name

	moved map[scheduleKey]bool
	ended map[scheduleKey]*endedSum
	skips []ledgerRow
	taken []permitRow
	given []permitRow

	made  map[int]*rows // what the firings of a Change make, by its place
	fired []fired
}

// fired is what became of a firing, told to the caller only once it is stored.
type fired struct {
	firing *engine.Firing
	done   engine.FiringDone
}

// read opens the book for the Changes without an error; nil if none of them has anything for
// it.
func (w *writer) read(ctx context.Context, changes []engine.Change, errs []error) (*book, error) {
	b := &book{
		schedules: map[scheduleKey]*engine.Schedule{}, specs: map[scheduleKey][]byte{}, counts: map[int64]int64{}, held: map[permitKey]bool{},
		moved: map[scheduleKey]bool{}, ended: map[scheduleKey]*endedSum{}, made: map[int]*rows{},
	}
	locks, limited := map[scheduleKey]bool{}, map[int64]bool{}
	something := false
	for i := range changes {
		c := &changes[i]
		if errs[i] != nil {
			continue
		}
		something = something || len(c.Firings)+len(c.Ended)+len(c.Permits)+len(c.GonePermits) > 0
		for k := range c.Firings {
			f := &c.Firings[k]
			locks[scheduleKey{f.Kind, f.ID}] = true
			if f.Kind == engine.KindJob && f.MaxRunning > 0 && len(f.Runs) > 0 {
				limited[f.ID] = true
			}
		}
		for _, p := range c.Permits {
			limited[p.Job] = true
			if !w.db.singleRows { // SQLite's one writer is lock enough
				locks[scheduleKey{engine.KindJob, p.Job}] = true
			}
		}
	}
	if !something {
		return nil, nil
	}
	if err := b.lock(ctx, w, slices.Collect(maps.Keys(locks))); err != nil {
		return nil, err
	}
	if len(limited) > 0 {
		if err := b.countPermits(ctx, w, limited, changes, errs); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// lock reads the schedules and holds them until the end of the transaction, in the order of
// their keys, so that no two transactions wait for each other.
func (b *book) lock(ctx context.Context, w *writer, keys []scheduleKey) error {
	slices.SortFunc(keys, func(a, b scheduleKey) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id)) })
	for len(keys) > 0 {
		n := 1
		for n < len(keys) && n < maxRows && keys[n].kind == keys[0].kind {
			n++
		}
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = keys[i].id
		}
		var rows []scheduleRow
		err := w.tx.NewRaw("SELECT * FROM schedules WHERE kind = ? AND id IN (?) ORDER BY id"+w.db.forUpdate, int16(keys[0].kind), bun.List(ids)).Scan(ctx, &rows)
		if err != nil {
			return fmt.Errorf("lock schedules: %w", err)
		}
		for i := range rows {
			s, err := rows[i].noun()
			if err != nil {
				return err
			}
			k := scheduleKey{s.Kind, s.ID}
			b.schedules[k], b.specs[k] = s, rows[i].Spec
		}
		keys = keys[n:]
	}
	return nil
}

// decide decides all that a Change wants of schedules and permits, in its order: what ended
// and was given back first, so that it makes room for what the same Change begins. ErrLimit
// leaves the book as it was.
func (b *book) decide(at int, c *engine.Change) error {
	if err := b.decidePermits(c); err != nil {
		return err
	}
	for i := range c.Ended {
		e := &c.Ended[i]
		k := scheduleKey{e.Kind, e.ID}
		if s := b.schedules[k]; s != nil {
			s.End(e)
			b.moved[k] = true
			continue
		}
		if b.ended[k] == nil {
			b.ended[k] = &endedSum{}
		}
		b.ended[k].add(e)
	}
	for i := range c.Firings {
		f := &c.Firings[i]
		k := scheduleKey{f.Kind, f.ID}
		var permits int64
		if f.Kind == engine.KindJob {
			permits = b.counts[f.ID]
		}
		d := f.Decide(b.schedules[k], permits)
		b.fired = append(b.fired, fired{f, d.Done})
		if d.Done.Moved {
			continue
		}
		*b.schedules[k] = d.Done.Schedule
		b.moved[k] = true
		b.skips = appendRows(b.skips, d.Skips, newLedgerRow)
		if len(d.Instances)+len(d.Workflows)+len(d.Commands) == 0 {
			continue
		}
		if b.made[at] == nil {
			b.made[at] = &rows{}
		}
		r := b.made[at]
		r.newInstances = appendRows(r.newInstances, d.Instances, newInstanceRow)
		r.newWorkflows = appendRows(r.newWorkflows, d.Workflows, newWorkflowInstanceRow)
		r.newCommands = appendRows(r.newCommands, d.Commands, newCommandRow)
	}
	return nil
}

// made adds what the firings of the Change at that place make.
func (r *rows) made(b *book, at int) {
	if b == nil || b.made[at] == nil {
		return
	}
	m := b.made[at]
	r.newInstances = append(r.newInstances, m.newInstances...)
	r.newWorkflows = append(r.newWorkflows, m.newWorkflows...)
	r.newCommands = append(r.newCommands, m.newCommands...)
}

// write stores the book.
func (b *book) write(ctx context.Context, w *writer) error {
	if b == nil {
		return nil
	}
	t := &w.db.tables
	if err := t.permits.remove(ctx, w, b.given); err != nil {
		return err
	}
	if err := t.permits.insert(ctx, w, b.taken); err != nil {
		return err
	}
	if err := w.growLedger(ctx, b.skips); err != nil {
		return err
	}
	moved := make([]scheduleRow, 0, len(b.moved))
	for k := range b.moved {
		moved = append(moved, newScheduleRow(b.schedules[k], b.specs[k]))
	}
	slices.SortFunc(moved, func(a, b scheduleRow) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	if w.db.singleRows || len(moved) <= 2 {
		if err := t.schedules.update(ctx, w, moved); err != nil {
			return err
		}
	} else {
		for chunk := range t.schedules.chunks(moved, w.db.maxPacket) {
			if err := t.schedules.overwrite(ctx, w, chunk); err != nil {
				return fmt.Errorf("update schedules: %w", err)
			}
		}
	}
	return w.countEnded(ctx, b.ended)
}

// forget makes the Change say nothing of its firings until it is stored.
func forget(c *engine.Change) {
	for i := range c.Firings {
		if done := c.Firings[i].Done; done != nil {
			*done = engine.FiringDone{}
		}
	}
}

// tell gives the callers what became of their firings.
func (b *book) tell() {
	if b == nil {
		return
	}
	for i := range b.fired {
		f := &b.fired[i]
		if f.firing.Done == nil {
			f.firing.Done = &engine.FiringDone{}
		}
		*f.firing.Done = f.done
	}
}

// endedSum adds up what ended of one job or workflow within a transaction.
type endedSum struct {
	runs, succeeded, failed, fired int64
	last                           engine.Ended
	firedEnd                       int64 // end of the last fired one
}

func (s *endedSum) add(e *engine.Ended) {
	s.runs++
	switch e.Status {
	case engine.StatusSucceeded:
		s.succeeded++
	case engine.StatusFailed, engine.StatusTimedOut:
		s.failed++
	default: // neither
	}
	s.last = *e
	if e.Fired {
		s.fired++
		s.firedEnd = e.EndAt
	}
}

// The counters of engine.Schedule.End, relative, for rows that were not read.
const endedText = "UPDATE schedules SET runs = runs + ?, succeeded = succeeded + ?, failed = failed + ?, " +
	"open_runs = CASE WHEN open_runs > ? THEN open_runs - ? ELSE 0 END, last_id = ?, last_status = ?, last_start = ?, last_end = ? WHERE kind = ? AND id = ?"

// rearmText is what End does to a fixed delay.
const rearmText = "UPDATE schedules SET next_at = ? + delay_ms, wake_key = CASE WHEN wake_key < ? + delay_ms THEN wake_key ELSE ? + delay_ms END " +
	"WHERE kind = ? AND id = ? AND " + rearmable

const rearmable = "delay_ms > 0 AND enabled = 1 AND (paused_at = 0 OR resumed_at <> 0) AND next_at = 0 AND open_runs = 0"

// countEnded moves the counters of the schedules in the order of their keys.
func (w *writer) countEnded(ctx context.Context, ended map[scheduleKey]*endedSum) error {
	keys := slices.SortedFunc(maps.Keys(ended), func(a, b scheduleKey) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id)) })
	if !w.db.singleRows {
		for part := range slices.Chunk(keys, maxRows) {
			if err := w.countEndedMany(ctx, part, ended); err != nil {
				return fmt.Errorf("count what ended: %w", err)
			}
		}
		return nil
	}
	for _, k := range keys {
		s := ended[k]
		_, err := w.exec(ctx, endedText, s.runs, s.succeeded, s.failed, s.fired, s.fired,
			s.last.Run, int64(s.last.Status), s.last.StartAt, s.last.EndAt, int64(k.kind), k.id)
		if err != nil {
			return fmt.Errorf("count what ended of %s %d: %w", k.kind, k.id, err)
		}
		if s.fired == 0 {
			continue
		}
		if _, err := w.exec(ctx, rearmText, s.firedEnd, s.firedEnd, s.firedEnd, int64(k.kind), k.id); err != nil {
			return fmt.Errorf("next fire of %s %d: %w", k.kind, k.id, err)
		}
	}
	return nil
}

// countEndedMany does it in one statement, and a second one for what was fired. The join goes
// from the sums to their rows, so that no other row is locked and all go in one order.
func (w *writer) countEndedMany(ctx context.Context, keys []scheduleKey, ended map[scheduleKey]*endedSum) error {
	var sums, ends []string
	var sumArgs, endArgs []any
	for _, k := range keys {
		s := ended[k]
		if len(sums) == 0 {
			sums = append(sums, "SELECT ? AS kind, ? AS id, ? AS runs, ? AS succeeded, ? AS failed, ? AS fired, ? AS last_id, ? AS last_status, ? AS last_start, ? AS last_end")
		} else {
			sums = append(sums, "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?")
		}
		sumArgs = append(sumArgs, int16(k.kind), k.id, s.runs, s.succeeded, s.failed, s.fired, s.last.Run, int16(s.last.Status), s.last.StartAt, s.last.EndAt)
		if s.fired == 0 {
			continue
		}
		if len(ends) == 0 {
			ends = append(ends, "SELECT ? AS kind, ? AS id, ? AS fired_end")
		} else {
			ends = append(ends, "SELECT ?, ?, ?")
		}
		endArgs = append(endArgs, int16(k.kind), k.id, s.firedEnd)
	}
	_, err := w.tx.ExecContext(ctx, "UPDATE ("+strings.Join(sums, " UNION ALL ")+") e STRAIGHT_JOIN schedules s ON s.kind = e.kind AND s.id = e.id "+
		"SET s.runs = s.runs + e.runs, s.succeeded = s.succeeded + e.succeeded, s.failed = s.failed + e.failed, "+
		"s.open_runs = IF(s.open_runs > e.fired, s.open_runs - e.fired, 0), "+
		"s.last_id = e.last_id, s.last_status = e.last_status, s.last_start = e.last_start, s.last_end = e.last_end", sumArgs...)
	if err != nil || len(ends) == 0 {
		return err
	}
	_, err = w.tx.ExecContext(ctx, "UPDATE ("+strings.Join(ends, " UNION ALL ")+") e STRAIGHT_JOIN schedules s ON s.kind = e.kind AND s.id = e.id "+
		"SET s.next_at = e.fired_end + s.delay_ms, s.wake_key = IF(s.wake_key < e.fired_end + s.delay_ms, s.wake_key, e.fired_end + s.delay_ms) "+
		"WHERE "+rearmable, endArgs...)
	return err
}
