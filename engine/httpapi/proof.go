package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

// errLogin is the one answer to every login that is wrong, whatever is wrong about it.
var errLogin = &plainError{"the name or the password is wrong", access.ErrUnauthenticated}

// errFactor is for those whose password was right.
var errFactor = &plainError{"the code of your second factor is missing, wrong or used: send the next one as code", access.ErrUnauthenticated}

// strangers counts failed logins of names that nobody has, as those of users are counted, so
// that nobody can tell the one from the other. It keeps the newest of this server, and is safe
// for concurrent use.
type strangers struct {
	rules access.Lockout
	mu    sync.Mutex
	m     map[string]stranger
	order []string
}

type stranger struct {
	failed int32
	at     int64
}

const mostStrangers = 10_000

func newStrangers(rules access.Lockout) *strangers {
	return &strangers{rules: rules, m: map[string]stranger{}}
}

func (s *strangers) begin(name string, now int64) error {
	name = engine.CutText(name, engine.MaxUserName)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.m[name]
	failed, err := s.rules.Begin(old.failed, old.at, now)
	if err != nil {
		return err
	}
	if !known {
		if len(s.order) >= mostStrangers {
			delete(s.m, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, name)
	}
	s.m[name] = stranger{failed, now}
	return nil
}

// hashing runs what computes the hash of a password, not too many at a time.
func (a *API) hashing(ctx context.Context, do func()) error {
	select {
	case a.hashes <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn to check a password: %w", context.Cause(ctx))
	}
	defer func() { <-a.hashes }()
	do()
	return nil
}

// verify tells whether it is the password that was encoded. Where there is none it takes as
// long, and is false.
func (a *API) verify(password, encoded string) (bool, error) {
	if encoded == "" {
		_, err := access.VerifyPassword(password, a.nobody)
		return false, err
	}
	return access.VerifyPassword(password, encoded)
}

// hash encodes a password.
func (a *API) hash(ctx context.Context, password string) (encoded string, err error) {
	var salt [access.SaltSize]byte
	_, _ = rand.Read(salt[:]) // never fails, since Go 1.24
	err = a.hashing(ctx, func() { encoded = access.HashPassword(password, salt, a.cfg.Hash) })
	return encoded, err
}

// prove holds somebody to a password and, where there is one, the second factor. It is counted
// before it is looked at. The user returned is as stored when it was counted. A person without
// a password proves nothing by it, unless noPassword says that this will do.
func (a *API) prove(ctx context.Context, u *engine.User, p proof) (*engine.User, error) {
	now := a.now()
	u, err := a.cfg.Store.BeginLogin(ctx, u.ID, now, func(u engine.User) (int32, error) {
		return a.cfg.Lockout.Begin(u.Failed, u.FailedAt, now)
	})
	if err != nil {
		return nil, err
	}
	ok := p.noPassword && u.Password == ""
	if !ok {
		var bad error
		if err := a.hashing(ctx, func() { ok, bad = a.verify(p.password, u.Password) }); err != nil {
			return nil, err
		}
		if bad != nil {
			return nil, fmt.Errorf("password of user %d as stored: %w", u.ID, bad)
		}
	}
	if !ok || u.Disabled || u.Kind != engine.UserPerson {
		return nil, errLogin
	}
	step := int64(0)
	if len(u.TOTP) > 0 {
		if step, err = a.factor(u, p.code, now); err != nil {
			return nil, err
		}
	}
	err = a.cfg.Store.EndLogin(ctx, u.ID, step, now)
	switch {
	case errors.Is(err, engine.ErrConflict):
		return nil, errFactor
	case errors.Is(err, engine.ErrForbidden):
		return nil, errLogin
	case err != nil:
		return nil, err
	}
	if u.Password != "" && access.NeedsRehash(u.Password, a.cfg.Hash) {
		fresh, err := a.hash(ctx, p.password)
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Store.RehashPassword(ctx, u.ID, u.Password, fresh); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// proof is what somebody shows.
type proof struct {
	password, code string
	noPassword     bool
}

// factor is the step of the second factor that the code is of.
func (a *API) factor(u *engine.User, code string, now int64) (int64, error) {
	if a.cfg.Keys == nil {
		return 0, fmt.Errorf("user %d has a second factor, and the server no key to open it with: %w", u.ID, engine.ErrUnavailable)
	}
	key, err := a.cfg.Keys.Open(access.TOTPLabel(u.ID), u.TOTP)
	if err != nil {
		return 0, fmt.Errorf("second factor of user %d: %w: %w", u.ID, engine.ErrUnavailable, err)
	}
	step, err := access.VerifyTOTP(key, code, now, u.TOTPStep)
	if errors.Is(err, access.ErrUnauthenticated) {
		return 0, errFactor
	}
	return step, err
}
