package storage

import (
	"context"

	"github.com/fanjet/fanjet/engine"
)

// Instance returns the instance with the id.
func (db *DB) Instance(ctx context.Context, id int64) (*engine.Instance, error) {
	var row instanceRow
	if err := db.read.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx); err != nil {
		return nil, db.wrap(err, "instance %d", id)
	}
	n := row.noun()
	return &n, nil
}

// Instances lists a job's instances (0: every job's of the app), newest first, before the
// given id (0: from the newest). Every job's is a walk back through all apps' instances.
func (db *DB) Instances(ctx context.Context, app, job int64, before int64, limit int) ([]engine.Instance, error) {
	var rows []instanceRow
	q := db.read.NewSelect().Model(&rows).Where("app_id = ?", app).Order("id DESC").Limit(int64(limit))
	if job != 0 {
		q = q.Where("job_id = ?", job)
	}
	if before != 0 {
		q = q.Where("id < ?", before)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, db.wrap(err, "list instances of app %d", app)
	}
	return nouns(rows, (*instanceRow).noun), nil
}

// InstancesOfWorkflow lists the instances of a workflow instance by id.
func (db *DB) InstancesOfWorkflow(ctx context.Context, workflow int64) ([]engine.Instance, error) {
	var rows []instanceRow
	if err := db.read.NewSelect().Model(&rows).Where("workflow_id = ?", workflow).Order("id").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list instances of workflow instance %d", workflow)
	}
	return nouns(rows, (*instanceRow).noun), nil
}

// Attempts lists the attempts of an instance after the first.
func (db *DB) Attempts(ctx context.Context, instance int64) ([]engine.Attempt, error) {
	var rows []attemptRow
	if err := db.read.NewSelect().Model(&rows).Where("instance_id = ?", instance).Order("attempt").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list attempts of instance %d", instance)
	}
	return nouns(rows, (*attemptRow).noun), nil
}

// WorkflowInstance returns the workflow instance with the id.
func (db *DB) WorkflowInstance(ctx context.Context, id int64) (*engine.WorkflowInstance, error) {
	var row workflowInstanceRow
	if err := db.read.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx); err != nil {
		return nil, db.wrap(err, "workflow instance %d", id)
	}
	n := row.noun()
	return &n, nil
}

// WorkflowInstances lists a workflow's instances (0: every workflow's of the app), newest
// first, before the given id (0: from the newest).
func (db *DB) WorkflowInstances(ctx context.Context, app, workflow int64, before int64, limit int) ([]engine.WorkflowInstance, error) {
	var rows []workflowInstanceRow
	q := db.read.NewSelect().Model(&rows).Where("app_id = ?", app).Order("id DESC").Limit(int64(limit))
	if workflow != 0 {
		q = q.Where("workflow_id = ?", workflow)
	}
	if before != 0 {
		q = q.Where("id < ?", before)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, db.wrap(err, "list workflow instances of app %d", app)
	}
	return nouns(rows, (*workflowInstanceRow).noun), nil
}

// Nodes lists the nodes of a workflow instance, every attempt, by their place in the graph.
func (db *DB) Nodes(ctx context.Context, workflowInstance int64) ([]engine.Node, error) {
	var rows []nodeRow
	err := db.read.NewSelect().Model(&rows).Where("workflow_id = ?", workflowInstance).Order("node_index", "node", "attempt").Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list nodes of workflow instance %d", workflowInstance)
	}
	return nouns(rows, (*nodeRow).noun), nil
}

// MapRuns lists the map runs of an instance.
func (db *DB) MapRuns(ctx context.Context, instance int64) ([]engine.MapRun, error) {
	var rows []mapRunRow
	if err := db.read.NewSelect().Model(&rows).Where("instance_id = ?", instance).Order("run").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list map runs of instance %d", instance)
	}
	return nouns(rows, (*mapRunRow).noun), nil
}

// DeadLetters lists dead letters, newest first, before the given id (0: from the newest).
func (db *DB) DeadLetters(ctx context.Context, before int64, limit int) ([]engine.DeadLetter, error) {
	var rows []deadLetterRow
	q := db.read.NewSelect().Model(&rows).Order("id DESC").Limit(int64(limit))
	if before != 0 {
		q = q.Where("id < ?", before)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, db.wrap(err, "list dead letters")
	}
	return nouns(rows, (*deadLetterRow).noun), nil
}

// CountInstances counts an app's instances by status; a scan, for tests and verify.
func (db *DB) CountInstances(ctx context.Context, app int64) (map[engine.Status]int64, error) {
	var rows []struct {
		Status int16 `bun:"status"`
		N      int64 `bun:"n"`
	}
	err := db.read.NewRaw("SELECT status, COUNT(*) AS n FROM instances WHERE app_id = ? GROUP BY status", app).Scan(ctx, &rows)
	if err != nil {
		return nil, db.wrap(err, "count instances of app %d", app)
	}
	out := map[engine.Status]int64{}
	for _, r := range rows {
		out[engine.Status(r.Status)] = r.N
	}
	return out, nil
}
