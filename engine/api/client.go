package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// How a Client goes about it.
const (
	defaultRetries = 4
	firstPause     = 100 * time.Millisecond
	lastPause      = 5 * time.Second
	longestWait    = 30 * time.Second  // that a server may ask for before a retry
	tryTimeout     = 130 * time.Second // of one try; a server ends its own after 120 s
	maxAnswer      = 64 << 20
	pageSize       = "500"
)

// Client asks a server over HTTP. What may be asked twice is asked again, with growing
// pauses, when the connection fails or the server answers 429 or 503. Errors of a server are
// a *Problem. Safe for concurrent use.
type Client struct {
	base    *url.URL
	token   string
	http    *http.Client
	retries int
	agent   string
	silence time.Duration // after which a stream is taken for dead
}

// Option changes a Client.
type Option func(*Client)

// WithHTTPClient has requests made by h, whose Timeout and redirects do not count: streams
// have no end, and a server has no reason to send its caller, with a token, elsewhere.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithRetries says how often what may be asked twice is asked again; default 4, 0 never.
func WithRetries(n int) Option { return func(c *Client) { c.retries = max(n, 0) } }

// WithUserAgent names the program that asks; it is shown with the sessions and in logs.
func WithUserAgent(name string) Option { return func(c *Client) { c.agent = name } }

// WithSilence says after how long without a word a stream of events is taken for dead and
// begun again; default 45 s, three heartbeats.
func WithSilence(d time.Duration) Option { return func(c *Client) { c.silence = d } }

// New makes a client of the server at baseURL, such as https://fanjet.example.com:7780, with
// an API token; "" asks for what is public only.
func New(baseURL, token string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("server's address %q: %w", baseURL, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server's address %q: it must be like https://host:port", baseURL)
	}
	c := &Client{base: u, token: token, http: http.DefaultClient, retries: defaultRetries, agent: "fanjet-go", silence: 45 * time.Second}
	for _, o := range options {
		o(c)
	}
	h := *c.http
	h.Timeout = 0
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &h
	return c, nil
}

// call is one thing to ask.
type call struct {
	method string
	path   string // behind /api/v1
	query  url.Values
	header http.Header
	in     any  // JSON
	out    any  // JSON, or nil
	once   bool // must not be asked twice
}

// segments makes a path of fixed parts and names, which are escaped: path("/apps/%s", name).
func path(format string, names ...string) string {
	args := make([]any, len(names))
	for i, n := range names {
		args[i] = url.PathEscape(n)
	}
	return fmt.Sprintf(format, args...)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// number sets a query parameter that is not 0.
func number(q url.Values, key string, n int64) {
	if n != 0 {
		q.Set(key, itoa(n))
	}
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) (http.Header, error) {
	return c.do(ctx, &call{method: http.MethodGet, path: path, query: query, out: out})
}

// do asks, again where that may help, and reads the answer.
func (c *Client) do(ctx context.Context, q *call) (http.Header, error) {
	var body []byte
	if q.in != nil {
		var err error
		if body, err = json.Marshal(q.in); err != nil {
			return nil, fmt.Errorf("encode what is asked of %s %s: %w", q.method, q.path, err)
		}
	}
	for try := 0; ; try++ {
		header, err := c.try(ctx, q, body)
		if err == nil {
			return header, nil
		}
		if try > 0 && q.method == http.MethodDelete && errors.Is(err, ErrNotFound) {
			return nil, nil // the first try did it, and its answer was lost
		}
		wait, again := again(err, try)
		if q.once || !again || try >= c.retries || ctx.Err() != nil {
			return nil, err
		}
		if pause(ctx, wait) != nil {
			return nil, err
		}
	}
}

// again tells whether another try may help, and how long to wait before it.
func again(err error, try int) (time.Duration, bool) {
	wait := min(firstPause<<min(try, 10), lastPause)
	wait += time.Duration(mathrand.Int64N(int64(wait))) / 2
	var p *Problem
	if !errors.As(err, &p) {
		var broken *connectionError
		return wait, errors.As(err, &broken)
	}
	if p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	if p.RetryAfter > longestWait {
		return 0, false
	}
	return max(wait, p.RetryAfter), true
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connectionError says that no whole answer came: whether the server did what was asked is
// not known.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return e.err.Error() }
func (e *connectionError) Unwrap() error { return e.err }

func (c *Client) request(ctx context.Context, q *call, body []byte) (*http.Request, error) {
	text := strings.TrimSuffix(c.base.String(), "/") + "/api/v1" + q.path
	if len(q.query) > 0 {
		text += "?" + q.query.Encode()
	}
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, text, from)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	for k, v := range q.header {
		r.Header[k] = v
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	r.Header.Set("User-Agent", c.agent)
	return r, nil
}

func (c *Client) try(ctx context.Context, q *call, body []byte) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r, err := c.request(ctx, q, body)
	if err != nil {
		return nil, err
	}
	a, err := c.http.Do(r)
	if err != nil {
		return nil, &connectionError{err}
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	if err != nil {
		return nil, &connectionError{fmt.Errorf("%s %s: read the answer: %w", q.method, q.path, err)}
	}
	if a.StatusCode < 200 || a.StatusCode > 299 {
		return nil, problemOf(a, b)
	}
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", q.method, q.path, maxAnswer)
	}
	switch out := q.out.(type) {
	case nil:
	case *[]byte:
		*out = b
	default:
		if err := json.Unmarshal(b, out); err != nil {
			return nil, fmt.Errorf("%s %s: the answer is not what it should be; is this the address of a Fanjet server? %w", q.method, q.path, err)
		}
	}
	return a.Header, nil
}

func problemOf(a *http.Response, b []byte) *Problem {
	p := &Problem{}
	if json.Unmarshal(b, p) != nil { // of a proxy
		*p = Problem{}
	}
	p.Status, p.Request = a.StatusCode, a.Header.Get("X-Request-Id")
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n > 0 {
		p.RetryAfter = time.Duration(n) * time.Second
	}
	return p
}

// once makes a key under which the same may be asked again.
func once(key string) http.Header {
	if key == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails, since Go 1.24
		key = hex.EncodeToString(b[:])
	}
	return http.Header{"Idempotency-Key": {key}}
}

// page is a page of something.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// pages goes through all pages; at names the parameter that says where one begins. An error
// ends it.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values, at string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		for {
			var p page[T]
			if _, err := c.get(ctx, path, q, &p); err != nil {
				var none T
				yield(none, err)
				return
			}
			for i := range p.Items {
				if !yield(p.Items[i], nil) {
					return
				}
			}
			if p.Next == "" || at == "" || p.Next == q.Get(at) {
				return
			}
			q.Set(at, p.Next)
		}
	}
}

// large is a query for large pages.
func large() url.Values { return url.Values{"limit": {pageSize}} }

// ifMatch is the header for a change of that version only; 0 is any. One that was made and
// whose answer was lost would be refused the second time, so it is asked once.
func ifMatch(version int32) (http.Header, bool) {
	if version == 0 {
		return nil, false
	}
	return http.Header{"If-Match": {strconv.Quote(itoa(int64(version)))}}, true
}
