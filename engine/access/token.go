package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// TokenRules bound what tokens may be.
type TokenRules struct {
	MaxAge time.Duration // the longest life; default 366 days. Every token expires.
}

// maxTokenScopes bounds each list of a token.
const maxTokenScopes = 64

func (r TokenRules) maxAge() time.Duration {
	if r.MaxAge <= 0 {
		return 366 * 24 * time.Hour
	}
	return r.MaxAge
}

// NewToken makes a token of a user that may do what is in permissions ("jobs.read", "jobs.*",
// "*" for all that the user may) in the apps (scopes as CheckScope knows them), and the
// credential to show once. It never may more than its user, so nothing is compared here with
// what the user may.
func (r TokenRules) NewToken(u *engine.User, by int64, name string, permissions, apps []string, id int64, random [SecretSize]byte, now, expires int64) (engine.Token, Credential, error) {
	fail := func(err error) (engine.Token, Credential, error) { return engine.Token{}, Credential{}, err }
	if err := engine.CheckText("name of the token", name, engine.MaxTitle); err != nil {
		return fail(err)
	}
	switch {
	case strings.TrimSpace(name) == "":
		return fail(fmt.Errorf("the token has no name: say what it is for: %w", engine.ErrInvalid))
	case expires <= now:
		return fail(fmt.Errorf("the token would have expired already: %w", engine.ErrInvalid))
	case expires-now > r.maxAge().Milliseconds():
		return fail(fmt.Errorf("the token would live longer than %d days: %w", int(r.maxAge().Hours()/24), engine.ErrInvalid))
	case len(permissions) == 0:
		return fail(fmt.Errorf("the token has no permission: %w", engine.ErrInvalid))
	case len(permissions) > maxTokenScopes || len(apps) > maxTokenScopes:
		return fail(fmt.Errorf("the token has %d permissions and %d apps, at most %d of each: %w", len(permissions), len(apps), maxTokenScopes, engine.ErrTooLarge))
	}
	for _, p := range permissions {
		if err := checkTokenPermission(p); err != nil {
			return fail(err)
		}
	}
	for _, scope := range apps {
		if err := CheckScope(scope); err != nil {
			return fail(err)
		}
	}
	c := NewCredential(KindToken, id, random)
	return engine.Token{
		ID: id, User: u.ID, Name: name, Hash: c.Hash(), Permissions: slices.Clone(permissions), Apps: slices.Clone(apps),
		CreatedAt: now, CreatedBy: by, ExpiresAt: expires,
	}, c, nil
}

func checkTokenPermission(text string) error {
	matched, person := false, false
	for _, r := range rules {
		if r.perm.in([]string{text}) && r.of != ofAnybody {
			matched = matched || !r.inPerson
			person = person || r.inPerson
		}
	}
	switch {
	case matched:
		return nil
	case person:
		return fmt.Errorf("permission %s gives rights away and no token may have it: %w", text, engine.ErrInvalid)
	}
	return fmt.Errorf("there is no permission %q: %w", engine.CutText(text, engine.MaxName), engine.ErrInvalid)
}

// CheckToken tells whether the credential is that of the stored token, and the token is good:
// neither revoked nor expired, its user not disabled. All else is ErrUnauthenticated.
func CheckToken(c Credential, t *engine.Token, u *engine.User, now int64) error {
	switch {
	case c.kind != KindToken || c.id != t.ID || !c.Matches(t.Hash) || t.User != u.ID:
		return fmt.Errorf("this is no token of ours: %w", ErrUnauthenticated)
	case t.RevokedAt != 0:
		return fmt.Errorf("token %d is revoked: %w", t.ID, ErrUnauthenticated)
	case now >= t.ExpiresAt:
		return fmt.Errorf("token %d has expired: make another: %w", t.ID, ErrUnauthenticated)
	case u.Disabled:
		return fmt.Errorf("the user of token %d is disabled: %w", t.ID, ErrUnauthenticated)
	}
	return nil
}
