package http_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/processor"
	builtin "github.com/fanjet/fanjet/processor/builtin/http"
	"github.com/fanjet/fanjet/processor/processortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object map[string]any

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func newHTTP(t testing.TB, c builtin.Config) *builtin.Processor {
	t.Helper()
	p, err := builtin.New(c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// local allows loopback, where the servers of the tests are.
func local(t testing.TB) *builtin.Processor {
	return newHTTP(t, builtin.Config{AllowPrivate: loopback})
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func call(t testing.TB, p processor.Processor, params any) (*processortest.Outcome, builtin.Result) {
	t.Helper()
	out := processortest.Run(t, p, processortest.Task{Params: params, Attempts: 2})
	var r builtin.Result
	if out.Err == nil {
		require.NoError(t, out.Decode(&r))
	}
	return out, r
}

func TestRequest(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Set-Cookie", "session=secret")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"method": r.Method, "body": string(body), "type": r.Header.Get("Content-Type"), "x": r.Header.Get("X-Mine"), "key": r.Header.Get("Idempotency-Key"), "query": r.URL.RawQuery,
		})
	})
	p := local(t)
	for _, c := range []struct {
		params object
		want   string
	}{
		{object{"url": url + "/a?q=1"}, `{"method":"GET","body":"","type":"","x":"","key":"","query":"q=1"}`},
		{object{"url": url, "method": "post", "body": object{"n": 1}, "headers": object{"X-Mine": "m"}}, `{"method":"POST","body":"{\"n\":1}","type":"application/json","x":"m","key":"fanjet-test-9-0","query":""}`},
		{object{"url": url, "method": "PUT", "body": "plain", "headers": object{"content-type": "text/plain", "idempotency-key": "mine"}}, `{"method":"PUT","body":"plain","type":"text/plain","x":"","key":"mine","query":""}`},
		{object{"url": url, "method": "DELETE", "body": nil}, `{"method":"DELETE","body":"","type":"","x":"","key":"fanjet-test-9-0","query":""}`},
	} {
		out := processortest.Run(t, p, processortest.Task{Params: c.params, Instance: 9})
		require.NoError(t, out.Err)
		var r builtin.Result
		require.NoError(t, out.Decode(&r))
		require.Equal(t, 201, r.Status)
		require.JSONEq(t, c.want, string(r.Body))
		require.False(t, r.Cut)
		require.NotContains(t, string(out.Result), "secret")
		require.Equal(t, "application/json; charset=utf-8", r.Headers["Content-Type"])
	}
	_, r := call(t, p, object{"url": url, "method": "HEAD"})
	require.Equal(t, 201, r.Status)
	require.Empty(t, r.Body)
}

func TestExpectations(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		switch r.URL.Path {
		case "/json":
			_, _ = io.WriteString(w, `{"a":{"b/c":[1,{"~":2.50}]},"ok":true,"none":null,"long":"`+strings.Repeat("x", 1000)+`"}`)
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "the body of a secret")
		}
	})
	p := local(t)
	pointer := func(p string, equals ...any) object {
		e := object{"pointer": p}
		if len(equals) > 0 {
			e["equals"] = equals[0]
		}
		return e
	}
	for _, c := range []struct {
		path   string
		params object
		want   string
	}{
		{"/teapot", object{}, "status 418 I'm a teapot"},
		{"/teapot", object{"expect_status": 418}, ""},
		{"/teapot", object{"expect_status": "400-499"}, ""},
		{"/teapot", object{"expect_status": []any{200, "410-418"}}, ""},
		{"/teapot", object{"expect_status": []any{200, "419-499"}}, "status 418"},
		{"/teapot", object{"expect_status": 418, "expect_body": object{"contains": "a secret"}}, ""},
		{"/teapot", object{"expect_status": 418, "expect_body": object{"contains": "no"}}, `the body does not contain "no"; it begins with "the body of a secret"`},
		{"/teapot", object{"expect_status": 418, "expect_body": pointer("")}, "the body is not JSON"},
		{"/json", object{"expect_body": pointer("/a/b~1c/0", 1.0)}, ""},
		{"/json", object{"expect_body": pointer("/a/b~1c/1/~0", 2.5)}, ""},
		{"/json", object{"expect_body": pointer("/a/b~1c", []any{1, object{"~": 2.5}})}, ""},
		{"/json", object{"expect_body": pointer("/ok", true)}, ""},
		{"/json", object{"expect_body": pointer("/none")}, ""},
		{"/json", object{"expect_body": pointer("/ok", "true")}, `the value at "/ok" is not "true"`},
		{"/json", object{"expect_body": pointer("/a/b~1c/2")}, `no value at "/a/b~1c/2"`},
		{"/json", object{"expect_body": pointer("/a/b~1c/00")}, `no value at`},
		{"/json", object{"expect_body": pointer("/ok/deeper")}, `no value at`},
	} {
		c.params["url"] = url + c.path
		out, _ := call(t, p, c.params)
		if c.want == "" {
			require.NoError(t, out.Err, c.params)
			continue
		}
		require.ErrorContains(t, out.Err, c.want)
		require.Less(t, len(out.Err.Error()), 600)
		require.Equal(t, 2, out.Runs, "the job's retries are its own affair")
	}
	out, _ := call(t, newHTTP(t, builtin.Config{AllowPrivate: loopback, HideBody: true}), object{"url": url, "expect_status": 418, "expect_body": object{"contains": "no"}})
	require.ErrorContains(t, out.Err, "does not contain")
	require.NotContains(t, out.Err.Error(), "secret")

	raw, err := json.Marshal(object{"url": url + "/busy"})
	require.NoError(t, err)
	o := new(processor.Local).Run(t.Context(), p, &broker.Chunk{Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
	require.Contains(t, o.Err.Message, "status 429 Too Many Requests, to be tried again after 7s")
	require.Equal(t, 7*time.Second, o.Err.RetryAfter)
}

func TestParams_are_refused(t *testing.T) {
	t.Parallel()
	p := local(t)
	for _, c := range []struct {
		params any
		want   string
	}{
		{nil, "there are none"},
		{object{}, `"url" is missing`},
		{object{"url": "http://x", "methd": "GET"}, `unknown field "methd"`},
		{object{"url": "http://user:hunter2@[::1"}, `"url" is not a valid address`},
		{object{"url": "http://127.0.0.1:hunter2/"}, `"url" is not a valid address`},
		{object{"url": "//127.0.0.1/"}, `scheme ""`},
		{object{"url": "/etc/passwd"}, `scheme ""`},
		{object{"url": "http:opaque"}, "no host"},
		{object{"url": "http:///path"}, "no host"},
		{object{"url": "http://127.0.0.1", "method": "CONNECT"}, `method "CONNECT"`},
		{object{"url": "http://127.0.0.1", "headers": object{"Host": "x"}}, `header "Host" is not for a job to set`},
		{object{"url": "http://127.0.0.1", "headers": object{"proxy-authorization": "x"}}, "is not for a job to set"},
		{object{"url": "http://127.0.0.1", "headers": object{"X": "a\r\nB: hunter2"}}, `the value of header "X" has control characters`},
		{object{"url": "http://127.0.0.1", "headers": object{"X Y": "a"}}, "not the name of a header"},
		{object{"url": "http://127.0.0.1", "headers": object{"X": strings.Repeat("x", 70_000)}}, "the headers have"},
		{object{"url": "http://127.0.0.1", "timeout": "1h"}, `timeout "1h"`},
		{object{"url": "http://127.0.0.1", "timeout": "-1s"}, `timeout "-1s"`},
		{object{"url": "http://127.0.0.1", "max_redirects": 21}, "max_redirects is 21"},
		{object{"url": "http://127.0.0.1", "expect_status": "20x"}, "expect_status has"},
		{object{"url": "http://127.0.0.1", "expect_status": "299-200"}, "expect_status has"},
		{object{"url": "http://127.0.0.1", "expect_body": object{}}, "neither"},
		{object{"url": "http://127.0.0.1", "expect_body": object{"pointer": "a"}}, "begins with /"},
		{object{"url": "http://127.0.0.1", "expect_body": object{"contains": "a", "equals": 1}}, `"equals" without "pointer"`},
	} {
		out, _ := call(t, p, c.params)
		require.ErrorContains(t, out.Err, "params of http: ")
		require.ErrorContains(t, out.Err, c.want)
		require.NotContains(t, out.Err.Error(), "hunter2")
		require.Equal(t, 1, out.Runs)
	}
	_, err := builtin.New(builtin.Config{AllowPrivate: []netip.Prefix{{}}, AllowHosts: []string{"http://x"}, MaxBody: 1 << 30, MaxTimeout: -1})
	for _, want := range []string{"AllowPrivate has", "AllowHosts has", "MaxBody is", "MaxTimeout is"} {
		require.ErrorContains(t, err, want)
	}
}

// names is a resolver: each question takes the next answer of a name, and the last one stays.
type names struct {
	mu  sync.Mutex
	all map[string][]string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	answers := n.all[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.all[host] = answers[1:]
	}
	var out []netip.Addr
	for a := range strings.SplitSeq(answers[0], ",") {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// listener counts who comes; nobody should.
func listener(t testing.TB) (port string, came *atomic.Int64) {
	t.Helper()
	came = &atomic.Int64{}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			came.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	return port, came
}

// E07, E08: no spelling of loopback, of a metadata address or of a private one gets through.
func TestAddresses_are_refused_in_every_spelling(t *testing.T) {
	t.Parallel()
	port, came := listener(t)
	resolver := &names{all: map[string][]string{
		"localhost": {"127.0.0.1,::1"}, "evil.example": {"127.0.0.1"}, "meta.example": {"169.254.169.254"}, "mapped.example": {"::ffff:127.0.0.1"},
		"nat64.example": {"64:ff9b::7f00:1"}, "six.example": {"::1"}, "zone.example": {"fe80::1%lo"}, "127.0.0.1.nip.example": {"127.0.0.1"},
		// what a lenient resolver makes of them
		"2130706433": {"127.0.0.1"}, "0x7f000001": {"127.0.0.1"}, "127.1": {"127.0.0.1"}, "127.0.1": {"127.0.0.1"}, "0177.0.0.1": {"127.0.0.1"},
		"0x7f.0.0.1": {"127.0.0.1"}, "017700000001": {"127.0.0.1"}, "0": {"0.0.0.0"}, "2852039166": {"169.254.169.254"}, "0xa9fea9fe": {"169.254.169.254"},
		"0251.0376.0251.0376": {"169.254.169.254"}, "169.254.43518": {"169.254.169.254"}, "127.0.0.1.": {"127.0.0.1"},
	}}
	hosts := []string{
		// 127.0.0.1
		"127.0.0.1", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "017700000001",
		"0", "0.0.0.0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]",
		"[2002:7f00:1::]", "[2002:7f00:0001::1]", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "%31%32%37.0.0.1", "evil.example", "mapped.example", "nat64.example", "six.example", "zone.example", "127.0.0.1.nip.example",
		"[fe80::1%25lo]", "[::1%25lo]",
		// 169.254.169.254
		"169.254.169.254", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]",
		"[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "[fe80::a9fe:a9fe]", "100.100.100.200", "168.63.129.16", "meta.example",
		// the rest of what is not public
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "169.254.1.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"[fc00::1]", "[fd12:3456::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[2001::1]", "[2001:db8::1]", "[100::1]",
	}
	p := newHTTP(t, builtin.Config{Resolver: resolver})
	for _, host := range hosts {
		for _, url := range []string{"http://" + host + ":" + port + "/", "https://user:hunter2@" + host + ":" + port + "/?token=hunter2"} {
			out, _ := call(t, p, object{"url": url, "timeout": "5s"})
			require.Error(t, out.Err, url)
			require.NotContains(t, out.Err.Error(), "hunter2")
			require.Equal(t, 1, out.Runs, "%s: %v", url, out.Err)
		}
	}
	out, _ := call(t, newHTTP(t, builtin.Config{}), object{"url": "http://localhost:" + port}) // by the system's own resolver
	require.ErrorContains(t, out.Err, "is not of the public internet")
	require.Zero(t, came.Load(), "somebody got through")

	// Metadata stays refused when everything is allowed.
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	p = newHTTP(t, builtin.Config{Resolver: resolver, AllowPrivate: all})
	for _, host := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "meta.example", "168.63.129.16", "169.254.170.2"} {
		out, _ := call(t, p, object{"url": "http://" + host + "/latest/meta-data/", "timeout": "5s"})
		require.ErrorContains(t, out.Err, "one where a cloud serves credentials", host)
	}
	out, _ = call(t, p, object{"url": "http://localhost:" + port + "/", "expect_status": 404})
	require.NoError(t, out.Err)
	require.EqualValues(t, 1, came.Load())
}

func TestSchemes_are_refused(t *testing.T) {
	t.Parallel()
	p := local(t)
	for _, url := range []string{"file:///etc/passwd", "gopher://127.0.0.1:6379/_INFO", "ftp://127.0.0.1/", "dict://127.0.0.1:11211/stat", "jar:http://127.0.0.1!/", "HTTP+unix://x/", "javascript:alert(1)", "data:text/plain,x"} {
		out, _ := call(t, p, object{"url": url})
		require.ErrorContains(t, out.Err, "http and https are allowed")
		target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", url)
			w.WriteHeader(http.StatusFound)
		})
		out, _ = call(t, p, object{"url": target})
		require.ErrorContains(t, out.Err, "http and https are allowed")
		require.Equal(t, 1, out.Runs)
	}
}

// E08: a name that is public when it is checked and private when it is dialed.
func TestRebinding_names_are_refused(t *testing.T) {
	t.Parallel()
	port, came := listener(t)
	resolver := &names{all: map[string][]string{}}
	p := newHTTP(t, builtin.Config{Resolver: resolver})
	for i := range 20 {
		host := fmt.Sprintf("rebind-%d.example", i)
		resolver.mu.Lock()
		resolver.all[host] = []string{"127.0.0.1,10.0.0.1", "127.0.0.1"}
		resolver.mu.Unlock()
		out, _ := call(t, p, object{"url": "http://" + host + ":" + port})
		require.ErrorContains(t, out.Err, "is not of the public internet")
	}
	require.Zero(t, came.Load())
	out, _ := call(t, p, object{"url": "http://nowhere.example"})
	require.ErrorContains(t, out.Err, `resolve "nowhere.example"`)
	require.Equal(t, 2, out.Runs, "a name may come back")
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	type seen struct{ path, auth, key, referer, accept string }
	var mu sync.Mutex
	var log []seen
	note := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, seen{r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), r.Header.Get("Referer"), r.Header.Get("Accept")})
	}
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { note(r) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		note(r)
		to := map[string]string{
			"/here": "/there", "/away": other + "/got?token=hunter2", "/private": "http://10.1.2.3/", "/metadata": "http://169.254.169.254/latest/",
			"/spelled": "http://0x7f000001/", "/odd": "http://%zz/hunter2", "/loop": "/loop",
		}[r.URL.Path]
		if n := 0; strings.HasPrefix(r.URL.Path, "/chain/") {
			_, _ = fmt.Sscanf(r.URL.Path, "/chain/%d", &n)
			if to = fmt.Sprintf("/chain/%d", n-1); n <= 1 {
				to = "http://192.168.0.1/"
			}
		}
		if to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	p := local(t)
	headers := object{"Authorization": "Bearer hunter2", "X-Api-Key": "hunter2", "Accept": "text/plain"}

	out, r := call(t, p, object{"url": url + "/here?secret=1", "headers": headers})
	require.NoError(t, out.Err)
	require.Equal(t, url+"/there", r.URL)
	require.Equal(t, "Bearer hunter2", log[1].auth)

	log = nil
	out, r = call(t, p, object{"url": strings.Replace(url, "http://", "http://user:hunter2@", 1) + "/away?secret=hunter2", "headers": headers})
	require.NoError(t, out.Err)
	require.Equal(t, seen{"/got", "", "", "", "text/plain"}, log[1])
	require.Equal(t, other+"/got?…", r.URL)
	require.NotContains(t, strings.Join(out.Lines, "\n")+string(out.Result), "hunter2")

	out, r = call(t, p, object{"url": url + "/away", "max_redirects": 0, "expect_status": 307})
	require.NoError(t, out.Err)
	require.Equal(t, 307, r.Status)

	for path, want := range map[string]string{
		"/private": "address 10.1.2.3 is not of the public internet", "/metadata": "one where a cloud serves credentials", "/spelled": "neither a name nor an address",
		"/chain/4": "redirect to http://192.168.0.1/: refused", "/chain/9": "more than 5 redirects", "/loop": "more than 5 redirects", "/odd": "the server redirects to what is no address",
	} {
		out, _ := call(t, p, object{"url": url + path})
		require.ErrorContains(t, out.Err, want)
		require.NotContains(t, out.Err.Error(), "hunter2")
	}
	out, _ = call(t, p, object{"url": url + "/away", "method": "POST", "body": "hunter2"})
	require.ErrorContains(t, out.Err, "a body is not sent to another host")
}

func TestHosts_are_allowed_by_name(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	resolver := &names{all: map[string][]string{}}
	for _, h := range []string{"a.example", "b.a.example", "example", "xa.example"} {
		resolver.all[h] = []string{"127.0.0.1"}
	}
	p := newHTTP(t, builtin.Config{AllowPrivate: loopback, AllowHosts: []string{"A.example", "*.a.example"}, Resolver: resolver})
	for host, ok := range map[string]bool{"a.example": true, "A.EXAMPLE": true, "b.a.example": true, "example": false, "xa.example": false, "127.0.0.1": false} {
		out, _ := call(t, p, object{"url": "http://" + host + ":" + port})
		if ok {
			require.NoError(t, out.Err, host)
		} else {
			require.ErrorContains(t, out.Err, "the worker does not allow host")
		}
	}
}

// E08: what never ends, and what is too large, is bounded in time and size.
func TestResponses_are_bounded(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/10GB":
			w.Header().Set("Content-Length", "10737418240")
			block := bytes.Repeat([]byte("x"), 64<<10)
			for {
				n, err := w.Write(block)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			block := make([]byte, 1<<20)
			for range 4096 { // 4 GB of zeros in 4 MB
				if _, err := z.Write(block); err != nil {
					return
				}
			}
			_ = z.Close()
		case "/drip":
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				timer := time.NewTimer(50 * time.Millisecond)
				select {
				case <-r.Context().Done():
				case <-timer.C:
				}
				timer.Stop()
			}
		case "/silence":
			<-r.Context().Done()
		case "/headers":
			for i := range 2000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100))
			}
		case "/binary":
			_, _ = w.Write([]byte{0xff, 0xfe, 0})
		}
	})
	p := local(t)
	out, r := call(t, p, object{"url": url + "/10GB", "expect_body": object{"contains": "xxx"}})
	require.NoError(t, out.Err)
	require.True(t, r.Cut)
	require.Equal(t, 256<<10, r.Bytes)
	require.Less(t, sent.Load(), int64(64<<20))
	out, _ = call(t, p, object{"url": url + "/10GB", "expect_body": object{"contains": "y"}})
	require.ErrorContains(t, out.Err, "only its first 262144 bytes were read")

	out, r = call(t, p, object{"url": url + "/gzip"})
	require.NoError(t, out.Err)
	require.True(t, r.Cut)
	require.Equal(t, 256<<10, r.Bytes)
	require.Empty(t, r.Body, "zeros are six bytes each in JSON")

	for _, path := range []string{"/drip", "/silence"} {
		begun := time.Now()
		out, _ = call(t, p, object{"url": url + path, "timeout": "200ms"})
		require.ErrorContains(t, out.Err, "no complete response within 200ms")
		require.Less(t, time.Since(begun), 10*time.Second)
	}
	out, _ = call(t, p, object{"url": url + "/headers"})
	require.ErrorContains(t, out.Err, "server response headers exceeded")
	out, r = call(t, p, object{"url": url + "/binary"})
	require.NoError(t, out.Err)
	require.Empty(t, r.Body)
	require.Equal(t, 3, r.Bytes)

	// The end of the task ends the request.
	out = processortest.Run(t, p, processortest.Task{Params: object{"url": url + "/silence"}, TaskTimeout: 100 * time.Millisecond})
	require.ErrorContains(t, out.Err, "the task timed out after 100ms")
}

// E17: what is not HTTP is not quoted, nor are addresses.
func TestErrors_tell_no_secrets(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, "+OK hunter2 of a service that is not HTTP\r\n\r\n")
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	p := local(t)
	for _, scheme := range []string{"http", "https"} {
		out, _ := call(t, p, object{"url": scheme + "://user:hunter2@" + l.Addr().String() + "/path?key=hunter2#hunter2", "headers": object{"Authorization": "hunter2"}})
		require.ErrorContains(t, out.Err, "GET "+scheme+"://"+l.Addr().String()+"/path?…: ")
		require.NotContains(t, out.Err.Error(), "hunter2")
	}
	out, _ := call(t, p, object{"url": "http://user:hunter2@127.0.0.1:1/?key=hunter2"})
	require.ErrorContains(t, out.Err, "connection refused")
	require.NotContains(t, out.Err.Error(), "hunter2")
}
