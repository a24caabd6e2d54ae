package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

const (
	maxPassword = 512 // of an encoded password
	maxTOTP     = 512 // of a sealed key
)

type userRow struct {
	bun.BaseModel `bun:"table:users"`

	ID         int64   `bun:"id,pk,autoincrement"`
	Name       string  `bun:"name"`
	Title      string  `bun:"title"`
	Email      string  `bun:"email"`
	Kind       string  `bun:"kind"`
	Issuer     string  `bun:"issuer"`
	Subject    string  `bun:"subject"`
	SubjectKey *string `bun:"subject_key"`
	Password   string  `bun:"password"`
	PasswordAt int64   `bun:"password_at"`
	MustChange int16   `bun:"must_change"`
	TOTP       []byte  `bun:"totp"`
	TOTPStep   int64   `bun:"totp_step"`
	Failed     int32   `bun:"failed"`
	FailedAt   int64   `bun:"failed_at"`
	LoginAt    int64   `bun:"login_at"`
	Disabled   int16   `bun:"disabled"`
	Generation int64   `bun:"generation"`
	Version    int32   `bun:"version"`
	CreatedAt  int64   `bun:"created_at"`
	UpdatedAt  int64   `bun:"updated_at"`
}

func newUserRow(u *engine.User) (*userRow, error) {
	var d door
	if err := engine.CheckUserName(u.Name); err != nil {
		d.errs = append(d.errs, err)
	}
	d.text("title", u.Title, engine.MaxTitle)
	d.text("e-mail address", u.Email, engine.MaxKey)
	d.text("issuer", u.Issuer, engine.MaxKey)
	d.text("subject", u.Subject, engine.MaxKey)
	d.text("encoded password", u.Password, maxPassword)
	d.bytes("second factor", u.TOTP, maxTOTP)
	d.hold((u.Issuer == "") == (u.Subject == ""), "user %s needs both issuer and subject, or neither", u.Name)
	d.hold(u.Kind == engine.UserPerson || u.Kind == engine.UserService, "user %s is of kind %q: want %s or %s", u.Name, u.Kind, engine.UserPerson, engine.UserService)
	d.hold(u.Kind != engine.UserService || u.Password == "" && len(u.TOTP) == 0 && u.Issuer == "", "%s is a service, which logs in by tokens alone", u.Name)
	r := &userRow{
		ID: u.ID, Name: u.Name, Title: u.Title, Email: u.Email, Kind: string(u.Kind), Issuer: u.Issuer, Subject: u.Subject, SubjectKey: subjectKey(u.Issuer, u.Subject),
		Password: u.Password, PasswordAt: u.PasswordAt, MustChange: bit(u.MustChange), TOTP: orNull(u.TOTP), TOTPStep: u.TOTPStep,
		Failed: u.Failed, FailedAt: u.FailedAt, LoginAt: u.LoginAt, Disabled: bit(u.Disabled), Generation: u.Generation, Version: u.Version,
		CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt,
	}
	return r, d.err()
}

// subjectKey is what is unique: both texts are long, and indexes on text are not.
func subjectKey(issuer, subject string) *string {
	if issuer == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	key := hex.EncodeToString(sum[:])
	return &key
}

func (r *userRow) noun() engine.User {
	return engine.User{
		ID: r.ID, Name: r.Name, Title: r.Title, Email: r.Email, Kind: engine.UserKind(r.Kind), Issuer: r.Issuer, Subject: r.Subject,
		Password: r.Password, PasswordAt: r.PasswordAt, MustChange: r.MustChange == 1, TOTP: orNull(r.TOTP), TOTPStep: r.TOTPStep,
		Failed: r.Failed, FailedAt: r.FailedAt, LoginAt: r.LoginAt, Disabled: r.Disabled == 1, Generation: r.Generation, Version: r.Version,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// AnyUser tells whether there is a user at all.
func (db *DB) AnyUser(ctx context.Context) (bool, error) {
	there, err := db.read.NewSelect().Model((*userRow)(nil)).Exists(ctx)
	return there, db.wrap(err, "look for a user")
}

func (db *DB) user(ctx context.Context, where string, arg any, what string, args ...any) (*engine.User, error) {
	var row userRow
	if err := db.read.NewSelect().Model(&row).Where(where, arg).Scan(ctx); err != nil {
		return nil, db.wrap(err, what, args...)
	}
	n := row.noun()
	return &n, nil
}

// User returns the user with the id.
func (db *DB) User(ctx context.Context, id int64) (*engine.User, error) {
	return db.user(ctx, "id = ?", id, "user %d", id)
}

// UserByName returns the user of that name.
func (db *DB) UserByName(ctx context.Context, name string) (*engine.User, error) {
	if err := engine.CheckUserName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrNotFound, err)
	}
	return db.user(ctx, "name = ?", name, "user %s", name)
}

// UserBySubject finds the user that an OpenID Connect issuer names so.
func (db *DB) UserBySubject(ctx context.Context, issuer, subject string) (*engine.User, error) {
	key := subjectKey(issuer, subject)
	if key == nil {
		return nil, fmt.Errorf("user without an issuer: %w", engine.ErrNotFound)
	}
	return db.user(ctx, "subject_key = ?", *key, "user of issuer %q", engine.CutText(issuer, engine.MaxKey))
}

// Users lists users by name, after the given one.
func (db *DB) Users(ctx context.Context, afterName string, limit int) ([]engine.User, error) {
	var rows []userRow
	if err := db.read.NewSelect().Model(&rows).Where("name > ?", afterName).Order("name").Limit(int64(limit)).Scan(ctx); err != nil {
		return nil, db.wrap(err, "list users")
	}
	return nouns(rows, (*userRow).noun), nil
}

func (db *DB) lockUser(ctx context.Context, tx bun.Tx, id int64) (*userRow, error) {
	var row userRow
	q := tx.NewSelect().Model(&row).Where("id = ?", id)
	if db.forUpdate != "" {
		q = q.For("UPDATE")
	}
	return &row, q.Scan(ctx)
}

// SaveUser inserts or updates a user; see engine.UserStore.
func (db *DB) SaveUser(ctx context.Context, u engine.User, guard engine.RoleGuard, audit engine.AuditFunc) (*engine.User, error) {
	given, err := newUserRow(&u)
	if err != nil {
		return nil, err
	}
	var row userRow
	err = db.serially(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		row = *given
		if given.Version == 0 {
			row.Version = 1
			return insertOne(ctx, tx, &row, &row.ID)
		}
		old, err := db.lockUser(ctx, tx, given.ID)
		if err != nil {
			return err
		}
		if old.Version != given.Version {
			return fmt.Errorf("it was saved by someone else since version %d; read it again: %w", given.Version, engine.ErrConflict)
		}
		if old.Name != given.Name || old.Kind != given.Kind {
			return fmt.Errorf("name and kind of user %s stay: make another user: %w", old.Name, engine.ErrInvalid)
		}
		row = *old
		row.Title, row.Email, row.Disabled, row.UpdatedAt = given.Title, given.Email, given.Disabled, given.UpdatedAt
		row.Issuer, row.Subject, row.SubjectKey = given.Issuer, given.Subject, given.SubjectKey
		row.Version++
		if row.Disabled > old.Disabled || row.Issuer != old.Issuer || row.Subject != old.Subject {
			if err := endSessions(ctx, tx, &row); err != nil {
				return err
			}
		}
		if _, err := tx.NewUpdate().Model(&row).WherePK().Exec(ctx); err != nil {
			return err
		}
		return checkHolders(ctx, tx, guard)
	})
	if err != nil {
		return nil, db.wrap(err, "save user %s", u.Name)
	}
	n := row.noun()
	return &n, nil
}

// endSessions ends the sessions of a user that is locked, and logins that are under way; the
// caller stores the row.
func endSessions(ctx context.Context, tx bun.Tx, row *userRow) error {
	row.Generation++
	_, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE user_id = ?", row.ID)
	return err
}

// SetPassword sets the encoded password, forgets failed logins and ends all sessions.
func (db *DB) SetPassword(ctx context.Context, user int64, encoded string, mustChange bool, at int64, audit engine.AuditFunc) error {
	return db.resetUser(ctx, user, audit, "set the password", func(u *engine.User) {
		u.Password, u.PasswordAt, u.MustChange, u.Failed, u.FailedAt, u.UpdatedAt = encoded, at, mustChange, 0, 0, at
	})
}

// RehashPassword replaces an encoded password by another encoding of the same; see
// engine.UserStore.
func (db *DB) RehashPassword(ctx context.Context, user int64, old, fresh string) error {
	var d door
	d.text("encoded password", fresh, maxPassword)
	d.hold(fresh != "" && old != "", "an encoded password is not empty")
	if err := d.err(); err != nil {
		return err
	}
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE users SET password = ? WHERE id = ? AND password = ?", fresh, user, old)
		return err
	})
	return db.wrap(err, "encode the password of user %d anew", user)
}

// SetTOTP sets the sealed key of the second factor, or takes it away, and ends all sessions.
func (db *DB) SetTOTP(ctx context.Context, user int64, sealed []byte, step, at int64, audit engine.AuditFunc) error {
	return db.resetUser(ctx, user, audit, "set the second factor", func(u *engine.User) {
		u.TOTP, u.TOTPStep, u.UpdatedAt = sealed, step, at
	})
}

// resetUser changes what a user logs in with and ends the sessions.
func (db *DB) resetUser(ctx context.Context, user int64, audit engine.AuditFunc, what string, change func(u *engine.User)) error {
	err := db.audited(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		old, err := db.lockUser(ctx, tx, user)
		if err != nil {
			return err
		}
		u := old.noun()
		change(&u)
		row, err := newUserRow(&u)
		if err != nil {
			return err
		}
		row.Version++
		if err := endSessions(ctx, tx, row); err != nil {
			return err
		}
		_, err = tx.NewUpdate().Model(row).WherePK().Exec(ctx)
		return err
	})
	return db.wrap(err, "%s of user %d", what, user)
}

// BeginLogin counts a login before anything about it is checked; see engine.UserStore.
func (db *DB) BeginLogin(ctx context.Context, user, at int64, decide func(u engine.User) (int32, error)) (*engine.User, error) {
	var row *userRow
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		var err error
		if row, err = db.lockUser(ctx, tx, user); err != nil {
			return err
		}
		if row.Failed, err = decide(row.noun()); err != nil {
			return err
		}
		row.FailedAt = at
		_, err = tx.NewUpdate().Model(row).Column("failed", "failed_at").WherePK().Exec(ctx)
		return err
	})
	if err != nil {
		return nil, db.wrap(err, "login of user %d", user)
	}
	n := row.noun()
	return &n, nil
}

// EndLogin says that the login succeeded; see engine.UserStore.
func (db *DB) EndLogin(ctx context.Context, user, step, at int64) error {
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		row, err := db.lockUser(ctx, tx, user)
		switch {
		case err != nil:
			return err
		case row.Disabled == 1:
			return fmt.Errorf("the user is disabled: %w", engine.ErrForbidden)
		case step != 0 && step <= row.TOTPStep:
			return fmt.Errorf("the code was used already: %w", engine.ErrConflict)
		}
		row.Failed, row.FailedAt, row.LoginAt, row.TOTPStep = 0, 0, at, max(step, row.TOTPStep)
		_, err = tx.NewUpdate().Model(row).Column("failed", "failed_at", "login_at", "totp_step").WherePK().Exec(ctx)
		return err
	})
	return db.wrap(err, "login of user %d", user)
}

// FirstUser takes the setup code and makes the first user; see engine.UserStore.
func (db *DB) FirstUser(ctx context.Context, code int64, hash [32]byte, u engine.User, roles []engine.RoleBinding, at int64, audit engine.AuditFunc) (*engine.User, error) {
	given, err := newUserRow(&u)
	if err != nil {
		return nil, err
	}
	var row userRow
	err = db.serially(ctx, audit, func(ctx context.Context, tx bun.Tx) error {
		row = *given
		row.Version = 1
		there, err := tx.NewSelect().Model((*userRow)(nil)).Exists(ctx)
		switch {
		case err != nil:
			return err
		case there:
			return fmt.Errorf("there is a user already: log in, or ask whoever manages users: %w", engine.ErrConflict)
		}
		if _, err := db.takeCode(ctx, tx, code, engine.CodeSetup, hash, at); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM login_codes WHERE purpose = ?", string(engine.CodeSetup)); err != nil {
			return err
		}
		if err := insertOne(ctx, tx, &row, &row.ID); err != nil {
			return err
		}
		return insertBindings(ctx, tx, row.ID, roles)
	})
	if err != nil {
		return nil, db.wrap(err, "make the first user")
	}
	n := row.noun()
	return &n, nil
}

// errNoCode is the same for all reasons, so that nobody learns which codes there are.
var errNoCode = fmt.Errorf("the code is wrong, expired or used: %w", engine.ErrNotFound)

// takeCode deletes the code, if it is good.
func (db *DB) takeCode(ctx context.Context, tx bun.Tx, id int64, purpose engine.CodePurpose, hash [32]byte, at int64) (*engine.Code, error) {
	var row codeRow
	q := tx.NewSelect().Model(&row).Where("id = ? AND purpose = ?", id, string(purpose))
	if db.forUpdate != "" {
		q = q.For("UPDATE")
	}
	if err := q.Scan(ctx); err != nil {
		if errors.Is(db.kind(err), engine.ErrNotFound) {
			return nil, errNoCode
		}
		return nil, err
	}
	n := row.noun()
	if n.Hash != hash || at >= n.ExpiresAt {
		return nil, errNoCode
	}
	_, err := tx.NewDelete().Model(&row).WherePK().Exec(ctx)
	return &n, err
}
