package httpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/httpapi"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds text to a file, or writes it.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "%s is not what it should be; look at the difference, and if it is meant: go test ./engine/httpapi -run %s -update", file, t.Name())
}

const approvalFlow = `kind: Workflow
app: %s
name: flow
nodes:
  - {id: ok, type: approval}
`

// estate is an app with one of everything.
type estate struct {
	app, instance, execution string
}

func (w *world) estate(admin *caller, app string) estate {
	w.t.Helper()
	admin.post("/apps", map[string]string{"name": app}).is(http.StatusCreated)
	admin.put("/apps/"+app+"/jobs/work", map[string]any{"spec": map[string]any{"processor": "p"}}).is(http.StatusOK)
	admin.put("/apps/"+app+"/calendars/days", map[string]any{"calendar": map[string]any{}}).is(http.StatusOK)
	admin.put("/apps/"+app+"/workflows/flow", api.Document{Document: fmt.Sprintf(approvalFlow, app)}).is(http.StatusOK)
	var job, flow api.Started
	admin.post("/apps/"+app+"/jobs/work/trigger", api.Trigger{}).is(http.StatusCreated).into(&job)
	admin.post("/apps/"+app+"/workflows/flow/start", api.StartWorkflow{}).is(http.StatusCreated).into(&flow)
	row, err := w.store.AppByName(w.ctx, app)
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.SaveWorker(w.ctx, engine.Worker{App: row.ID, Name: "w1", Slots: 1}))
	return estate{app, itoa(job.ID), itoa(flow.ID)}
}

// session is a session of the user of that name, made as a login makes it.
func (w *world) session(name string) (c *caller, id string) {
	w.t.Helper()
	u, err := w.store.UserByName(w.ctx, name)
	require.NoError(w.t, err)
	n, err := w.server.NewID()
	require.NoError(w.t, err)
	s, cred := access.SessionRules{}.NewSession(u, n, [32]byte{byte(n), byte(n >> 8), byte(n >> 16)}, "", "", w.server.Now())
	require.NoError(w.t, w.store.SaveSession(w.ctx, s, nil))
	return &caller{w: w, cookie: &http.Cookie{Name: "__Host-fanjet", Value: cred.Text()}}, itoa(n)
}

// validBodies are of routes that look at what the id names after the body.
var validBodies = map[string]any{
	"order-workflow-instance": api.Order{Order: "resume"},
	"send-signal":             api.SendSignal{Name: "x"},
	"decide-approval":         api.Decide{},
}

// ask uses a route in an estate: a body that is not valid, where there is one, so that nothing
// is changed by those who may.
func (w *world) ask(c *caller, o httpapi.Operation, e estate, own map[string]string) *answered {
	path := strings.TrimPrefix(o.Path, "/api/v1")
	name := "work"
	switch {
	case strings.Contains(path, "/workflows/"):
		name = "flow"
	case strings.Contains(path, "/calendars/"):
		name = "days"
	}
	id := "1"
	switch {
	case strings.HasPrefix(path, "/instances/"):
		id = e.instance
	case strings.HasPrefix(path, "/workflow-instances/"):
		id = e.execution
	case own[o.ID] != "":
		id = own[o.ID]
	}
	path = strings.NewReplacer("{app}", e.app, "{name}", name, "{kind}", "jobs", "{worker}", "w1", "{user}", "victim", "{node}", "ok", "{id}", id).Replace(path)
	require.NotContains(w.t, path, "{", "the test does not know a part of %s", o.Path)
	var body any
	if o.Method != http.MethodGet && o.Method != http.MethodDelete {
		body = map[string]any{"no such field": 1}
		if valid, ok := validBodies[o.ID]; ok {
			body = valid
		}
	}
	return c.do(o.Method, "/api/v1"+path, body)
}

// verdict is what the table says of an answer.
func verdict(a *answered) string {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return itoa(int64(a.status))
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent, http.StatusConflict, http.StatusUnprocessableEntity:
		return "ok"
	}
	return "WRONG " + itoa(int64(a.status))
}

var numbers = regexp.MustCompile(`[0-9]{6,}`)

// TestAccess walks all routes as everybody and compares who may what with a table: E01, E02.
func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	mine, theirs := w.estate(ann, "mine"), w.estate(ann, "theirs")
	nowhere := estate{"nowhere", "123456789", "123456789"}

	roles := map[string][]api.RoleBinding{
		"stranger":       {},
		"viewer":         {role(engine.RoleViewer, "mine")},
		"operator":       {role(engine.RoleOperator, "mine")},
		"editor":         {role(engine.RoleEditor, "mine")},
		"app-admin":      {role(engine.RoleAppAdmin, "mine")},
		"system-admin":   {role(engine.RoleSystemAdmin, "")},
		"security-admin": {role(engine.RoleSecurityAdmin, "")},
		"auditor":        {role(engine.RoleAuditor, "")},
		"victim":         {},
	}
	for name, held := range roles {
		ann.post("/users", api.NewUser{Name: name}).is(http.StatusCreated)
		ann.put("/users/"+name+"/roles", api.SetRoles{Roles: held}).is(http.StatusOK)
		u, err := w.store.UserByName(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, w.store.SetPassword(t.Context(), u.ID, "", false, 1, nil))
	}
	token := func(c *caller) api.Token {
		var out api.Token
		c.post("/me/tokens", api.NewToken{Name: "t", Permissions: []string{"*"}, Apps: []string{"mine"}}).is(http.StatusCreated).into(&out)
		return out
	}
	byToken := &caller{w: w, token: token(ann).Secret} // may what ann may, in mine

	columns := []string{"nobody", "bad token", "stranger", "viewer", "operator", "editor", "app-admin", "system-admin", "security-admin", "auditor", "token", "other app"}
	sessions := map[string]*caller{}
	as := func(who, route string) (*caller, map[string]string) {
		switch who {
		case "nobody":
			return w.nobody(), nil
		case "bad token":
			return &caller{w: w, token: strings.Replace(byToken.token, "_", "_9", 1)}, nil
		case "token":
			return byToken, nil
		case "other app":
			who = "app-admin"
		}
		if sessions[who] == nil || strings.HasPrefix(route, "end-own-sessions") || route == "logout" {
			sessions[who], _ = w.session(who)
		}
		c, own := sessions[who], map[string]string{}
		switch route {
		case "end-own-sessions", "logout":
			delete(sessions, who)
		case "end-own-session":
			_, own[route] = w.session(who)
		case "revoke-own-token":
			own[route] = itoa(token(c).ID)
		case "revoke-token":
			own[route] = itoa(token(ann).ID)
		}
		return c, own
	}
	var table strings.Builder
	table.WriteString("# Who may what, by route; made by TestAccess. ok: let in. The caller of the last column has all roles in an app,\n# and asks for what is in another one.\n")
	for _, o := range w.api.Operations() {
		object := strings.Contains(o.Path, "{app}") || strings.HasPrefix(o.Path, "/api/v1/instances/") || strings.HasPrefix(o.Path, "/api/v1/workflow-instances/")
		require.Equal(t, object, o.Permission.OfApp(), "%s: a permission on apps goes with a route about one", o.ID)
		fmt.Fprintf(&table, "%s %s\n    %s:", o.Method, strings.TrimPrefix(o.Path, "/api/v1"), o.Permission)
		for _, who := range columns {
			if who == "other app" && !object {
				continue
			}
			c, own := as(who, o.ID)
			e := mine
			if who == "other app" {
				e = theirs
			}
			a := w.ask(c, o, e, own)
			fmt.Fprintf(&table, " %s=%s", strings.ReplaceAll(who, " ", "-"), verdict(a))
			if who != "other app" {
				continue
			}
			// What is not there, and what is not theirs to know of, cannot be told apart.
			unknown := w.ask(c, o, nowhere, nil)
			require.Equal(t, http.StatusNotFound, unknown.status, o.ID)
			same := func(a *answered) string {
				return numbers.ReplaceAllString(strings.NewReplacer("nowhere", "APP", "theirs", "APP").Replace(string(a.body)), "ID")
			}
			require.Equal(t, same(unknown), same(a), o.ID)
			require.Equal(t, unknown.header.Get("Content-Type"), a.header.Get("Content-Type"))
		}
		table.WriteString("\n")
	}
	golden(t, "testdata/access.golden", table.String())

	// The default is no: what is public is this.
	var public []string
	for _, o := range w.api.Operations() {
		if o.Permission == access.Public {
			public = append(public, o.ID)
		}
	}
	require.ElementsMatch(t, []string{"get-health", "get-setup", "setup", "login", "login-by-code"}, public)
	for _, path := range []string{"/", "/api/v1", "/api/v2/apps", "/api/v1/apps/", "/metrics", "/debug/pprof/"} {
		require.Equal(t, http.StatusNotFound, w.nobody().do("GET", path, nil).status, path)
	}
}

// TestOpenAPI holds the committed document to the routes.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.Version = "" })
	a := w.nobody().get("/openapi.json").is(http.StatusOK)
	require.Equal(t, "application/openapi+json", a.header.Get("Content-Type"))
	var text bytes.Buffer
	require.NoError(t, json.Indent(&text, a.body, "", " "))
	golden(t, "openapi.json", text.String()+"\n")
}
