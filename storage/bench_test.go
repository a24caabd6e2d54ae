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

var dialects = []struct {
	name string
	url  func(b *testing.B) string
}{
	{"SQLite", func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "x.db") }},
	{"MariaDB", func(b *testing.B) string { return storagetest.MariaDB(b) }},
}

// BenchmarkCommit inserts instances of 50 jobs in 50 shards as dispatched and updates them
// as succeeded, in commits of so many rows, and counts them as ended. A row is one instance,
// both writes.
func BenchmarkCommit(b *testing.B) {
	for _, dialect := range dialects {
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
	for n := range int64(jobs) {
		_, err := db.SaveJob(ctx, engine.Job{ID: 1000 + n*7919, App: 1, Name: fmt.Sprintf("job-%d", n), Enabled: true, UpdatedAt: 1})
		require.NoError(b, err)
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
				changes[n].Ended = []engine.Ended{{Kind: engine.KindJob, ID: i.Job, Run: i.ID, Status: i.Status, StartAt: i.StartedAt, EndAt: i.FinishedAt}}
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

// BenchmarkFire fires 10 000 jobs that are due in the same second, of 20 000 stored, in pages
// of 500 as their owner reads them.
func BenchmarkFire(b *testing.B) {
	for _, dialect := range dialects {
		b.Run(dialect.name, func(b *testing.B) {
			benchmarkFire(b, open(b, storage.Config{URL: dialect.url(b)}))
		})
	}
}

func benchmarkFire(b *testing.B, db *storage.DB) {
	const stored, due, page = 20_000, 10_000, 500
	ctx := b.Context()
	server, err := db.JoinServer(ctx, "bench", 1, 3_600_000)
	require.NoError(b, err)
	var shards [engine.Shards]engine.Shard
	every := make([]uint8, engine.Shards)
	for n := range shards {
		s, err := db.ClaimShard(ctx, uint8(n), server.Number, server.Token)
		require.NoError(b, err)
		shards[n], every[n] = *s, uint8(n)
	}
	const start = 1_790_000_000_000
	storeJobs(b, db, stored, due, start)
	id, now := engine.FirstID(start), int64(start)
	var reading, firing time.Duration
	for b.Loop() {
		fired := 0
		for pos := (engine.SchedulePos{}); ; {
			t0 := time.Now()
			rows, err := db.DueSchedules(ctx, every, now, pos, page)
			require.NoError(b, err)
			t1 := time.Now()
			reading += t1.Sub(t0)
			if len(rows) == 0 {
				break
			}
			last := rows[len(rows)-1]
			pos = engine.SchedulePos{WakeAt: last.WakeAt, Kind: last.Kind, ID: last.ID}
			changes := make([]engine.Change, engine.Shards)
			for n, s := range shards {
				changes[n] = engine.Change{Fenced: true, Shard: s.Shard, Owner: s.Owner, Epoch: s.Epoch}
			}
			for _, s := range rows {
				id++
				changes[s.Shard].Firings = append(changes[s.Shard].Firings, engine.Firing{
					Kind: s.Kind, ID: s.ID, Version: s.Version, HandledAt: s.HandledAt, Until: now, NextAt: now + 60_000, WakeAt: now + 60_000,
					Runs: []engine.FiringRun{{Instance: &engine.Instance{
						ID: id, App: s.App, Shard: s.Shard, Job: s.ID, JobVersion: s.Version, Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1,
						Lane: workflow.LaneNormal, Pool: workflow.PoolAny, FireAt: now, DueAt: now, CreatedAt: now,
					}}},
				})
			}
			errs, err := db.Commit(ctx, changes)
			require.NoError(b, err)
			for n := range changes {
				require.NoError(b, errs[n])
				for _, f := range changes[n].Firings {
					fired += len(f.Done.Admitted)
				}
			}
			firing += time.Since(t1)
		}
		require.Equal(b, due, fired)
		now += 60_000
	}
	b.ReportMetric(float64(firing.Milliseconds())/float64(b.N), "ms/fired")
	b.ReportMetric(float64(reading.Milliseconds())/float64(b.N), "ms/read")
}

// storeJobs saves jobs of which so many are due at start, the others never in this time.
func storeJobs(b *testing.B, db *storage.DB, stored, due int, start int64) {
	b.Helper()
	for n := range int64(stored) {
		at := start
		if n >= int64(due) {
			at += 1 << 40
		}
		_, err := db.SaveJob(b.Context(), engine.Job{
			ID: 1000 + n*7919, App: 1, Name: fmt.Sprintf("job-%d", n), Enabled: true, Spec: workflow.Spec{Processor: "p"},
			Schedule: workflow.Schedule{Type: workflow.ScheduleCron, Cron: "0 * * * * ?", Zone: "Europe/Berlin"}, UpdatedAt: at,
		})
		require.NoError(b, err)
	}
}

// BenchmarkDeleteHistory deletes old instances of 50 jobs in batches of 200. What counts for
// the fires meanwhile is how long one batch takes.
func BenchmarkDeleteHistory(b *testing.B) {
	for _, dialect := range dialects {
		b.Run(dialect.name, func(b *testing.B) {
			db := open(b, storage.Config{URL: dialect.url(b)})
			ctx := b.Context()
			const batch, batches = 200, 100
			id, longest, total := int64(1)<<40, time.Duration(0), time.Duration(0)
			for b.Loop() {
				first := id
				for range batches {
					c := engine.Change{}
					for range batch {
						id++
						c.NewInstances = append(c.NewInstances, engine.Instance{
							ID: id, App: 1, Shard: uint8(id % 64), Job: 1000 + id%50, JobVersion: 1, Status: engine.StatusSucceeded, Attempt: 1,
							Lane: workflow.LaneNormal, Pool: workflow.PoolAny, Key: fmt.Sprintf("order-%d", id), Params: make([]byte, 103), StartedAt: 1, FinishedAt: 2,
						})
					}
					_, err := db.Commit(ctx, []engine.Change{c})
					require.NoError(b, err)
				}
				rows := int64(0)
				for after := first; ; {
					t0 := time.Now()
					last, n, err := db.DeleteHistory(ctx, after, id+1, batch)
					require.NoError(b, err)
					took := time.Since(t0)
					longest, total, rows = max(longest, took), total+took, rows+n
					if last == 0 {
						break
					}
					after = last
				}
				require.EqualValues(b, batch*batches, rows)
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N*batch*batches), "µs/row")
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
		})
	}
}
