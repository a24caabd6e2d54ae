package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fanjet/fanjet/processor"
)

// Processor makes requests. It is safe for concurrent use.
type Processor struct {
	cfg       Config
	transport *http.Transport
}

// Result is the result of a request that was as expected.
type Result struct {
	Status int `json:"status"`
	// URL is where the response came from, after redirects, without what may be secret.
	URL string `json:"url"`
	// Headers are the harmless ones of the response: what it is, and until when.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is the value of a body that is JSON, and otherwise its text. Bytes that are no text
	// are left out.
	Body json.RawMessage `json:"body,omitempty"`
	// Bytes of the body were read; Cut says that there were more.
	Bytes int  `json:"bytes"`
	Cut   bool `json:"cut,omitempty"`
	// Took is the time of the exchange in milliseconds.
	Took int64 `json:"took_ms"`
}

// shown are the headers of a response that a result shows.
var shown = []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Expires", "Date"}

// carried are the headers of a job that follow a redirect to another host.
var carried = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// New makes the processor. The error says what is wrong with c.
func New(c Config) (*Processor, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Processor{cfg: c, transport: &http.Transport{
		DialContext: c.dial, TLSClientConfig: c.TLS, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: 15 * time.Second, MaxResponseHeaderBytes: maxHeaderBytes,
	}}, nil
}

// Close closes the connections that are kept for later.
func (p *Processor) Close() { p.transport.CloseIdleConnections() }

// Process makes the request that the params of the task describe; see Params and Result. Params that
// are wrong, and addresses that are refused, fail the task for good.
func (p *Processor) Process(ctx context.Context, task *processor.Task) (any, error) {
	params, err := p.cfg.parse(task.RawParams())
	if err != nil {
		return nil, processor.Cancel(fmt.Errorf("params of http: %w", err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, params.timeout, fmt.Errorf("no complete response within %v", params.timeout))
	defer cancel()
	r, err := p.exchange(ctx, task, params)
	if err == nil {
		return r, nil
	}
	what := params.Method + " " + masked(params.target)
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%s: %w", what, cause)
	}
	if errors.Is(err, errBlocked) {
		return nil, processor.Cancel(fmt.Errorf("%s: %w", what, err))
	}
	var later *laterError
	if errors.As(err, &later) {
		return nil, processor.RetryAfter(later.after, fmt.Errorf("%s: %w", what, err))
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

// laterError is a response that says when to come again.
type laterError struct {
	after  time.Duration
	status string
}

func (e *laterError) Error() string {
	return e.status + ", to be tried again after " + e.after.String()
}

func (p *Processor) exchange(ctx context.Context, task *processor.Task, params *Params) (*Result, error) {
	begun := time.Now()
	req, err := request(ctx, task, params)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: p.transport, CheckRedirect: p.redirects(task, params)}
	resp, err := client.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(p.cfg.MaxBody)+1))
	if err != nil {
		return nil, fmt.Errorf("%s, but reading the body: %w", status(resp), bare(err))
	}
	cut := len(body) > p.cfg.MaxBody
	body = body[:min(len(body), p.cfg.MaxBody)]
	if err := p.judge(params, resp, body, cut); err != nil {
		return nil, err
	}
	r := &Result{
		Status: resp.StatusCode, URL: masked(resp.Request.URL), Headers: map[string]string{},
		Bytes: len(body), Cut: cut, Body: content(resp, body, cut), Took: time.Since(begun).Milliseconds(),
	}
	for _, name := range shown {
		if v := resp.Header.Get(name); v != "" && len(v) < 200 {
			r.Headers[name] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	return r, nil
}

func request(ctx context.Context, task *processor.Task, params *Params) (*http.Request, error) {
	var body io.Reader
	if len(params.body) > 0 {
		body = bytes.NewReader(params.body)
	}
	req, err := http.NewRequestWithContext(ctx, params.Method, params.target.String(), body)
	if err != nil {
		return nil, errors.New("the request cannot be made") // the reason could show a password
	}
	req.Header.Set("User-Agent", "fanjet")
	if body != nil && params.Body[0] != '"' {
		req.Header.Set("Content-Type", "application/json")
	}
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, params.Method) {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("fanjet-%s-%d-%d", task.App(), task.Instance(), task.Number()))
	}
	for name, value := range params.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

// redirects checks where a redirect leads, and what goes along.
func (p *Processor) redirects(task *processor.Task, params *Params) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if params.hops == 0 {
			return http.ErrUseLastResponse
		}
		if len(via) > params.hops {
			return fmt.Errorf("more than %d redirects", params.hops)
		}
		if err := p.cfg.checkURL(req.URL); err != nil {
			return fmt.Errorf("redirect to %s: %w", masked(req.URL), err)
		}
		if !sameOrigin(req.URL, via[0].URL) {
			maps.DeleteFunc(req.Header, func(name string, _ []string) bool { return !slices.Contains(carried, name) })
			if req.Body != nil && req.Body != http.NoBody {
				return blocked("redirect to %s: a body is not sent to another host", masked(req.URL))
			}
		}
		task.Logger().Info("redirected", "to", masked(req.URL))
		return nil
	}
}

func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// judge holds the response to what was expected.
func (p *Processor) judge(params *Params, resp *http.Response, body []byte, cut bool) error {
	if !params.ExpectStatus.Has(resp.StatusCode) {
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
				return &laterError{min(time.Duration(min(n, 1<<20))*time.Second, maxRetryAfter), status(resp)}
			}
		}
		return errors.New(status(resp))
	}
	if params.ExpectBody == nil {
		return nil
	}
	err := params.ExpectBody.holds(body, cut)
	if err != nil && !p.cfg.HideBody && len(body) > 0 {
		err = fmt.Errorf("%w; it begins with %q", err, body[:min(len(body), snippetBytes)])
	}
	return err
}

// status says what the server answered, without its own words.
func status(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// content is the body as it is kept.
func content(resp *http.Response, body []byte, cut bool) json.RawMessage {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // an odd one is no JSON
	if len(body) == 0 {
		return nil
	}
	if !cut && (kind == "application/json" || strings.HasSuffix(kind, "+json")) && json.Valid(body) {
		return body
	}
	if cut { // not in the middle of a character
		for i := 0; i < utf8.UTFMax && len(body) > 0 && !utf8.Valid(body); i++ {
			body = body[:len(body)-1]
		}
	}
	if !utf8.Valid(body) {
		return nil
	}
	raw, err := json.Marshal(string(body))
	if err != nil || len(raw) > maxBody { // escaping made it larger
		return nil
	}
	return raw
}

// masked shows an address without user, password, query and fragment.
func masked(u *url.URL) string {
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.Opaque != "" {
		return u.Scheme + ":…"
	}
	s := short.String()
	if u.RawQuery != "" {
		s += "?…"
	}
	return s
}

// bare takes off the layers that show the address, and what quotes the other side.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, errBlocked) {
		return err
	}
	switch text := err.Error(); {
	case strings.Contains(text, "Location header"):
		return errors.New("the server redirects to what is no address")
	case strings.Contains(text, "malformed "):
		return errors.New("the response is not HTTP")
	}
	return err
}
