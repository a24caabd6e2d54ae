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

// TestCluster_tells_the_others: with renewals a minute apart, shards move at once when a
// server comes, and when it goes.
func TestCluster_tells_the_others(t *testing.T) {
	t.Parallel()
	db, err := storage.Open(t.Context(), storage.Config{
		URL: "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db"), Synchronous: "OFF", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer db.Close()
	var both []*Cluster
	var handlers []chanHandler
	told := make(chan struct{}) // closed once both are there to be told
	for range 2 {
		h := chanHandler{gained: make(chan engine.Shard, 4*engine.Shards), lost: make(chan engine.Shard, 4*engine.Shards)}
		handlers = append(handlers, h)
		both = append(both, New(Config{
			Renew: time.Minute, TTL: 3 * time.Minute, Log: slog.New(slog.DiscardHandler),
			OnChange: func() {
				<-told
				for _, c := range both {
					c.Look()
				}
			},
		}, db, h))
	}
	close(told)
	gained := func(h chanHandler, n int) {
		t.Helper()
		late := time.After(30 * time.Second)
		for range n {
			select {
			case <-h.gained:
			case <-late:
				require.FailNow(t, "the shards did not come")
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	other, stopOther := context.WithCancel(t.Context())
	ended, otherEnded := make(chan error, 1), make(chan error, 1)
	go func() { ended <- both[0].Run(ctx) }()
	gained(handlers[0], engine.Shards)
	go func() { otherEnded <- both[1].Run(other) }()
	<-both[1].Joined()
	share := 0
	for shard := range uint8(engine.Shards) {
		if Home(shard, []engine.Server{{Number: both[0].Number()}, {Number: both[1].Number()}}) == both[1].Number() {
			share++
		}
	}
	gained(handlers[1], share)
	stop()
	require.NoError(t, <-ended)
	gained(handlers[1], engine.Shards-share)
	stopOther()
	require.NoError(t, <-otherEnded)
}
