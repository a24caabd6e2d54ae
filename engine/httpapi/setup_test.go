package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/httpapi"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/storage/storagetest"
)

const (
	goodPassword  = "eleven green chairs fly"
	otherPassword = "nine purple lamps sleep"
)

// world is a server with real parts and its API behind a socket: SQLite or MariaDB, and an
// embedded broker.
type world struct {
	t      testing.TB
	ctx    context.Context
	store  *storage.DB
	server *server.Server
	broker *brokertest.Server
	api    *httpapi.API
	url    string
}

// databases are those that the API is tried on.
var databases = map[string]func(testing.TB) string{
	"SQLite":  func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db") },
	"MariaDB": func(t testing.TB) string { return storagetest.MariaDB(t) },
}

func newWorld(t testing.TB, url string, change func(*httpapi.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, ctx: ctx}
	db, err := storage.Open(ctx, storage.Config{URL: url, Logger: brokertest.Quiet()})
	require.NoError(t, err)
	w.store = db
	w.broker = brokertest.Run(t)
	w.server, err = server.New(server.Config{Broker: w.broker.Broker(t, broker.Config{}), Store: db, Log: brokertest.Quiet()})
	require.NoError(t, err)
	ended := make(chan error, 2)
	go func() { ended <- w.server.Run(ctx) }()
	select {
	case <-w.server.Ready():
	case <-time.After(60 * time.Second):
		require.FailNow(t, "the server is not ready")
	}
	keys, err := access.ParseKeyring([]byte(access.FormatKey("k1", [access.KeySize]byte{7})))
	require.NoError(t, err)
	cheap := access.HashParams{Memory: 64, Passes: 1, Threads: 1}
	c := httpapi.Config{Server: w.server, Hash: cheap, Store: db, Keys: keys, Log: brokertest.Quiet(), GuessBurst: 100_000, Version: "test"}
	if change != nil {
		change(&c)
	}
	w.api, err = httpapi.New(c)
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.url = "http://" + l.Addr().String()
	go func() { ended <- httpapi.Serve(ctx, l, w.api, brokertest.Quiet()) }()
	t.Cleanup(sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		for range 2 {
			require.NoError(t, <-ended)
		}
		require.NoError(t, db.Close())
	}))
	return w
}

// caller is somebody who asks, with a cookie, a token, or nothing.
type caller struct {
	w      *world
	cookie *http.Cookie
	token  string
	header http.Header
}

// answered is what came back.
type answered struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	cookie *http.Cookie
}

func (c *caller) with(key, value string) *caller {
	out := *c
	out.header = c.header.Clone()
	if out.header == nil {
		out.header = http.Header{}
	}
	out.header.Set(key, value)
	return &out
}

// do asks; in is a JSON value, bytes to send as they are, or nil.
func (c *caller) do(method, path string, in any) *answered {
	c.w.t.Helper()
	var body io.Reader
	switch in := in.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(in)
	case io.Reader:
		body = in
	default:
		b, err := json.Marshal(in)
		require.NoError(c.w.t, err)
		body = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(c.w.ctx, method, c.w.url+path, body)
	require.NoError(c.w.t, err)
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.cookie != nil {
		q.AddCookie(c.cookie)
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if c.token != "" {
		q.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range c.header {
		q.Header[k] = v
	}
	r, err := http.DefaultClient.Do(q)
	require.NoError(c.w.t, err)
	defer r.Body.Close()
	var b []byte
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") { // that has no end
		b, err = io.ReadAll(r.Body)
		require.NoError(c.w.t, err)
	}
	out := &answered{t: c.w.t, status: r.StatusCode, header: r.Header, body: b}
	for _, cookie := range r.Cookies() {
		out.cookie = cookie
	}
	return out
}

// get, post, put and del ask under /api/v1.
func (c *caller) get(path string) *answered          { return c.do("GET", "/api/v1"+path, nil) }
func (c *caller) post(path string, in any) *answered { return c.do("POST", "/api/v1"+path, in) }
func (c *caller) put(path string, in any) *answered  { return c.do("PUT", "/api/v1"+path, in) }
func (c *caller) del(path string) *answered          { return c.do("DELETE", "/api/v1"+path, nil) }

// is holds the answer to a status.
func (a *answered) is(status int) *answered {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s", a.body)
	return a
}

// into reads the answer's body.
func (a *answered) into(v any) *answered {
	a.t.Helper()
	reflect.ValueOf(v).Elem().SetZero()
	require.NoError(a.t, json.Unmarshal(a.body, v), "%s", a.body)
	return a
}

func (w *world) nobody() *caller { return &caller{w: w} }

// setup makes the first user, ann, and is her.
func (w *world) setup() *caller {
	w.t.Helper()
	code, ok, err := w.api.SetupCode(w.ctx)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	a := w.nobody().post("/setup", api.Setup{Code: code.Text(), Name: "ann", Password: goodPassword}).is(http.StatusCreated)
	return &caller{w: w, cookie: a.cookie}
}

func (w *world) login(name, password, code string) *answered {
	w.t.Helper()
	return w.nobody().post("/login", api.Login{Name: name, Password: password, Code: code})
}

// in is somebody who has logged in.
func (w *world) in(name, password string) *caller {
	w.t.Helper()
	a := w.login(name, password, "").is(http.StatusOK)
	return &caller{w: w, cookie: a.cookie}
}

// person makes a user with these roles, by an admin, and logs in; the roles end sessions, so
// they are set first.
func (w *world) person(admin *caller, name string, roles ...api.RoleBinding) *caller {
	w.t.Helper()
	var u api.User
	admin.post("/users", api.NewUser{Name: name}).is(http.StatusCreated).into(&u)
	admin.put("/users/"+name+"/roles", api.SetRoles{Roles: roles}).is(http.StatusOK)
	a := w.nobody().post("/login/code", api.CodeLogin{Code: u.Code}).is(http.StatusOK)
	c := &caller{w: w, cookie: a.cookie}
	a = c.put("/me/password", api.ChangePassword{New: goodPassword}).is(http.StatusOK)
	return &caller{w: w, cookie: a.cookie}
}

func role(r engine.Role, scope string) api.RoleBinding {
	return api.RoleBinding{Role: string(r), Scope: scope}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
