package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type workflowRow struct {
	bun.BaseModel `bun:"table:workflows"`

	ID         int64  `bun:"id,pk,autoincrement"`
	App        int64  `bun:"app_id"`
	Name       string `bun:"name"`
	Title      string `bun:"title"`
	Version    int32  `bun:"version"`
	Enabled    int16  `bun:"enabled"`
	Definition []byte `bun:"definition"`
	Schedule   []byte `bun:"schedule"` // NULL: none
	MaxRunning int32  `bun:"max_running"`
	CreatedAt  int64  `bun:"created_at"`
	UpdatedAt  int64  `bun:"updated_at"`
}

func (r *workflowRow) noun() (*engine.WorkflowDef, error) {
	w := &engine.WorkflowDef{
		ID: r.ID, App: r.App, Name: r.Name, Title: r.Title, Version: r.Version, Enabled: r.Enabled == 1, Definition: r.Definition,
		MaxRunning: r.MaxRunning, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if err := decodeSchedule(r.Schedule, &w.Schedule); err != nil {
		return nil, fmt.Errorf("stored schedule of workflow %d: %w", r.ID, err)
	}
	return w, nil
}

// SaveWorkflow inserts (Version 0) or updates a workflow, and its schedule with it; an
// update whose Version is not the stored one is ErrConflict. It returns the new version.
func (db *DB) SaveWorkflow(ctx context.Context, w engine.WorkflowDef) (*engine.WorkflowDef, error) {
	schedule, err := encodeSchedule(&w.Schedule)
	if err != nil {
		return nil, fmt.Errorf("workflow %s: %w", w.Name, err)
	}
	var d door
	d.name("workflow", w.Name)
	d.text("title", w.Title, engine.MaxTitle)
	d.text("definition", string(w.Definition), engine.MaxDefinition)
	d.hold(w.App > 0, "workflow %s has no app", w.Name)
	d.schedule(schedule, int64(w.MaxRunning))
	if err := d.err(); err != nil {
		return nil, err
	}
	row := workflowRow{
		ID: w.ID, App: w.App, Name: w.Name, Title: w.Title, Version: w.Version, Enabled: bit(w.Enabled),
		CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, Definition: []byte{}, Schedule: schedule, MaxRunning: w.MaxRunning,
	}
	given := row
	err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		row = given
		if err := saveVersioned(ctx, tx, &row, &row.ID, &row.Version, "title", "enabled", "schedule", "max_running", "updated_at", "name"); err != nil {
			return err
		}
		if err := tx.NewSelect().Model(&row).Column("app_id", "created_at").WherePK().Scan(ctx); err != nil {
			return err
		}
		// The document goes as an argument of the driver: as text of a statement it could
		// double, and be more than a server takes.
		row.Definition = w.Definition
		if _, err := tx.Tx.ExecContext(ctx, "UPDATE workflows SET definition = ? WHERE id = ?", w.Definition, row.ID); err != nil {
			return err
		}
		_, err := tx.Tx.ExecContext(ctx, "INSERT INTO workflow_versions (workflow_id, version, title, enabled, definition, schedule, max_running, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			row.ID, row.Version, row.Title, row.Enabled, w.Definition, row.Schedule, row.MaxRunning, row.UpdatedAt)
		if err != nil {
			return err
		}
		saved, err := row.noun()
		if err != nil {
			return err
		}
		return db.saveSchedule(ctx, tx, freshSchedule(scheduleOfWorkflow(saved), row.Schedule))
	})
	if err != nil {
		return nil, db.wrap(err, "save workflow %s", w.Name)
	}
	return row.noun()
}

func (db *DB) workflow(ctx context.Context, where string, args ...any) (*engine.WorkflowDef, error) {
	var row workflowRow
	if err := db.read.NewSelect().Model(&row).Where(where, args...).Scan(ctx); err != nil {
		return nil, db.wrap(err, "workflow %v", args[len(args)-1])
	}
	return row.noun()
}

// Workflow returns the workflow with the id.
func (db *DB) Workflow(ctx context.Context, id int64) (*engine.WorkflowDef, error) {
	return db.workflow(ctx, "id = ?", id)
}

// WorkflowByName returns the app's workflow of that name.
func (db *DB) WorkflowByName(ctx context.Context, app int64, name string) (*engine.WorkflowDef, error) {
	return db.workflow(ctx, "app_id = ? AND name = ?", app, name)
}

// WorkflowVersion returns the workflow as it was saved at that version.
func (db *DB) WorkflowVersion(ctx context.Context, id int64, version int32) (*engine.WorkflowDef, error) {
	var row workflowRow
	err := db.read.NewRaw("SELECT w.id, w.app_id, w.name, v.title, v.version, v.enabled, v.definition, v.schedule, v.max_running, w.created_at, v.updated_at "+
		"FROM workflow_versions v JOIN workflows w ON w.id = v.workflow_id WHERE v.workflow_id = ? AND v.version = ?", id, version).Scan(ctx, &row)
	if err != nil {
		return nil, db.wrap(err, "version %d of workflow %d", version, id)
	}
	return row.noun()
}

// Workflows lists the app's workflows by name, after the given one.
func (db *DB) Workflows(ctx context.Context, app int64, afterName string, limit int) ([]engine.WorkflowDef, error) {
	var rows []workflowRow
	err := db.read.NewSelect().Model(&rows).Where("app_id = ? AND name > ?", app, afterName).Order("name").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list workflows of app %d", app)
	}
	out := make([]engine.WorkflowDef, 0, len(rows))
	for i := range rows {
		w, err := rows[i].noun()
		if err != nil {
			return nil, err
		}
		out = append(out, *w)
	}
	return out, nil
}
