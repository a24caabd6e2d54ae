package storage

import (
	"context"
	"database/sql"
)

// RawExec lets the suite try rows that no method would write.
func (db *DB) RawExec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return db.write.ExecContext(ctx, text, args...)
}

// Abandon begins a transaction, does something in it and never goes on.
func (db *DB) Abandon(ctx context.Context, text string) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, text)
	return err
}
