package cluster

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
)

// chanHandler tells of every gain and loss.
type chanHandler struct{ gained, lost chan engine.Shard }

func (h chanHandler) Gained(s engine.Shard)                  { h.gained <- s }
func (h chanHandler) Lost(_ context.Context, s engine.Shard) { h.lost <- s }

// TestCluster_on_a_real_store: two servers on one database share the shards, and the one
// that stays gets all of them, each under a new epoch that the database confirms.
func TestCluster_on_a_real_store(t *testing.T) {
	t.Parallel()
	db, err := storage.Open(t.Context(), storage.Config{
		URL: "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db"), Synchronous: "OFF", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer db.Close()
	start := func(name string) (*Cluster, chanHandler, func()) {
		h := chanHandler{gained: make(chan engine.Shard, 4*engine.Shards), lost: make(chan engine.Shard, 4*engine.Shards)}
		c := New(Config{Name: name, Renew: 50 * time.Millisecond, TTL: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}, db, h)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = c.Run(ctx) }()
		return c, h, func() { cancel(); <-ended }
	}
	confirm := func(c *Cluster, s engine.Shard) {
		t.Helper()
		_, err := db.LoadShard(t.Context(), s.Shard, c.Number(), s.Epoch)
		require.NoError(t, err)
	}

	a, ha, stopA := start("a")
	for range engine.Shards {
		confirm(a, <-ha.gained)
	}
	require.True(t, a.Deciding())
	b, hb, stopB := start("b")
	<-b.Joined()
	servers := []engine.Server{{Number: a.Number()}, {Number: b.Number()}}
	share := 0
	for s := range uint8(engine.Shards) {
		if Home(s, servers) == b.Number() {
			share++
		}
	}
	for range share {
		s := <-hb.gained
		confirm(b, s)
		require.Equal(t, b.Number(), Home(s.Shard, servers))
	}
	require.Len(t, ha.lost, share)
	require.NotEqual(t, a.NextID(), b.NextID())
	stopA()
	for range engine.Shards - share {
		confirm(b, <-hb.gained)
	}
	require.Len(t, b.Owned(), engine.Shards)
	stopB()
	owners, err := db.ShardOwners(t.Context())
	require.NoError(t, err)
	for _, s := range owners {
		require.Zero(t, s.Owner, "a clean stop leaves nothing behind")
	}
}
