package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
	"github.com/fanjet/fanjet/workflow"
)

// BenchmarkFsync is the raw price of one durable write on this disk; the figures below
// follow it.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	require.NoError(b, err)
	defer f.Close()
	block := make([]byte, 4096)
	for b.Loop() {
		_, err := f.WriteAt(block, 0)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
}

// BenchmarkCommit inserts instances of 50 jobs in 50 shards as dispatched and updates them
// as succeeded, in commits of so many rows. A row is one instance, both writes.
func BenchmarkCommit(b *testing.B) {
	for _, dialect := range []struct {
		name string
		url  func(b *testing.B) string
	}{
		{"SQLite", func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "x.db") }},
		{"MariaDB", func(b *testing.B) string { return storagetest.MariaDB(b) }},
	} {
		b.Run(dialect.name, func(b *testing.B) {
			for _, rows := range []int{1, 8, 500} {
				b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
					db := open(b, storage.Config{URL: dialect.url(b)})
					benchmarkCommit(b, db, rows)
				})
			}
		})
	}
}

func benchmarkCommit(b *testing.B, db *storage.DB, rows int) {
	const jobs = 50
	ctx := b.Context()
	server, err := db.JoinServer(ctx, "bench", 1, 3_600_000)
	require.NoError(b, err)
	shards := make([]engine.Shard, jobs)
	for n := range shards {
		s, err := db.ClaimShard(ctx, uint8(n), server.Number, server.Token)
		require.NoError(b, err)
		shards[n] = *s
	}
	params := make([]byte, 103)
	commit := func(instances []engine.Instance, isNew bool) {
		changes := make([]engine.Change, len(instances))
		for n, i := range instances {
			s := shards[i.Shard]
			changes[n] = engine.Change{Fenced: true, Shard: s.Shard, Owner: s.Owner, Epoch: s.Epoch, Cursor: uint64(i.ID)}
			if isNew {
				changes[n].NewInstances = instances[n : n+1]
			} else {
				changes[n].Instances = instances[n : n+1]
			}
		}
		errs, err := db.Commit(ctx, changes)
		require.NoError(b, err)
		for _, err := range errs {
			require.NoError(b, err)
		}
	}
	id := int64(1) << 40
	var inserting, updating time.Duration
	for b.Loop() {
		instances := make([]engine.Instance, rows)
		for n := range instances {
			id++
			shard := uint8(id % jobs)
			instances[n] = engine.Instance{
				ID: id, App: 1, Shard: shard, Job: 1000 + int64(shard)*7919, JobVersion: 1, Status: engine.StatusDispatched, Attempt: 1,
				Lane: workflow.LaneNormal, Pool: workflow.PoolAny, Params: params, DueAt: id, CreatedAt: id,
			}
		}
		t0 := time.Now()
		commit(instances, true)
		t1 := time.Now()
		for n := range instances {
			i := &instances[n]
			i.Status, i.StartedAt, i.FinishedAt, i.Worker, i.Result = engine.StatusSucceeded, id, id+1, "worker-1", []byte(`{"ok":true}`)
		}
		commit(instances, false)
		inserting += t1.Sub(t0)
		updating += time.Since(t1)
	}
	all := float64(b.N * rows)
	b.ReportMetric(float64(inserting.Microseconds())/all, "µs/insert")
	b.ReportMetric(float64(updating.Microseconds())/all, "µs/update")
	b.ReportMetric(all/b.Elapsed().Seconds(), "rows/s")
}
