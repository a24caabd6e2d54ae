package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type sessionRow struct {
	bun.BaseModel `bun:"table:sessions"`

	ID         int64  `bun:"id,pk"`
	User       int64  `bun:"user_id"`
	Hash       []byte `bun:"hash"`
	Generation int64  `bun:"generation"`
	From       string `bun:"from_address"`
	Agent      string `bun:"agent"`
	CreatedAt  int64  `bun:"created_at"`
	SeenAt     int64  `bun:"seen_at"`
	ExpiresAt  int64  `bun:"expires_at"`
}

func (r *sessionRow) noun() engine.Session {
	n := engine.Session{
		ID: r.ID, User: r.User, Generation: r.Generation, From: r.From, Agent: r.Agent, CreatedAt: r.CreatedAt, SeenAt: r.SeenAt, ExpiresAt: r.ExpiresAt,
	}
	copy(n.Hash[:], r.Hash)
	return n
}

type codeRow struct {
	bun.BaseModel `bun:"table:login_codes"`

	ID        int64  `bun:"id,pk"`
	Purpose   string `bun:"purpose"`
	User      int64  `bun:"user_id"`
	Hash      []byte `bun:"hash"`
	CreatedAt int64  `bun:"created_at"`
	ExpiresAt int64  `bun:"expires_at"`
}

func (r *codeRow) noun() engine.Code {
	n := engine.Code{ID: r.ID, Purpose: engine.CodePurpose(r.Purpose), User: r.User, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
	copy(n.Hash[:], r.Hash)
	return n
}

// SaveSession stores a new session. The user's row is locked, so that no change of the
// password or the roles can pass between the check and the insert.
func (db *DB) SaveSession(ctx context.Context, s engine.Session, audit engine.AuditFunc) error {
	row := sessionRow{
		ID: s.ID, User: s.User, Hash: s.Hash[:], Generation: s.Generation, From: engine.CutText(s.From, engine.MaxAgent), Agent: engine.CutText(s.Agent, engine.MaxAgent),
		CreatedAt: s.CreatedAt, SeenAt: s.SeenAt, ExpiresAt: s.ExpiresAt,
	}
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		u, err := db.lockUser(ctx, tx, s.User)
		switch {
		case err != nil:
			return err
		case u.Disabled == 1 || u.Kind != string(engine.UserPerson):
			return fmt.Errorf("the user is disabled, or a service: %w", engine.ErrForbidden)
		case u.Generation != s.Generation:
			return fmt.Errorf("the password or the roles were changed meanwhile: log in again: %w", engine.ErrConflict)
		}
		_, err = tx.NewInsert().Model(&row).Returning("NULL").Exec(ctx)
		return err
	})
	return db.wrap(err, "begin a session of user %d", s.User)
}

// Session returns the session with the id.
func (db *DB) Session(ctx context.Context, id int64) (*engine.Session, error) {
	var row sessionRow
	if err := db.read.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx); err != nil {
		return nil, db.wrap(err, "session %d", id)
	}
	n := row.noun()
	return &n, nil
}

// Sessions lists a user's sessions, by id.
func (db *DB) Sessions(ctx context.Context, user int64) ([]engine.Session, error) {
	var rows []sessionRow
	if err := db.read.NewSelect().Model(&rows).Where("user_id = ?", user).Order("id").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list sessions of user %d", user)
	}
	return nouns(rows, (*sessionRow).noun), nil
}

// TouchSession says that it was used; the time never moves back.
func (db *DB) TouchSession(ctx context.Context, id, at int64) error {
	return db.wrap(db.touch(ctx, "UPDATE sessions SET seen_at = CASE WHEN seen_at < ? THEN ? ELSE seen_at END WHERE id = ?", at, at, id), "touch session %d", id)
}

// touch runs an update that matches one row, or none, which is ErrNotFound.
func (db *DB) touch(ctx context.Context, text string, args ...any) error {
	return db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error { return matchOne(ctx, tx, text, args...) })
}

func matchOne(ctx context.Context, tx bun.Tx, text string, args ...any) error {
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return engine.ErrNotFound
}

// DeleteSession ends one session of the user.
func (db *DB) DeleteSession(ctx context.Context, user, id int64, audit engine.AuditFunc) error {
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		return matchOne(ctx, tx, "DELETE FROM sessions WHERE id = ? AND user_id = ?", id, user)
	})
	return db.wrap(err, "end session %d", id)
}

// DeleteSessions ends all sessions of the user, and logins that are under way.
func (db *DB) DeleteSessions(ctx context.Context, user, at int64, audit engine.AuditFunc) error {
	return db.resetUser(ctx, user, audit, "end the sessions", func(u *engine.User) { u.UpdatedAt = at })
}

// DeleteExpired deletes sessions and codes that expired before the time.
func (db *DB) DeleteExpired(ctx context.Context, before int64, limit int) (int64, error) {
	if limit <= 0 {
		return 0, nil
	}
	var gone int64
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		gone = 0
		for _, table := range []string{"sessions", "login_codes"} {
			var ids []int64
			if err := tx.NewRaw("SELECT id FROM "+table+" WHERE expires_at < ? ORDER BY expires_at LIMIT ?", before, limit).Scan(ctx, &ids); err != nil {
				return err
			}
			if len(ids) == 0 {
				continue
			}
			res, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE id IN (?)", bun.List(ids))
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			gone += n
		}
		return nil
	})
	return gone, db.wrap(err, "delete expired sessions")
}

// SaveCode stores a code that is good once.
func (db *DB) SaveCode(ctx context.Context, c engine.Code) error {
	var d door
	d.hold(c.Purpose == engine.CodeSetup && c.User == 0 || c.Purpose == engine.CodeLogin && c.User > 0, "a code of purpose %q for user %d", c.Purpose, c.User)
	d.hold(c.ID > 0, "a code has no id")
	if err := d.err(); err != nil {
		return err
	}
	row := codeRow{ID: c.ID, Purpose: string(c.Purpose), User: c.User, Hash: c.Hash[:], CreatedAt: c.CreatedAt, ExpiresAt: c.ExpiresAt}
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&row).Returning("NULL").Exec(ctx)
		return err
	})
	return db.wrap(err, "save code %d", c.ID)
}

// TakeCode ends the code with the id, purpose and hash and returns it; see engine.UserStore.
func (db *DB) TakeCode(ctx context.Context, id int64, purpose engine.CodePurpose, hash [32]byte, at int64) (*engine.Code, error) {
	var out *engine.Code
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		out, err = db.takeCode(ctx, tx, id, purpose, hash, at)
		return err
	})
	if err != nil {
		return nil, db.wrap(err, "take code %d", id)
	}
	return out, nil
}
