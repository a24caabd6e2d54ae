package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type appRow struct {
	bun.BaseModel `bun:"table:apps"`

	ID        int64  `bun:"id,pk,autoincrement"`
	Name      string `bun:"name"`
	Set       string `bun:"stream_set"`
	CreatedAt int64  `bun:"created_at"`
}

func (r *appRow) noun() engine.App {
	return engine.App{ID: r.ID, Name: r.Name, Set: r.Set, CreatedAt: r.CreatedAt}
}

// EnsureApp returns the app of that name, created with the given id if it is new. Any
// number of callers at once get the same one.
func (db *DB) EnsureApp(ctx context.Context, a engine.App) (*engine.App, error) {
	var d door
	d.name("app", a.Name)
	d.text("stream set", a.Set, engine.MaxName)
	if err := d.err(); err != nil {
		return nil, err
	}
	found, err := db.AppByName(ctx, a.Name)
	if err == nil || !errors.Is(err, engine.ErrNotFound) {
		return found, err
	}
	row := appRow{ID: a.ID, Name: a.Name, Set: a.Set, CreatedAt: a.CreatedAt}
	err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error { return insertOne(ctx, tx, &row, &row.ID) })
	switch {
	case err == nil:
		n := row.noun()
		return &n, nil
	case db.duplicate(err):
		if found, again := db.AppByName(ctx, a.Name); again == nil {
			return found, nil
		}
	}
	return nil, db.wrap(err, "create app %s", a.Name)
}

// insertOne inserts a row and, if its id was 0, sets the one the database gave.
func insertOne(ctx context.Context, tx bun.Tx, row any, id *int64) error {
	q := tx.NewInsert().Model(row)
	if *id != 0 {
		q = q.Returning("NULL")
	}
	_, err := q.Exec(ctx)
	return err
}

func (db *DB) app(ctx context.Context, what string, where string, arg any) (*engine.App, error) {
	var row appRow
	if err := db.read.NewSelect().Model(&row).Where(where, arg).Scan(ctx); err != nil {
		return nil, db.wrap(err, "%s %v", what, arg)
	}
	n := row.noun()
	return &n, nil
}

// App returns the app with the id.
func (db *DB) App(ctx context.Context, id int64) (*engine.App, error) {
	return db.app(ctx, "app", "id = ?", id)
}

// AppByName returns the app of that name.
func (db *DB) AppByName(ctx context.Context, name string) (*engine.App, error) {
	return db.app(ctx, "app", "name = ?", name)
}

// Apps lists all apps by name.
func (db *DB) Apps(ctx context.Context) ([]engine.App, error) {
	var rows []appRow
	if err := db.read.NewSelect().Model(&rows).Order("name").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list apps")
	}
	return nouns(rows, (*appRow).noun), nil
}

type workerRow struct {
	bun.BaseModel `bun:"table:workers"`

	App         int64  `bun:"app_id,pk"`
	Name        string `bun:"name,pk"`
	Incarnation int64  `bun:"incarnation"`
	Version     string `bun:"version"`
	Host        string `bun:"host"`
	Pools       string `bun:"pools"`
	Labels      string `bun:"labels"`
	Processors  string `bun:"processors"`
	Slots       int32  `bun:"slots"`
	Maintenance int16  `bun:"maintenance"`
	FirstSeen   int64  `bun:"first_seen"`
	LastSeen    int64  `bun:"last_seen"`
}

func newWorkerRow(w *engine.Worker) (workerRow, error) {
	var d door
	d.name("worker", w.Name)
	d.hold(w.App > 0, "worker %s has no app", w.Name)
	d.hold(w.Slots >= 0, "worker %s has %d slots", w.Name, w.Slots)
	row := workerRow{
		App: w.App, Name: w.Name, Incarnation: int64(w.Incarnation), Version: engine.CutText(w.Version, engine.MaxKey),
		Host: engine.CutText(w.Host, engine.MaxKey), Slots: int32(w.Slots), Maintenance: bit(w.Maintenance),
		FirstSeen: w.FirstSeen, LastSeen: w.LastSeen,
	}
	for _, part := range []struct {
		what string
		from any
		to   *string
	}{{"pools", w.Pools, &row.Pools}, {"labels", w.Labels, &row.Labels}, {"processors", w.Processors, &row.Processors}} {
		b, err := json.Marshal(part.from)
		if err != nil {
			return row, fmt.Errorf("%s of worker %s: %w", part.what, w.Name, err)
		}
		d.text(part.what, string(b), maxTags)
		*part.to = string(b)
	}
	return row, d.err()
}

func (r *workerRow) noun() (engine.Worker, error) {
	w := engine.Worker{
		App: r.App, Name: r.Name, Incarnation: uint64(r.Incarnation), Version: r.Version, Host: r.Host, Slots: int(r.Slots),
		Maintenance: r.Maintenance == 1, FirstSeen: r.FirstSeen, LastSeen: r.LastSeen,
	}
	for text, to := range map[*string]any{&r.Pools: &w.Pools, &r.Labels: &w.Labels, &r.Processors: &w.Processors} {
		if err := json.Unmarshal([]byte(*text), to); err != nil {
			return w, fmt.Errorf("worker %s: stored text %q: %w", r.Name, *text, err)
		}
	}
	return w, nil
}

// SaveWorker stores what was last heard of a worker. Its first sight stays, and so does its
// maintenance, which only SetMaintenance moves.
func (db *DB) SaveWorker(ctx context.Context, w engine.Worker) error {
	row, err := newWorkerRow(&w)
	if err != nil {
		return err
	}
	return db.wrap(db.updateOrInsert(ctx, func(tx bun.Tx) *bun.UpdateQuery {
		return tx.NewUpdate().Model(&row).WherePK().ExcludeColumn("app_id", "name", "first_seen", "maintenance")
	}, &row), "save worker %s", w.Name)
}

// updateOrInsert updates a row by its unique key, or inserts it if there is none. That
// another caller inserts it between the two is one more update.
func (db *DB) updateOrInsert(ctx context.Context, update func(tx bun.Tx) *bun.UpdateQuery, row any) error {
	var err error
	for range 2 {
		err = db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			res, err := update(tx).Exec(ctx)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n > 0 {
				return err
			}
			_, err = tx.NewInsert().Model(row).Returning("NULL").Exec(ctx)
			return err
		})
		if err == nil || !db.duplicate(err) {
			return err
		}
	}
	return err
}

// Workers lists the workers of an app by name.
func (db *DB) Workers(ctx context.Context, app int64) ([]engine.Worker, error) {
	var rows []workerRow
	if err := db.read.NewSelect().Model(&rows).Where("app_id = ?", app).Order("name").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list workers of app %d", app)
	}
	out := make([]engine.Worker, len(rows))
	for i := range rows {
		var err error
		if out[i], err = rows[i].noun(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SetMaintenance makes a worker get nothing new, or work again.
func (db *DB) SetMaintenance(ctx context.Context, app int64, worker string, on bool) error {
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE workers SET maintenance = ? WHERE app_id = ? AND name = ?", bit(on), app, worker)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return engine.ErrNotFound
	})
	return db.wrap(err, "maintenance of worker %s", worker)
}

type containerRow struct {
	bun.BaseModel `bun:"table:containers"`

	ID        int64  `bun:"id,pk,autoincrement"`
	App       int64  `bun:"app_id"`
	Name      string `bun:"name"`
	Version   string `bun:"version"`
	Digest    string `bun:"digest"`
	Enabled   int16  `bun:"enabled"`
	CreatedAt int64  `bun:"created_at"`
}

func (r *containerRow) noun() engine.Container {
	return engine.Container{ID: r.ID, App: r.App, Name: r.Name, Version: r.Version, Digest: r.Digest, Enabled: r.Enabled == 1, CreatedAt: r.CreatedAt}
}

// SaveContainer stores a version of a container; one that exists gets the new digest and
// may be enabled or disabled.
func (db *DB) SaveContainer(ctx context.Context, c engine.Container) error {
	var d door
	d.name("container", c.Name)
	d.text("container version", c.Version, engine.MaxName)
	d.text("digest", c.Digest, 64)
	d.hold(c.App > 0, "container %s has no app", c.Name)
	if err := d.err(); err != nil {
		return err
	}
	row := containerRow{ID: c.ID, App: c.App, Name: c.Name, Version: c.Version, Digest: c.Digest, Enabled: bit(c.Enabled), CreatedAt: c.CreatedAt}
	return db.wrap(db.updateOrInsert(ctx, func(tx bun.Tx) *bun.UpdateQuery {
		return tx.NewUpdate().Model(&row).Column("digest", "enabled").Where("app_id = ? AND name = ? AND version = ?", c.App, c.Name, c.Version)
	}, &row), "save container %s", c.Name)
}

// Containers lists the containers of an app by name and version.
func (db *DB) Containers(ctx context.Context, app int64) ([]engine.Container, error) {
	var rows []containerRow
	if err := db.read.NewSelect().Model(&rows).Where("app_id = ?", app).Order("name", "version").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list containers of app %d", app)
	}
	return nouns(rows, (*containerRow).noun), nil
}
