package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/httpapi"
)

// E05: what looks like SQL in a query is text that matches nothing, or is refused.
func TestTrouble_SQL(t *testing.T) {
	t.Parallel()
	for name, db := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db(t), nil)
			ann := w.setup()
			e := w.estate(ann, "shop")
			for _, text := range []string{"'", `"`, "' OR 1=1 -- ", "x'; DROP TABLE users; --", "1 UNION SELECT password FROM users", "1; SELECT pg_sleep(9)", "' AND SLEEP(9) -- ", "/*", "\\", "%", "_", "\x00"} {
				q := url.QueryEscape(text)
				var jobs struct{ Items []api.Job }
				a := ann.get("/apps/shop/jobs?after=" + q)
				if a.status == http.StatusOK {
					a.into(&jobs)
					require.LessOrEqual(t, len(jobs.Items), 1, text)
				}
				require.Contains(t, []int{http.StatusOK, http.StatusUnprocessableEntity, http.StatusNotFound}, a.status, "%q: %s", text, a.body)
				for _, path := range []string{
					"/apps/shop/instances?job=" + q, "/apps/shop/instances?job=work&key=" + q, "/apps/shop/instances?before=" + q, "/audit?target=" + q,
					"/audit?actor=" + q, "/audit?app=" + q, "/apps/" + url.PathEscape(text) + "/jobs", "/instances/" + url.PathEscape(text), "/users/" + url.PathEscape(text),
				} {
					a := ann.get(path)
					require.Contains(t, []int{http.StatusOK, http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusBadRequest}, a.status, "%s: %s", path, a.body)
					require.NotContains(t, string(a.body), "argon2", path)
					require.NotContains(t, string(a.body), e.instance, path)
				}
			}
			ann.get("/users").is(http.StatusOK) // the table is there
			ann.get("/apps/shop/jobs?sort=name").is(http.StatusUnprocessableEntity)
		})
	}
}

// E10: what somebody wrote comes back as JSON that no browser takes for a page.
func TestTrouble_StoredScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	w.estate(ann, "shop")
	const script = `<img src=x onerror=alert(1)><script>alert(2)</script>`
	ann.put("/apps/shop/jobs/evil", map[string]any{"title": script, "spec": map[string]any{"processor": "p"}}).is(http.StatusOK)
	for _, path := range []string{"/apps/shop/jobs/evil", "/apps/shop/jobs?after=" + url.QueryEscape(script), "/apps/shop/jobs/" + url.PathEscape(script), "/audit", "/instances/" + url.PathEscape("<b>")} {
		a := ann.get(path)
		require.Contains(t, []string{"application/json", "application/problem+json"}, a.header.Get("Content-Type"), path)
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
	}
	page := w.nobody().do("GET", "/api", nil).is(http.StatusOK)
	policy := page.header.Get("Content-Security-Policy")
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "script-src")
	require.NotContains(t, string(page.body), "<script")
	nonce := policy[strings.Index(policy, "nonce-")+6:]
	nonce = nonce[:strings.Index(nonce, "'")]
	require.Contains(t, string(page.body), `<style nonce="`+nonce+`">`)
	require.NotEqual(t, page.body, w.nobody().do("GET", "/api", nil).body, "a nonce is good once")
	for _, o := range w.api.Operations() {
		require.Contains(t, string(page.body), `id="`+o.ID+`"`)
	}
}

// E11: another site's page changes nothing, with or without a cookie.
func TestTrouble_CrossSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	host := strings.TrimPrefix(w.url, "http://")
	for name, c := range map[string]struct {
		header map[string]string
		want   int
	}{
		"cross-site":              {map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"same site, other origin": {map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"old browser":             {map[string]string{"Sec-Fetch-Site": "", "Origin": "http://evil.example"}, http.StatusForbidden},
		"its sandbox":             {map[string]string{"Sec-Fetch-Site": "", "Origin": "null"}, http.StatusForbidden},
		"no word":                 {map[string]string{"Sec-Fetch-Site": ""}, http.StatusForbidden},
		"form":                    {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, http.StatusUnsupportedMediaType},
		"plain text":              {map[string]string{"Content-Type": "text/plain"}, http.StatusUnsupportedMediaType},
		"own page":                {nil, http.StatusCreated},
		"own page, old browser":   {map[string]string{"Sec-Fetch-Site": "", "Origin": "http://" + host}, http.StatusCreated},
	} {
		asker := ann
		for k, v := range c.header {
			asker = asker.with(k, v)
			if v == "" {
				asker.header[k] = nil
			}
		}
		a := asker.post("/apps", map[string]string{"name": "a-" + strings.NewReplacer(" ", "-", ",", "").Replace(name)})
		require.Equal(t, c.want, a.status, "%s: %s", name, a.body)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
	}
	// A login by another site's page would put its visitor into the attacker's account.
	w.nobody().with("Sec-Fetch-Site", "cross-site").post("/login", api.Login{Name: "ann", Password: goodPassword}).is(http.StatusForbidden)
	a := w.nobody().with("Origin", "http://evil.example").do("OPTIONS", "/api/v1/apps", nil)
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}

// E13: who may only run what is there cannot bring along what is run.
func TestTrouble_InlineDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	e := w.estate(ann, "shop")
	op := w.person(ann, "opal", role(engine.RoleOperator, "shop"))
	spec := map[string]any{"processor": "shell", "params": map[string]any{"script": "id"}}
	for path, in := range map[string]any{
		"/apps/shop/jobs/work/trigger":                    map[string]any{"spec": spec},
		"/apps/shop/jobs/work/backfill":                   map[string]any{"from": 1, "to": 2, "spec": spec},
		"/apps/shop/workflows/flow/start":                 map[string]any{"document": "kind: Workflow"},
		"/apps/shop/preview":                              map[string]any{"schedule": map[string]any{}, "spec": spec},
		"/workflow-instances/" + e.execution + "/signals": map[string]any{"name": "x", "document": "kind: Workflow"},
	} {
		op.post(path, in).is(http.StatusUnprocessableEntity)
	}
	op.put("/apps/shop/jobs/work", map[string]any{"spec": spec}).is(http.StatusForbidden)
	op.put("/apps/shop/workflows/flow", api.Document{Document: fmt.Sprintf(approvalFlow, "shop")}).is(http.StatusForbidden)
	op.post("/apps/shop/jobs/work/trigger", api.Trigger{}).is(http.StatusCreated)
	op.post("/apps/shop/jobs/nothing/trigger", api.Trigger{}).is(http.StatusNotFound)
	// Nor does anybody make an app by the way.
	ann.post("/apps/by-the-way/jobs/work/trigger", api.Trigger{}).is(http.StatusNotFound)
	ann.get("/apps/by-the-way").is(http.StatusNotFound)
}

// E14: what is no id opens nothing.
func TestTrouble_PathTraversal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	e := w.estate(ann, "shop")
	for _, id := range []string{"..%2f..%2fetc%2fpasswd", "%2e%2e", "..%5c..%5c", "%2fetc%2fpasswd", e.instance + "%00", e.instance + "%2f..", "-1", "0x10", "9223372036854775808", strings.Repeat("9", 300)} {
		a := ann.get("/instances/" + id + "/logs")
		require.Contains(t, []int{http.StatusNotFound, http.StatusUnprocessableEntity}, a.status, "%s: %s", id, a.body)
		require.NotContains(t, string(a.body), "root:")
	}
	ann.get("/instances/" + e.instance + "/logs").is(http.StatusOK)
}

// E16: what is huge, deep or ambiguous is refused, at no great cost, and ids survive.
func TestTrouble_HugeJSON(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	w.estate(ann, "shop")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(bytes.Repeat([]byte{' '}, 50<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	many := func(n int, f string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = strings.ReplaceAll(f, "#", itoa(int64(i)))
		}
		return strings.Join(parts, ",")
	}
	const path = "/apps/shop/jobs/work/trigger"
	wrap := func(params string) []byte { return []byte(`{"params":` + params + `}`) }
	for name, c := range map[string]struct {
		body any
		want []int
	}{
		"200 MB":          {io.LimitReader(spaces{}, 200<<20), []int{http.StatusRequestEntityTooLarge}},
		"a million keys":  {wrap("{" + many(600_000, `"#":1`) + "}"), []int{http.StatusRequestEntityTooLarge}},
		"a million lists": {wrap("[" + many(1_000_000, `[]`) + "]"), []int{http.StatusRequestEntityTooLarge}},
		"100 000 deep":    {wrap(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), []int{http.StatusBadRequest}},
		"65 deep":         {wrap(strings.Repeat("[", 64) + strings.Repeat("]", 64)), []int{http.StatusBadRequest}},
		"same key twice":  {[]byte(`{"key":"a","key":"b"}`), []int{http.StatusBadRequest}},
		"too great":       {[]byte(`{"delay_ms":1e400}`), []int{http.StatusUnprocessableEntity, http.StatusBadRequest}},
		"two values":      {[]byte(`{} {}`), []int{http.StatusBadRequest}},
		"cut off":         {[]byte(`{"key":`), []int{http.StatusBadRequest}},
		"no JSON":         {[]byte(`key=1`), []int{http.StatusBadRequest}},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		a := ann.post(path, c.body)
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Contains(t, c.want, a.status, "%s: %s", name, a.body)
		require.Less(t, len(a.body), 10_000, name)
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), name)
	}
	ann.with("Content-Encoding", "gzip").post(path, zipped.Bytes()).is(http.StatusUnsupportedMediaType)
	// Who is nobody is not read at all, and login reads little.
	w.nobody().post(path, []byte("{")).is(http.StatusUnauthorized)
	w.nobody().post("/login", map[string]string{"name": strings.Repeat("x", 20_000), "password": "x"}).is(http.StatusRequestEntityTooLarge)

	var got api.Started
	a := ann.post(path, api.Trigger{}).is(http.StatusCreated).into(&got)
	require.Greater(t, got.ID, int64(1)<<53)
	require.Equal(t, `{"id":"`+itoa(got.ID)+`"}`, strings.TrimSpace(string(a.body)))
}

// spaces never ends.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// E17: secrets in what is changed are not in the audit log.
func TestTrouble_SecretsInAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	w.estate(ann, "shop")
	params := map[string]any{"password": "hush-hush-1", "dsn": "root:hush-hush-2@tcp(db)/x", "url": "https://u:hush-hush-3@h/x", "headers": map[string]any{"Authorization": "Bearer hush-hush-4aaaa"}}
	ann.put("/apps/shop/jobs/secretive", map[string]any{"spec": map[string]any{"processor": "http", "params": params}}).is(http.StatusOK)
	params["password"] = "hush-hush-5"
	ann.put("/apps/shop/jobs/secretive", map[string]any{"spec": map[string]any{"processor": "http", "params": params}}).is(http.StatusOK)
	ann.post("/apps/shop/jobs/secretive/trigger", map[string]any{"params": params}).is(http.StatusCreated)
	log := string(ann.get("/apps/shop/audit").is(http.StatusOK).body)
	require.Contains(t, log, "job:shop/secretive")
	require.Contains(t, log, "***")
	require.NotContains(t, log, "hush-hush")
}

// E19: guessing is slowed, the same for names that nobody has; cookies are what they should be.
func TestTrouble_Logins(t *testing.T) {
	t.Parallel()
	for name, db := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db(t), nil)
			w.setup()
			a := w.login("ann", goodPassword, "").is(http.StatusOK)
			c := a.cookie
			require.True(t, c.HttpOnly && c.Secure && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "")
			require.True(t, strings.HasPrefix(c.Name, "__Host-"))

			// 1000 guesses at once at somebody: a few are looked at.
			var mu sync.Mutex
			count := map[int]int{}
			var all sync.WaitGroup
			turns := make(chan struct{}, 16)
			for i := range 1000 {
				turns <- struct{}{}
				all.Go(func() {
					defer func() { <-turns }()
					a := w.login("ann", fmt.Sprintf("wrong password %d", i), "")
					mu.Lock()
					defer mu.Unlock()
					count[a.status]++
				})
			}
			all.Wait()
			require.Equal(t, map[int]int{http.StatusUnauthorized: 5, http.StatusTooManyRequests: 995}, count)
			locked := w.login("ann", goodPassword, "").is(http.StatusTooManyRequests) // the right one too
			require.NotEmpty(t, locked.header.Get("Retry-After"))

			// A name that nobody has is answered in the same words, in the same turns.
			for range 5 {
				a = w.login("bea", "wrong password", "").is(http.StatusUnauthorized)
			}
			w.login("bea", "wrong password", "").is(http.StatusTooManyRequests)
			require.JSONEq(t, `{"title":"Unauthorized","status":401,"detail":"the name or the password is wrong"}`, string(a.body))
			for _, odd := range []string{"", "A B", strings.Repeat("x", 500), "ann'--", "ann\n"} {
				require.Equal(t, string(a.body), string(w.login(odd, "wrong password", "").is(http.StatusUnauthorized).body))
			}
		})
	}
}

// One address has few tries, whatever the names are.
func TestTrouble_GuessesOfAnAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.GuessBurst, c.GuessEvery = 10, time.Hour })
	w.setup()
	for i := range 9 { // the setup was one
		w.login(fmt.Sprintf("user%d", i), "wrong password", "").is(http.StatusUnauthorized)
	}
	a := w.login("ann", goodPassword, "").is(http.StatusTooManyRequests)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	w.nobody().post("/login/code", api.CodeLogin{Code: "x"}).is(http.StatusTooManyRequests)
	w.nobody().post("/setup", api.Setup{}).is(http.StatusTooManyRequests)
	w.nobody().get("/health").is(http.StatusOK)
}

// Who does not send its request is not waited for.
func TestTrouble_SlowClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(60*time.Second)))
	_, err = c.Write([]byte("GET /api/v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: "))
	require.NoError(t, err)
	_, err = io.ReadAll(c) // until the server hangs up
	require.NoError(t, err)
}

// Behind a proxy it is the caller's address that has few tries, not what a caller says it is.
func TestTrouble_GuessesBehindProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), func(c *httpapi.Config) { c.GuessBurst, c.GuessEvery, c.Proxied = 3, time.Hour, true })
	from := func(address string) int {
		return w.nobody().with("X-Forwarded-For", address).post("/login/code", api.CodeLogin{Code: "x"}).status
	}
	for i := range 3 {
		require.Equal(t, http.StatusUnauthorized, from(fmt.Sprintf("198.51.100.%d, 192.0.2.1", i)))
	}
	require.Equal(t, http.StatusTooManyRequests, from("198.51.100.9, 192.0.2.1"))
	require.Equal(t, http.StatusUnauthorized, from("192.0.2.2"))
}

// A one-time login code of the server's command line lets somebody in once.
func TestLoginCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	code, err := w.api.LoginCode(t.Context(), "ann", time.Minute)
	require.NoError(t, err)
	w.nobody().post("/login/code", api.CodeLogin{Code: code.Text()}).is(http.StatusOK)
	w.nobody().post("/login/code", api.CodeLogin{Code: code.Text()}).is(http.StatusUnauthorized)
	late, err := w.api.LoginCode(t.Context(), "ann", -time.Minute)
	require.NoError(t, err)
	w.nobody().post("/login/code", api.CodeLogin{Code: late.Text()}).is(http.StatusUnauthorized)
	_, err = w.api.LoginCode(t.Context(), "nobody", time.Minute)
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.Contains(t, string(ann.get("/audit").is(http.StatusOK).body), `"action":"login-code.create"`)
}
