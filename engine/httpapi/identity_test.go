package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
)

// The story of somebody who installs Fanjet and gives rights away, on both databases.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, url(t), nil)
			var state api.SetupState
			w.nobody().get("/setup").is(http.StatusOK).into(&state)
			require.True(t, state.Needed)
			w.nobody().post("/setup", api.Setup{Code: "fjsetup_1_x", Name: "ann", Password: goodPassword}).is(http.StatusUnauthorized)
			ann := w.setup()
			w.nobody().get("/setup").is(http.StatusOK).into(&state)
			require.False(t, state.Needed)
			_, ok, err := w.api.SetupCode(t.Context())
			require.NoError(t, err)
			require.False(t, ok)

			var me api.Me
			ann.get("/me").is(http.StatusOK).into(&me)
			require.Equal(t, "ann", me.Name)
			require.Equal(t, "system-admin", me.Roles[0].Role)
			require.Contains(t, me.System, "users.manage")
			require.Equal(t, []string{"*"}, me.Apps["jobs.write"])

			ann.post("/apps", map[string]string{"name": "shop"}).is(http.StatusCreated)
			bob := w.person(ann, "bob", role(engine.RoleOperator, "shop"))
			bob.get("/me").is(http.StatusOK).into(&me)
			require.Empty(t, me.System)
			require.Equal(t, []string{"shop"}, me.Apps["instances.trigger"])
			require.NotContains(t, me.Apps, "jobs.write")
			bob.get("/apps/shop/jobs").is(http.StatusOK)
			bob.get("/users").is(http.StatusForbidden)
			bob.get("/audit").is(http.StatusForbidden)

			// A token is shown once, may less than its user, and gives no rights away.
			var token api.Token
			bob.post("/me/tokens", api.NewToken{Name: "ci", Permissions: []string{"jobs.read"}, Apps: []string{"shop"}}).is(http.StatusCreated).into(&token)
			require.True(t, strings.HasPrefix(token.Secret, "fj_"))
			require.NotContains(t, string(bob.get("/me/tokens").is(http.StatusOK).body), token.Secret)
			ci := &caller{w: w, token: token.Secret}
			ci.get("/apps/shop/jobs").is(http.StatusOK)
			ci.get("/apps/shop/instances").is(http.StatusForbidden)
			ci.post("/me/tokens", api.NewToken{Name: "more", Permissions: []string{"*"}}).is(http.StatusForbidden)
			bob.del("/me/tokens/" + itoa(token.ID)).is(http.StatusNoContent)
			ci.get("/apps/shop/jobs").is(http.StatusUnauthorized)
			ann.del("/me/tokens/" + itoa(token.ID)).is(http.StatusNotFound) // not hers

			// A service has tokens by those who manage them, and logs in by nothing else.
			ann.post("/users", api.NewUser{Name: "robot", Service: true}).is(http.StatusCreated)
			ann.put("/users/robot/roles", api.SetRoles{Roles: []api.RoleBinding{role(engine.RoleViewer, "*")}}).is(http.StatusOK)
			ann.post("/users/robot/tokens", api.NewToken{Name: "x", Permissions: []string{"*"}, Apps: []string{"*"}}).is(http.StatusCreated).into(&token)
			(&caller{w: w, token: token.Secret}).get("/apps/shop/jobs").is(http.StatusOK)
			ann.post("/users/bob/tokens", api.NewToken{Name: "x", Permissions: []string{"*"}}).is(http.StatusForbidden)

			// What ends a session: other roles, another password, being disabled.
			a := ann.get("/users/bob").is(http.StatusOK)
			ann.with("If-Match", `"1"`).put("/users/bob/roles", api.SetRoles{}).is(http.StatusConflict)
			ann.with("If-Match", a.header.Get("ETag")).put("/users/bob/roles", api.SetRoles{Roles: []api.RoleBinding{role(engine.RoleAppAdmin, "shop")}}).is(http.StatusOK)
			bob.get("/me").is(http.StatusUnauthorized)
			bob = w.in("bob", goodPassword)
			bob.put("/me/password", api.ChangePassword{Old: "wrong", New: otherPassword}).is(http.StatusForbidden)
			bob.put("/me/password", api.ChangePassword{Old: goodPassword, New: "short"}).is(http.StatusUnprocessableEntity)
			fresh := bob.put("/me/password", api.ChangePassword{Old: goodPassword, New: otherPassword}).is(http.StatusOK)
			bob.get("/me").is(http.StatusUnauthorized)
			bob = &caller{w: w, cookie: fresh.cookie}
			bob.get("/me").is(http.StatusOK)

			// Who manages the members of an app manages those of this app alone.
			w.person(ann, "zoe")
			var member api.Member
			bob.put("/apps/shop/members/zoe", map[string]any{"roles": []string{"viewer", "editor"}}).is(http.StatusOK).into(&member)
			require.Len(t, member.Roles, 2)
			bob.put("/apps/shop/members/zoe", map[string]any{"roles": []string{"system-admin"}}).is(http.StatusUnprocessableEntity)
			bob.put("/users/zoe/roles", api.SetRoles{Roles: []api.RoleBinding{role(engine.RoleSystemAdmin, "")}}).is(http.StatusForbidden)
			var members struct{ Items []api.Member }
			bob.get("/apps/shop/members").is(http.StatusOK).into(&members)
			require.Len(t, members.Items, 3) // bob, robot of all apps, zoe
			zoe := w.in("zoe", goodPassword)
			zoe.get("/apps/shop/members").is(http.StatusForbidden)

			// The last who could give roles stays.
			ann.put("/users/ann", api.ChangeUser{Disabled: true}).is(http.StatusConflict)
			ann.put("/users/ann/roles", api.SetRoles{}).is(http.StatusConflict)
			ann.put("/users/zoe", api.ChangeUser{Title: "Zoe", Disabled: true}).is(http.StatusOK)
			zoe.get("/me").is(http.StatusUnauthorized)
			w.login("zoe", goodPassword, "").is(http.StatusUnauthorized)

			// A reset ends all, and the one-time code is good once.
			var u api.User
			ann.post("/users/bob/reset", nil).is(http.StatusOK).into(&u)
			bob.get("/me").is(http.StatusUnauthorized)
			w.login("bob", otherPassword, "").is(http.StatusUnauthorized)
			a = w.nobody().post("/login/code", api.CodeLogin{Code: u.Code}).is(http.StatusOK)
			w.nobody().post("/login/code", api.CodeLogin{Code: u.Code}).is(http.StatusUnauthorized)
			bob = &caller{w: w, cookie: a.cookie}
			bob.get("/apps/shop/jobs").is(http.StatusForbidden) // before another password
			bob.post("/me/tokens", api.NewToken{Name: "x", Permissions: []string{"*"}}).is(http.StatusForbidden)

			// Sessions, and the way out.
			var sessions struct{ Items []api.Session }
			other := w.in("ann", goodPassword)
			ann.get("/me/sessions").is(http.StatusOK).into(&sessions)
			require.Len(t, sessions.Items, 2)
			for _, s := range sessions.Items {
				if !s.Current {
					ann.del("/me/sessions/" + itoa(s.ID)).is(http.StatusNoContent)
				}
			}
			other.get("/me").is(http.StatusUnauthorized)
			out := ann.post("/logout", nil).is(http.StatusNoContent)
			require.Negative(t, out.cookie.MaxAge)
			ann.get("/me").is(http.StatusUnauthorized)

			// All of it is in the audit log, whole and without a secret.
			ann = w.in("ann", goodPassword)
			log := string(ann.get("/audit?limit=500").is(http.StatusOK).body)
			for _, action := range []string{"setup", "login", "logout", "users.create", "users.change", "users.reset", "roles.set", "tokens.create", "tokens.revoke", "password.change", "sessions.end", "apps.create", "jobs.write"} {
				if action != "jobs.write" {
					require.Contains(t, log, `"action":"`+action+`"`)
				}
			}
			require.Contains(t, log, `"outcome":"denied"`)
			require.Contains(t, log, `"outcome":"failed"`)
			for _, secret := range []string{goodPassword, otherPassword, token.Secret, u.Code} {
				require.NotContains(t, log, secret)
			}
			var check api.AuditCheck
			ann.get("/audit/verify").is(http.StatusOK).into(&check)
			require.True(t, check.OK, check.What)
			ann.get("/audit/verify?pin=" + itoa(check.To) + "&hash=" + check.Hash).is(http.StatusOK).into(&check)
			require.True(t, check.OK, check.What)
			ann.get("/audit/verify?pin=1&hash=" + check.Hash).is(http.StatusOK).into(&check)
			require.False(t, check.OK)
			require.Equal(t, int64(1), check.Broken)
			ann.get("/audit/verify?from=3&limit=2").is(http.StatusOK).into(&check)
			require.True(t, check.OK, check.What)
			require.True(t, check.More)
			require.Equal(t, int64(4), check.To)
		})
	}
}
