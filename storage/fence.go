package storage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// fence is an owner's right to write to a shard, and how far the commit moves its cursor.
type fence struct {
	shard  uint8
	owner  int16
	epoch  int64
	moves  bool
	cursor int64
	reset  bool // the cursor may move back
}

const fenceText = "UPDATE shards SET commit_no = commit_no + 1, report_cursor = CASE WHEN ? = 1 OR report_cursor < ? THEN ? ELSE report_cursor END " +
	"WHERE shard = ? AND owner = ? AND epoch = ?"

const cursorText = "UPDATE shards SET report_cursor = CASE WHEN ? = 1 OR report_cursor < ? THEN ? ELSE report_cursor END " +
	"WHERE shard = ? AND owner = ? AND epoch = ?"

// fences are those of the Changes without an error, in the order of their shards.
func fences(changes []engine.Change, errs []error) []*fence {
	var out []*fence
	for i := range changes {
		c := &changes[i]
		if !c.Fenced || errs[i] != nil {
			continue
		}
		at, ok := slices.BinarySearchFunc(out, c, func(f *fence, c *engine.Change) int {
			return cmp.Or(cmp.Compare(f.shard, c.Shard), cmp.Compare(f.epoch, c.Epoch), cmp.Compare(f.owner, c.Owner))
		})
		if !ok {
			out = slices.Insert(out, at, &fence{shard: c.Shard, owner: c.Owner, epoch: c.Epoch})
		}
		f := out[at]
		switch {
		case c.ResetCursor:
			f.moves, f.reset, f.cursor = true, true, int64(c.Cursor)
		case c.Cursor > 0:
			f.moves, f.cursor = true, max(f.cursor, int64(c.Cursor))
		}
	}
	return out
}

// fence begins the transaction: it proves every shard's owner, holds the rows against a new
// one until the end, and marks the Changes of lost shards.
func (w *writer) fence(ctx context.Context, changes []engine.Change, errs []error, cursors bool) error {
	all := fences(changes, errs)
	if len(all) == 0 {
		return nil
	}
	if !cursors {
		for _, f := range all {
			f.reset, f.cursor = false, 0
		}
	}
	lost := map[fence]bool{}
	var err error
	if w.db.singleRows || len(all) == 1 {
		err = w.fenceEach(ctx, all, lost)
	} else {
		err = w.fenceAll(ctx, all, lost)
	}
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		if c.Fenced && errs[i] == nil && lost[fence{shard: c.Shard, owner: c.Owner, epoch: c.Epoch}] {
			errs[i] = engine.ErrFenced
		}
	}
	return nil
}

func (w *writer) fenceEach(ctx context.Context, all []*fence, lost map[fence]bool) error {
	for _, f := range all {
		res, err := w.exec(ctx, fenceText, int64(bit(f.reset)), f.cursor, f.cursor, int64(f.shard), int64(f.owner), f.epoch)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			lost[fence{shard: f.shard, owner: f.owner, epoch: f.epoch}] = true
		}
	}
	return nil
}

// fenceAll does it in one round trip; only if a shard is lost does a second one ask which.
func (w *writer) fenceAll(ctx context.Context, all []*fence, lost map[fence]bool) error {
	var cases, conds []string
	var caseArgs, condArgs []any
	shards := make([]int16, 0, len(all))
	for _, f := range all {
		cases = append(cases, "WHEN shard = ? AND owner = ? AND epoch = ? AND (? = 1 OR report_cursor < ?) THEN ?")
		caseArgs = append(caseArgs, f.shard, f.owner, f.epoch, bit(f.reset), f.cursor, f.cursor)
		conds = append(conds, "(shard = ? AND owner = ? AND epoch = ?)")
		condArgs = append(condArgs, f.shard, f.owner, f.epoch)
		shards = append(shards, int16(f.shard))
	}
	text := "UPDATE shards SET commit_no = commit_no + 1, report_cursor = CASE " + strings.Join(cases, " ") + " ELSE report_cursor END " +
		"WHERE " + strings.Join(conds, " OR ")
	res, err := w.tx.ExecContext(ctx, text, append(caseArgs, condArgs...)...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil || int(n) == len(all) {
		return err
	}
	var held []shardRow
	if err := w.tx.NewSelect().Model(&held).Where("shard IN (?)", bun.List(shards)).Scan(ctx); err != nil {
		return err
	}
	for _, f := range all {
		if !slices.ContainsFunc(held, func(r shardRow) bool {
			return r.Shard == int16(f.shard) && r.Owner == f.owner && r.Epoch == f.epoch
		}) {
			lost[fence{shard: f.shard, owner: f.owner, epoch: f.epoch}] = true
		}
	}
	return nil
}

// moveCursors ends a careful commit: only what was stored moves the cursors.
func (w *writer) moveCursors(ctx context.Context, changes []engine.Change, errs []error) error {
	for _, f := range fences(changes, errs) {
		if !f.moves {
			continue
		}
		if _, err := w.tx.ExecContext(ctx, cursorText, bit(f.reset), f.cursor, f.cursor, f.shard, f.owner, f.epoch); err != nil {
			return err
		}
	}
	return nil
}
