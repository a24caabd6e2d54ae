package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/httpapi"
)

// httpFlags say where the API is served.
type httpFlags struct {
	HTTP     string `name:"http" default:"127.0.0.1:7780" env:"FANJET_HTTP" placeholder:"HOST:PORT" help:"Where the HTTP API listens. Port 0 is any free one; empty serves none. Beyond this machine it needs --http-cert and --http-key, or --http-proxy."`
	HTTPCert string `name:"http-cert" env:"FANJET_HTTP_CERT" type:"path" placeholder:"FILE" help:"The certificate of the API, PEM, with its chain."`
	HTTPKey  string `name:"http-key" env:"FANJET_HTTP_KEY" type:"path" placeholder:"FILE" help:"Its key, PEM."`
	Proxy    bool   `name:"http-proxy" env:"FANJET_HTTP_PROXY" help:"A proxy before the API speaks TLS, and nobody else reaches it."`
	Separate bool   `name:"separate-duties" env:"FANJET_SEPARATE_DUTIES" help:"Nobody is more than one of system-admin, security-admin and auditor; the first user is a security-admin."`
	Factor   bool   `name:"second-factor" env:"FANJET_SECOND_FACTOR" help:"Who logs in with a password sets up a second factor before anything else."`
	Keys     string `name:"keys" env:"FANJET_KEYS" type:"path" placeholder:"FILE" help:"The keys that second factors are sealed with, the same for all servers; default keys in the data directory, made at the first start."`
}

// httpConfig is what the flags ask for; the zero value serves nothing.
type httpConfig struct {
	address  string
	tls      *tls.Config
	insecure bool // people come over plain HTTP
	proxied  bool
	policy   access.Policy
	keys     string // a file; empty for none
	makeKeys bool   // if it is missing
}

func (f *httpFlags) config(dir string) (c httpConfig, err error) {
	if f.HTTP == "" {
		return c, nil
	}
	host, _, err := net.SplitHostPort(f.HTTP)
	if err != nil {
		return c, invalid("--http %s: write it as HOST:PORT, such as 127.0.0.1:7780, or leave it empty to serve no API", f.HTTP)
	}
	switch {
	case (f.HTTPCert == "") != (f.HTTPKey == ""):
		return c, invalid("--http-cert and --http-key go together; give both, or neither")
	case f.HTTPCert != "" && f.Proxy:
		return c, invalid("--http-proxy says that a proxy speaks TLS; leave it out with --http-cert")
	case f.HTTPCert != "":
		cert, err := tls.LoadX509KeyPair(f.HTTPCert, f.HTTPKey)
		if err != nil {
			return c, invalid("--http-cert, --http-key: %w", err)
		}
		c.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	case !f.Proxy && !loopback(host):
		return c, invalid("--http %s: passwords would be sent in the clear; give --http-cert and --http-key, or --http-proxy if a proxy before it speaks TLS, or listen on 127.0.0.1", f.HTTP)
	}
	c.address, c.insecure, c.proxied, c.keys = f.HTTP, c.tls == nil && !f.Proxy, f.Proxy, f.Keys
	c.policy = access.Policy{SeparateDuties: f.Separate, SecondFactor: f.Factor}
	if c.keys == "" && dir != "" {
		c.keys, c.makeKeys = filepath.Join(dir, "keys"), true
	}
	return c, nil
}

// makeKeys writes a file with a new key, if there is none.
func makeKeys(file string) error {
	var key [access.KeySize]byte
	_, _ = rand.Read(key[:]) // never fails, since Go 1.24
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the file of keys: %w", err)
	}
	_, err = io.WriteString(f, "# Second factors are sealed with these. Keep a copy, and give it to all servers by --keys.\n"+access.FormatKey("first", key)+"\n")
	return errors.Join(err, f.Close())
}

// website is the API on its listener.
type website struct {
	url   string
	api   *httpapi.API
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once ended is closed
}

// listen takes the address before anything else is started.
func (c *httpConfig) listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.address)
	if err != nil {
		return nil, fmt.Errorf("the API cannot listen: %w; choose another address with --http, or serve none with --http ''", err)
	}
	return l, nil
}

// serve serves the API of the parts, which are ready. It closes the listener in any case.
func (c *httpConfig) serve(p *parts, l net.Listener) (err error) {
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	var keys *access.Keyring
	if c.makeKeys {
		if err := makeKeys(c.keys); err != nil {
			return err
		}
	}
	if c.keys != "" {
		text, err := os.ReadFile(c.keys)
		if err != nil {
			return fmt.Errorf("--keys: %w", err)
		}
		if keys, err = access.ParseKeyring(text); err != nil {
			return fmt.Errorf("--keys %s: %w", c.keys, err)
		}
	}
	w := &website{url: "http://" + l.Addr().String(), ended: make(chan struct{})}
	w.api, err = httpapi.New(httpapi.Config{
		Server: p.server, Store: p.store, Keys: keys, Policy: c.policy, Insecure: c.insecure, Proxied: c.proxied, Version: buildVersion(), Log: p.log.Logger,
	})
	if err != nil {
		return err
	}
	if c.tls != nil {
		l, w.url = tls.NewListener(l, c.tls), "https://"+l.Addr().String()
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() {
		defer close(w.ended)
		w.err = httpapi.Serve(ctx, l, w.api, p.log.Logger)
	}()
	p.http = w
	return nil
}

// close stops serving; requests under way end first.
func (w *website) close() error {
	w.stop()
	<-w.ended
	return w.err
}

// invite tells how the first user is made, if there is none.
func (w *website) invite(ctx context.Context, out io.Writer) error {
	code, first, err := w.api.SetupCode(ctx)
	if err != nil {
		return fmt.Errorf("make the setup code: %w", err)
	}
	if first {
		fmt.Fprintf(out, "There is no user yet. Make the first one within 24 hours:\n\n  fanjet setup --server %s --code %s --name YOU\n\n", w.url, code.Text())
	}
	return nil
}

// buildVersion is what the binary was built of, as far as it knows.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
