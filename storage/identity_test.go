package storage_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
)

// house is all that a server decides logins with, and a clock of the test's.
type house struct {
	t        *testing.T
	s        engine.Store
	policy   access.Policy
	sessions access.SessionRules
	lockout  access.Lockout
	hash     access.HashParams
	ring     *access.Keyring
	now      int64
	id       int64
}

func (h *house) random() (b [32]byte) { b[0], b[1] = byte(h.id), byte(h.id>>8); return b }

func (h *house) next() int64 { h.id++; return h.id }

// record is an audit record of what p does.
func (h *house) record(p access.Principal, action, target string) engine.AuditFunc {
	r := engine.AuditRecord{At: h.now, Action: action, Target: target, Outcome: engine.OutcomeDone, From: "192.0.2.1"}
	p.Actor(&r)
	return access.Chain(r)
}

// login is what a login does, in the order that matters: it is counted, then checked.
func (h *house) login(name, password, code string) (access.Credential, error) {
	ctx := h.t.Context()
	u, err := h.s.UserByName(ctx, name)
	if errors.Is(err, engine.ErrNotFound) {
		access.NoPassword(password)
		return access.Credential{}, access.ErrUnauthenticated
	}
	if err != nil {
		return access.Credential{}, err
	}
	u, err = h.s.BeginLogin(ctx, u.ID, h.now, func(u engine.User) (int32, error) { return h.lockout.Begin(u.Failed, u.FailedAt, h.now) })
	if err != nil {
		return access.Credential{}, err
	}
	ok, err := access.VerifyPassword(password, u.Password)
	if err != nil {
		return access.Credential{}, err
	}
	if !ok || u.Disabled {
		return access.Credential{}, access.ErrUnauthenticated
	}
	step := int64(0)
	if len(u.TOTP) > 0 {
		key, err := h.ring.Open(access.TOTPLabel(u.ID), u.TOTP)
		if err != nil {
			return access.Credential{}, err
		}
		if step, err = access.VerifyTOTP(key, code, h.now, u.TOTPStep); err != nil {
			return access.Credential{}, err
		}
	}
	if err := h.s.EndLogin(ctx, u.ID, step, h.now); err != nil {
		return access.Credential{}, err
	}
	if access.NeedsRehash(u.Password, h.hash) {
		if err := h.s.RehashPassword(ctx, u.ID, u.Password, access.HashPassword(password, [16]byte{1}, h.hash)); err != nil {
			return access.Credential{}, err
		}
	}
	s, c := h.sessions.NewSession(u, h.next(), h.random(), "192.0.2.1", "test", h.now)
	return c, h.s.SaveSession(ctx, s, h.record(access.OfSession(&s, u, nil), "login", "user:"+name))
}

// who is what a request does first: it finds out who asks, by the text of a credential.
func (h *house) who(text string) (access.Principal, error) {
	ctx := h.t.Context()
	var p access.Principal
	c, err := access.ParseCredential(text)
	if err != nil {
		return p, err
	}
	gone := func(err error) error {
		if errors.Is(err, engine.ErrNotFound) {
			return access.ErrUnauthenticated
		}
		return err
	}
	if c.Kind() == access.KindToken {
		t, err := h.s.Token(ctx, c.ID())
		if err != nil {
			return p, gone(err)
		}
		u, err := h.s.User(ctx, t.User)
		if err != nil {
			return p, gone(err)
		}
		if err := access.CheckToken(c, t, u, h.now); err != nil {
			return p, err
		}
		roles, err := h.s.RoleBindings(ctx, u.ID)
		return access.OfToken(t, u, roles), err
	}
	s, err := h.s.Session(ctx, c.ID())
	if err != nil {
		return p, gone(err)
	}
	u, err := h.s.User(ctx, s.User)
	if err != nil {
		return p, gone(err)
	}
	if err := h.sessions.CheckSession(c, s, u, h.now); err != nil {
		return p, err
	}
	roles, err := h.s.RoleBindings(ctx, u.ID)
	return access.OfSession(s, u, roles), err
}

// The story of an installation, from its setup token on: E19 of the cases of trouble, and what
// ends a session, a token, a role.
func TestIdentityStory(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"SQLite":  func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "x.db") },
		"MariaDB": func(t *testing.T) string { return storagetest.MariaDB(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring, err := access.ParseKeyring([]byte(access.FormatKey("k1", [32]byte{9})))
			require.NoError(t, err)
			tellStory(&house{t: t, s: open(t, storage.Config{URL: url(t)}), hash: access.HashParams{Memory: 8, Passes: 1, Threads: 1}, ring: ring, now: 1_790_000_000_000})
		})
	}
}

const (
	adasPassword = "seven green tractors"
	bobsPassword = "eleven blue kettles"
)

func tellStory(h *house) {
	t, ctx, s := h.t, h.t.Context(), h.s
	hash := func(password string) string {
		return access.HashPassword(password, [16]byte{byte(h.next())}, access.HashParams{Memory: 16, Passes: 1, Threads: 1})
	}

	// The setup token makes the first user, once.
	code, c := access.NewCode(engine.CodeSetup, h.next(), 0, h.random(), h.now, time.Hour.Milliseconds())
	require.NoError(t, s.SaveCode(ctx, code))
	shown, err := access.ParseCredential(c.Text())
	require.NoError(t, err)
	ada := engine.User{ID: h.next(), Name: "ada", Kind: engine.UserPerson, Password: hash(adasPassword), PasswordAt: h.now, CreatedAt: h.now, UpdatedAt: h.now}
	admin := []engine.RoleBinding{{Role: engine.RoleSystemAdmin, At: h.now}}
	require.NoError(t, h.policy.CheckBindings(admin))
	_, err = s.FirstUser(ctx, shown.ID(), shown.Hash(), ada, admin, h.now, h.record(access.Principal{}, "setup", "user:ada"))
	require.NoError(t, err)
	_, err = s.FirstUser(ctx, shown.ID(), shown.Hash(), engine.User{Name: "eve", Kind: engine.UserPerson}, admin, h.now, nil)
	require.ErrorIs(t, err, engine.ErrConflict)

	in, err := h.login("ada", adasPassword, "")
	require.NoError(t, err)
	p, err := h.who(in.Text())
	require.NoError(t, err)
	require.NoError(t, h.policy.Allow(p, access.UsersManage, ""))
	stored, err := s.UserByName(ctx, "ada")
	require.NoError(t, err)
	require.False(t, access.NeedsRehash(stored.Password, h.hash), "encoded anew, with the costs of today")

	// Bob operates one app.
	bob, err := s.SaveUser(ctx, engine.User{ID: h.next(), Name: "bob", Kind: engine.UserPerson, Password: hash(bobsPassword), CreatedAt: h.now}, nil, h.record(p, "users.manage", "user:bob"))
	require.NoError(t, err)
	roles := []engine.RoleBinding{{Role: engine.RoleOperator, Scope: "billing", At: h.now}}
	require.NoError(t, h.policy.MayBind(p, bob.ID, nil, roles))
	version, err := s.SetRoleBindings(ctx, bob.ID, bob.Version, roles, h.now, h.policy.CheckHolders, h.record(p, "roles.manage", "user:bob"))
	require.NoError(t, err)
	bobs, err := h.login("bob", bobsPassword, "")
	require.NoError(t, err)
	p, err = h.who(bobs.Text())
	require.NoError(t, err)
	require.NoError(t, h.policy.Allow(p, access.InstancesTrigger, "billing"))
	require.ErrorIs(t, h.policy.Allow(p, access.JobsWrite, "billing"), engine.ErrForbidden)
	require.ErrorIs(t, h.policy.Allow(p, access.JobsRead, "other"), engine.ErrNotFound)

	// A token of Bob's, for one thing.
	tok, key, err := access.TokenRules{}.NewToken(bob, bob.ID, "nightly", []string{"instances.trigger"}, []string{"billing"}, h.next(), h.random(), h.now, h.now+1000_000_000)
	require.NoError(t, err)
	require.NoError(t, s.SaveToken(ctx, tok, h.record(p, "self.manage", "token:nightly")))
	p, err = h.who(key.Text())
	require.NoError(t, err)
	require.NoError(t, h.policy.Allow(p, access.InstancesTrigger, "billing"))
	require.ErrorIs(t, h.policy.Allow(p, access.InstancesRead, "billing"), engine.ErrForbidden)

	// Taking the role away ends the session at once, and the token may nothing.
	_, err = s.SetRoleBindings(ctx, bob.ID, version, nil, h.now, h.policy.CheckHolders, nil)
	require.NoError(t, err)
	_, err = h.who(bobs.Text())
	require.ErrorIs(t, err, access.ErrUnauthenticated)
	p, err = h.who(key.Text())
	require.NoError(t, err)
	require.Error(t, h.policy.Allow(p, access.InstancesTrigger, "billing"))
	require.NoError(t, s.RevokeToken(ctx, tok.ID, h.now, nil))
	_, err = h.who(key.Text())
	require.ErrorIs(t, err, access.ErrUnauthenticated)

	// Nobody gives up the last admin.
	now, err := s.UserByName(ctx, "ada")
	require.NoError(t, err)
	_, err = s.SetRoleBindings(ctx, ada.ID, now.Version, nil, h.now, h.policy.CheckHolders, nil)
	require.ErrorIs(t, err, engine.ErrConflict)
	now.Disabled = true
	_, err = s.SaveUser(ctx, *now, h.policy.CheckHolders, nil)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = h.who(in.Text())
	require.NoError(t, err, "what was refused ended no session")

	// Wrong passwords slow down; the right one waits too, and is taken after.
	for range 5 {
		_, err = h.login("ada", "wrong", "")
		require.ErrorIs(t, err, access.ErrUnauthenticated)
	}
	_, err = h.login("nobody", "wrong", "")
	require.ErrorIs(t, err, access.ErrUnauthenticated)
	var locked *access.LockedError
	_, err = h.login("ada", adasPassword, "")
	require.ErrorAs(t, err, &locked)
	require.ErrorIs(t, err, engine.ErrLimit)
	h.now += locked.Wait.Milliseconds()
	again, err := h.login("ada", adasPassword, "")
	require.NoError(t, err)

	// Another password ends every session, this one too.
	require.NoError(t, s.SetPassword(ctx, ada.ID, hash("nine purple ladders"), false, h.now, nil))
	for _, old := range []access.Credential{in, again} {
		_, err = h.who(old.Text())
		require.ErrorIs(t, err, access.ErrUnauthenticated)
	}
	_, err = h.login("ada", adasPassword, "")
	require.ErrorIs(t, err, access.ErrUnauthenticated)

	// An idle session ends.
	in, err = h.login("ada", "nine purple ladders", "")
	require.NoError(t, err)
	h.now += 29 * time.Minute.Milliseconds()
	require.NoError(t, s.TouchSession(ctx, in.ID(), h.now))
	h.now += 29 * time.Minute.Milliseconds()
	_, err = h.who(in.Text())
	require.NoError(t, err)
	h.now += time.Minute.Milliseconds()
	_, err = h.who(in.Text())
	require.ErrorIs(t, err, access.ErrUnauthenticated)

	// A second factor: sealed at rest, asked for, and each code counts once. These are the
	// codes of RFC 6238, appendix B, at 1 111 111 109 s and the step after.
	secret := []byte("12345678901234567890")
	h.now = 1_111_111_109_000
	box, err := h.ring.Seal(access.TOTPLabel(ada.ID), secret, [access.SealRandom]byte{1})
	require.NoError(t, err)
	step, err := access.VerifyTOTP(secret, "081804", h.now, 0)
	require.NoError(t, err)
	require.NoError(t, s.SetTOTP(ctx, ada.ID, box, step, h.now, nil))
	_, err = h.login("ada", "nine purple ladders", "")
	require.ErrorIs(t, err, access.ErrUnauthenticated)
	_, err = h.login("ada", "nine purple ladders", "081804")
	require.ErrorIs(t, err, access.ErrUnauthenticated, "it proved the factor, and counts no more")
	h.now = 1_111_111_111_000
	in, err = h.login("ada", "nine purple ladders", "050471")
	require.NoError(t, err)
	_, err = h.who(in.Text())
	require.NoError(t, err)
	_, err = h.login("ada", "nine purple ladders", "050471")
	require.ErrorIs(t, err, access.ErrUnauthenticated)

	// All of it stands in a log that verifies, and holds no secret.
	records, err := s.AuditAfter(ctx, 0, 100)
	require.NoError(t, err)
	last, err := access.VerifyAudit(func(yield func(engine.AuditRecord, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}, engine.AuditRecord{})
	require.NoError(t, err)
	var actions []string
	for _, r := range records {
		actions = append(actions, r.ActorName+" "+r.Action+" "+r.Target)
	}
	require.EqualValues(t, len(records), last.Seq)
	require.Equal(t, []string{
		" setup user:ada", "ada login user:ada", "ada users.manage user:bob", "ada roles.manage user:bob", "bob login user:bob", "bob self.manage token:nightly",
		"ada login user:ada", "ada login user:ada", "ada login user:ada",
	}, actions)
}
