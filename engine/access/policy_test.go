package access_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

var update = flag.Bool("update", false, "write the golden files anew")

var policies = map[string]access.Policy{"duties together": {}, "duties separated": {SeparateDuties: true}}

// person is a user in a session with these roles, as "viewer@billing" or "auditor".
func person(roles ...string) access.Principal {
	return access.OfSession(&engine.Session{ID: 9}, &engine.User{ID: 1, Name: "ada", TOTP: []byte{1}}, bindings(roles...))
}

func bindings(roles ...string) []engine.RoleBinding {
	var out []engine.RoleBinding
	for _, text := range roles {
		role, scope, _ := strings.Cut(text, "@")
		out = append(out, engine.RoleBinding{User: 1, Role: engine.Role(role), Scope: scope})
	}
	return out
}

// program is a token of a user with these roles.
func program(permissions, apps []string, roles ...string) access.Principal {
	t := &engine.Token{ID: 8, User: 1, Permissions: permissions, Apps: apps}
	return access.OfToken(t, &engine.User{ID: 1, Name: "ada"}, bindings(roles...))
}

func allow(pol access.Policy, p access.Principal, perm access.Permission, app string) error {
	if !perm.OfApp() {
		app = ""
	}
	return pol.Allow(p, perm, app)
}

// The whole matrix is pinned: a change of it is seen by whoever reads the diff.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, name := range []string{"duties together", "duties separated"} {
		pol := policies[name]
		fmt.Fprintf(&b, "%s\n\n%-22s%-8s", name, "", "nobody")
		for _, role := range access.Roles() {
			fmt.Fprintf(&b, "%-15s", role)
		}
		b.WriteString("\n")
		for _, perm := range access.Permissions() {
			fmt.Fprintf(&b, "%-22s", perm)
			cell := func(width int, p access.Principal) {
				mark := "."
				switch err := allow(pol, p, perm, "billing"); {
				case err == nil && perm.OfApp() && pol.Allow(p, perm, "other") != nil:
					mark = "app"
				case err == nil:
					mark = "yes"
				case errors.Is(err, engine.ErrNotFound):
					mark = "hidden"
				case errors.Is(err, access.ErrUnauthenticated):
					mark = "login"
				default:
					require.ErrorIs(t, err, engine.ErrForbidden)
				}
				fmt.Fprintf(&b, "%-*s", width, mark)
			}
			cell(8, access.Principal{})
			for _, role := range access.Roles() {
				scope := "@billing"
				if slices.Contains(access.Roles()[4:], role) {
					scope = ""
				}
				cell(15, person(string(role)+scope))
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	got := strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
	const golden = "testdata/matrix.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test ./engine/access -run TestMatrix -update, if this is meant")
}

// What is not in the table does not exist; so does a role.
func TestDefaultIsDeny(t *testing.T) {
	t.Parallel()
	for name, pol := range policies {
		for _, perm := range []access.Permission{"", "jobs", "jobs.*", "*", "jobs.read ", "JOBS.READ", "nothing.read"} {
			require.False(t, perm.Known())
			require.Error(t, pol.Allow(person("system-admin"), perm, ""), "%s %q", name, perm)
			require.Error(t, pol.Allow(person("app-admin@*"), perm, "billing"), "%s %q", name, perm)
			require.Error(t, pol.Allow(program([]string{"*", string(perm)}, []string{"*"}, "system-admin"), perm, ""))
		}
		for _, perm := range access.Permissions() {
			if perm == access.Public {
				continue
			}
			require.ErrorIs(t, allow(pol, access.Principal{}, perm, "billing"), access.ErrUnauthenticated)
			if perm == access.SelfRead || perm == access.SelfManage {
				continue
			}
			for _, role := range []string{"", "@billing", "root", "root@*", "viewer", "Viewer@billing", "editor@", "app-admin@bill*", "app-admin@billing2", "app-admin@billing-*"} {
				require.Error(t, allow(pol, person(role), perm, "billing"), "%s %s %q", name, perm, role)
			}
		}
		for _, app := range []string{"", "*", "billing-*", "Billing", "../billing", "billing\x00", strings.Repeat("a", 64)} {
			require.Error(t, pol.Allow(person("app-admin@*"), access.JobsRead, app), "%q", app)
		}
		require.Error(t, pol.Allow(person("system-admin"), access.ServersRead, "billing"), "a permission over the system is not asked for an app")
	}
}

func TestPeopleWaitForPasswordAndSecondFactor(t *testing.T) {
	t.Parallel()
	of := func(u engine.User) access.Principal {
		u.ID = 1
		return access.OfSession(&engine.Session{}, &u, bindings("system-admin"))
	}
	strict := access.Policy{SecondFactor: true}
	for _, c := range []struct {
		user   engine.User
		policy access.Policy
		ok     bool
	}{
		{engine.User{}, access.Policy{}, true},
		{engine.User{MustChange: true}, access.Policy{}, false},
		{engine.User{}, strict, false},
		{engine.User{TOTP: []byte{1}}, strict, true},
		{engine.User{Issuer: "https://id.example"}, strict, true},
	} {
		p := of(c.user)
		require.NoError(t, c.policy.Allow(p, access.SelfManage, ""))
		require.Equal(t, c.ok, c.policy.Allow(p, access.UsersManage, "") == nil, "%+v", c)
		require.Equal(t, c.ok, len(c.policy.Scopes(p, access.JobsRead)) > 0, "%+v", c)
	}
}

func TestTokensMayLessThanTheirUser(t *testing.T) {
	t.Parallel()
	var pol access.Policy
	all := []string{"*"}
	for _, c := range []struct {
		name string
		p    access.Principal
		perm access.Permission
		app  string
		want error
	}{
		{"as its user", program(all, all, "editor@billing"), access.JobsWrite, "billing", nil},
		{"not more than its user", program(all, all, "viewer@billing"), access.JobsWrite, "billing", engine.ErrForbidden},
		{"not elsewhere", program(all, all, "editor@billing"), access.JobsRead, "other", engine.ErrNotFound},
		{"a noun", program([]string{"jobs.*"}, all, "editor@billing"), access.JobsWrite, "billing", nil},
		{"another noun", program([]string{"jobs.*"}, all, "editor@billing"), access.WorkflowsRead, "billing", engine.ErrForbidden},
		{"one permission", program([]string{"jobs.read"}, all, "editor@billing"), access.JobsWrite, "billing", engine.ErrForbidden},
		{"no app", program(all, nil, "system-admin"), access.JobsRead, "billing", engine.ErrNotFound},
		{"another app", program(all, []string{"other"}, "system-admin"), access.JobsRead, "billing", engine.ErrNotFound},
		{"a namespace", program(all, []string{"pay-*"}, "editor@*"), access.JobsRead, "pay-out", nil},
		{"beside a namespace", program(all, []string{"pay-*"}, "editor@*"), access.JobsRead, "payroll", engine.ErrNotFound},
		{"over the system", program(all, nil, "system-admin"), access.ServersRead, "", nil},
		{"users", program(all, all, "system-admin"), access.UsersManage, "", engine.ErrForbidden},
		{"roles", program([]string{"roles.manage"}, all, "system-admin"), access.RolesManage, "", engine.ErrForbidden},
		{"itself", program(all, all), access.SelfRead, "", nil},
		{"tokens of its own", program(all, all), access.SelfManage, "", engine.ErrForbidden},
	} {
		err := pol.Allow(c.p, c.perm, c.app)
		if c.want == nil {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorIs(t, err, c.want, c.name)
		}
	}
}

func TestWhoHoldsTwoDutiesHasNone(t *testing.T) {
	t.Parallel()
	separate, together := access.Policy{SeparateDuties: true}, access.Policy{}
	for _, roles := range [][]string{
		{"system-admin", "auditor"}, {"system-admin", "security-admin"}, {"security-admin", "auditor"}, {"security-admin", "viewer@*"}, {"auditor", "viewer@billing"},
	} {
		require.ErrorIs(t, separate.CheckBindings(bindings(roles...)), engine.ErrForbidden, "%v", roles)
		require.NoError(t, together.CheckBindings(bindings(roles...)))
		for _, perm := range access.Permissions() {
			if perm != access.Public && perm != access.SelfRead && perm != access.SelfManage {
				require.Error(t, allow(separate, person(roles...), perm, "billing"), "%v %s", roles, perm)
			}
		}
		require.ErrorContains(t, separate.Allow(person(roles...), access.AuditRead, ""), "separation of duties")
	}
	require.NoError(t, separate.CheckBindings(bindings("system-admin", "viewer@billing", "editor@a-*")))
	require.ErrorIs(t, separate.MayBind(person("security-admin"), 1, nil, bindings("system-admin")), engine.ErrForbidden, "roles of one's own")
	require.NoError(t, separate.MayBind(person("security-admin"), 2, nil, bindings("system-admin")))

	require.NoError(t, access.CheckSeparation(map[int64][]engine.RoleBinding{1: bindings("system-admin"), 2: bindings("security-admin"), 3: bindings("auditor")}))
	require.ErrorContains(t, access.CheckSeparation(map[int64][]engine.RoleBinding{1: bindings("system-admin"), 2: bindings("security-admin")}), "auditor")
	require.ErrorContains(t, access.CheckSeparation(map[int64][]engine.RoleBinding{7: bindings("system-admin", "auditor")}), "user 7")

	require.NoError(t, together.CheckHolders(map[engine.Role]int{engine.RoleSystemAdmin: 1}))
	require.ErrorIs(t, together.CheckHolders(map[engine.Role]int{engine.RoleAuditor: 1}), engine.ErrConflict)
	require.NoError(t, separate.CheckHolders(map[engine.Role]int{engine.RoleSecurityAdmin: 1}))
	require.ErrorIs(t, separate.CheckHolders(map[engine.Role]int{engine.RoleSystemAdmin: 1}), engine.ErrConflict)
}

func TestCheckBindings(t *testing.T) {
	t.Parallel()
	var pol access.Policy
	for _, roles := range [][]string{{"viewer"}, {"viewer@"}, {"viewer@Billing"}, {"viewer@a*"}, {"viewer@**"}, {"viewer@-*"}, {"root"}, {"auditor@billing"}, {"auditor", "auditor"}} {
		require.ErrorIs(t, pol.CheckBindings(bindings(roles...)), engine.ErrInvalid, "%v", roles)
	}
	require.ErrorIs(t, pol.CheckBindings(make([]engine.RoleBinding, engine.MaxBindings+1)), engine.ErrTooLarge)
	require.NoError(t, pol.CheckBindings(bindings("viewer@billing", "viewer@pay-*", "editor@*", "auditor")))
}

func TestMayBind(t *testing.T) {
	t.Parallel()
	var pol access.Policy
	for _, c := range []struct {
		who        access.Principal
		old, fresh []string
		ok         bool
	}{
		{person("app-admin@billing"), nil, []string{"editor@billing"}, true},
		{person("app-admin@billing"), []string{"editor@billing", "auditor"}, []string{"auditor"}, true},
		{person("app-admin@billing"), []string{"auditor"}, nil, false},
		{person("app-admin@billing"), nil, []string{"editor@other"}, false},
		{person("app-admin@billing"), nil, []string{"editor@*"}, false},
		{person("app-admin@billing"), nil, []string{"system-admin"}, false},
		{person("app-admin@pay-*"), nil, []string{"app-admin@pay-out", "viewer@pay-*"}, true},
		{person("app-admin@pay-*"), nil, []string{"viewer@payroll"}, false},
		{person("editor@billing"), nil, []string{"viewer@billing"}, false},
		{person("security-admin"), nil, []string{"system-admin"}, true},
		{person("auditor"), nil, []string{"viewer@billing"}, false},
		{program([]string{"*"}, []string{"*"}, "system-admin"), nil, []string{"viewer@billing"}, false},
		{access.Principal{}, nil, []string{"viewer@billing"}, false},
		{access.Principal{}, nil, nil, true}, // nothing changes
	} {
		err := pol.MayBind(c.who, 2, bindings(c.old...), bindings(c.fresh...))
		require.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
	}
}

func TestMayDecide(t *testing.T) {
	t.Parallel()
	ask := func(p access.Principal, roles ...engine.Role) bool {
		return access.Policy{}.MayDecide(p, roles, "billing") == nil
	}
	require.True(t, ask(person("operator@billing")))
	require.False(t, ask(person("viewer@billing")))
	require.False(t, ask(person("viewer@billing"), engine.RoleViewer))
	require.True(t, ask(person("app-admin@billing"), engine.RoleEditor))
	require.False(t, ask(person("operator@billing"), engine.RoleEditor, "root"))
	require.False(t, ask(person("app-admin@other", "operator@billing"), engine.RoleAppAdmin))
	require.True(t, ask(person("operator@billing", "auditor"), engine.RoleAuditor))
	require.True(t, ask(person("system-admin"), engine.RoleSecurityAdmin))
	require.False(t, ask(program([]string{"jobs.*"}, []string{"*"}, "editor@billing")))
	require.True(t, ask(program([]string{"approvals.decide"}, []string{"billing"}, "editor@billing"), engine.RoleEditor))
}

var (
	anyScope = rapid.SampledFrom([]string{"*", "a", "a-b", "a-*", "a-b-*", "a_*", "b", "a-b-c", "ab"})
	anyApp   = rapid.SampledFrom([]string{"a", "a-b", "a-b-c", "a-bc", "ab", "b", "a_b", "a-b-c-d"})
)

// Scopes says of every app what Allow says, whatever the roles and the token; and a token
// adds nothing.
func TestScopesAgreesWithAllow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pol := access.Policy{SeparateDuties: rapid.Bool().Draw(t, "separate")}
		var roles []engine.RoleBinding
		for range rapid.IntRange(0, 3).Draw(t, "roles") {
			b := engine.RoleBinding{Role: rapid.SampledFrom(access.Roles()).Draw(t, "role"), Scope: anyScope.Draw(t, "scope")}
			if slices.Contains(access.Roles()[4:], b.Role) {
				b.Scope = ""
			}
			roles = append(roles, b)
		}
		u := &engine.User{ID: 1, TOTP: []byte{1}}
		user := access.OfSession(&engine.Session{}, u, roles)
		perm := rapid.SampledFrom(access.Permissions()).Draw(t, "permission")
		app := anyApp.Draw(t, "app")
		token := &engine.Token{
			Apps:        rapid.SliceOfN(anyScope, 0, 3).Draw(t, "apps"),
			Permissions: rapid.SliceOfN(rapid.SampledFrom([]string{"*", "jobs.*", string(perm), "logs.read"}), 0, 2).Draw(t, "permissions"),
		}
		for _, p := range []access.Principal{user, access.OfToken(token, u, roles)} {
			in := slices.ContainsFunc(pol.Scopes(p, perm), func(s string) bool { return access.InScope(s, app) })
			require.Equal(t, perm.OfApp() && allow(pol, p, perm, app) == nil, in, "%v %s", pol.Scopes(p, perm), app)
		}
		if allow(pol, access.OfToken(token, u, roles), perm, app) == nil {
			require.NoError(t, allow(pol, user, perm, app), "the token may what its user may not")
		}
	})
}

func TestScopesOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"*", "pay-out_x", "pay-*", "pay-out_*"}, access.ScopesOf("pay-out_x"))
	require.Empty(t, access.ScopesOf("Pay"))
	rapid.Check(t, func(t *rapid.T) {
		scope, app := anyScope.Draw(t, "scope"), anyApp.Draw(t, "app")
		require.Equal(t, slices.Contains(access.ScopesOf(app), scope), access.InScope(scope, app))
		require.NoError(t, access.CheckScope(scope))
	})
}
