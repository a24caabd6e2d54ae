package storage

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type shardRow struct {
	bun.BaseModel `bun:"table:shards"`

	Shard    int16 `bun:"shard,pk"`
	Owner    int16 `bun:"owner"`
	Epoch    int64 `bun:"epoch"`
	Cursor   int64 `bun:"report_cursor"`
	CommitNo int64 `bun:"commit_no"`
}

func (r *shardRow) noun() engine.Shard {
	return engine.Shard{Shard: uint8(r.Shard), Owner: r.Owner, Epoch: r.Epoch, Cursor: uint64(r.Cursor), CommitNo: r.CommitNo}
}

// page bounds how many rows one statement of LoadShard reads.
const page = 500

// LoadShard reads the state of a shard whose epoch the caller holds; ErrFenced otherwise.
// All of it is of one moment, read in pages.
func (db *DB) LoadShard(ctx context.Context, shard uint8, owner int16, epoch int64) (*engine.ShardState, error) {
	var state *engine.ShardState
	err := db.again(ctx, func() error {
		opts := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
		if db.singleRows {
			opts = nil // any transaction of SQLite sees one moment
		}
		tx, err := db.read.BeginTx(ctx, opts)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // it only read
		state = &engine.ShardState{}
		return load(ctx, tx, state, shard, owner, epoch)
	})
	if err != nil {
		return nil, db.wrap(err, "load shard %d", shard)
	}
	return state, nil
}

func load(ctx context.Context, tx bun.Tx, s *engine.ShardState, shard uint8, owner int16, epoch int64) error {
	var row shardRow
	if err := tx.NewSelect().Model(&row).Where("shard = ?", shard).Scan(ctx); err != nil {
		return err
	}
	if row.Owner != owner || row.Epoch != epoch {
		return fmt.Errorf("server %d at epoch %d, the database has server %d at epoch %d: %w", owner, epoch, row.Owner, row.Epoch, engine.ErrFenced)
	}
	s.Shard = row.noun()
	if err := loadInstances(ctx, tx, s, shard); err != nil {
		return err
	}
	if err := loadWorkflows(ctx, tx, s, shard); err != nil {
		return err
	}
	var commands []commandRow
	if err := tx.NewSelect().Model(&commands).Where("shard = ?", shard).Order("id").Scan(ctx); err != nil {
		return err
	}
	s.Commands = nouns(commands, (*commandRow).noun)
	return loadPermits(ctx, tx, s, shard)
}

// loadPermits reads all permits, of which there are as many as may be under way, to find those
// of the shard. One whose instance is not there is spare, too: what was to make that was refused.
func loadPermits(ctx context.Context, tx bun.Tx, s *engine.ShardState, shard uint8) error {
	var rows []struct {
		Job      int64 `bun:"job_id"`
		Instance int64 `bun:"instance_id"`
		Max      int32 `bun:"max_running"`
		Status   int16 `bun:"status"` // 0: there is none
	}
	err := tx.NewRaw("SELECT p.job_id, p.instance_id, p.max_running, COALESCE(i.status, 0) AS status FROM permits p LEFT JOIN instances i ON i.id = p.instance_id "+
		"WHERE i.shard = ? OR i.id IS NULL ORDER BY p.job_id, p.instance_id", shard).Scan(ctx, &rows)
	if err != nil {
		return fmt.Errorf("permits: %w", err)
	}
	for _, r := range rows {
		p := engine.Permit{Job: r.Job, Instance: r.Instance, Max: r.Max}
		switch {
		case r.Status == 0 && engine.ShardOf(r.Job) != shard: // whoever has the job's shard sees to it
		case r.Status == 0, engine.Status(r.Status).Terminal():
			s.SparePermits = append(s.SparePermits, p)
		default:
			s.Permits = append(s.Permits, p)
		}
	}
	return nil
}

func loadInstances(ctx context.Context, tx bun.Tx, s *engine.ShardState, shard uint8) error {
	for after := int64(0); ; {
		var rows []instanceRow
		if err := tx.NewSelect().Model(&rows).Where("active_key = ?", shard).Where("id > ?", after).Order("id").Limit(page).Scan(ctx); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		ids := make([]int64, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		after = ids[len(ids)-1]
		s.Instances = append(s.Instances, nouns(rows, (*instanceRow).noun)...)
		var runs []mapRunRow
		if err := tx.NewSelect().Model(&runs).Where("instance_id IN (?)", bun.List(ids)).Where("closed = 0").Order("instance_id", "run").Scan(ctx); err != nil {
			return err
		}
		s.Runs = append(s.Runs, nouns(runs, (*mapRunRow).noun)...)
		var tasks []taskRow
		err := tx.NewSelect().Model(&tasks).Where("instance_id IN (?)", bun.List(ids)).
			Where("status <> ? OR kind = ?", engine.TaskSucceeded, engine.TaskShare).Order("instance_id", "run", "kind", "number").Scan(ctx)
		if err != nil {
			return err
		}
		s.Tasks = append(s.Tasks, nouns(tasks, (*taskRow).noun)...)
		if len(rows) < page {
			return nil
		}
	}
}

func loadWorkflows(ctx context.Context, tx bun.Tx, s *engine.ShardState, shard uint8) error {
	for after := int64(0); ; {
		var rows []workflowInstanceRow
		if err := tx.NewSelect().Model(&rows).Where("active_key = ?", shard).Where("id > ?", after).Order("id").Limit(page).Scan(ctx); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		ids := make([]int64, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		after = ids[len(ids)-1]
		s.Workflows = append(s.Workflows, nouns(rows, (*workflowInstanceRow).noun)...)
		var nodes []nodeRow
		err := tx.NewSelect().Model(&nodes).Where("workflow_id IN (?)", bun.List(ids)).Order("workflow_id", "node_index", "node", "attempt").Scan(ctx)
		if err != nil {
			return err
		}
		for i := range nodes {
			last := i == len(nodes)-1 || nodes[i+1].Workflow != nodes[i].Workflow || nodes[i+1].Node != nodes[i].Node
			if last {
				s.Nodes = append(s.Nodes, nodes[i].noun())
			}
		}
		var signals []signalRow
		if err := tx.NewSelect().Model(&signals).Where("workflow_id IN (?)", bun.List(ids)).Order("id").Scan(ctx); err != nil {
			return err
		}
		s.Signals = append(s.Signals, nouns(signals, (*signalRow).noun)...)
		if len(rows) < page {
			return nil
		}
	}
}

// Waiting reads instances that wait in the queue, belong to one of the shards and are due
// at or before due, in the order (due, id), after the given position.
func (db *DB) Waiting(ctx context.Context, q engine.Queue, shards []uint8, due int64, after engine.WaitingPos, limit int) ([]engine.Instance, error) {
	from, to := engine.FeedKey(q, after.DueAt), engine.FeedKey(q, due)
	if len(shards) == 0 || limit <= 0 || from > to {
		return nil, nil
	}
	// What is due at the same time as the position, and then the rest: two ranges of the
	// index, where one condition with OR would read it from the start.
	var rows, rest []instanceRow
	same := db.read.NewSelect().Model(&rows).Where("feed_key = ?", from).Where("id > ?", after.ID).Order("id").Limit(int64(limit))
	if err := inShards(same, shards).Scan(ctx); err != nil {
		return nil, db.wrap(err, "read queue %d", q)
	}
	if left := limit - len(rows); left > 0 && from < to {
		later := db.read.NewSelect().Model(&rest).Where("feed_key > ?", from).Where("feed_key <= ?", to).Order("feed_key", "id").Limit(int64(left))
		if err := inShards(later, shards).Scan(ctx); err != nil {
			return nil, db.wrap(err, "read queue %d", q)
		}
	}
	return nouns(append(rows, rest...), (*instanceRow).noun), nil
}

// QueueHeads lists the queues in which something waits, one index step a queue, all shards
// together.
func (db *DB) QueueHeads(ctx context.Context) ([]engine.QueueHead, error) {
	conn, err := db.read.Conn(ctx)
	if err != nil {
		return nil, db.wrap(err, "list queues")
	}
	defer conn.Close()
	var heads []engine.QueueHead
	for from := int64(0); ; {
		var key *int64
		if err := conn.NewRaw("SELECT MIN(feed_key) FROM instances WHERE feed_key >= ?", from).Scan(ctx, &key); err != nil {
			return nil, db.wrap(err, "list queues")
		}
		if key == nil {
			return heads, nil
		}
		queue, due := engine.SplitFeedKey(*key)
		heads = append(heads, engine.QueueHead{Queue: queue, DueAt: due})
		from = engine.FeedKey(queue+1, 0)
	}
}

// NewWorkflows reads the workflow instances of the shards that wait and are due, by id; of
// those that are queued only the oldest of each version of a workflow, and those at the end.
func (db *DB) NewWorkflows(ctx context.Context, shards []uint8, due int64, limit int) ([]engine.WorkflowInstance, error) {
	var rows, queued []workflowInstanceRow
	// The sums keep the database from walking through all of the history in the order of ids
	// or workflows to find the few that wait.
	q := db.read.NewSelect().Model(&rows).Where("wait_key <= ?", due).Where("reason <> ?", engine.ReasonQueued).OrderExpr("id + 0").Limit(int64(limit))
	if err := inShards(q, shards).Scan(ctx); err != nil {
		return nil, db.wrap(err, "read new workflow instances")
	}
	var heads []int64
	q = db.read.NewSelect().Model((*workflowInstanceRow)(nil)).ColumnExpr("MIN(id + 0)").Where("wait_key <= ?", due).Where("reason = ?", engine.ReasonQueued).
		GroupExpr("workflow_id + 0, version + 0").Limit(int64(limit))
	if err := inShards(q, shards).Scan(ctx, &heads); err != nil {
		return nil, db.wrap(err, "find queued workflow instances")
	}
	if len(heads) > 0 {
		if err := db.read.NewSelect().Model(&queued).Where("id IN (?)", bun.List(heads)).Where("reason = ?", engine.ReasonQueued).Order("id").Scan(ctx); err != nil {
			return nil, db.wrap(err, "read queued workflow instances")
		}
	}
	return nouns(append(rows, queued...), (*workflowInstanceRow).noun), nil
}

// RunOf reads the map run of an instance.
func (db *DB) RunOf(ctx context.Context, instance int64, run int32) (*engine.MapRun, error) {
	var row mapRunRow
	if err := db.read.NewSelect().Model(&row).Where("instance_id = ? AND run = ?", instance, run).Scan(ctx); err != nil {
		return nil, db.wrap(err, "map run %d of instance %d", run, instance)
	}
	m := row.noun()
	return &m, nil
}

// TasksOf reads task rows of an instance and run by number, from the given one on.
func (db *DB) TasksOf(ctx context.Context, instance int64, run int32, kind engine.TaskKind, from int64, limit int) ([]engine.Task, error) {
	var rows []taskRow
	err := db.read.NewSelect().Model(&rows).Where("instance_id = ? AND run = ? AND kind = ? AND number >= ?", instance, run, kind, from).
		Order("number").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "tasks of instance %d", instance)
	}
	return nouns(rows, (*taskRow).noun), nil
}
