package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type auditRow struct {
	bun.BaseModel `bun:"table:audit"`

	Seq        int64  `bun:"seq,pk"`
	At         int64  `bun:"happened_at"`
	ActorKind  string `bun:"actor_kind"`
	Actor      int64  `bun:"actor_id"`
	Credential int64  `bun:"credential_id"`
	ActorName  string `bun:"actor_name"`
	Action     string `bun:"action"`
	App        int64  `bun:"app_id"`
	Target     string `bun:"target"`
	Outcome    string `bun:"outcome"`
	From       string `bun:"from_address"`
	Request    string `bun:"request"`
	Before     []byte `bun:"before_change"`
	After      []byte `bun:"after_change"`
	Prev       []byte `bun:"prev_hash"`
	Hash       []byte `bun:"hash"`
}

func newAuditRow(r *engine.AuditRecord) (*auditRow, error) {
	var d door
	d.text("kind of actor", string(r.ActorKind), 16)
	d.text("outcome", string(r.Outcome), 16)
	d.text("actor", r.ActorName, engine.MaxUserName)
	d.text("action", r.Action, engine.MaxName)
	d.text("target", r.Target, engine.MaxKey)
	d.text("address", r.From, engine.MaxAgent)
	d.text("request", r.Request, engine.MaxKey)
	d.bytes("what was before", r.Before, engine.MaxAuditBody)
	d.bytes("what is after", r.After, engine.MaxAuditBody)
	d.hold(r.ActorKind != "" && r.Action != "" && r.Outcome != "", "an audit record says who did what, and how it ended")
	d.hold(r.Hash != [32]byte{}, "an audit record has a hash")
	return &auditRow{
		Seq: r.Seq, At: r.At, ActorKind: string(r.ActorKind), Actor: r.Actor, Credential: r.Credential, ActorName: r.ActorName, Action: r.Action,
		App: r.App, Target: r.Target, Outcome: string(r.Outcome), From: r.From, Request: r.Request, Before: orNull(r.Before), After: orNull(r.After),
		Prev: r.Prev[:], Hash: r.Hash[:],
	}, d.err()
}

func (r *auditRow) noun() engine.AuditRecord {
	n := engine.AuditRecord{
		Seq: r.Seq, At: r.At, ActorKind: engine.ActorKind(r.ActorKind), Actor: r.Actor, Credential: r.Credential, ActorName: r.ActorName, Action: r.Action,
		App: r.App, Target: r.Target, Outcome: engine.Outcome(r.Outcome), From: r.From, Request: r.Request, Before: orNull(r.Before), After: orNull(r.After),
	}
	copy(n.Prev[:], r.Prev)
	copy(n.Hash[:], r.Hash)
	return n
}

func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// audited runs fn in a transaction that ends with the audit record, if there is to be one.
func (db *DB) audited(ctx context.Context, audit engine.AuditFunc, fn func(ctx context.Context, tx bun.Tx) error) error {
	if audit == nil {
		return db.inTx(ctx, fn)
	}
	return db.serially(ctx, audit, fn)
}

// serially is audited, one transaction after the other on all servers. The head of the audit
// log is locked before anything else, so that no two of them can wait for each other.
func (db *DB) serially(ctx context.Context, audit engine.AuditFunc, fn func(ctx context.Context, tx bun.Tx) error) error {
	return db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		prev, err := db.lockAudit(ctx, tx)
		if err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil || audit == nil {
			return err
		}
		row, err := nextAudit(&prev, audit)
		if err != nil {
			return err
		}
		return insertAudit(ctx, tx, []*auditRow{row})
	})
}

// lockAudit locks the head and returns the last record, the zero one if there is none.
func (db *DB) lockAudit(ctx context.Context, tx bun.Tx) (engine.AuditRecord, error) {
	var seq int64
	if err := tx.NewRaw("SELECT seq FROM audit_head WHERE one = 1"+db.forUpdate).Scan(ctx, &seq); err != nil {
		return engine.AuditRecord{}, fmt.Errorf("head of the audit log: %w", err)
	}
	if seq == 0 {
		return engine.AuditRecord{}, nil
	}
	var row auditRow
	err := tx.NewSelect().Model(&row).Where("seq = ?", seq).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return engine.AuditRecord{}, fmt.Errorf("record %d, the last of the audit log, is gone: somebody deleted it; restore the table from a backup: %w", seq, engine.ErrConflict)
	}
	return row.noun(), err
}

// nextAudit is the row of the record that build makes of prev, and moves prev to it.
func nextAudit(prev *engine.AuditRecord, build engine.AuditFunc) (*auditRow, error) {
	next := build(*prev)
	row, err := newAuditRow(&next)
	if err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	if next.Seq != prev.Seq+1 || next.Prev != prev.Hash {
		return nil, fmt.Errorf("audit record %d does not follow record %d: %w", next.Seq, prev.Seq, engine.ErrInvalid)
	}
	*prev = next
	return row, nil
}

// insertAudit stores rows that follow the head, which is locked, and moves it.
func insertAudit(ctx context.Context, tx bun.Tx, rows []*auditRow) error {
	if _, err := tx.NewInsert().Model(&rows).Returning("NULL").Exec(ctx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE audit_head SET seq = ? WHERE one = 1", rows[len(rows)-1].Seq)
	return err
}

// AuditHead is the last record.
func (db *DB) AuditHead(ctx context.Context) (*engine.AuditRecord, error) {
	var row auditRow
	if err := db.read.NewSelect().Model(&row).Order("seq DESC").Limit(1).Scan(ctx); err != nil {
		return nil, db.wrap(err, "last audit record")
	}
	n := row.noun()
	return &n, nil
}

// AuditRecords reads what the query picks, newest first.
func (db *DB) AuditRecords(ctx context.Context, q engine.AuditQuery) ([]engine.AuditRecord, error) {
	if q.Limit <= 0 {
		return nil, nil
	}
	var rows []auditRow
	s := db.read.NewSelect().Model(&rows).Order("seq DESC").Limit(int64(q.Limit))
	for _, c := range []struct {
		where string
		arg   any
		on    bool
	}{
		{"seq < ?", q.Before, q.Before != 0},
		{"actor_id = ?", q.Actor, q.Actor != 0},
		{"app_id = ?", q.App, q.App != 0},
		{"target = ?", q.Target, q.Target != ""},
		{"action = ?", q.Action, q.Action != ""},
		{"happened_at >= ?", q.From, q.From != 0},
		{"happened_at <= ?", q.To, q.To != 0},
	} {
		if c.on {
			s = s.Where(c.where, c.arg)
		}
	}
	if err := s.Scan(ctx); err != nil {
		return nil, db.wrap(err, "read the audit log")
	}
	return nouns(rows, (*auditRow).noun), nil
}

// AuditAfter reads the records after the number, in their order.
func (db *DB) AuditAfter(ctx context.Context, seq int64, limit int) ([]engine.AuditRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	var rows []auditRow
	if err := db.read.NewSelect().Model(&rows).Where("seq > ?", seq).Order("seq").Limit(int64(limit)).Scan(ctx); err != nil {
		return nil, db.wrap(err, "read the audit log after record %d", seq)
	}
	return nouns(rows, (*auditRow).noun), nil
}
