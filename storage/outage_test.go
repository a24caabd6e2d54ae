//go:build unix

package storage_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
)

// D01: the database goes away in every way there is; calls say so, nothing hangs, nothing
// that was stored is lost, and the same DB works again afterwards.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := storagetest.StartMariaDB(t)
	url := server.Database(t)
	database := strings.TrimPrefix(strings.Split(url, "?")[0], "mysql://root@localhost/")
	server.Exec(t, "CREATE USER app@localhost IDENTIFIED BY 'p/w:@'")
	server.Exec(t, "GRANT ALL ON "+database+".* TO app@localhost")
	url = strings.Replace(url, "root@", "app:p%2Fw%3A%40@", 1)
	db := open(t, storage.Config{URL: url + "&read_timeout=500ms"})
	next := int64(0)
	commit := func() error {
		next++
		errs, err := db.Commit(t.Context(), []engine.Change{{NewInstances: []engine.Instance{
			{ID: next, App: 1, Job: 1, Status: engine.StatusWaiting, Attempt: 1},
		}}})
		if err == nil {
			require.NoError(t, errs[0])
		}
		return err
	}
	kept := func(n int64) {
		t.Helper()
		counts, err := db.CountInstances(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, n, counts[engine.StatusWaiting])
	}
	require.NoError(t, commit())

	server.Kill(t)
	require.ErrorIs(t, commit(), engine.ErrUnavailable)
	_, err := db.Now(t.Context())
	require.ErrorIs(t, err, engine.ErrUnavailable)
	_, err = db.LoadShard(t.Context(), 1, 1, 1)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	_, err = db.Instance(t.Context(), 1)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	server.Start(t)
	require.NoError(t, commit())
	kept(2)

	// Every connection is cut while idle: the pool makes new ones.
	server.Exec(t, "KILL USER app@localhost")
	require.NoError(t, commit())
	kept(3)

	server.Exec(t, "SET GLOBAL read_only = 1")
	require.ErrorIs(t, commit(), engine.ErrUnavailable)
	server.Exec(t, "SET GLOBAL read_only = 0")
	require.NoError(t, commit())
	kept(4)

	server.Signal(t, syscall.SIGSTOP)
	require.ErrorIs(t, commit(), engine.ErrUnavailable)
	server.Signal(t, syscall.SIGCONT)
	require.NoError(t, commit())
	counts, err := db.CountInstances(t.Context(), 1)
	require.NoError(t, err)
	// The outcome of the commit that was cut off is not known: the server may have got its last
	// words before it was frozen, and act on them when it wakes.
	require.Contains(t, []int64{5, 6}, counts[engine.StatusWaiting])
}

// A process that is frozen in the middle of a transaction does not keep others from its rows
// for long: the server ends it, and nothing of it is stored.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	server := storagetest.StartMariaDB(t)
	db := open(t, storage.Config{URL: server.Database(t)})
	require.NoError(t, db.Abandon(t.Context(), "UPDATE shards SET report_cursor = 77 WHERE shard = 3"))
	began := time.Now()
	_, err := db.RawExec(t.Context(), "UPDATE shards SET commit_no = commit_no + 1 WHERE shard = 3")
	require.NoError(t, err)
	require.Less(t, time.Since(began), 20*time.Second)
	rows, err := db.ShardOwners(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 0, rows[3].Cursor)
}
