package storagetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func session(u engine.User) engine.Session {
	id := newID()
	return engine.Session{
		ID: id, User: u.ID, Hash: [32]byte{byte(id), 255}, Generation: u.Generation, From: "192.0.2.1", Agent: "Böwser 💥", CreatedAt: base, SeenAt: base, ExpiresAt: base + 1000,
	}
}

func exerciseSessions(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ada := join(t, s, person("ada"))
	first, second := session(ada), session(ada)
	require.NoError(t, s.SaveSession(ctx, first, note("login")))
	require.NoError(t, s.SaveSession(ctx, second, nil))
	got, err := s.Session(ctx, first.ID)
	require.NoError(t, err)
	require.Equal(t, first, *got)
	require.ErrorIs(t, s.SaveSession(ctx, first, note("login")), engine.ErrConflict)
	require.Len(t, auditOf(t, s), 1)
	require.NoError(t, s.TouchSession(ctx, first.ID, base+9))
	require.NoError(t, s.TouchSession(ctx, first.ID, base+9), "again is no error")
	require.NoError(t, s.TouchSession(ctx, first.ID, base+5))
	require.ErrorIs(t, s.TouchSession(ctx, 1<<61, base), engine.ErrNotFound)
	first.SeenAt = base + 9
	all, err := s.Sessions(ctx, ada.ID)
	require.NoError(t, err)
	require.Equal(t, []engine.Session{first, second}, all)
	require.ErrorIs(t, s.DeleteSession(ctx, ada.ID+1, first.ID, nil), engine.ErrNotFound, "somebody else's")
	require.NoError(t, s.DeleteSession(ctx, ada.ID, first.ID, nil))
	require.ErrorIs(t, s.DeleteSession(ctx, ada.ID, first.ID, nil), engine.ErrNotFound)
	_, err = s.Session(ctx, first.ID)
	require.ErrorIs(t, err, engine.ErrNotFound)

	// Whatever changes who the user is ends the sessions, and logins that are under way.
	for name, change := range map[string]func(u engine.User) error{
		"password": func(u engine.User) error { return s.SetPassword(ctx, u.ID, "$new", true, base+1, note("self.manage")) },
		"second factor": func(u engine.User) error {
			return s.SetTOTP(ctx, u.ID, []byte{7}, 5, base+2, note("self.manage"))
		},
		"roles": func(u engine.User) error {
			_, err := s.SetRoleBindings(ctx, u.ID, u.Version, []engine.RoleBinding{{Role: engine.RoleAuditor}}, base, nil, nil)
			return err
		},
		"disabled": func(u engine.User) error { u.Disabled = true; _, err := s.SaveUser(ctx, u, nil, nil); return err },
		"subject": func(u engine.User) error {
			u.Issuer, u.Subject = "i", u.Name
			_, err := s.SaveUser(ctx, u, nil, nil)
			return err
		},
		"by hand": func(u engine.User) error { return s.DeleteSessions(ctx, u.ID, base, note("sessions.end")) },
	} {
		u := join(t, s, person("user-"+strings.ReplaceAll(name, " ", "-")))
		require.NoError(t, s.SaveSession(ctx, session(u), nil), name)
		late := session(u)
		require.NoError(t, change(u), name)
		left, err := s.Sessions(ctx, u.ID)
		require.NoError(t, err)
		require.Empty(t, left, name)
		require.Error(t, s.SaveSession(ctx, late, nil), "%s: a login that began before", name)
		now := user(t, s, u.ID)
		require.Greater(t, now.Generation, u.Generation, name)
		if name == "disabled" {
			require.ErrorIs(t, s.SaveSession(ctx, session(now), nil), engine.ErrForbidden)
			continue
		}
		require.NoError(t, s.SaveSession(ctx, session(now), nil), name)
	}
	u, err := s.UserByName(ctx, "user-password")
	require.NoError(t, err)
	require.Equal(t, "$new", u.Password)
	require.True(t, u.MustChange)
	require.EqualValues(t, base+1, u.PasswordAt)
	require.NoError(t, s.RehashPassword(ctx, u.ID, "$old", "$rehashed"))
	require.Equal(t, *u, user(t, s, u.ID), "the password was changed meanwhile")
	require.NoError(t, s.RehashPassword(ctx, u.ID, "$new", "$rehashed"))
	want := *u
	want.Password = "$rehashed"
	require.Equal(t, want, user(t, s, u.ID), "and the sessions go on")
	require.ErrorIs(t, s.RehashPassword(ctx, u.ID, "", "$x"), engine.ErrInvalid)
	u, err = s.UserByName(ctx, "user-second-factor")
	require.NoError(t, err)
	require.Equal(t, []byte{7}, u.TOTP)
	require.EqualValues(t, 5, u.TOTPStep)
	require.NoError(t, s.SetTOTP(ctx, u.ID, nil, 0, base+3, nil))
	require.Empty(t, user(t, s, u.ID).TOTP)
	require.ErrorIs(t, s.SetPassword(ctx, 1<<61, "x", false, base, note("x")), engine.ErrNotFound)
	title := join(t, s, person("title"))
	require.NoError(t, s.SaveSession(ctx, session(title), nil))
	title.Title = "another"
	_, err = s.SaveUser(ctx, title, nil, nil)
	require.NoError(t, err)
	left, err := s.Sessions(ctx, title.ID)
	require.NoError(t, err)
	require.Len(t, left, 1, "a title is no reason to log in again")

	robot := join(t, s, engine.User{Name: "robot", Kind: engine.UserService})
	require.ErrorIs(t, s.SaveSession(ctx, session(robot), nil), engine.ErrForbidden)
	require.ErrorIs(t, s.SetPassword(ctx, robot.ID, "x", false, base, nil), engine.ErrInvalid)
	require.ErrorIs(t, s.SaveSession(ctx, session(engine.User{ID: 1 << 61}), nil), engine.ErrNotFound)
	long := session(title)
	long.Agent = strings.Repeat("ü", 1000) + "\x00"
	require.NoError(t, s.SaveSession(ctx, long, nil), "a browser may call itself what it likes")

	for n := range 5 {
		old := session(title)
		old.ExpiresAt = base - 10 + int64(n)
		require.NoError(t, s.SaveSession(ctx, old, nil))
		require.NoError(t, s.SaveCode(ctx, engine.Code{ID: newID(), Purpose: engine.CodeSetup, ExpiresAt: base - 10 + int64(n)}))
	}
	gone, err := s.DeleteExpired(ctx, base-7, 2)
	require.NoError(t, err)
	require.EqualValues(t, 4, gone)
	gone, err = s.DeleteExpired(ctx, base-7, 100)
	require.NoError(t, err)
	require.EqualValues(t, 2, gone)
	gone, err = s.DeleteExpired(ctx, base-7, 100)
	require.NoError(t, err)
	require.Zero(t, gone)
}

// Logins run while the password is changed again and again: no session of an older password
// is left when all is quiet.
func exerciseSessionRaces(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ada := join(t, s, person("ada"))
	var wg sync.WaitGroup
	var refused, begun atomic.Int32
	errs := make(chan error, 100)
	for range 4 {
		wg.Go(func() {
			for range 10 {
				u, err := s.User(ctx, ada.ID)
				if err != nil {
					errs <- err
					return
				}
				if err = s.SaveSession(ctx, session(*u), note("login")); err != nil {
					refused.Add(1)
				} else {
					begun.Add(1)
				}
			}
		})
	}
	for n := range 2 {
		wg.Go(func() {
			for k := range 5 {
				errs <- s.SetPassword(ctx, ada.ID, fmt.Sprintf("$%d-%d", n, k), false, base, note("self.manage"))
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, 40, refused.Load()+begun.Load())
	now := user(t, s, ada.ID)
	require.EqualValues(t, 10, now.Generation)
	left, err := s.Sessions(ctx, ada.ID)
	require.NoError(t, err)
	for _, l := range left {
		require.Equal(t, now.Generation, l.Generation)
	}
	require.Len(t, auditOf(t, s), int(begun.Load())+10)
}

func exerciseCodes(t *testing.T, s engine.Store) {
	ctx := t.Context()
	c := engine.Code{ID: newID(), Purpose: engine.CodeLogin, User: 7, Hash: [32]byte{3}, CreatedAt: base, ExpiresAt: base + 100}
	require.NoError(t, s.SaveCode(ctx, c))
	require.ErrorIs(t, s.SaveCode(ctx, c), engine.ErrConflict)
	for _, bad := range []engine.Code{{ID: newID(), Purpose: "x", User: 7}, {ID: newID(), Purpose: engine.CodeLogin}, {ID: newID(), Purpose: engine.CodeSetup, User: 7}, {Purpose: engine.CodeSetup}} {
		require.ErrorIs(t, s.SaveCode(ctx, bad), engine.ErrInvalid)
	}
	for _, bad := range []struct {
		purpose engine.CodePurpose
		hash    [32]byte
		at      int64
	}{{engine.CodeSetup, c.Hash, base}, {engine.CodeLogin, [32]byte{4}, base}, {engine.CodeLogin, c.Hash, base + 100}} {
		_, err := s.TakeCode(ctx, c.ID, bad.purpose, bad.hash, bad.at)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	var wg sync.WaitGroup
	var got atomic.Int32
	errs := make(chan error, 20)
	for range 20 {
		wg.Go(func() {
			taken, err := s.TakeCode(ctx, c.ID, c.Purpose, c.Hash, base+99)
			if err == nil && *taken == c {
				got.Add(1)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, engine.ErrNotFound)
		}
	}
	require.EqualValues(t, 1, got.Load())
}

func exerciseTokens(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ada, bob := join(t, s, person("ada")), join(t, s, engine.User{Name: "robot", Kind: engine.UserService})
	make1 := func(u engine.User) engine.Token {
		id := newID()
		return engine.Token{
			ID: id, User: u.ID, Name: "déploy 💥", Hash: [32]byte{byte(id), 1}, Permissions: []string{"jobs.*", "instances.trigger"}, Apps: []string{"billing", "pay-*"},
			CreatedAt: base, CreatedBy: ada.ID, ExpiresAt: base + 1000,
		}
	}
	first, second, third := make1(ada), make1(bob), make1(ada)
	for _, tok := range []engine.Token{first, second, third} {
		require.NoError(t, s.SaveToken(ctx, tok, note("self.manage")))
	}
	require.ErrorIs(t, s.SaveToken(ctx, first, note("self.manage")), engine.ErrConflict)
	require.ErrorIs(t, s.SaveToken(ctx, make1(engine.User{ID: 1 << 61}), nil), engine.ErrNotFound)
	bad := make1(ada)
	bad.Name = "\xff"
	require.ErrorIs(t, s.SaveToken(ctx, bad, nil), engine.ErrInvalid)
	require.Len(t, auditOf(t, s), 3)
	require.NoError(t, s.TouchToken(ctx, first.ID, base+5))
	require.NoError(t, s.TouchToken(ctx, first.ID, base+4))
	require.NoError(t, s.RevokeToken(ctx, first.ID, base+6, note("self.manage")))
	require.NoError(t, s.RevokeToken(ctx, first.ID, base+7, nil), "again is no error")
	first.UsedAt, first.RevokedAt = base+5, base+6
	got, err := s.Token(ctx, first.ID)
	require.NoError(t, err)
	require.Equal(t, first, *got)
	mine, err := s.Tokens(ctx, ada.ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Token{first, third}, mine)
	all, err := s.Tokens(ctx, 0, first.ID, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.Token{second, third}, all)
	for _, err := range []error{s.TouchToken(ctx, 1<<61, base), s.RevokeToken(ctx, 1<<61, base, nil), func() error { _, err := s.Token(ctx, 1<<61); return err }()} {
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	// A change of the password ends sessions, not tokens.
	require.NoError(t, s.SetPassword(ctx, ada.ID, "$new", false, base, nil))
	got, err = s.Token(ctx, third.ID)
	require.NoError(t, err)
	require.Equal(t, third, *got)
}
