package server_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// raw opens the database beside the server, to fill it faster than anybody would save jobs.
func raw(b testing.TB, url string) *sql.DB {
	b.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_txlock=immediate")
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	}
	c := mysql.NewConfig()
	rest := strings.TrimPrefix(url, "mysql://")
	user, rest, _ := strings.Cut(rest, "@")
	c.User, _, _ = strings.Cut(user, ":")
	_, rest, _ = strings.Cut(rest, "/")
	c.DBName, rest, _ = strings.Cut(rest, "?")
	for pair := range strings.SplitSeq(rest, "&") {
		if v, ok := strings.CutPrefix(pair, "socket="); ok {
			c.Net, c.Addr = "unix", strings.ReplaceAll(v, "%2F", "/")
		}
	}
	db, err := sql.Open("mysql", c.FormatDSN())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

// copyJob stores n more jobs like the one given, which wake at the same time.
func copyJob(b *testing.B, db *sql.DB, job, firstID int64, n int, wake int64) {
	b.Helper()
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for from := 0; from < n; from += 500 {
		var list strings.Builder
		for i := from; i < min(from+500, n); i++ {
			id := firstID + int64(i)
			if i > from {
				list.WriteString(" UNION ALL ")
			}
			fmt.Fprintf(&list, "SELECT %d AS id, %d AS shard, 'copy%d' AS name", id, engine.ShardOf(id), id)
		}
		for _, s := range []string{
			"INSERT INTO jobs (id, app_id, name, title, version, enabled, spec, schedule, created_at, updated_at) " +
				"SELECT v.id, j.app_id, v.name, j.title, j.version, j.enabled, j.spec, j.schedule, j.created_at, j.updated_at FROM jobs j, (%s) v WHERE j.id = ?",
			"INSERT INTO job_versions (job_id, version, title, enabled, spec, schedule, updated_at) " +
				"SELECT v.id, j.version, j.title, j.enabled, j.spec, j.schedule, j.updated_at FROM job_versions j, (%s) v WHERE j.job_id = ?",
		} {
			_, err := tx.ExecContext(b.Context(), fmt.Sprintf(s, list.String()), job)
			require.NoError(b, err)
		}
		_, err := tx.ExecContext(b.Context(), fmt.Sprintf("INSERT INTO schedules (kind, id, app_id, shard, version, enabled, spec, delay_ms, max_running, anchor_at, handled_at, next_at, wake_key, "+
			"paused_at, resumed_at, skip_from, skip_reason, open_runs, runs, succeeded, failed, last_id, last_status, last_start, last_end) "+
			"SELECT j.kind, v.id, j.app_id, v.shard, j.version, j.enabled, j.spec, j.delay_ms, j.max_running, j.anchor_at, j.handled_at, ?, ?, "+
			"0, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0 FROM schedules j, (%s) v WHERE j.kind = 1 AND j.id = ?", list.String()), wake, wake, job)
		require.NoError(b, err)
	}
	require.NoError(b, tx.Commit())
}

func benchSize(b *testing.B, name string, stock int) int {
	b.Helper()
	said := os.Getenv(name)
	if said == "" {
		return stock
	}
	n, err := strconv.Atoi(said)
	require.NoError(b, err, name)
	return n
}

// cpu is the time that this process has spent on processors.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFireBurst has 100 000 cron jobs stored, of which 10 000 are due in the same second:
// how long after it their rows are stored, and their handlers entered. Before that, what the
// idle server costs.
func BenchmarkFireBurst(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		const due = 10_000
		if url == "" {
			url = "sqlite:" + b.TempDir() + "/fanjet.db"
		}
		w := newWorld(b, url)
		var ran, last atomic.Int64
		w.worker("w", 100, func(p *processor.Worker) {
			p.Register("count", processor.Func(func(context.Context, *processor.Task) (any, error) {
				ran.Add(1)
				last.Store(time.Now().UnixMilli())
				return nil, nil
			}))
		})
		db := raw(b, url)
		yearly, err := w.server.SaveJobDef(w.ctx, server.JobDef{App: "test", Name: "yearly", Spec: workflow.Spec{Processor: "count"}, Schedule: workflow.Schedule{Cron: "0 0 1 1 *"}})
		require.NoError(b, err)
		copyJob(b, db, yearly.ID, 1_000_000, benchSize(b, "FANJET_BENCH_JOBS", 100_000)-due, time.Now().AddDate(0, 6, 0).UnixMilli())
		for b.Loop() {
			b.StopTimer()
			before := cpu(b)
			from := time.Now()
			<-time.After(3 * time.Second) // nothing happens: that is what is measured
			idle := float64(cpu(b)-before) / float64(time.Since(from))
			at := time.Now().Add(8 * time.Second).UTC().Truncate(time.Second)
			cron := fmt.Sprintf("%d %d %d %d %d ?", at.Second(), at.Minute(), at.Hour(), at.Day(), at.Month())
			first, err := w.server.SaveJobDef(w.ctx, server.JobDef{App: "test", Name: "due", Spec: workflow.Spec{Processor: "count"}, Schedule: workflow.Schedule{Cron: cron}})
			require.NoError(b, err)
			copyJob(b, db, first.ID, 5_000_000, due-1, at.UnixMilli())
			require.Less(b, time.Now(), at.Add(-time.Second), "the machine is too slow to fill the database in time")
			b.StartTimer()
			var stored time.Duration
			for ran.Load() < due {
				if stored == 0 && w.server.Stats().Fired >= due {
					stored = time.Since(at)
				}
				select {
				case <-w.ctx.Done():
					require.FailNow(b, "stopped")
				case <-time.After(time.Millisecond):
				}
			}
			if stored == 0 {
				stored = time.Since(at)
			}
			b.StopTimer()
			w.allFinal(b, &ran, due)
			require.Equal(b, int64(due), ran.Load(), "none twice")
			b.ReportMetric(idle*100, "idle%cpu")
			b.ReportMetric(stored.Seconds(), "stored_s")
			b.ReportMetric(float64(last.Load()-at.UnixMilli())/1000, "entered_s")
			b.ReportMetric(0, "ns/op")
			b.StartTimer()
		}
	})
}

// BenchmarkFireLateness fires 100 times a second and tells how late rows were made and
// handlers entered; then again while old history is deleted.
func BenchmarkFireLateness(b *testing.B) {
	on(b, func(b *testing.B, url string) {
		if url == "" {
			url = "sqlite:" + b.TempDir() + "/fanjet.db"
		}
		for _, c := range []struct {
			name string
			old  int
		}{{"quiet", 0}, {"deleting", benchSize(b, "FANJET_BENCH_HISTORY", 100_000)}} {
			b.Run(c.name, func(b *testing.B) {
				keep := server.Config{}
				if c.old > 0 {
					keep.KeepHistory = time.Hour
				}
				w := newWorldWith(b, url, keep)
				var mu sync.Mutex
				var entered []int64
				note := func(p *processor.Worker) {
					p.Register("note", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
						mu.Lock()
						defer mu.Unlock()
						entered = append(entered, time.Since(task.ScheduledAt()).Milliseconds())
						return nil, nil
					}))
				}
				if c.old > 0 {
					fillHistory(b, w, c.old)
					// The server deletes at its start and each minute: another one begins here.
					w.stop()
					w = newWorldWith(b, url, keep)
				}
				defer w.stop()
				defer w.worker("w", 16, note)()
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				var jobs []server.Definition
				for i := range 100 {
					<-tick.C
					jobs = append(jobs, w.scheduled(c.name+strconv.Itoa(i), workflow.Spec{Processor: "note"}, workflow.Schedule{Every: every(time.Second)}))
				}
				saved := time.Now().UnixMilli() + 500 // what saving them has held up is not measured
				mu.Lock()
				entered = nil
				mu.Unlock()
				for b.Loop() {
					for _, d := range jobs {
						for w.standing(d).Runs < 8 {
							<-tick.C
						}
					}
				}
				for _, d := range jobs {
					require.NoError(b, w.server.PauseSchedule(w.ctx, d))
				}
				var made []int64
				for _, d := range jobs {
					fired, _ := w.ledger(d)
					for _, f := range fired {
						if f.At > saved {
							made = append(made, f.FiredAt-f.At)
						}
					}
				}
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(made)
				slices.Sort(entered)
				b.ReportMetric(float64(made[len(made)/2]), "p50_late_ms")
				b.ReportMetric(float64(made[len(made)*99/100]), "p99_late_ms")
				b.ReportMetric(float64(entered[len(entered)*99/100]), "p99_entered_ms")
				if c.old > 0 {
					b.ReportMetric(float64(w.server.Stats().Retained), "deleted_rows")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}

// fillHistory stores final instances that are two hours old and more.
func fillHistory(b *testing.B, w *world, n int) {
	b.Helper()
	app, err := w.server.EnsureApp(w.ctx, "test")
	require.NoError(b, err)
	old := engine.FirstID(time.Now().Add(-3 * time.Hour).UnixMilli())
	for from := 0; from < n; from += 1000 {
		var c engine.Change
		for i := range min(1000, n-from) {
			id := old + int64(from+i)
			c.NewInstances = append(c.NewInstances, engine.Instance{
				ID: id, App: app.ID, Job: 1 + id%50, JobVersion: 1, Status: engine.StatusSucceeded, Attempt: 1, Lane: workflow.LaneNormal,
				Pool: workflow.PoolAny, CreatedAt: 1, DueAt: 1, StartedAt: 1, FinishedAt: 2, Shard: engine.ShardOf(1 + id%50),
			})
		}
		errs, err := w.store.Commit(w.ctx, []engine.Change{c})
		require.NoError(b, err)
		require.NoError(b, errs[0])
	}
}
