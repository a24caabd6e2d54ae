package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type tokenRow struct {
	bun.BaseModel `bun:"table:tokens"`

	ID          int64  `bun:"id,pk"`
	User        int64  `bun:"user_id"`
	Name        string `bun:"name"`
	Hash        []byte `bun:"hash"`
	Permissions string `bun:"permissions"`
	Apps        string `bun:"apps"`
	CreatedAt   int64  `bun:"created_at"`
	CreatedBy   int64  `bun:"created_by"`
	ExpiresAt   int64  `bun:"expires_at"`
	UsedAt      int64  `bun:"used_at"`
	RevokedAt   int64  `bun:"revoked_at"`
}

func (r *tokenRow) noun() (*engine.Token, error) {
	n := &engine.Token{
		ID: r.ID, User: r.User, Name: r.Name, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, ExpiresAt: r.ExpiresAt, UsedAt: r.UsedAt, RevokedAt: r.RevokedAt,
	}
	copy(n.Hash[:], r.Hash)
	if err := json.Unmarshal([]byte(r.Permissions), &n.Permissions); err != nil {
		return nil, fmt.Errorf("stored permissions of token %d: %w: %w", r.ID, engine.ErrInvalid, err)
	}
	if err := json.Unmarshal([]byte(r.Apps), &n.Apps); err != nil {
		return nil, fmt.Errorf("stored apps of token %d: %w: %w", r.ID, engine.ErrInvalid, err)
	}
	return n, nil
}

// SaveToken stores a new token.
func (db *DB) SaveToken(ctx context.Context, t engine.Token, audit engine.AuditFunc) error {
	permissions, err := json.Marshal(t.Permissions)
	if err != nil {
		return fmt.Errorf("permissions of token %s: %w", t.Name, err)
	}
	apps, err := json.Marshal(t.Apps)
	if err != nil {
		return fmt.Errorf("apps of token %s: %w", t.Name, err)
	}
	var d door
	d.text("name of the token", t.Name, engine.MaxTitle)
	d.text("permissions", string(permissions), engine.MaxError)
	d.text("apps", string(apps), engine.MaxError)
	d.hold(t.ID > 0 && t.User > 0, "token %s has no id or no user", t.Name)
	if err := d.err(); err != nil {
		return err
	}
	row := tokenRow{
		ID: t.ID, User: t.User, Name: t.Name, Hash: t.Hash[:], Permissions: string(permissions), Apps: string(apps),
		CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy, ExpiresAt: t.ExpiresAt, UsedAt: t.UsedAt, RevokedAt: t.RevokedAt,
	}
	err = db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		if _, err := db.lockUser(ctx, tx, t.User); err != nil {
			return err
		}
		_, err := tx.NewInsert().Model(&row).Returning("NULL").Exec(ctx)
		return err
	})
	return db.wrap(err, "save token %d", t.ID)
}

// Token returns the token with the id.
func (db *DB) Token(ctx context.Context, id int64) (*engine.Token, error) {
	var row tokenRow
	if err := db.read.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx); err != nil {
		return nil, db.wrap(err, "token %d", id)
	}
	return row.noun()
}

// Tokens lists the tokens of a user, 0 for everybody's, with ids above after, by id.
func (db *DB) Tokens(ctx context.Context, user, after int64, limit int) ([]engine.Token, error) {
	if limit <= 0 {
		return nil, nil
	}
	var rows []tokenRow
	q := db.read.NewSelect().Model(&rows).Where("id > ?", after).Order("id").Limit(int64(limit))
	if user != 0 {
		q = q.Where("user_id = ?", user)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, db.wrap(err, "list tokens of user %d", user)
	}
	out := make([]engine.Token, len(rows))
	for i := range rows {
		n, err := rows[i].noun()
		if err != nil {
			return nil, err
		}
		out[i] = *n
	}
	return out, nil
}

// TouchToken says that it was used; the time never moves back.
func (db *DB) TouchToken(ctx context.Context, id, at int64) error {
	return db.wrap(db.touch(ctx, "UPDATE tokens SET used_at = CASE WHEN used_at < ? THEN ? ELSE used_at END WHERE id = ?", at, at, id), "touch token %d", id)
}

// RevokeToken ends it for good; one that is revoked stays as it is.
func (db *DB) RevokeToken(ctx context.Context, id, at int64, audit engine.AuditFunc) error {
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		return matchOne(ctx, tx, "UPDATE tokens SET revoked_at = CASE WHEN revoked_at = 0 THEN ? ELSE revoked_at END WHERE id = ?", max(at, 1), id)
	})
	return db.wrap(err, "revoke token %d", id)
}
