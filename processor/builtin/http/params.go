package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/processor/builtin/internal/strict"
)

// Params are the params of a job.
type Params struct {
	// URL to call; http or https. Required.
	URL string `json:"url"`
	// Method is GET (the default), HEAD, POST, PUT, PATCH, DELETE or OPTIONS.
	Method string `json:"method,omitempty"`
	// Headers of the request. Those that frame a message (Host, Content-Length, …) are not
	// for a job to set.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as it is if it is a text, and else as JSON with its Content-Type. At most 512 KiB.
	Body json.RawMessage `json:"body,omitempty"`
	// ExpectStatus has the statuses that are success: numbers and ranges such as "200-299" (the
	// default), alone or in a list.
	ExpectStatus Statuses `json:"expect_status,omitempty"`
	// ExpectBody is what the body must be like.
	ExpectBody *Expectation `json:"expect_body,omitempty"`
	// Timeout of the whole exchange, the body included, such as "10s"; default 30 s, bounded by the
	// worker.
	Timeout string `json:"timeout,omitempty"`
	// MaxRedirects is how many redirects are followed, 0 to 20; default 5. With 0 the redirect
	// itself is the response.
	MaxRedirects *int `json:"max_redirects,omitempty"`

	target  *url.URL
	timeout time.Duration
	body    []byte
	hops    int
}

// Expectation is what a body must be like: all that is given must hold.
type Expectation struct {
	// Contains is a text in it.
	Contains string `json:"contains,omitempty"`
	// Pointer is a JSON pointer (RFC 6901) to a value of it, which must equal Equals, or merely be
	// there if that is not given.
	Pointer *string         `json:"pointer,omitempty"`
	Equals  json.RawMessage `json:"equals,omitempty"`
}

// Statuses are ranges of statuses.
type Statuses [][2]int

// UnmarshalJSON takes 200, "200-299", or a list of such.
func (s *Statuses) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	for _, one := range list {
		text := strings.Trim(string(one), `"`)
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(strings.TrimSpace(from))
		b, err2 := strconv.Atoi(strings.TrimSpace(to))
		if err1 != nil || err2 != nil || a < 100 || b > 599 || a > b {
			return fmt.Errorf(`expect_status has %s; give a status such as 204 or a range such as "200-299"`, one)
		}
		*s = append(*s, [2]int{a, b})
	}
	return nil
}

// Has tells whether the status is one of them.
func (s Statuses) Has(status int) bool {
	return slices.ContainsFunc(s, func(r [2]int) bool { return status >= r[0] && status <= r[1] })
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// framing are the headers that frame a message, or steer a proxy.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Expect", "Accept-Encoding"}

// parse decodes params strictly. Its errors never show a value that may be secret.
func (c Config) parse(raw []byte) (*Params, error) {
	p := &Params{}
	if err := strict.Decode(raw, p); err != nil {
		return nil, err
	}
	for _, step := range []func(*Params) error{c.address, c.message, c.bounds} {
		if err := step(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c Config) address(p *Params) error {
	if p.URL == "" {
		return errors.New(`"url" is missing`)
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return errors.New(`"url" is not a valid address`) // the reason could show a password
	}
	if err := c.checkURL(u); err != nil {
		return err
	}
	p.target = u
	return nil
}

// checkURL checks what can be told of an address before it is resolved.
func (c Config) checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return blocked("scheme %q; http and https are allowed", u.Scheme)
	}
	if u.Opaque != "" {
		return blocked("the url has no host")
	}
	return c.checkHost(u.Hostname())
}

func (c Config) message(p *Params) error {
	p.Method = strings.ToUpper(p.Method)
	if p.Method == "" {
		p.Method = http.MethodGet
	}
	if !slices.Contains(methods, p.Method) {
		return fmt.Errorf("method %q; allowed are %s", p.Method, strings.Join(methods, ", "))
	}
	size := 0
	for name, value := range p.Headers {
		size += len(name) + len(value)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return fmt.Errorf("header %q is not the name of a header", name)
		case slices.Contains(framing, canonical) || strings.HasPrefix(canonical, "Proxy-"):
			return fmt.Errorf("header %q is not for a job to set", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of header %q has control characters", name)
		}
	}
	if size > maxHeaderBytes {
		return fmt.Errorf("the headers have %d bytes; at most %d are sent", size, maxHeaderBytes)
	}
	p.body = p.Body
	if len(p.Body) > 0 && p.Body[0] == '"' {
		var text string
		if err := json.Unmarshal(p.Body, &text); err != nil {
			return fmt.Errorf("body: %w", err)
		}
		p.body = []byte(text)
	}
	if bytes.Equal(p.Body, []byte("null")) {
		p.body = nil
	}
	if len(p.body) > maxRequestBody {
		return fmt.Errorf("the body has %d bytes; at most %d are sent", len(p.body), maxRequestBody)
	}
	return nil
}

func (c Config) bounds(p *Params) error {
	p.timeout = min(defaultTimeout, c.MaxTimeout)
	if p.Timeout != "" {
		d, err := time.ParseDuration(p.Timeout)
		if err != nil || d <= 0 || d > c.MaxTimeout {
			return fmt.Errorf("timeout %q; give one such as \"10s\", of at most %v here", p.Timeout, c.MaxTimeout)
		}
		p.timeout = d
	}
	p.hops = defaultRedirect
	if p.MaxRedirects != nil {
		p.hops = *p.MaxRedirects
	}
	if p.hops < 0 || p.hops > maxRedirects {
		return fmt.Errorf("max_redirects is %d; allowed are 0 to %d", p.hops, maxRedirects)
	}
	if len(p.ExpectStatus) == 0 {
		p.ExpectStatus = Statuses{{200, 299}}
	}
	if e := p.ExpectBody; e != nil {
		switch {
		case e.Contains == "" && e.Pointer == nil:
			return errors.New(`expect_body has neither "contains" nor "pointer"`)
		case e.Pointer == nil && e.Equals != nil:
			return errors.New(`expect_body has "equals" without "pointer"`)
		case e.Pointer != nil && *e.Pointer != "" && (*e.Pointer)[0] != '/':
			return fmt.Errorf("pointer %q; a JSON pointer is empty or begins with /", *e.Pointer)
		}
	}
	return nil
}

// token tells whether s is a token of RFC 9110.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
