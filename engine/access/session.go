package access

import (
	"fmt"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// SessionRules say how long a login goes on (OWASP Session Management Cheat Sheet: an idle
// and an absolute limit, both kept by the server).
type SessionRules struct {
	Idle     time.Duration // without a request; default 30 min
	Absolute time.Duration // from the login; default 12 h
}

func (r SessionRules) defaults() SessionRules {
	if r.Absolute <= 0 {
		r.Absolute = 12 * time.Hour
	}
	if r.Idle <= 0 {
		r.Idle = 30 * time.Minute
	}
	r.Idle = min(r.Idle, r.Absolute)
	return r
}

// NewSession is the session of a user who has just logged in, and the credential that the
// browser keeps as its cookie.
func (r SessionRules) NewSession(u *engine.User, id int64, random [SecretSize]byte, from, agent string, now int64) (engine.Session, Credential) {
	c := NewCredential(KindSession, id, random)
	return engine.Session{
		ID: id, User: u.ID, Hash: c.Hash(), Generation: u.Generation, From: engine.CutText(from, engine.MaxAgent), Agent: engine.CutText(agent, engine.MaxAgent),
		CreatedAt: now, SeenAt: now, ExpiresAt: now + r.defaults().Absolute.Milliseconds(),
	}, c
}

// CheckSession tells whether the credential is that of the stored session, and the session
// goes on: not idle too long, not expired, the user neither disabled nor changed since. All
// else is ErrUnauthenticated.
func (r SessionRules) CheckSession(c Credential, s *engine.Session, u *engine.User, now int64) error {
	switch {
	case c.kind != KindSession || c.id != s.ID || !c.Matches(s.Hash) || s.User != u.ID:
		return fmt.Errorf("this is no session: log in: %w", ErrUnauthenticated)
	case u.Disabled || u.Kind != engine.UserPerson:
		return fmt.Errorf("the user is disabled: ask whoever manages users: %w", ErrUnauthenticated)
	case s.Generation != u.Generation:
		return fmt.Errorf("the password or the roles were changed: log in again: %w", ErrUnauthenticated)
	case now >= s.ExpiresAt || now-s.CreatedAt >= r.defaults().Absolute.Milliseconds():
		return fmt.Errorf("the session has expired: log in again: %w", ErrUnauthenticated)
	case now-s.SeenAt >= r.defaults().Idle.Milliseconds():
		return fmt.Errorf("the session was idle too long: log in again: %w", ErrUnauthenticated)
	}
	return nil
}

// TouchAfter is how old SeenAt may be before it is worth a write: a tenth of the idle limit,
// at most a minute.
func (r SessionRules) TouchAfter() time.Duration { return min(r.defaults().Idle/10, time.Minute) }
