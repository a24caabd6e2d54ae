package storage

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type calendarRow struct {
	bun.BaseModel `bun:"table:calendars"`

	ID        int64  `bun:"id,pk,autoincrement"`
	App       int64  `bun:"app_id"`
	Name      string `bun:"name"`
	Version   int32  `bun:"version"`
	Body      []byte `bun:"body"`
	UpdatedAt int64  `bun:"updated_at"`
}

func (r *calendarRow) noun() engine.Calendar {
	return engine.Calendar{ID: r.ID, App: r.App, Name: r.Name, Body: r.Body, Version: r.Version, UpdatedAt: r.UpdatedAt}
}

// SaveCalendar inserts (Version 0) or updates a calendar; an update whose Version is not the
// stored one is ErrConflict. It returns the new version.
func (db *DB) SaveCalendar(ctx context.Context, c engine.Calendar) (*engine.Calendar, error) {
	var d door
	d.name("calendar", c.Name)
	d.bytes("calendar", c.Body, maxCalendar)
	d.hold(c.App > 0, "calendar %s has no app", c.Name)
	if err := d.err(); err != nil {
		return nil, err
	}
	given := calendarRow{ID: c.ID, App: c.App, Name: c.Name, Version: c.Version, Body: c.Body, UpdatedAt: c.UpdatedAt}
	if given.Body == nil {
		given.Body = []byte{}
	}
	var row calendarRow
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		row = given
		if err := saveVersioned(ctx, tx, &row, &row.ID, &row.Version, "name", "body", "updated_at"); err != nil {
			return err
		}
		return tx.NewSelect().Model(&row).Column("app_id").WherePK().Scan(ctx)
	})
	if err != nil {
		return nil, db.wrap(err, "save calendar %s", c.Name)
	}
	n := row.noun()
	return &n, nil
}

// CalendarByName returns the app's calendar of that name.
func (db *DB) CalendarByName(ctx context.Context, app int64, name string) (*engine.Calendar, error) {
	var row calendarRow
	if err := db.read.NewSelect().Model(&row).Where("app_id = ? AND name = ?", app, name).Scan(ctx); err != nil {
		return nil, db.wrap(err, "calendar %s", name)
	}
	n := row.noun()
	return &n, nil
}

// Calendars lists the app's calendars by name, after the given one.
func (db *DB) Calendars(ctx context.Context, app int64, afterName string, limit int) ([]engine.Calendar, error) {
	var rows []calendarRow
	err := db.read.NewSelect().Model(&rows).Where("app_id = ? AND name > ?", app, afterName).Order("name").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list calendars of app %d", app)
	}
	return nouns(rows, (*calendarRow).noun), nil
}
