package commit

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
)

// TestCommitter_on_a_real_store: eight owners write through one committer while one shard
// changes its owner under it. What was answered with nil is stored, nothing else is.
func TestCommitter_on_a_real_store(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, err := storage.Open(ctx, storage.Config{
		URL: "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db"), Synchronous: "OFF", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer db.Close()
	app, err := db.EnsureApp(ctx, engine.App{ID: 1, Name: "shop", CreatedAt: 1})
	require.NoError(t, err)
	server, err := db.JoinServer(ctx, "a", 7, 60_000)
	require.NoError(t, err)
	epochs := make([]int64, 8)
	for i := range epochs {
		s, err := db.ClaimShard(ctx, uint8(i), server.Number, 7)
		require.NoError(t, err)
		epochs[i] = s.Epoch
	}

	c := New(Config{Log: slog.New(slog.DiscardHandler)}, db)
	stop := run(t, c)
	const each = 200
	answers := make([][]error, len(epochs))
	var wg sync.WaitGroup
	for i := range epochs {
		wg.Go(func() {
			gen := c.Mend(uint8(i))
			var own sync.WaitGroup
			answers[i] = make([]error, each)
			for n := range each {
				if i == 3 && n == each/2 {
					own.Wait()
					// The owner does not know: another one has claimed the shard.
					if _, err := db.ClaimShard(context.Background(), 3, server.Number, 7); err != nil {
						t.Error(err)
					}
				}
				own.Add(1)
				c.Submit(engine.Change{
					Fenced: true, Shard: uint8(i), Owner: server.Number, Epoch: epochs[i],
					NewInstances: []engine.Instance{{
						ID: int64(1 + i*each + n), App: app.ID, Shard: uint8(i), Job: 5, Status: engine.StatusWaiting,
						Reason: engine.ReasonDue, Attempt: 1, Lane: "normal", Pool: "any", CreatedAt: 1, DueAt: 1,
					}},
				}, gen, func(r Result) { answers[i][n] = r.Err; own.Done() })
			}
			own.Wait()
		})
	}
	wg.Wait()
	stop()
	for i := range answers {
		for n, err := range answers[i] {
			_, stored := db.Instance(ctx, int64(1+i*each+n))
			if i == 3 && n >= each/2 {
				require.Error(t, err)
				require.ErrorIs(t, stored, engine.ErrNotFound)
			} else {
				require.NoError(t, err)
				require.NoError(t, stored)
			}
		}
	}
	require.True(t, c.Broken(3, 1))
}
