package storage_test

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
)

func open(t testing.TB, cfg storage.Config) *storage.DB {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	db, err := storage.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storagetest.Exercise(t, func(t *testing.T) engine.Store {
		return open(t, storage.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fan jet?#.db"), Synchronous: "OFF"})
	})
}

func TestSQLiteInMemory(t *testing.T) {
	t.Parallel()
	storagetest.Exercise(t, func(t *testing.T) engine.Store { return open(t, storage.Config{URL: "sqlite::memory:"}) })
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	storagetest.MariaDB(t)
	storagetest.Exercise(t, func(t *testing.T) engine.Store { return open(t, storage.Config{URL: storagetest.MariaDB(t)}) })
}
