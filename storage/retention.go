package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// pastRow is what the deletion of history looks at.
type pastRow struct {
	ID     int64 `bun:"id"`
	Of     int64 `bun:"of_id"`  // an instance: its workflow instance; a workflow instance: its parent
	Job    int64 `bun:"job_id"` // of an instance
	Status int16 `bun:"status"`
}

func (r *pastRow) final() bool { return engine.Status(r.Status).Terminal() }

// DeleteHistory deletes final instances and workflow instances, with all that hangs on them,
// that have ids above after and below before; it looks at no more than limit of each, in one
// short transaction. It returns the last id it looked at, 0 if it came to the end, and how
// many rows of all kinds went.
//
// A workflow instance stays while something that it belongs to, or an instance or nested one
// that belongs to it, is not final. Its instances never go before it: with it go as many as
// the limit has room for, the others when their own ids are looked at.
func (db *DB) DeleteHistory(ctx context.Context, after, before int64, limit int) (int64, int64, error) {
	if limit <= 0 {
		return 0, 0, fmt.Errorf("delete history: at most %d rows at a time: %w", limit, engine.ErrInvalid)
	}
	p := past{db: db}
	last, err := p.look(ctx, after, before, limit)
	if err == nil {
		err = p.choose(ctx, limit)
	}
	var rows int64
	if err == nil && len(p.instances)+len(p.workflows) > 0 {
		err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			var err error
			rows, err = p.remove(ctx, tx)
			return err
		})
	}
	if err != nil {
		return 0, 0, db.wrap(err, "delete history")
	}
	return last, rows, nil
}

// past is one page of history.
type past struct {
	db                   *DB
	instances, workflows []pastRow
	own                  []pastRow   // final instances of the workflow instances that go
	permits              []permitRow // that final instances should have given back
}

// look reads the page. Both tables share one order of ids, so the page ends where the first
// of the two that has more behind it ends.
func (p *past) look(ctx context.Context, after, before int64, limit int) (int64, error) {
	err := p.db.read.NewRaw("SELECT id, COALESCE(workflow_id, 0) AS of_id, job_id, status FROM instances WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
		after, before, limit).Scan(ctx, &p.instances)
	if err != nil {
		return 0, err
	}
	err = p.db.read.NewRaw("SELECT id, parent_id AS of_id, 0 AS job_id, status FROM workflow_instances WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
		after, before, limit).Scan(ctx, &p.workflows)
	if err != nil {
		return 0, err
	}
	last := int64(0)
	for _, rows := range [][]pastRow{p.instances, p.workflows} {
		if len(rows) == limit && (last == 0 || rows[limit-1].ID < last) {
			last = rows[limit-1].ID
		}
	}
	if last != 0 {
		behind := func(r pastRow) bool { return r.ID > last }
		p.instances, p.workflows = slices.DeleteFunc(p.instances, behind), slices.DeleteFunc(p.workflows, behind)
	}
	return last, nil
}

// choose leaves what may go.
func (p *past) choose(ctx context.Context, limit int) error {
	unfinished := func(r pastRow) bool { return !r.final() }
	p.instances, p.workflows = slices.DeleteFunc(p.instances, unfinished), slices.DeleteFunc(p.workflows, unfinished)
	if err := p.chooseWorkflows(ctx); err != nil {
		return err
	}
	// An instance of a workflow instance goes by itself only if that is gone already.
	var of []int64
	for _, r := range p.instances {
		if r.Of != 0 {
			of = append(of, r.Of)
		}
	}
	there, err := p.workflowRows(ctx, of)
	if err != nil {
		return err
	}
	p.instances = slices.DeleteFunc(p.instances, func(r pastRow) bool { return r.Of != 0 && there[r.Of] != nil })
	if len(p.workflows) > 0 {
		err := p.db.read.NewRaw("SELECT id, workflow_id AS of_id, job_id, status FROM instances WHERE workflow_id IN (?) AND status >= 5 ORDER BY workflow_id, id LIMIT ?",
			bun.List(ids(p.workflows)), limit).Scan(ctx, &p.own)
		if err != nil {
			return err
		}
	}
	return p.findPermits(ctx)
}

// findPermits looks before the transaction, which is short so, as there are hardly any.
func (p *past) findPermits(ctx context.Context) error {
	of := map[int64][]int64{}
	for _, rows := range [][]pastRow{p.instances, p.own} {
		for _, r := range rows {
			if r.Job != 0 {
				of[r.Job] = append(of[r.Job], r.ID)
			}
		}
	}
	for part := range slices.Chunk(keysOf(of), maxRows) {
		var held []permitRow
		if err := p.db.read.NewSelect().Model(&held).Where("job_id IN (?)", bun.List(part)).Scan(ctx); err != nil {
			return err
		}
		for _, h := range held {
			if slices.Contains(of[h.Job], h.Instance) {
				p.permits = append(p.permits, h)
			}
		}
	}
	return nil
}

// maxDepth bounds how far up and down the nesting is followed; the engine nests less deeply.
const maxDepth = 64

// chooseWorkflows leaves those in whose family, up to the root and down to the last child,
// all are final.
func (p *past) chooseWorkflows(ctx context.Context) error {
	// Of every candidate, which row of its line upwards is looked for next; then downwards.
	alive := map[int64]bool{}
	line := map[int64][]int64{}
	for _, r := range p.workflows {
		if r.Of != 0 {
			line[r.Of] = append(line[r.Of], r.ID)
		}
	}
	for depth := 0; len(line) > 0 && depth < maxDepth; depth++ {
		rows, err := p.workflowRows(ctx, keysOf(line))
		if err != nil {
			return err
		}
		next := map[int64][]int64{}
		for id, below := range line {
			switch r := rows[id]; {
			case r == nil: // gone: it was final
			case !r.final():
				for _, id := range below {
					alive[id] = true
				}
			case r.Of != 0:
				next[r.Of] = append(next[r.Of], below...)
			}
		}
		line = next
	}
	down := map[int64][]int64{}
	for _, r := range p.workflows {
		down[r.ID] = []int64{r.ID}
	}
	for depth := 0; len(down) > 0 && depth < maxDepth; depth++ {
		var living []int64
		err := p.db.read.NewRaw("SELECT DISTINCT workflow_id FROM instances WHERE workflow_id IN (?) AND status < 5", bun.List(keysOf(down))).Scan(ctx, &living)
		if err != nil {
			return err
		}
		for _, of := range living {
			for _, id := range down[of] {
				alive[id] = true
			}
		}
		var children []int64
		err = p.db.read.NewRaw("SELECT DISTINCT child_id FROM nodes WHERE workflow_id IN (?) AND child_id <> 0", bun.List(keysOf(down))).Scan(ctx, &children)
		if err != nil {
			return err
		}
		rows, err := p.workflowRows(ctx, children)
		if err != nil {
			return err
		}
		next := map[int64][]int64{}
		for id, r := range rows {
			for _, root := range down[r.Of] {
				if !r.final() {
					alive[root] = true
				} else {
					next[id] = append(next[id], root)
				}
			}
		}
		down = next
	}
	p.workflows = slices.DeleteFunc(p.workflows, func(r pastRow) bool { return alive[r.ID] })
	return nil
}

func (p *past) workflowRows(ctx context.Context, of []int64) (map[int64]*pastRow, error) {
	out := map[int64]*pastRow{}
	for part := range slices.Chunk(of, maxRows) {
		var rows []pastRow
		err := p.db.read.NewRaw("SELECT id, parent_id AS of_id, 0 AS job_id, status FROM workflow_instances WHERE id IN (?)", bun.List(part)).Scan(ctx, &rows)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			out[rows[i].ID] = &rows[i]
		}
	}
	return out, nil
}

// remove deletes the page. A workflow instance that has begun a further attempt meanwhile
// stays, and all of its own.
func (p *past) remove(ctx context.Context, tx bun.Tx) (int64, error) {
	var sum int64
	run := func(text string, args ...any) error {
		res, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		n, err := res.RowsAffected()
		sum += n
		return err
	}
	instances := slices.Clone(p.instances)
	for part := range slices.Chunk(ids(p.workflows), maxRows) {
		var sure []int64
		err := tx.NewRaw("SELECT id FROM workflow_instances WHERE id IN (?) AND status >= 5 ORDER BY id"+p.db.forUpdate, bun.List(part)).Scan(ctx, &sure)
		if err != nil {
			return 0, err
		}
		if len(sure) == 0 {
			continue
		}
		for _, r := range p.own {
			if slices.Contains(sure, r.Of) {
				instances = append(instances, r)
			}
		}
		for _, text := range []string{
			"DELETE FROM workflow_instances WHERE id IN (?) AND status >= 5",
			"DELETE FROM nodes WHERE workflow_id IN (?)",
			"DELETE FROM signals WHERE workflow_id IN (?)",
		} {
			if err := run(text, bun.List(sure)); err != nil {
				return 0, err
			}
		}
	}
	slices.SortFunc(instances, func(a, b pastRow) int { return cmp.Compare(a.ID, b.ID) })
	instances = slices.Compact(instances)
	if err := p.db.tables.permits.remove(ctx, p.db.writer(tx), p.permits); err != nil {
		return 0, err
	}
	for part := range slices.Chunk(ids(instances), maxRows) {
		for _, text := range []string{
			"DELETE FROM instances WHERE id IN (?) AND status >= 5",
			"DELETE FROM attempts WHERE instance_id IN (?)",
			"DELETE FROM tasks WHERE instance_id IN (?)",
			"DELETE FROM map_runs WHERE instance_id IN (?)",
		} {
			if err := run(text, bun.List(part)); err != nil {
				return 0, err
			}
		}
	}
	return sum, nil
}

func ids(rows []pastRow) []int64 {
	out := make([]int64, len(rows))
	for i := range rows {
		out[i] = rows[i].ID
	}
	return out
}

func keysOf(m map[int64][]int64) []int64 {
	out := make([]int64, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
