package storage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage/storagetest"
	"github.com/fanjet/fanjet/workflow"
)

func eachDialect(t *testing.T, run func(t *testing.T, cfg Config)) {
	t.Parallel()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		run(t, Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Logger: quiet})
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		run(t, Config{URL: storagetest.MariaDB(t), Logger: quiet})
	})
}

func TestReopenKeepsEverything(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		i := engine.Instance{ID: 5, App: 1, Job: 2, Status: engine.StatusWaiting, Attempt: 1, Key: "💥"}
		for n := range 3 {
			db, err := Open(t.Context(), cfg)
			require.NoError(t, err)
			errs, err := db.Commit(t.Context(), []engine.Change{{NewInstances: []engine.Instance{i}}})
			require.NoError(t, err)
			if n == 0 {
				require.NoError(t, errs[0])
			} else {
				require.ErrorIs(t, errs[0], engine.ErrConflict)
			}
			got, err := db.Instance(t.Context(), 5)
			require.NoError(t, err)
			require.Equal(t, i, *got)
			shards, err := db.ShardOwners(t.Context())
			require.NoError(t, err)
			require.Len(t, shards, engine.Shards)
			require.NoError(t, db.Close())
			require.NoError(t, db.Close(), "closing twice is harmless")
		}
	})
}

// A crash may leave any first part of a migration done; the next start does all of it.
func TestMigrationIsRepeatableFromAnyStatement(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		db, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		var all []string
		tables := []ddlTable{{name: "migrations"}}
		for _, m := range migrations {
			all = append(all, m.up(&db.dialect)...)
		}
		tables = append(append(append(tables, schemaV1...), schemaV2...), schemaV3...)
		for _, k := range []int{0, 1, 2, len(all) / 4, len(all) / 2, len(all) - 20, len(all) - 5, len(all)} {
			if db.singleRows && k > len(migrations[0].up(&db.dialect)) {
				continue // SQLite does a migration as a whole, or not at all
			}
			for _, table := range tables {
				_, err := db.write.ExecContext(t.Context(), "DROP TABLE IF EXISTS "+table.name)
				require.NoError(t, err)
			}
			for _, text := range all[:k] {
				_, err := db.write.DB.ExecContext(t.Context(), text)
				require.NoError(t, err)
			}
			require.NoError(t, db.migrate(t.Context()), "after %d statements", k)
			shards, err := db.ShardOwners(t.Context())
			require.NoError(t, err)
			require.Len(t, shards, engine.Shards)
		}
	})
}

// Jobs and workflows of an older schema get their schedules, and what waits with a key is
// found by it.
func TestMigrationMakesSchedules(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		ctx := t.Context()
		db, err := Open(ctx, cfg)
		require.NoError(t, err)
		for _, table := range append(append(append([]ddlTable{{name: "migrations"}}, schemaV1...), schemaV2...), schemaV3...) {
			_, err := db.write.ExecContext(ctx, "DROP TABLE IF EXISTS "+table.name)
			require.NoError(t, err)
		}
		require.NoError(t, db.runMigrations(ctx, migrations[:2]))
		const jobs = 1100 // more than a page
		require.NoError(t, db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			for n := range jobs {
				for _, text := range []string{
					`INSERT INTO jobs (id, app_id, name, title, version, enabled, spec, created_at, updated_at) VALUES (?, 7, 'a%d', '', 3, 1, '{"processor":"p","max_running":2}', 5, 6)`,
					`INSERT INTO workflows (id, app_id, name, title, version, enabled, definition, created_at, updated_at) VALUES (?, 7, 'a%d', '', 2, 0, '{}', 5, 6)`,
				} {
					if _, err := tx.ExecContext(ctx, fmt.Sprintf(text, n), n+1); err != nil {
						return err
					}
				}
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO instances (id, app_id, shard, job_id, job_version, node, status, reason, attempt, run, lane, pool, business_key, "+
				"fire_at, due_at, created_at, started_at, finished_at, error, worker, log_from, log_to, feed_key) "+
				"VALUES (5, 7, 1, 1, 1, '', 1, '', 1, 0, '', '', 'order-9', 0, 0, 0, 0, 0, '', '', 0, 0, 1)")
			return err
		}))
		require.NoError(t, db.Close())
		for range 2 {
			db, err = Open(ctx, cfg)
			require.NoError(t, err)
			for _, n := range []int64{1, jobs} {
				s, err := db.Schedule(ctx, engine.KindJob, n)
				require.NoError(t, err)
				require.Equal(t, engine.Schedule{
					Kind: engine.KindJob, ID: n, App: 7, Shard: engine.ShardOf(n), Version: 3, Enabled: true, MaxRunning: 2, AnchorAt: 6, HandledAt: 6,
				}, *s)
				s, err = db.Schedule(ctx, engine.KindWorkflow, n)
				require.NoError(t, err)
				require.Equal(t, engine.Schedule{Kind: engine.KindWorkflow, ID: n, App: 7, Shard: engine.ShardOf(n), Version: 2, AnchorAt: 6, HandledAt: 6}, *s)
				j, err := db.Job(ctx, n)
				require.NoError(t, err)
				require.Equal(t, workflow.Schedule{}, j.Schedule)
			}
			found, err := db.ByKey(ctx, 1, "order-9", true, 5)
			require.NoError(t, err)
			require.Len(t, found, 1)
			// As if it had been cut off before its end.
			_, err = db.write.ExecContext(ctx, "DELETE FROM schedules WHERE id > 500")
			require.NoError(t, err)
			_, err = db.write.ExecContext(ctx, "UPDATE instances SET key_hash = NULL")
			require.NoError(t, err)
			_, err = db.write.ExecContext(ctx, "DELETE FROM migrations WHERE version >= 3")
			require.NoError(t, err)
			if db.singleRows {
				break // there it is done as a whole, or not at all
			}
			require.NoError(t, db.Close())
		}
		require.NoError(t, db.Close())
	})
}

// A migration that fails is not marked as done, and says which statement failed.
func TestFailedMigration(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		db, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		next := migration{version: len(migrations) + 1, name: "broken", up: func(*dialect) []string {
			return []string{"CREATE TABLE IF NOT EXISTS extra (a integer)", "CREATE NONSENSE"}
		}}
		err = db.runMigrations(t.Context(), append(slices.Clip(migrations), next))
		require.ErrorContains(t, err, "CREATE NONSENSE")
		require.ErrorContains(t, err, fmt.Sprintf("migration %d (broken)", next.version))
		next.up = func(*dialect) []string { return []string{"CREATE TABLE IF NOT EXISTS extra (a integer)"} }
		require.NoError(t, db.runMigrations(t.Context(), append(slices.Clip(migrations), next)))
		require.ErrorIs(t, db.runMigrations(t.Context(), migrations), engine.ErrInvalid, "a program older than the schema")
	})
}

func TestMigrationsOfManyServersAtOnce(t *testing.T) {
	t.Parallel()
	url := storagetest.MariaDB(t)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		wg.Go(func() {
			db, err := Open(t.Context(), Config{URL: url, MaxConns: 3, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err == nil {
				err = db.Close()
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// The lock of a server that died ends with its connection.
func TestMigrationLockEndsWithItsHolder(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: storagetest.MariaDB(t), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	holder, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	_, err = holder.migrationLock(t.Context())
	require.NoError(t, err)
	opened := make(chan error, 1)
	go func() {
		db, err := Open(t.Context(), cfg)
		if err == nil {
			err = db.Close()
		}
		opened <- err
	}()
	for waits := 0; waits == 0; { // until the other one is seen to wait
		require.Empty(t, opened, "opened beside the holder of the lock")
		err := holder.write.NewRaw("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT GET_LOCK%'").Scan(t.Context(), &waits)
		require.NoError(t, err)
	}
	// Its connections are cut, as a crash would; nothing was unlocked.
	var id int64
	require.NoError(t, holder.write.NewRaw("SELECT IS_USED_LOCK(CONCAT('fanjet.migrate.', ?))", lockSuffix(t, holder)).Scan(t.Context(), &id))
	_, err = holder.write.ExecContext(t.Context(), "KILL ?", id)
	require.NoError(t, err)
	require.NoError(t, <-opened)
}

func lockSuffix(t *testing.T, db *DB) string {
	t.Helper()
	var schema string
	require.NoError(t, db.write.NewRaw("SELECT DATABASE()").Scan(t.Context(), &schema))
	return migrationLockName(schema)[len("fanjet.migrate."):]
}

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"8.0.36": true, "8.0.16-log": true, "8.0.15": false, "5.7.44-log": false, "9.1.0": true, "10.11.19-MariaDB-0+deb12u1": true,
		"5.5.5-10.6.2-MariaDB": true, "5.5.5-10.3.2-MariaDB-log": false, "10.4.30-MariaDB": false, "11.4.2-MariaDB": true, "nonsense": false,
	} {
		err := mysqlOldEnough(version)
		if ok {
			require.NoError(t, err, version)
		} else {
			require.ErrorIs(t, err, engine.ErrInvalid, version)
		}
	}
}
