package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
	"github.com/fanjet/fanjet/storage"
)

// partsConfig says what a server is made of.
type partsConfig struct {
	dir     string // of the data; may be empty if nothing is embedded
	dbURL   string // default SQLite in dir
	natsURL string // external NATS, several of a cluster separated by commas; empty embeds one
	host    string // of the embedded NATS
	port    int    // of it; -1 any free one
	token   string
	creds   string

	replicas int // of the streams; 0 is 1

	ackWait, lease, beat time.Duration

	http httpConfig

	log *logger
}

// parts is a whole server in this process.
type parts struct {
	url    string // where workers connect, without credentials
	server *server.Server
	http   *website // nil if none is served

	log    *logger
	store  *storage.DB
	nats   *embedded.Server
	broker *broker.Broker
	cancel context.CancelFunc
	ended  chan struct{} // closed when server.Run has returned
	err    error         // of it, once ended is closed
}

// startParts opens everything and returns once the server takes work. What was opened is
// closed again if something fails.
func startParts(ctx context.Context, c partsConfig) (p *parts, err error) {
	p = &parts{url: c.natsURL, log: c.log, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	var site net.Listener
	if c.http.address != "" {
		if site, err = c.http.listen(ctx); err != nil {
			return p, err
		}
		defer func() {
			if p == nil || p.http == nil {
				_ = site.Close()
			}
		}()
	}
	if c.dir != "" {
		if err := os.MkdirAll(c.dir, 0o750); err != nil {
			return p, fmt.Errorf("make the data directory: %w; name another one with --data", err)
		}
	}
	dbURL := c.dbURL
	if dbURL == "" {
		dbURL = "sqlite:" + filepath.Join(c.dir, "fanjet.db")
	}
	if p.store, err = storage.Open(ctx, storage.Config{URL: dbURL, Logger: c.log.Logger}); err != nil {
		return p, err
	}
	if c.natsURL == "" {
		p.nats, err = embedded.Start(embedded.Config{
			Dir: filepath.Join(c.dir, "nats"), Host: c.host, Port: c.port, Token: c.token, Logger: c.log.Logger,
		})
		if err != nil {
			return p, err
		}
		p.url = p.nats.ClientURL()
	}
	dial, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	p.broker, err = broker.Connect(dial, broker.Config{
		Options: broker.Options{URL: p.url, Token: c.token, CredsFile: c.creds, Logger: c.log.Logger},
		AckWait: c.ackWait, Replicas: c.replicas,
	})
	if err != nil {
		return p, unreachable(err, p.url, "is NATS running there, and the token right?")
	}
	// The server would wait for its streams; what a person must mend is better said now.
	if err = p.broker.EnsureReports(ctx); err != nil {
		return p, err
	}
	p.server, err = server.New(server.Config{
		Store: p.store, Broker: p.broker, AckWait: c.ackWait, Lease: c.lease, BeatEvery: c.beat, Log: c.log.Logger,
		Checks: map[string]server.Check{logcleanup.Name: logcleanup.Validate},
	})
	if err != nil {
		return p, err
	}
	// The server ends by close, in order, and not with ctx.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = stop
	go func() {
		defer close(p.ended)
		p.err = p.server.Run(run)
	}()
	select {
	case <-p.server.Ready():
		if site == nil {
			return p, nil
		}
		return p, c.http.serve(p, site)
	case <-p.ended:
		return p, errors.New("the server ended before it was ready") // close has the cause
	case <-ctx.Done():
		return p, context.Cause(ctx)
	}
}

// httpURL is where the API is, empty if it is not served.
func (p *parts) httpURL() string {
	if p.http == nil {
		return ""
	}
	return p.http.url
}

// close stops the server cleanly, then what it stood on. The error is the first of the
// server's, or one of closing.
func (p *parts) close() error {
	var errs []error
	if p.http != nil {
		errs = append(errs, p.http.close())
	}
	if p.cancel != nil {
		p.cancel()
		<-p.ended
		errs = append(errs, p.err)
	}
	p.log.hush() // what the parts say of each other's end is no news
	if p.broker != nil {
		p.broker.Close()
	}
	if p.nats != nil {
		p.nats.Shutdown()
	}
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the database: %w", err))
		}
	}
	return errors.Join(errs...)
}

// dataDir is keep, or a temporary directory that remove deletes.
func dataDir(keep string) (dir string, remove func() error, err error) {
	if keep != "" {
		return keep, func() error { return nil }, nil
	}
	if dir, err = os.MkdirTemp("", "fanjet-"); err != nil {
		return "", nil, fmt.Errorf("make a temporary directory: %w; set TMPDIR to one that can be written", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
