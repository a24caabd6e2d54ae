package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// migration brings the schema from one version to the next. All of it can be run again: MySQL commits each by itself, so a crash may leave any part of them done.
type migration struct {
	version int
	name    string
	up      func(d *dialect) []string
	// fill writes the rows that no statement can, after them; nil for none.
	fill func(ctx context.Context, tx bun.Tx) error
}

var migrations = []migration{
	{version: 1, name: "first schema and the shards", up: func(d *dialect) []string {
		var out []string
		for _, t := range schemaV1 {
			out = append(out, t.statements(d)...)
		}
		for shard := range engine.Shards {
			out = append(out, fmt.Sprintf("INSERT INTO shards (shard, owner, epoch, report_cursor, commit_no) SELECT %d, 0, 0, 0, 0 "+
				"FROM (SELECT 1) one WHERE NOT EXISTS (SELECT 1 FROM shards WHERE shard = %d)", shard, shard))
		}
		return out
	}},
	{version: 2, name: "nested workflows, waits, signals and lists", up: migrateToV2},
	{version: 3, name: "schedules, ledger, permits and calendars", up: migrateToV3, fill: fillV3},
	{version: 4, name: "users, sessions, tokens, audit and secrets", up: migrateToV4},
}

const migrationsTable = `CREATE TABLE IF NOT EXISTS migrations (
	version {id} NOT NULL PRIMARY KEY,
	name varchar(255) NOT NULL,
	applied_at bigint NOT NULL
){end}`

// statements are the table and its indexes.
func (t ddlTable) statements(d *dialect) []string {
	end := "{end}"
	if t.byKey {
		end = "{end_by_key}"
	}
	var inside, after []string
	for _, k := range t.keys {
		unique := ""
		if k.unique {
			unique = "UNIQUE "
		}
		first, _, _ := strings.Cut(k.columns, ",")
		if !d.singleRows {
			inside = append(inside, fmt.Sprintf(",\n\t%sKEY %s_%s (%s)", unique, t.name, first, k.columns))
			continue
		}
		where := ""
		if k.partial {
			where = " WHERE " + k.columns + " IS NOT NULL"
		}
		after = append(after, fmt.Sprintf("CREATE %sINDEX IF NOT EXISTS %s_%s ON %s (%s)%s", unique, t.name, first, t.name, k.columns, where))
	}
	table := "CREATE TABLE IF NOT EXISTS " + t.name + " (" + t.columns + strings.Join(inside, "") + "\n)" + end
	return append([]string{d.ddl.Replace(table)}, after...)
}

// migrate brings the schema up to date, one process at a time.
func (db *DB) migrate(ctx context.Context) error {
	unlock, err := db.migrationLock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(db.runMigrations(ctx, migrations), unlock())
}

func (db *DB) runMigrations(ctx context.Context, all []migration) error {
	if _, err := db.write.ExecContext(ctx, db.ddl.Replace(migrationsTable)); err != nil {
		return db.wrap(err, "create the table of migrations; the user needs the right to create and alter tables")
	}
	var done int
	if err := db.write.NewRaw("SELECT COALESCE(MAX(version), 0) FROM migrations").Scan(ctx, &done); err != nil {
		return db.wrap(err, "read the schema version")
	}
	newest := all[len(all)-1].version
	if done > newest {
		return fmt.Errorf("the database has schema version %d, this program knows %d: use a newer program: %w", done, newest, engine.ErrInvalid)
	}
	for _, m := range all {
		if m.version <= done {
			continue
		}
		err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			for _, text := range m.up(&db.dialect) {
				if _, err := tx.Tx.ExecContext(ctx, text); err != nil {
					return fmt.Errorf("%w in: %s", err, text)
				}
			}
			if m.fill != nil {
				if err := m.fill(ctx, tx); err != nil {
					return err
				}
			}
			now, err := db.now(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.NewRaw("INSERT INTO migrations (version, name, applied_at) VALUES (?, ?, ?)", m.version, m.name, now).Exec(ctx)
			return err
		})
		if err != nil {
			return db.wrap(err, "migration %d (%s); it runs again at the next start", m.version, m.name)
		}
		db.log.Info("schema migrated", "database", db.name, "version", m.version, "name", m.name)
	}
	return nil
}

// migrationLock keeps other servers from migrating meanwhile. MySQL frees the lock with the
// connection that holds it, so a crash leaves none behind. An SQLite file belongs to this
// process already.
func (db *DB) migrationLock(ctx context.Context) (func() error, error) {
	if db.singleRows {
		return func() error { return nil }, nil
	}
	conn, err := db.write.DB.Conn(ctx)
	if err != nil {
		return nil, db.wrap(err, "lock the migrations")
	}
	var schema string
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&schema); err != nil {
		return nil, errors.Join(db.wrap(err, "lock the migrations"), conn.Close())
	}
	name := migrationLockName(schema)
	for end := time.Now().Add(5 * time.Minute); ; {
		var got *int64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 5)", name).Scan(&got); err != nil {
			return nil, errors.Join(db.wrap(err, "lock the migrations"), conn.Close())
		}
		if got != nil && *got == 1 {
			break
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("lock the migrations: another server has been migrating %s for 5 minutes: wait for it, or end it: %w", schema, engine.ErrUnavailable), conn.Close())
		}
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", name)
		return errors.Join(db.wrap(err, "unlock the migrations"), conn.Close())
	}, nil
}

// migrationLockName is one name a database, within the 64 characters that MySQL allows.
func migrationLockName(schema string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(schema))
	return fmt.Sprintf("fanjet.migrate.%x", h.Sum64())
}
