package storage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
)

// Each refusal says what is wrong, where, and what to do.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("no database ", 500)), 0o600))
	maria := storagetest.MariaDB(t)
	database := strings.TrimPrefix(strings.Split(maria, "?")[0], "mysql://root@localhost/")
	for name, c := range map[string]struct {
		url  string
		kind error
		says []string
	}{
		"no scheme":          {"fanjet.db", engine.ErrInvalid, []string{"sqlite:PATH"}},
		"other scheme":       {"postgres://u:secret@h/db", engine.ErrInvalid, []string{"postgres", "mysql:"}},
		"no file":            {"sqlite:", engine.ErrInvalid, []string{"sqlite:PATH"}},
		"no directory":       {"sqlite:" + filepath.Join(dir, "none", "x.db"), engine.ErrInvalid, []string{"none/x.db", "create it"}},
		"no SQLite file":     {"sqlite:" + text, engine.ErrUnavailable, []string{text, "is it an SQLite database"}},
		"no database named":  {"mysql://u:secret@h:3306/", engine.ErrInvalid, []string{"names no database", "mysql://user"}},
		"unreadable":         {"mysql://u:sec%ret@h:3306/db", engine.ErrInvalid, []string{"%XX"}},
		"unknown parameter":  {"mysql://u:secret@h/db?charset=latin1", engine.ErrInvalid, []string{"charset", "there are socket"}},
		"no server":          {"mysql://u:secret@127.0.0.1:1/db", engine.ErrUnavailable, []string{"db at 127.0.0.1:1", "is the server up"}},
		"no socket":          {"mysql://u:secret@/db?socket=/nowhere", engine.ErrUnavailable, []string{"/nowhere"}},
		"wrong password":     {strings.Replace(maria, "root@", "root:secret@", 1), engine.ErrInvalid, []string{"password is wrong", database}},
		"no such database":   {strings.Replace(maria, database, "nowhere", 1), engine.ErrInvalid, []string{"CREATE DATABASE `nowhere`"}},
		"synchronous NORMAL": {"sqlite::memory:", engine.ErrInvalid, []string{"FULL or OFF"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := storage.Config{URL: c.url, ConnectTimeout: 200 * time.Millisecond}
			if strings.HasPrefix(name, "synchronous") {
				cfg.Synchronous = "NORMAL"
			}
			_, err := storage.Open(t.Context(), cfg)
			require.ErrorIs(t, err, c.kind)
			for _, part := range c.says {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestOneServerAFile(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db")}
	first, err := storage.Open(t.Context(), cfg)
	require.NoError(t, err)
	_, err = storage.Open(t.Context(), cfg)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, first.Close())
	second, err := storage.Open(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

// Two databases in memory are two.
func TestMemoryIsNotShared(t *testing.T) {
	t.Parallel()
	a, b := open(t, storage.Config{URL: "sqlite::memory:"}), open(t, storage.Config{URL: "sqlite::memory:"})
	_, err := a.EnsureApp(t.Context(), engine.App{Name: "one"})
	require.NoError(t, err)
	apps, err := b.Apps(t.Context())
	require.NoError(t, err)
	require.Empty(t, apps)
}

// The clock of SQLite is given.
func TestClock(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_790_000_000_000)
	db := open(t, storage.Config{URL: "sqlite::memory:", Clock: func() time.Time { return at }})
	s, err := db.JoinServer(t.Context(), "a", 1, 1000)
	require.NoError(t, err)
	require.Equal(t, at.UnixMilli()+1000, s.Until)
	at = at.Add(time.Second)
	live, err := db.LiveServers(t.Context())
	require.NoError(t, err)
	require.Empty(t, live)
}

// A caller that is gone stores nothing and breaks nothing.
func TestCanceledCommit(t *testing.T) {
	t.Parallel()
	db := open(t, storage.Config{URL: "sqlite::memory:"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := db.Commit(ctx, []engine.Change{{NewInstances: []engine.Instance{{ID: 1, App: 1, Status: engine.StatusWaiting, Attempt: 1}}}})
	require.ErrorIs(t, err, context.Canceled)
	_, err = db.Instance(t.Context(), 1)
	require.ErrorIs(t, err, engine.ErrNotFound)
}
