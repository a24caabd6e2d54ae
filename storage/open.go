package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// Config says where the truth is kept.
type Config struct {
	// URL is sqlite:PATH, sqlite::memory: (for tests: lost on Close), or
	// mysql://user:password@host:3306/database for MySQL and MariaDB. A unix socket is
	// mysql://user:password@/database?socket=/run/mysqld/mysqld.sock. Further parameters of
	// mysql: tls (true, skip-verify, preferred), timeout (of dialing, default 5s) and
	// read_timeout (default 30s: a server that answers nothing for so long is away).
	URL string
	// Synchronous is what a commit on SQLite waits for: FULL (default) for the disk, OFF for
	// nothing, which a power loss may undo; for tests and simulations only.
	Synchronous string
	// MaxConns bounds the connections to MySQL, and the readers of SQLite. Default 16 and 4.
	MaxConns int
	// ConnectTimeout is how long Open waits for a server that is not up yet. Default 15 s; a
	// refusal, such as a wrong password, is returned at once.
	ConnectTimeout time.Duration
	// Clock is the clock of an SQLite database, which has none of its own. Default
	// time.Now. MySQL ignores it: there the server's clock counts.
	Clock func() time.Time
	// Logger hears what was cut and which migrations ran. Default slog.Default().
	Logger *slog.Logger
}

// DB is an open database. It implements engine.Store and is safe for concurrent use.
type DB struct {
	dialect
	write, read *bun.DB // one writer on SQLite; the same pool on MySQL
	clock       func() time.Time
	log         *slog.Logger
	tables      tables
	prepared    map[string]*sql.Stmt // SQLite: of the writer
	maxPacket   int                  // MySQL: bytes of a statement
	audit       auditQueue
	closers     []func() error
}

var _ engine.Store = (*DB)(nil)

// Open opens the database, creates what is missing in it by running the migrations, and
// returns it. Errors say what is wrong, where, and what to do; those of a server that
// cannot be reached wrap engine.ErrUnavailable.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = 15 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	scheme, _, ok := strings.Cut(cfg.URL, ":")
	if !ok {
		return nil, fmt.Errorf("database URL %q: want sqlite:PATH or mysql://user:password@host:3306/database: %w", redact(cfg.URL), engine.ErrInvalid)
	}
	db := &DB{clock: cfg.Clock, log: cfg.Logger}
	var err error
	switch scheme {
	case "sqlite":
		err = db.openSQLite(ctx, cfg)
	case "mysql", "mariadb":
		err = db.openMySQL(ctx, cfg)
	default:
		err = fmt.Errorf("database URL starts with %q: want sqlite: or mysql: : %w", scheme, engine.ErrInvalid)
	}
	if err == nil {
		err = db.migrate(ctx)
	}
	if err == nil {
		err = db.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// prepare prepares the writer's statements before any transaction can hold its only
// connection: preparing later would wait for it for ever.
func (db *DB) prepare(ctx context.Context) error {
	db.tables = newTables(db)
	if !db.singleRows {
		return nil
	}
	db.prepared = map[string]*sql.Stmt{}
	for _, text := range db.tables.statements() {
		stmt, err := db.write.DB.PrepareContext(ctx, text) //nolint:sqlclosecheck // kept, and closed with its database
		if err != nil {
			return fmt.Errorf("prepare %q: %w", text, err)
		}
		db.prepared[text] = stmt
		db.closers = append(db.closers, stmt.Close)
	}
	return nil
}

// Close ends all connections and gives the file lock up. No method may be called after it.
func (db *DB) Close() error {
	var errs []error
	for i := len(db.closers) - 1; i >= 0; i-- {
		errs = append(errs, db.closers[i]())
	}
	db.closers = nil
	return errors.Join(errs...)
}

// inTx runs fn in a transaction of the writer, again if the database broke a deadlock.
func (db *DB) inTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	return db.again(ctx, func() error {
		tx, err := db.write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return errors.Join(err, ended(tx.Rollback()))
		}
		return tx.Commit()
	})
}

// ended leaves out that a transaction had ended by itself.
func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

const tries = 8

// again repeats fn while the database says that only the timing was bad.
func (db *DB) again(ctx context.Context, fn func() error) error {
	pause := 5 * time.Millisecond
	for try := 1; ; try++ {
		err := fn()
		if err == nil || try == tries || !db.retryable(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		pause *= 2
	}
}

// now is the database's clock.
func (db *DB) now(ctx context.Context, q bun.IDB) (int64, error) {
	if db.nowSQL == "" {
		return db.clock().UnixMilli(), nil
	}
	var now int64
	err := q.NewRaw(db.nowSQL).Scan(ctx, &now)
	return now, err
}

// Now is the database's clock, epoch ms.
func (db *DB) Now(ctx context.Context) (int64, error) {
	now, err := db.now(ctx, db.read)
	return now, db.wrap(err, "ask the time")
}

// wrap gives a driver's error the kind that callers match, once.
func (db *DB) wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s: %w", what, engine.ErrNotFound) // how the driver says so helps nobody
	}
	if kind := db.kind(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (db *DB) kind(err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return engine.ErrNotFound
	case db.duplicate(err):
		return engine.ErrConflict
	case db.refused(err):
		return engine.ErrInvalid
	case db.away(err), errors.Is(err, context.DeadlineExceeded), db.retryable(err):
		return engine.ErrUnavailable
	}
	return nil
}
