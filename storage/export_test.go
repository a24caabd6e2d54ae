package storage

import (
	"context"
	"database/sql"
)

// RawExec lets the suite try rows that no method would write.
func (db *DB) RawExec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return db.write.ExecContext(ctx, text, args...)
}
