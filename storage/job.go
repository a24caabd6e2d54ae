package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type jobRow struct {
	bun.BaseModel `bun:"table:jobs"`

	ID        int64  `bun:"id,pk,autoincrement"`
	App       int64  `bun:"app_id"`
	Name      string `bun:"name"`
	Title     string `bun:"title"`
	Version   int32  `bun:"version"`
	Enabled   int16  `bun:"enabled"`
	Spec      []byte `bun:"spec"`
	Schedule  []byte `bun:"schedule"` // NULL: none
	CreatedAt int64  `bun:"created_at"`
	UpdatedAt int64  `bun:"updated_at"`
}

type jobVersionRow struct {
	bun.BaseModel `bun:"table:job_versions"`

	Job       int64  `bun:"job_id,pk"`
	Version   int32  `bun:"version,pk"`
	Title     string `bun:"title"`
	Enabled   int16  `bun:"enabled"`
	Spec      []byte `bun:"spec"`
	Schedule  []byte `bun:"schedule"`
	UpdatedAt int64  `bun:"updated_at"`
}

func newJobRow(j *engine.Job) (*jobRow, error) {
	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return nil, fmt.Errorf("spec of job %s: %w: %w", j.Name, engine.ErrInvalid, err)
	}
	schedule, err := encodeSchedule(&j.Schedule)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	var d door
	d.name("job", j.Name)
	d.text("title", j.Title, engine.MaxTitle)
	d.bytes("params", j.Spec.Params, engine.MaxParams)
	d.text("spec", string(spec), maxSpec)
	d.hold(j.App > 0, "job %s has no app", j.Name)
	d.schedule(schedule, int64(j.Spec.MaxRunning))
	return &jobRow{
		ID: j.ID, App: j.App, Name: j.Name, Title: j.Title, Version: j.Version, Enabled: bit(j.Enabled), Spec: spec, Schedule: schedule,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
	}, d.err()
}

func (r *jobRow) noun() (*engine.Job, error) {
	j := &engine.Job{
		ID: r.ID, App: r.App, Name: r.Name, Title: r.Title, Version: r.Version, Enabled: r.Enabled == 1,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if err := json.Unmarshal(r.Spec, &j.Spec); err != nil {
		return nil, fmt.Errorf("stored spec of job %d: %w: %w", r.ID, engine.ErrInvalid, err)
	}
	if err := decodeSchedule(r.Schedule, &j.Schedule); err != nil {
		return nil, fmt.Errorf("stored schedule of job %d: %w", r.ID, err)
	}
	return j, nil
}

// SaveJob inserts (Version 0) or updates a job, and its schedule with it; an update whose
// Version is not the stored one is ErrConflict. It returns the new version.
func (db *DB) SaveJob(ctx context.Context, j engine.Job) (*engine.Job, error) {
	row, err := newJobRow(&j)
	if err != nil {
		return nil, err
	}
	given := *row
	err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		*row = given
		if err := saveVersioned(ctx, tx, row, &row.ID, &row.Version, "title", "enabled", "spec", "schedule", "updated_at", "name"); err != nil {
			return err
		}
		// What the update does not change is read back, so that the caller gets the row.
		if err := tx.NewSelect().Model(row).Column("app_id", "created_at").WherePK().Scan(ctx); err != nil {
			return err
		}
		version := jobVersionRow{Job: row.ID, Version: row.Version, Title: row.Title, Enabled: row.Enabled, Spec: row.Spec, Schedule: row.Schedule, UpdatedAt: row.UpdatedAt}
		if _, err := tx.NewInsert().Model(&version).Returning("NULL").Exec(ctx); err != nil {
			return err
		}
		saved, err := row.noun()
		if err != nil {
			return err
		}
		return db.saveSchedule(ctx, tx, freshSchedule(scheduleOfJob(saved), row.Schedule))
	})
	if err != nil {
		return nil, db.wrap(err, "save job %s", j.Name)
	}
	return row.noun()
}

// saveVersioned inserts a row whose version is 0, or updates the columns of the one that
// has the version still; the version grows by one.
func saveVersioned(ctx context.Context, tx bun.Tx, row any, id *int64, version *int32, columns ...string) error {
	old := *version
	*version = old + 1
	if old == 0 {
		return insertOne(ctx, tx, row, id)
	}
	res, err := tx.NewUpdate().Model(row).Column(append(columns, "version")...).WherePK().Where("version = ?", old).Exec(ctx)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	there, err := tx.NewSelect().Model(row).WherePK().Exists(ctx)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("id %d: %w", *id, engine.ErrNotFound)
	}
	return fmt.Errorf("it was saved by someone else since version %d; read it again: %w", old, engine.ErrConflict)
}

func (db *DB) job(ctx context.Context, where string, args ...any) (*engine.Job, error) {
	var row jobRow
	if err := db.read.NewSelect().Model(&row).Where(where, args...).Scan(ctx); err != nil {
		return nil, db.wrap(err, "job %v", args[len(args)-1])
	}
	return row.noun()
}

// Job returns the job with the id.
func (db *DB) Job(ctx context.Context, id int64) (*engine.Job, error) {
	return db.job(ctx, "id = ?", id)
}

// JobByName returns the app's job of that name.
func (db *DB) JobByName(ctx context.Context, app int64, name string) (*engine.Job, error) {
	return db.job(ctx, "app_id = ? AND name = ?", app, name)
}

// JobVersion returns the job as it was saved at that version.
func (db *DB) JobVersion(ctx context.Context, id int64, version int32) (*engine.Job, error) {
	var row jobRow
	err := db.read.NewRaw("SELECT j.id, j.app_id, j.name, v.title, v.version, v.enabled, v.spec, v.schedule, j.created_at, v.updated_at "+
		"FROM job_versions v JOIN jobs j ON j.id = v.job_id WHERE v.job_id = ? AND v.version = ?", id, version).Scan(ctx, &row)
	if err != nil {
		return nil, db.wrap(err, "version %d of job %d", version, id)
	}
	return row.noun()
}

// Jobs lists the app's jobs by name, after the given one.
func (db *DB) Jobs(ctx context.Context, app int64, afterName string, limit int) ([]engine.Job, error) {
	var rows []jobRow
	err := db.read.NewSelect().Model(&rows).Where("app_id = ? AND name > ?", app, afterName).Order("name").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list jobs of app %d", app)
	}
	out := make([]engine.Job, 0, len(rows))
	for i := range rows {
		j, err := rows[i].noun()
		if err != nil {
			return nil, err
		}
		out = append(out, *j)
	}
	return out, nil
}
