package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type permitRow struct {
	bun.BaseModel `bun:"table:permits"`

	Job      int64 `bun:"job_id,pk"`
	Instance int64 `bun:"instance_id,pk"`
	Max      int32 `bun:"max_running"`
}

type permitKey struct{ job, instance int64 }

func (r *permitRow) noun() engine.Permit {
	return engine.Permit{Job: r.Job, Instance: r.Instance, Max: r.Max}
}

// countPermits counts the permits of the jobs in one statement, and finds which of those that
// the Changes name are held in another.
func (b *book) countPermits(ctx context.Context, w *writer, limited map[int64]bool, changes []engine.Change, errs []error) error {
	jobs := slices.Sorted(maps.Keys(limited))
	for part := range slices.Chunk(jobs, maxRows) {
		var rows []struct {
			Job int64 `bun:"job_id"`
			N   int64 `bun:"n"`
		}
		err := w.tx.NewRaw("SELECT job_id, COUNT(*) AS n FROM permits WHERE job_id IN (?) GROUP BY job_id", bun.List(part)).Scan(ctx, &rows)
		if err != nil {
			return fmt.Errorf("count permits: %w", err)
		}
		for _, r := range rows {
			b.counts[r.Job] = r.N
		}
	}
	named := map[int64][]int64{}
	for i := range changes {
		if errs[i] != nil {
			continue
		}
		for _, all := range [][]engine.Permit{changes[i].Permits, changes[i].GonePermits} {
			for _, p := range all {
				if limited[p.Job] {
					named[p.Job] = append(named[p.Job], p.Instance)
				}
			}
		}
	}
	for _, job := range slices.Sorted(maps.Keys(named)) {
		for part := range slices.Chunk(named[job], maxRows) {
			var held []int64
			err := w.tx.NewRaw("SELECT instance_id FROM permits WHERE job_id = ? AND instance_id IN (?)", job, bun.List(part)).Scan(ctx, &held)
			if err != nil {
				return fmt.Errorf("find permits of job %d: %w", job, err)
			}
			for _, instance := range held {
				b.held[permitKey{job, instance}] = true
			}
		}
	}
	return nil
}

// decidePermits gives back, then takes, all or none.
func (b *book) decidePermits(c *engine.Change) error {
	// What the Change does to the book, kept apart until it is sure.
	counts, held := map[int64]int64{}, map[permitKey]bool{}
	has := func(k permitKey) bool {
		if h, ok := held[k]; ok {
			return h
		}
		return b.held[k]
	}
	var taken, given []permitRow
	for _, p := range c.GonePermits {
		k := permitKey{p.Job, p.Instance}
		if has(k) {
			counts[p.Job]--
			held[k] = false
		}
		given = append(given, permitRow{Job: p.Job, Instance: p.Instance})
	}
	for _, p := range c.Permits {
		k := permitKey{p.Job, p.Instance}
		if has(k) {
			continue
		}
		if n := b.counts[p.Job] + counts[p.Job]; n >= int64(p.Max) {
			return fmt.Errorf("instance %d of job %d: %d of at most %d runs are under way: %w", p.Instance, p.Job, n, p.Max, engine.ErrLimit)
		}
		counts[p.Job]++
		held[k] = true
		taken = append(taken, permitRow{Job: p.Job, Instance: p.Instance, Max: p.Max})
	}
	for job, n := range counts {
		b.counts[job] += n
	}
	maps.Copy(b.held, held)
	for _, g := range given {
		// Taken by an earlier Change of this transaction: nothing of it is stored.
		b.taken = slices.DeleteFunc(b.taken, func(t permitRow) bool { return t.Job == g.Job && t.Instance == g.Instance })
	}
	b.given, b.taken = append(b.given, given...), append(b.taken, taken...)
	return nil
}

// Permits lists the instances that hold a permit of the job.
func (db *DB) Permits(ctx context.Context, job int64, limit int) ([]engine.Permit, error) {
	var rows []permitRow
	if err := db.read.NewSelect().Model(&rows).Where("job_id = ?", job).Order("instance_id").Limit(int64(limit)).Scan(ctx); err != nil {
		return nil, db.wrap(err, "permits of job %d", job)
	}
	return nouns(rows, (*permitRow).noun), nil
}
