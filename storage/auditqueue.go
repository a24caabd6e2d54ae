package storage

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// Bounds of what one transaction appends to the audit log.
const (
	maxAuditBatch = 200
	maxAuditBytes = 1 << 20 // of what was before and is after; as text of a statement it is twice that
)

// auditQueue lets callers who append at the same time share a transaction: while one is
// under way, all that come wait, and the first of them takes the next for all. It has no
// goroutine of its own.
type auditQueue struct {
	mu      sync.Mutex
	busy    bool // somebody appends, or was told to
	waiting []*auditEntry
}

type auditEntry struct {
	build  engine.AuditFunc
	lead   chan struct{} // closed: it is your turn to append for all who wait
	done   chan struct{} // closed: record and err are set
	record *engine.AuditRecord
	err    error
}

// appendAudits appends one record behind prev for each entry that has a good one, as far as
// they fit, and returns how many entries were looked at. Records that are refused leave no
// gap.
func appendAudits(ctx context.Context, tx bun.Tx, prev engine.AuditRecord, entries []*auditEntry) (int, error) {
	var rows []*auditRow
	size, n := 0, 0
	for _, e := range entries {
		if size > maxAuditBytes {
			break
		}
		n++
		row, err := nextAudit(&prev, e.build)
		if e.err = err; err != nil {
			continue
		}
		size += len(row.Before) + len(row.After)
		rows = append(rows, row)
		record := row.noun()
		e.record = &record
	}
	if len(rows) == 0 {
		return n, nil
	}
	return n, insertAudit(ctx, tx, rows)
}

// AppendAudit adds the record that build makes of the last one; see engine.AuditStore. Callers
// at the same time share a transaction. If ctx ends first nothing is appended, unless the
// transaction has begun: then it waits for it.
func (db *DB) AppendAudit(ctx context.Context, build engine.AuditFunc) (*engine.AuditRecord, error) {
	e := &auditEntry{build: build, lead: make(chan struct{}), done: make(chan struct{})}
	if !db.audit.join(e) {
		select {
		case <-e.lead:
		case <-e.done:
			return e.record, db.wrap(e.err, "append to the audit log")
		case <-ctx.Done():
			if db.audit.leave(e) {
				return nil, db.wrap(ctx.Err(), "append to the audit log")
			}
			select {
			case <-e.lead:
			case <-e.done:
				return e.record, db.wrap(e.err, "append to the audit log")
			}
		}
	}
	db.appendWaiting(ctx, e)
	return e.record, db.wrap(e.err, "append to the audit log")
}

// join queues the entry and tells whether it is to append at once.
func (q *auditQueue) join(e *auditEntry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		q.waiting = append(q.waiting, e)
		return false
	}
	q.busy = true
	return true
}

// leave takes an entry back, if nobody has begun with it.
func (q *auditQueue) leave(e *auditEntry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, e)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// gather yields the processor until nobody more comes, at most ten times: callers released by
// the last commit ride in the next one.
func (q *auditQueue) gather() {
	for n, last := 0, -1; n < 10; n++ {
		runtime.Gosched()
		q.mu.Lock()
		now := len(q.waiting)
		q.mu.Unlock()
		if now == last {
			return
		}
		last = now
	}
}

// take takes who waits, behind the one who appends.
func (q *auditQueue) take(own *auditEntry) []*auditEntry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxAuditBatch-1)
	out := append([]*auditEntry{own}, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	return out
}

// pass puts back what did not fit and gives the turn on.
func (q *auditQueue) pass(rest []*auditEntry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(slices.Clone(rest), q.waiting...)
	if q.busy = len(q.waiting) > 0; q.busy {
		close(q.waiting[0].lead)
		q.waiting = q.waiting[1:]
	}
}

// appendWaiting appends for own and all who wait.
func (db *DB) appendWaiting(ctx context.Context, own *auditEntry) {
	db.audit.gather()
	entries := db.audit.take(own)
	if len(entries) > 1 {
		ctx = context.WithoutCancel(ctx) // it is not for the caller alone
	}
	n := 0
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		prev, err := db.lockAudit(ctx, tx)
		if err != nil {
			return err
		}
		n, err = appendAudits(ctx, tx, prev, entries)
		return err
	})
	if err != nil {
		n = len(entries)
	}
	for _, e := range entries[:n] {
		if err != nil {
			e.record, e.err = nil, err
		}
		if e != own {
			close(e.done)
		}
	}
	db.audit.pass(entries[n:])
}
