package httpapi_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/httpapi"
)

// phone computes codes as an authenticator app does (RFC 6238).
func phone(t *testing.T, uri string, at int64) string {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(u.Query().Get("secret"))
	require.NoError(t, err)
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(at/30_000)))
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1_000_000)
}

func TestSecondFactor(t *testing.T) {
	t.Parallel()
	for name, db := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db(t), nil)
			ann := w.setup()
			const path = "/me/second-factor"
			ann.post(path, api.Proof{Password: "wrong"}).is(http.StatusForbidden)
			var begun, other api.Enrolment
			ann.post(path, api.Proof{Password: goodPassword}).is(http.StatusOK).into(&begun)
			ann.post(path, api.Proof{Password: goodPassword}).is(http.StatusOK).into(&other)
			require.NotEqual(t, begun.State, other.State)
			w.login("ann", goodPassword, "").is(http.StatusOK) // nothing is set before it is confirmed
			code := func(ahead int64) string { return phone(t, begun.URI, w.server.Now()+ahead) }
			ann.put(path, api.ConfirmEnrolment{State: begun.State, Code: "000000"}).is(http.StatusUnprocessableEntity)
			ann.put(path, api.ConfirmEnrolment{State: "x" + begun.State, Code: code(0)}).is(http.StatusUnprocessableEntity)
			bob := w.person(ann, "bob")
			bob.put(path, api.ConfirmEnrolment{State: begun.State, Code: code(0)}).is(http.StatusUnprocessableEntity)
			a := ann.put(path, api.ConfirmEnrolment{State: begun.State, Code: code(0)}).is(http.StatusOK)
			ann.get("/me").is(http.StatusUnauthorized)
			ann = &caller{w: w, cookie: a.cookie}
			var me api.Me
			ann.get("/me").is(http.StatusOK).into(&me)
			require.True(t, me.SecondFactor)
			ann.put(path, api.ConfirmEnrolment{State: other.State, Code: phone(t, other.URI, w.server.Now())}).is(http.StatusUnprocessableEntity)

			require.Contains(t, string(w.login("ann", goodPassword, "").is(http.StatusUnauthorized).body), "second factor")
			require.NotContains(t, string(w.login("ann", "wrong", code(30_000)).is(http.StatusUnauthorized).body), "second factor")
			next := code(30_000)
			w.login("ann", goodPassword, next).is(http.StatusOK)
			w.login("ann", goodPassword, next).is(http.StatusUnauthorized) // each code counts once
			// Forget which code was taken last, rather than wait for the next.
			u, err := w.store.UserByName(t.Context(), "ann")
			require.NoError(t, err)
			require.NoError(t, w.store.SetTOTP(t.Context(), u.ID, u.TOTP, 0, w.server.Now(), nil))
			ann, _ = w.session("ann")
			ann.post(path+"/remove", api.Proof{Password: goodPassword, Code: "000000"}).is(http.StatusForbidden)
			ann.post(path+"/remove", api.Proof{Password: goodPassword, Code: code(0)}).is(http.StatusNoContent)
			w.login("ann", goodPassword, "").is(http.StatusOK)
		})
	}
}

// TestSecondFactor_Asked: where the owner asks for one, nothing else goes before it.
func TestSecondFactor_Asked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.Policy.SecondFactor = true })
	ann := w.setup()
	ann.get("/users").is(http.StatusForbidden)
	var begun api.Enrolment
	ann.post("/me/second-factor", api.Proof{Password: goodPassword}).is(http.StatusOK).into(&begun)
	a := ann.put("/me/second-factor", api.ConfirmEnrolment{State: begun.State, Code: phone(t, begun.URI, w.server.Now())}).is(http.StatusOK)
	(&caller{w: w, cookie: a.cookie}).get("/users").is(http.StatusOK)

	w = newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.Keys = nil })
	w.setup().post("/me/second-factor", api.Proof{Password: goodPassword}).is(http.StatusConflict)
}

// TestSeparateDuties: the first user is who makes the others, and nobody else's duty is hers.
func TestSeparateDuties(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.Policy.SeparateDuties = true })
	ann := w.setup()
	ann.get("/audit").is(http.StatusForbidden)
	ann.post("/apps", map[string]string{"name": "x"}).is(http.StatusForbidden)
	ann.post("/users", api.NewUser{Name: "sys"}).is(http.StatusCreated)
	ann.put("/users/sys/roles", api.SetRoles{Roles: []api.RoleBinding{{Role: "system-admin"}, {Role: "auditor"}}}).is(http.StatusForbidden)
	ann.put("/users/sys/roles", api.SetRoles{Roles: []api.RoleBinding{{Role: "system-admin"}}}).is(http.StatusOK)
	ann.put("/users/ann/roles", api.SetRoles{Roles: []api.RoleBinding{{Role: "system-admin"}}}).is(http.StatusForbidden)
	sys, _ := w.session("sys")
	sys.post("/apps", map[string]string{"name": "x"}).is(http.StatusForbidden) // has no password of its own yet
	a := sys.put("/me/password", api.ChangePassword{New: otherPassword}).is(http.StatusOK)
	sys = &caller{w: w, cookie: a.cookie}
	sys.post("/apps", map[string]string{"name": "x"}).is(http.StatusCreated)
	sys.get("/users").is(http.StatusForbidden)
}
