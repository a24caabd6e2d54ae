package storage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/storage/storagetest"
)

func auditNote(action, after string) engine.AuditFunc {
	return access.Chain(engine.AuditRecord{At: 1, ActorKind: engine.ActorSystem, Action: action, Outcome: engine.OutcomeDone, After: []byte(after)})
}

// Callers share transactions; one whose record is refused, or whose context ends while it
// waits, fails alone; and what does not fit waits for the next.
func TestAuditQueue(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		ctx := t.Context()
		db, err := Open(ctx, cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()

		spied := &spy{}
		db.write = db.write.WithQueryHook(spied)
		// Somebody appends, so that all the callers meet behind.
		require.True(t, db.audit.join(&auditEntry{}))
		const callers = 60
		var wg sync.WaitGroup
		errs := make([]error, callers)
		impatient, giveUp := context.WithCancel(ctx)
		for n := range callers {
			ctx := ctx
			build := auditNote("jobs.write", strings.Repeat("x", 40<<10))
			switch n % 10 {
			case 3:
				build = func(prev engine.AuditRecord) engine.AuditRecord {
					return engine.AuditRecord{Seq: prev.Seq + 1, Prev: prev.Hash}
				}
			case 7:
				ctx = impatient
			}
			wg.Go(func() { _, errs[n] = db.AppendAudit(ctx, build) })
		}
		wait := func(want int) {
			for got := -1; got != want; runtime.Gosched() {
				db.audit.mu.Lock()
				got = len(db.audit.waiting)
				db.audit.mu.Unlock()
			}
		}
		wait(callers)
		giveUp()
		wait(callers * 9 / 10)
		db.audit.pass(nil)
		wg.Wait()
		stored := 0
		for n, err := range errs {
			switch {
			case n%10 == 3:
				require.ErrorIs(t, err, engine.ErrInvalid, "%d", n)
			case n%10 == 7:
				require.ErrorIs(t, err, context.Canceled)
			default:
				require.NoError(t, err)
				stored++
			}
		}
		require.Equal(t, callers*8/10, stored)
		records, err := db.AuditAfter(ctx, 0, 1000)
		require.NoError(t, err)
		require.Len(t, records, stored)
		_, err = access.VerifyAudit(func(yield func(engine.AuditRecord, error) bool) {
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
		}, engine.AuditRecord{})
		require.NoError(t, err)
		commits := 0
		for _, text := range spied.texts {
			if strings.HasPrefix(text, "UPDATE audit_head") {
				commits++
			}
		}
		require.Equal(t, 2, commits, "48 records of 40 KiB")
		require.False(t, db.audit.busy)
		require.Empty(t, db.audit.waiting)
	})
}

// Callers who append at the same time share commits.
func BenchmarkAppendAudit(b *testing.B) {
	for _, dialect := range []struct {
		name string
		url  func(b *testing.B) string
	}{
		{"SQLite", func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "x.db") }},
		{"MariaDB", func(b *testing.B) string { return storagetest.MariaDB(b) }},
	} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d callers", dialect.name, callers), func(b *testing.B) {
				db, err := Open(b.Context(), Config{URL: dialect.url(b), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
				require.NoError(b, err)
				defer func() { require.NoError(b, db.Close()) }()
				var wg sync.WaitGroup
				errs := make([]error, callers)
				b.ResetTimer()
				for c := range callers {
					wg.Go(func() {
						for n := c; n < b.N && errs[c] == nil; n += callers {
							_, errs[c] = db.AppendAudit(b.Context(), auditNote("instances.trigger", `{"params":{"day":"2026-11-30"}}`))
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				for _, err := range errs {
					require.NoError(b, err)
				}
			})
		}
	}
}

// Who looks for what one person did, or what was done to one job, does not read all the rest.
func TestAuditPlans(t *testing.T) {
	eachDialect(t, func(t *testing.T, cfg Config) {
		ctx := t.Context()
		db, err := Open(ctx, cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		var rows []*auditRow
		for n := range int64(5000) {
			rows = append(rows, &auditRow{
				Seq: n + 1, At: n, ActorKind: "user", Actor: n % 100, Action: "jobs.write", App: n % 50, Target: fmt.Sprint("job:", n%500), Outcome: "done",
				Prev: make([]byte, 32), Hash: make([]byte, 32),
			})
		}
		_, err = db.write.NewInsert().Model(&rows).Returning("NULL").Exec(ctx)
		require.NoError(t, err)
		if !db.singleRows {
			_, err = db.write.ExecContext(ctx, "ANALYZE TABLE audit")
			require.NoError(t, err)
		}
		spied := &spy{}
		db.read = db.read.WithQueryHook(spied)
		for key, q := range map[string]engine.AuditQuery{
			"audit_actor_id": {Actor: 7, Limit: 50}, "audit_app_id": {App: 7, Limit: 50, Before: 4000}, "audit_target": {Target: "job:7", Limit: 50},
		} {
			spied.texts = nil
			got, err := db.AuditRecords(ctx, q)
			require.NoError(t, err)
			require.NotEmpty(t, got)
			plan := explain(t, db, spied.texts[0])
			require.Contains(t, plan, key, spied.texts[0])
		}
	})
}
