package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type ledgerRow struct {
	bun.BaseModel `bun:"table:ledger"`

	Kind   int16  `bun:"kind,pk"`
	ID     int64  `bun:"id,pk"`
	From   int64  `bun:"from_at,pk"`
	To     int64  `bun:"to_at"`
	Count  int64  `bun:"skips"`
	Reason string `bun:"reason"`
	At     int64  `bun:"decided_at"`
}

func newLedgerRow(k *engine.Skip) ledgerRow {
	return ledgerRow{Kind: int16(k.Kind), ID: k.ID, From: k.From, To: k.To, Count: k.Count, Reason: string(k.Reason), At: k.At}
}

func (r *ledgerRow) noun() engine.Skip {
	return engine.Skip{Kind: engine.DefKind(r.Kind), ID: r.ID, From: r.From, To: r.To, Count: r.Count, Reason: engine.SkipReason(r.Reason), At: r.At}
}

const growText = "INSERT INTO ledger (kind, id, from_at, to_at, skips, reason, decided_at) VALUES (?, ?, ?, ?, ?, ?, ?) " +
	"ON CONFLICT (kind, id, from_at) DO UPDATE SET to_at = MAX(to_at, excluded.to_at), skips = skips + excluded.skips, decided_at = excluded.decided_at"

// growLedger inserts rows, or lets those grow that are there. It never finds a row in its
// way, so that no row of the ledger can keep a schedule from moving on.
func (w *writer) growLedger(ctx context.Context, rows []ledgerRow) error {
	if w.db.singleRows {
		for i := range rows {
			r := &rows[i]
			if _, err := w.exec(ctx, growText, int64(r.Kind), r.ID, r.From, r.To, r.Count, r.Reason, r.At); err != nil {
				return fmt.Errorf("write ledger: %w", err)
			}
		}
		return nil
	}
	for chunk := range w.db.tables.ledger.chunks(rows, w.db.maxPacket) {
		_, err := w.tx.NewInsert().Model(&chunk).Returning("NULL").On("DUPLICATE KEY UPDATE").
			Set("to_at = GREATEST(to_at, VALUES(to_at))").Set("skips = skips + VALUES(skips)").Set("decided_at = VALUES(decided_at)").Exec(ctx)
		if err != nil {
			return fmt.Errorf("write ledger: %w", err)
		}
	}
	return nil
}

// Skips reads the rows of the ledger that touch [from, to], by their From, at most limit,
// those with From above after.
func (db *DB) Skips(ctx context.Context, kind engine.DefKind, id, from, to, after int64, limit int) ([]engine.Skip, error) {
	var rows []ledgerRow
	err := db.read.NewSelect().Model(&rows).Where("kind = ? AND id = ?", kind, id).Where("from_at > ? AND from_at <= ?", after, to).
		Where("to_at >= ?", from).Order("from_at").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "ledger of %s %d", kind, id)
	}
	return nouns(rows, (*ledgerRow).noun), nil
}

// idSlack is how much, in ms, the time in an id may be behind the clock that fired it.
const idSlack = 60_000

// Fired reads the fired runs of a job or workflow with a scheduled time in [from, to] and an
// id above after, by id. It looks at all that the job ran since from.
func (db *DB) Fired(ctx context.Context, kind engine.DefKind, id, from, to, after int64, limit int) ([]engine.Fired, error) {
	var rows []struct {
		ID        int64 `bun:"id"`
		FireAt    int64 `bun:"fire_at"`
		CreatedAt int64 `bun:"created_at"`
		Status    int16 `bun:"status"`
	}
	table, of := runsOf(kind)
	err := db.read.NewRaw("SELECT id, fire_at, created_at, status FROM "+table+" WHERE "+of+" = ? AND id > ? AND fire_at <> 0 AND fire_at BETWEEN ? AND ? ORDER BY id LIMIT ?",
		id, max(after, engine.FirstID(from-idSlack)-1), from, to, limit).Scan(ctx, &rows)
	if err != nil {
		return nil, db.wrap(err, "fired runs of %s %d", kind, id)
	}
	out := make([]engine.Fired, len(rows))
	for i, r := range rows {
		out[i] = engine.Fired{At: r.FireAt, Instance: r.ID, FiredAt: r.CreatedAt, Status: engine.Status(r.Status)}
	}
	return out, nil
}

// runsOf is the table of a definition's runs, and the column that names the definition.
func runsOf(kind engine.DefKind) (table, column string) {
	if kind == engine.KindWorkflow {
		return "workflow_instances", "workflow_id"
	}
	return "instances", "job_id"
}

// Durations are the running times, ms, of the newest runs of a job or workflow that
// succeeded, at most limit of them; it looks at no more than four times as many rows.
func (db *DB) Durations(ctx context.Context, kind engine.DefKind, id int64, limit int) ([]int64, error) {
	var rows []struct {
		StartedAt  int64 `bun:"started_at"`
		FinishedAt int64 `bun:"finished_at"`
		Status     int16 `bun:"status"`
	}
	table, of := runsOf(kind)
	err := db.read.NewRaw("SELECT started_at, finished_at, status FROM "+table+" WHERE "+of+" = ? ORDER BY id DESC LIMIT ?", id, 4*limit).Scan(ctx, &rows)
	if err != nil {
		return nil, db.wrap(err, "durations of %s %d", kind, id)
	}
	var out []int64
	for _, r := range rows {
		if len(out) < limit && engine.Status(r.Status) == engine.StatusSucceeded {
			out = append(out, max(r.FinishedAt-r.StartedAt, 0))
		}
	}
	return out, nil
}

// ByKey reads the instances of a job that have the business key, newest first; live ones
// only, if asked.
func (db *DB) ByKey(ctx context.Context, job int64, key string, live bool, limit int) ([]engine.Instance, error) {
	hash := keyHash(job, key)
	if hash == nil {
		return nil, nil
	}
	var rows []instanceRow
	// The sum keeps the database from walking back through all that the job ran.
	q := db.read.NewSelect().Model(&rows).Where("key_hash = ?", *hash).Where("job_id + 0 = ? AND business_key = ?", job, key).
		OrderExpr("id + 0 DESC").Limit(int64(limit))
	if live {
		q = q.Where("status < 5")
	}
	if err := q.Scan(ctx); err != nil {
		return nil, db.wrap(err, "instances of job %d with key %q", job, key)
	}
	return nouns(rows, (*instanceRow).noun), nil
}

// DeleteLedger deletes skips that ended, and dead letters that died, before the time, at most
// limit rows. A row that may still grow has not ended.
func (db *DB) DeleteLedger(ctx context.Context, before int64, limit int) (int64, error) {
	// Read before the transaction, which is short so: what does not grow any more never will.
	var old []ledgerRow
	err := db.read.NewRaw("SELECT kind, id, from_at FROM ledger l WHERE to_at < ? AND NOT EXISTS "+
		"(SELECT 1 FROM schedules s WHERE s.kind = l.kind AND s.id = l.id AND s.skip_from = l.from_at) ORDER BY to_at LIMIT ?", before, limit).Scan(ctx, &old)
	if err != nil {
		return 0, db.wrap(err, "read the old ledger")
	}
	var dead []int64
	if err := db.read.NewRaw("SELECT id FROM dead_letters WHERE died_at < ? ORDER BY id LIMIT ?", before, limit-len(old)).Scan(ctx, &dead); err != nil {
		return 0, db.wrap(err, "read old dead letters")
	}
	if len(old)+len(dead) == 0 {
		return 0, nil
	}
	err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := db.tables.ledger.remove(ctx, db.writer(tx), old); err != nil || len(dead) == 0 {
			return err
		}
		_, err := tx.NewRaw("DELETE FROM dead_letters WHERE id IN (?)", bun.List(dead)).Exec(ctx)
		return err
	})
	if err != nil {
		return 0, db.wrap(err, "delete from the ledger")
	}
	return int64(len(old) + len(dead)), nil
}
