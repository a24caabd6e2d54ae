package storagetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

// person is a new user who can log in.
func person(name string) engine.User {
	return engine.User{
		ID: newID(), Name: name, Title: "Ada 💥", Email: name + "@x.example", Kind: engine.UserPerson, Password: "$argon2id$x", PasswordAt: base,
		CreatedAt: base, UpdatedAt: base,
	}
}

// join saves a user with these roles.
func join(t *testing.T, s engine.Store, u engine.User, roles ...engine.RoleBinding) engine.User {
	t.Helper()
	saved, err := s.SaveUser(t.Context(), u, nil, nil)
	require.NoError(t, err)
	if len(roles) > 0 {
		_, err = s.SetRoleBindings(t.Context(), saved.ID, saved.Version, roles, base, nil, nil)
		require.NoError(t, err)
	}
	return user(t, s, saved.ID)
}

func user(t *testing.T, s engine.Store, id int64) engine.User {
	t.Helper()
	u, err := s.User(t.Context(), id)
	require.NoError(t, err)
	return *u
}

func exerciseUsers(t *testing.T, s engine.Store) {
	ctx := t.Context()
	there, err := s.AnyUser(ctx)
	require.NoError(t, err)
	require.False(t, there)
	ada := person("ada")
	ada.TOTP, ada.TOTPStep, ada.MustChange, ada.Issuer, ada.Subject = []byte{0, 255}, 7, true, "https://id.example", "sub-1"
	v1, err := s.SaveUser(ctx, ada, nil, nil)
	require.NoError(t, err)
	ada.Version = 1
	require.Equal(t, ada, *v1)
	require.Equal(t, ada, user(t, s, ada.ID))
	byName, err := s.UserByName(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, ada, *byName)
	bySubject, err := s.UserBySubject(ctx, "https://id.example", "sub-1")
	require.NoError(t, err)
	require.Equal(t, ada, *bySubject)
	there, err = s.AnyUser(ctx)
	require.NoError(t, err)
	require.True(t, there)
	for _, none := range []func() (*engine.User, error){
		func() (*engine.User, error) { return s.User(ctx, 1<<62) },
		func() (*engine.User, error) { return s.UserByName(ctx, "bob") },
		func() (*engine.User, error) { return s.UserByName(ctx, "ADA' OR 1=1") },
		func() (*engine.User, error) { return s.UserBySubject(ctx, "", "") },
		func() (*engine.User, error) { return s.UserBySubject(ctx, "https://id.example", "sub-2") },
	} {
		_, err := none()
		require.ErrorIs(t, err, engine.ErrNotFound)
	}

	// An update changes what it may, and nothing of what one logs in with.
	change := ada
	change.Title, change.Email, change.UpdatedAt, change.Password, change.TOTP, change.MustChange, change.Failed = "A.", "", base+1, "other", nil, false, 9
	v2, err := s.SaveUser(ctx, change, nil, nil)
	require.NoError(t, err)
	ada.Title, ada.Email, ada.UpdatedAt, ada.Version = "A.", "", base+1, 2
	require.Equal(t, ada, *v2)
	require.Equal(t, ada, user(t, s, ada.ID))
	_, err = s.SaveUser(ctx, change, nil, nil)
	require.ErrorIs(t, err, engine.ErrConflict, "the version has moved on")
	renamed := ada
	renamed.Name = "ada2"
	_, err = s.SaveUser(ctx, renamed, nil, nil)
	require.ErrorIs(t, err, engine.ErrInvalid)
	gone := ada
	gone.ID = 1 << 61
	_, err = s.SaveUser(ctx, gone, nil, nil)
	require.ErrorIs(t, err, engine.ErrNotFound)

	double := person("ada")
	_, err = s.SaveUser(ctx, double, nil, nil)
	require.ErrorIs(t, err, engine.ErrConflict)
	double = person("bob")
	double.Issuer, double.Subject = ada.Issuer, ada.Subject
	_, err = s.SaveUser(ctx, double, nil, nil)
	require.ErrorIs(t, err, engine.ErrConflict, "a subject is one user's")
	bob := join(t, s, person("bob"))
	robot := join(t, s, engine.User{Name: "robot.1", Kind: engine.UserService, CreatedAt: base})
	require.NotZero(t, robot.ID, "an id of the database")
	all, err := s.Users(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []engine.User{ada, bob, robot}, all)
	page, err := s.Users(ctx, "ada", 1)
	require.NoError(t, err)
	require.Equal(t, []engine.User{bob}, page)

	for name, spoil := range map[string]func(u *engine.User){
		"no name":             func(u *engine.User) { u.Name = "" },
		"capitals":            func(u *engine.User) { u.Name = "Eve" },
		"a look-alike":        func(u *engine.User) { u.Name = "аda" },
		"no kind":             func(u *engine.User) { u.Kind = "" },
		"half an issuer":      func(u *engine.User) { u.Issuer = "x" },
		"a service's login":   func(u *engine.User) { u.Kind = engine.UserService },
		"a NUL in the title":  func(u *engine.User) { u.Title = "a\x00" },
		"a broken e-mail":     func(u *engine.User) { u.Email = "\xff" },
		"a name that is long": func(u *engine.User) { u.Name = strings.Repeat("a", engine.MaxUserName+1) },
	} {
		bad := person("eve")
		spoil(&bad)
		_, err := s.SaveUser(ctx, bad, nil, nil)
		require.ErrorIs(t, err, engine.ErrInvalid, name)
	}
}

// Two servers, each with a setup code, and twenty people in a hurry: one becomes the first.
func exerciseFirstUser(t *testing.T, s engine.Store) {
	ctx := t.Context()
	var codes []engine.Code
	for n := range 2 {
		c := engine.Code{ID: newID(), Purpose: engine.CodeSetup, Hash: [32]byte{byte(n + 1)}, CreatedAt: base, ExpiresAt: base + 1000}
		require.NoError(t, s.SaveCode(ctx, c))
		codes = append(codes, c)
	}
	admin := []engine.RoleBinding{{Role: engine.RoleSystemAdmin, At: base}}
	for _, bad := range []struct {
		id   int64
		hash [32]byte
		at   int64
	}{{codes[0].ID, codes[1].Hash, base}, {codes[0].ID, [32]byte{}, base}, {1 << 60, codes[0].Hash, base}, {codes[0].ID, codes[0].Hash, base + 1000}} {
		_, err := s.FirstUser(ctx, bad.id, bad.hash, person("eve"), admin, bad.at, nil)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	_, err := s.FirstUser(ctx, codes[0].ID, codes[0].Hash, person("EVE"), admin, base, nil)
	require.ErrorIs(t, err, engine.ErrInvalid)
	there, err := s.AnyUser(ctx)
	require.NoError(t, err)
	require.False(t, there)

	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for n := range 20 {
		u := person(fmt.Sprintf("user-%d", n))
		wg.Go(func() {
			_, err := s.FirstUser(ctx, codes[n%2].ID, codes[n%2].Hash, u, admin, base, note("setup"))
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	won := 0
	for err := range errs {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, engine.ErrConflict)
	}
	require.Equal(t, 1, won)
	all, err := s.Users(ctx, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	roles, err := s.RoleBindings(ctx, all[0].ID)
	require.NoError(t, err)
	require.Equal(t, []engine.RoleBinding{{User: all[0].ID, Role: engine.RoleSystemAdmin, At: base}}, roles)
	require.Len(t, auditOf(t, s), 1, "what did not happen is not recorded")
	for _, c := range codes {
		_, err := s.TakeCode(ctx, c.ID, engine.CodeSetup, c.Hash, base)
		require.ErrorIs(t, err, engine.ErrNotFound, "the other setup codes ended too")
	}
}

// E19: a hundred guesses at once count as a hundred, and what is over the limit is refused
// before anything is looked at.
func exerciseLogins(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ada := join(t, s, person("ada"))
	errLocked := errors.New("locked")
	fiveOnly := func(u engine.User) (int32, error) {
		if u.Failed >= 5 {
			return 0, errLocked
		}
		return u.Failed + 1, nil
	}
	var wg sync.WaitGroup
	var tried atomic.Int32
	errs := make(chan error, 100)
	for range 100 {
		wg.Go(func() {
			u, err := s.BeginLogin(ctx, ada.ID, base+5, fiveOnly)
			if err == nil && u.Failed > 0 {
				tried.Add(1)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	refused := 0
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, errLocked)
			refused++
		}
	}
	require.EqualValues(t, 5, tried.Load())
	require.Equal(t, 95, refused)
	got := user(t, s, ada.ID)
	require.EqualValues(t, 5, got.Failed)
	require.EqualValues(t, base+5, got.FailedAt)

	// A code of the second factor counts once on all servers.
	errs = make(chan error, 10)
	for range 10 {
		wg.Go(func() { errs <- s.EndLogin(ctx, ada.ID, 1000, base+6) })
	}
	wg.Wait()
	close(errs)
	ok := 0
	for err := range errs {
		if err == nil {
			ok++
			continue
		}
		require.ErrorIs(t, err, engine.ErrConflict)
	}
	require.Equal(t, 1, ok)
	require.ErrorIs(t, s.EndLogin(ctx, ada.ID, 999, base+7), engine.ErrConflict)
	require.NoError(t, s.EndLogin(ctx, ada.ID, 0, base+8), "without a second factor")
	got = user(t, s, ada.ID)
	want := ada
	want.LoginAt, want.TOTPStep = base+8, 1000
	require.Equal(t, want, got)

	got.Disabled = true
	_, err := s.SaveUser(ctx, got, nil, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.EndLogin(ctx, ada.ID, 2000, base+9), engine.ErrForbidden)
	_, err = s.BeginLogin(ctx, 1<<61, base, fiveOnly)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.ErrorIs(t, s.EndLogin(ctx, 1<<61, 0, base), engine.ErrNotFound)
}

func exerciseRoles(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ada, bob := join(t, s, person("ada")), join(t, s, person("bob"))
	set := []engine.RoleBinding{
		{Role: engine.RoleEditor, Scope: "billing", At: base}, {Role: engine.RoleViewer, Scope: "pay-*", At: base}, {Role: engine.RoleViewer, Scope: "*", At: base},
	}
	version, err := s.SetRoleBindings(ctx, ada.ID, ada.Version, set, base+1, nil, nil)
	require.NoError(t, err)
	require.Equal(t, ada.Version+1, version)
	got := user(t, s, ada.ID)
	require.Equal(t, ada.Generation+1, got.Generation)
	require.Equal(t, version, got.Version)
	_, err = s.SetRoleBindings(ctx, ada.ID, ada.Version, nil, base, nil, nil)
	require.ErrorIs(t, err, engine.ErrConflict, "two admins at once: the second one reads again")
	_, err = s.SetRoleBindings(ctx, bob.ID, bob.Version, []engine.RoleBinding{{Role: engine.RoleViewer, Scope: "billing", At: base + 2}}, base, nil, nil)
	require.NoError(t, err)
	of := func(u engine.User, b engine.RoleBinding) engine.RoleBinding { b.User = u.ID; return b }
	a1, a2, a3 := of(ada, set[0]), of(ada, set[2]), of(ada, set[1])
	b1 := engine.RoleBinding{User: bob.ID, Role: engine.RoleViewer, Scope: "billing", At: base + 2}
	roles, err := s.RoleBindings(ctx, ada.ID)
	require.NoError(t, err)
	require.Equal(t, []engine.RoleBinding{a1, a2, a3}, roles)
	in, err := s.RoleBindingsIn(ctx, []string{"billing", "*"}, engine.RoleBinding{}, 10)
	require.NoError(t, err)
	require.Equal(t, []engine.RoleBinding{a1, a2, b1}, in)
	var paged []engine.RoleBinding
	for after := (engine.RoleBinding{}); ; {
		page, err := s.RoleBindingsIn(ctx, []string{"billing", "*", "pay-*"}, after, 1)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		after = page[0]
		paged = append(paged, page...)
	}
	require.Equal(t, []engine.RoleBinding{a1, a2, a3, b1}, paged)
	in, err = s.RoleBindingsIn(ctx, nil, engine.RoleBinding{}, 10)
	require.NoError(t, err)
	require.Empty(t, in)

	now := user(t, s, ada.ID)
	for _, bad := range [][]engine.RoleBinding{
		{{Scope: "x"}}, {{Role: engine.RoleViewer, Scope: "a"}, {Role: engine.RoleViewer, Scope: "a"}}, {{Role: "a\x00"}}, make([]engine.RoleBinding, engine.MaxBindings+1),
	} {
		_, err = s.SetRoleBindings(ctx, ada.ID, now.Version, bad, base, nil, note("roles.manage"))
		require.Error(t, err)
	}
	require.Equal(t, now, user(t, s, ada.ID), "a refused change changes nothing")
	roles, err = s.RoleBindings(ctx, ada.ID)
	require.NoError(t, err)
	require.Len(t, roles, 3)
	require.Empty(t, auditOf(t, s))
	_, err = s.SetRoleBindings(ctx, ada.ID, now.Version, nil, base, nil, note("roles.manage"))
	require.NoError(t, err)
	roles, err = s.RoleBindings(ctx, ada.ID)
	require.NoError(t, err)
	require.Empty(t, roles)
	require.Len(t, auditOf(t, s), 1)
}

// Eight admins give the role up, or are disabled, all at once: one is left.
func exerciseLastAdmin(t *testing.T, s engine.Store) {
	ctx := t.Context()
	errLast := errors.New("the last one")
	guard := func(holders map[engine.Role]int) error {
		if holders[engine.RoleSystemAdmin] == 0 {
			return errLast
		}
		return nil
	}
	admin := engine.RoleBinding{Role: engine.RoleSystemAdmin}
	join(t, s, engine.User{Name: "robot", Kind: engine.UserService}, admin) // does not count
	off := person("off")
	off.Disabled = true
	join(t, s, off, admin) // neither
	join(t, s, person("other"), engine.RoleBinding{Role: engine.RoleAuditor}, engine.RoleBinding{Role: engine.RoleAppAdmin, Scope: "*"})
	var admins []engine.User
	for n := range 8 {
		admins = append(admins, join(t, s, person(fmt.Sprintf("admin-%d", n)), admin))
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(admins))
	for n, u := range admins {
		wg.Go(func() {
			var err error
			if n%2 == 0 {
				_, err = s.SetRoleBindings(ctx, u.ID, u.Version, nil, base, guard, nil)
			} else {
				u.Disabled = true
				_, err = s.SaveUser(ctx, u, guard, nil)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	refused := 0
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, errLast)
			refused++
		}
	}
	require.Equal(t, 1, refused)
	left := 0
	for _, u := range admins {
		roles, err := s.RoleBindings(ctx, u.ID)
		require.NoError(t, err)
		if len(roles) == 1 && !user(t, s, u.ID).Disabled {
			left++
		}
	}
	require.Equal(t, 1, left)
}
