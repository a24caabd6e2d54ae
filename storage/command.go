package storage

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type commandRow struct {
	bun.BaseModel `bun:"table:commands"`

	ID        int64   `bun:"id,pk"`
	Shard     int16   `bun:"shard"`
	Kind      string  `bun:"kind"`
	Target    int64   `bun:"target_id"`
	Request   *string `bun:"request"`
	Payload   []byte  `bun:"payload"`
	CreatedAt int64   `bun:"created_at"`
}

func checkCommand(d *door, c *engine.Command) {
	d.text("command", string(c.Kind), engine.MaxName)
	d.text("request id", c.Request, engine.MaxKey)
	d.bytes("payload", c.Payload, engine.MaxParams)
}

func newCommandRow(c *engine.Command) commandRow {
	r := commandRow{ID: c.ID, Shard: int16(c.Shard), Kind: string(c.Kind), Target: c.Target, Payload: c.Payload, CreatedAt: c.CreatedAt}
	if c.Request != "" {
		r.Request = &c.Request
	}
	return r
}

func (r *commandRow) noun() engine.Command {
	return engine.Command{
		ID: r.ID, Shard: uint8(r.Shard), Kind: engine.CommandKind(r.Kind), Target: r.Target, Request: value(r.Request),
		Payload: r.Payload, CreatedAt: r.CreatedAt,
	}
}

// Commands reads the commands of the shards with an id above after, by id.
func (db *DB) Commands(ctx context.Context, shards []uint8, after int64, limit int) ([]engine.Command, error) {
	var rows []commandRow
	q := db.read.NewSelect().Model(&rows).Where("id > ?", after).Order("id").Limit(int64(limit))
	if err := inShards(q, shards).Scan(ctx); err != nil {
		return nil, db.wrap(err, "read commands")
	}
	return nouns(rows, (*commandRow).noun), nil
}

// CommandPending tells whether the command still waits for its owner.
func (db *DB) CommandPending(ctx context.Context, id int64) (bool, error) {
	ok, err := db.read.NewSelect().Model((*commandRow)(nil)).Where("id = ?", id).Exists(ctx)
	return ok, db.wrap(err, "look for command %d", id)
}

// inShards narrows a query to the shards; all of them need no condition.
func inShards(q *bun.SelectQuery, shards []uint8) *bun.SelectQuery {
	all := [engine.Shards]bool{}
	left := engine.Shards
	ids := make([]int16, 0, len(shards))
	for _, s := range shards {
		ids = append(ids, int16(s))
		if int(s) < engine.Shards && !all[s] {
			all[s] = true
			left--
		}
	}
	if left == 0 {
		return q
	}
	return q.Where("shard IN (?)", bun.List(ids))
}

// nouns turns rows into what the engine calls them.
func nouns[R, N any](rows []R, noun func(*R) N) []N {
	out := make([]N, len(rows))
	for i := range rows {
		out[i] = noun(&rows[i])
	}
	return out
}
