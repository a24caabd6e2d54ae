package storage

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"modernc.org/sqlite"

	"github.com/fanjet/fanjet/engine"
)

var memories atomic.Int64

func (db *DB) openSQLite(ctx context.Context, cfg Config) error {
	db.dialect = sqliteDialect
	sync := strings.ToUpper(cfg.Synchronous)
	switch sync {
	case "":
		sync = "FULL"
	case "FULL", "OFF":
	default:
		return fmt.Errorf("synchronous %q: want FULL or OFF: %w", cfg.Synchronous, engine.ErrInvalid)
	}
	path := strings.TrimPrefix(strings.TrimPrefix(cfg.URL, "sqlite:"), "//")
	if path == "" {
		return fmt.Errorf("database URL %q names no file: want sqlite:PATH: %w", cfg.URL, engine.ErrInvalid)
	}
	// fdatasync writes all that a commit needs and spares the time stamps; platforms
	// without it keep fsync, so the refusal is no matter.
	_, _ = sqlite.Fdatasync(true)
	if path == ":memory:" {
		return db.openMemory(ctx, sync)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("database file %s: %w", path, err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
		return fmt.Errorf("database file %s: its directory does not exist; create it, or name another file: %w", path, engine.ErrInvalid)
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return fmt.Errorf("database file %s: %w", path, err)
	}
	db.closers = append(db.closers, unlock)
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String()
	common := name + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(" + sync + ")&_pragma=journal_size_limit(67108864)"
	if db.write, err = db.sqlitePool(ctx, common+"&_txlock=immediate", 1); err != nil {
		return fmt.Errorf("database file %s: %w", path, err)
	}
	readers := cfg.MaxConns
	if readers <= 0 {
		readers = 4
	}
	if db.read, err = db.sqlitePool(ctx, common+"&_query_only=1", readers); err != nil {
		return fmt.Errorf("database file %s: %w", path, err)
	}
	return nil
}

// openMemory makes a database that lives in this process. Reads and writes take turns on
// one connection; a second one, never used, keeps the database when the first is replaced.
func (db *DB) openMemory(ctx context.Context, sync string) error {
	dsn := fmt.Sprintf("file:/fanjet-%d-%d?vfs=memdb&_pragma=busy_timeout(10000)&_pragma=synchronous(%s)", os.Getpid(), memories.Add(1), sync)
	if _, err := db.sqlitePool(ctx, dsn, 1); err != nil {
		return fmt.Errorf("database in memory: %w", err)
	}
	var err error
	if db.write, err = db.sqlitePool(ctx, dsn+"&_txlock=immediate", 1); err != nil {
		return fmt.Errorf("database in memory: %w", err)
	}
	db.read = db.write
	return nil
}

func (db *DB) sqlitePool(ctx context.Context, dsn string, conns int) (*bun.DB, error) {
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	db.closers = append(db.closers, pool.Close)
	if err := pool.PingContext(ctx); err != nil {
		return nil, db.wrap(err, "open; is it an SQLite database, on a disk that can be written?")
	}
	return bun.NewDB(pool, sqlitedialect.New()), nil
}
