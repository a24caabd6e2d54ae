package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	maxBody         = 384 << 10 // what fits in a result
	maxRequestBody  = 512 << 10
	maxHeaderBytes  = 64 << 10
	maxRedirects    = 20
	maxRetryAfter   = 10 * time.Minute
	defaultTimeout  = 30 * time.Second
	snippetBytes    = 200
	defaultRedirect = 5
)

// Resolver finds the addresses of a name, as net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config says where jobs may send requests from this worker. The zero value allows every public
// address.
type Config struct {
	// AllowPrivate are special addresses (private, loopback, …) that may be called all the same.
	// Addresses at which clouds serve credentials stay refused.
	AllowPrivate []netip.Prefix
	// AllowHosts, if there are any, are the only hosts that may be called: names, addresses, or
	// "*.example.com" for all below one.
	AllowHosts []string
	// MaxBody is how many bytes of a response are read, after decompression; the rest is cut
	// off. At most 384 KiB, the default 256 KiB.
	MaxBody int
	// MaxTimeout bounds the timeout of a job; default 5 min.
	MaxTimeout time.Duration
	// HideBody keeps what a response says out of errors. Otherwise up to 200 bytes are shown when
	// a body is not the expected one.
	HideBody bool
	// Resolver finds addresses; default net.DefaultResolver.
	Resolver Resolver
	// TLS is for certificates of one's own; default none.
	TLS *tls.Config
}

func (c Config) withDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = 256 << 10
	}
	if c.MaxTimeout == 0 {
		c.MaxTimeout = 5 * time.Minute
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("http.Config."+format, args...)) }
	for _, p := range c.AllowPrivate {
		if !p.IsValid() {
			bad("AllowPrivate has an empty prefix")
		}
	}
	for _, h := range c.AllowHosts {
		if h == "" || strings.ContainsAny(strings.TrimPrefix(h, "*."), "*/@ ") {
			bad("AllowHosts has %q: give a name, an address, or *.name", h)
		}
	}
	if c.MaxBody < 0 || c.MaxBody > maxBody {
		bad("MaxBody is %d: allowed are up to %d", c.MaxBody, maxBody)
	}
	if c.MaxTimeout < 0 {
		bad("MaxTimeout is %v: it cannot be negative", c.MaxTimeout)
	}
	return errors.Join(errs...)
}
