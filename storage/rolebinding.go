package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type bindingRow struct {
	bun.BaseModel `bun:"table:role_bindings"`

	User  int64  `bun:"user_id,pk"`
	Role  string `bun:"role,pk"`
	Scope string `bun:"scope,pk"`
	At    int64  `bun:"bound_at"`
}

func (r *bindingRow) noun() engine.RoleBinding {
	return engine.RoleBinding{User: r.User, Role: engine.Role(r.Role), Scope: r.Scope, At: r.At}
}

// RoleBindings lists the roles of a user.
func (db *DB) RoleBindings(ctx context.Context, user int64) ([]engine.RoleBinding, error) {
	var rows []bindingRow
	if err := db.read.NewSelect().Model(&rows).Where("user_id = ?", user).Order("role", "scope").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list roles of user %d", user)
	}
	return nouns(rows, (*bindingRow).noun), nil
}

// RoleBindingsIn lists the bindings with one of the scopes, by (User, Role, Scope), after the
// given one.
func (db *DB) RoleBindingsIn(ctx context.Context, scopes []string, after engine.RoleBinding, limit int) ([]engine.RoleBinding, error) {
	if len(scopes) == 0 || limit <= 0 {
		return nil, nil
	}
	var rows []bindingRow
	err := db.read.NewSelect().Model(&rows).Where("scope IN (?)", bun.List(scopes)).
		Where("user_id > ? OR (user_id = ? AND (role > ? OR (role = ? AND scope > ?)))", after.User, after.User, string(after.Role), string(after.Role), after.Scope).
		Order("user_id", "role", "scope").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list roles in %v", scopes)
	}
	return nouns(rows, (*bindingRow).noun), nil
}

// SetRoleBindings makes these all the roles of a user; see engine.UserStore.
func (db *DB) SetRoleBindings(ctx context.Context, user int64, version int32, roles []engine.RoleBinding, at int64, guard engine.RoleGuard, audit engine.AuditFunc) (int32, error) {
	err := db.serially(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		row, err := db.lockUser(ctx, tx, user)
		if err != nil {
			return err
		}
		if row.Version != version {
			return fmt.Errorf("the user was changed by someone else since version %d; read it again: %w", version, engine.ErrConflict)
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM role_bindings WHERE user_id = ?", user); err != nil {
			return err
		}
		if err := insertBindings(ctx, tx, user, roles); err != nil {
			return err
		}
		if err := endSessions(ctx, tx, row); err != nil {
			return err
		}
		row.Version, row.UpdatedAt = row.Version+1, at
		if _, err := tx.NewUpdate().Model(row).Column("version", "updated_at", "generation").WherePK().Exec(ctx); err != nil {
			return err
		}
		return checkHolders(ctx, tx, guard)
	})
	if err != nil {
		return 0, db.wrap(err, "set the roles of user %d", user)
	}
	return version + 1, nil
}

// insertBindings adds roles to a user who has none.
func insertBindings(ctx context.Context, tx bun.Tx, user int64, roles []engine.RoleBinding) error {
	if len(roles) == 0 {
		return nil
	}
	var d door
	d.hold(len(roles) <= engine.MaxBindings, "%d roles for one user, at most %d", len(roles), engine.MaxBindings)
	rows := make([]bindingRow, len(roles))
	for i, b := range roles {
		d.hold(b.Role != "", "a role has no name")
		d.text("role", string(b.Role), 32)
		d.text("scope", b.Scope, engine.MaxScope)
		rows[i] = bindingRow{User: user, Role: string(b.Role), Scope: b.Scope, At: b.At}
	}
	if err := d.err(); err != nil {
		return err
	}
	_, err := tx.NewInsert().Model(&rows).Returning("NULL").Exec(ctx)
	return err
}

// checkHolders asks the guard about the roles over the whole system, as they are now in this
// transaction, which holds the head of the audit log.
func checkHolders(ctx context.Context, tx bun.Tx, guard engine.RoleGuard) error {
	if guard == nil {
		return nil
	}
	var rows []struct {
		Role string `bun:"role"`
		N    int    `bun:"n"`
	}
	err := tx.NewRaw("SELECT b.role AS role, COUNT(*) AS n FROM role_bindings b JOIN users u ON u.id = b.user_id "+
		"WHERE b.scope = '' AND u.disabled = 0 AND u.kind = ? GROUP BY b.role", string(engine.UserPerson)).Scan(ctx, &rows)
	if err != nil {
		return err
	}
	holders := map[engine.Role]int{}
	for _, r := range rows {
		holders[engine.Role(r.Role)] = r.N
	}
	return guard(holders)
}
