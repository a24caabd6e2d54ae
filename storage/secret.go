package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// maxSealed is the bound of a sealed secret: its value, and what sealing adds.
const maxSealed = engine.MaxSecret + 512

type secretRow struct {
	bun.BaseModel `bun:"table:secrets"`

	App       int64  `bun:"app_id,pk"`
	Name      string `bun:"name,pk"`
	Version   int32  `bun:"version"`
	KeyID     string `bun:"key_id"`
	Sealed    []byte `bun:"sealed"`
	UpdatedBy int64  `bun:"updated_by"`
	CreatedAt int64  `bun:"created_at"`
	UpdatedAt int64  `bun:"updated_at"`
}

func (r *secretRow) noun() engine.Secret {
	return engine.Secret{
		App: r.App, Name: r.Name, Version: r.Version, KeyID: r.KeyID, Sealed: r.Sealed, UpdatedBy: r.UpdatedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// SaveSecret inserts (Version 0) or updates a secret; see engine.SecretStore.
func (db *DB) SaveSecret(ctx context.Context, s engine.Secret, audit engine.AuditFunc) (*engine.Secret, error) {
	var d door
	d.name("secret", s.Name)
	d.name("key", s.KeyID)
	d.bytes("sealed secret", s.Sealed, maxSealed)
	d.hold(len(s.Sealed) > 0, "secret %s is not sealed", s.Name)
	d.hold(s.App > 0, "secret %s has no app", s.Name)
	if err := d.err(); err != nil {
		return nil, err
	}
	var row secretRow
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		row = secretRow{
			App: s.App, Name: s.Name, Version: s.Version + 1, KeyID: s.KeyID, Sealed: s.Sealed, UpdatedBy: s.UpdatedBy, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		}
		if s.Version == 0 {
			_, err := tx.NewInsert().Model(&row).Returning("NULL").Exec(ctx)
			return err
		}
		res, err := tx.NewUpdate().Model(&row).ExcludeColumn("created_at").WherePK().Where("version = ?", s.Version).Exec(ctx)
		if err != nil {
			return err
		}
		if err := found(ctx, tx, res, &row, s.Version); err != nil {
			return err
		}
		return tx.NewSelect().Model(&row).Column("created_at").WherePK().Scan(ctx)
	})
	if err != nil {
		return nil, db.wrap(err, "save secret %s", s.Name)
	}
	n := row.noun()
	return &n, nil
}

// found tells why a change of a secret at a version found no row, if it did.
func found(ctx context.Context, tx bun.Tx, res interface{ RowsAffected() (int64, error) }, row *secretRow, version int32) error {
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	there, err := tx.NewSelect().Model(row).WherePK().Exists(ctx)
	switch {
	case err != nil:
		return err
	case !there:
		return engine.ErrNotFound
	}
	return fmt.Errorf("it was saved by someone else since version %d; read it again: %w", version, engine.ErrConflict)
}

// Secret returns the app's secret of that name, as it is sealed.
func (db *DB) Secret(ctx context.Context, app int64, name string) (*engine.Secret, error) {
	var row secretRow
	if err := db.read.NewSelect().Model(&row).Where("app_id = ? AND name = ?", app, name).Scan(ctx); err != nil {
		return nil, db.wrap(err, "secret %s", name)
	}
	n := row.noun()
	return &n, nil
}

// Secrets lists the secrets of an app by name, without what is sealed.
func (db *DB) Secrets(ctx context.Context, app int64, afterName string, limit int) ([]engine.Secret, error) {
	var rows []secretRow
	err := db.read.NewSelect().Model(&rows).ExcludeColumn("sealed").Where("app_id = ? AND name > ?", app, afterName).Order("name").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list secrets of app %d", app)
	}
	return nouns(rows, (*secretRow).noun), nil
}

// SecretsUnderOtherKeys reads secrets that are not wrapped with the key.
func (db *DB) SecretsUnderOtherKeys(ctx context.Context, keyID string, limit int) ([]engine.Secret, error) {
	var rows []secretRow
	err := db.read.NewSelect().Model(&rows).Where("key_id < ? OR key_id > ?", keyID, keyID).Order("app_id", "name").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list secrets under other keys than %s", keyID)
	}
	return nouns(rows, (*secretRow).noun), nil
}

// DeleteSecret deletes the secret, if it has that version still.
func (db *DB) DeleteSecret(ctx context.Context, app int64, name string, version int32, audit engine.AuditFunc) error {
	row := secretRow{App: app, Name: name}
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.NewDelete().Model(&row).WherePK().Where("version = ?", version).Exec(ctx)
		if err != nil {
			return err
		}
		return found(ctx, tx, res, &row, version)
	})
	return db.wrap(err, "delete secret %s", name)
}
