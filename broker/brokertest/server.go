// Package brokertest runs an embedded broker for tests, and holds the suite that the two
// ends of package broker must pass against it. It is apart from package broker so that
// users of the SDK never link the server.
package brokertest

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
)

// Server is an embedded broker of one test, with a store and a port of its own. Its
// methods are for the goroutine of the test.
type Server struct {
	t   testing.TB
	c   embedded.Config
	s   *embedded.Server // nil while it is down
	url string
}

// Run starts a broker that lives as long as the test.
func Run(t testing.TB) *Server {
	t.Helper()
	return RunIn(t, t.TempDir())
}

// RunIn starts a broker on a store that may exist.
func RunIn(t testing.TB, dir string) *Server {
	t.Helper()
	s := &Server{t: t, c: embedded.Config{
		Dir: dir, Port: -1, Logger: Quiet(),
	}}
	s.start()
	t.Cleanup(s.Kill)
	return s
}

func (s *Server) start() {
	s.t.Helper()
	require.NoError(s.t, s.tryStart())
}

func (s *Server) tryStart() error {
	e, err := embedded.Start(s.c)
	if err != nil {
		return err
	}
	s.s = e
	if s.c.Port == -1 {
		s.url = e.ClientURL()
		u, err := url.Parse(s.url)
		if err != nil {
			return err
		}
		if s.c.Port, err = strconv.Atoi(u.Port()); err != nil {
			return err
		}
	}
	return nil
}

// URL is where clients connect; the same after a restart.
func (s *Server) URL() string { return s.url }

// Restart stops the broker, unless it is down, and starts it on the same store and port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Kill cuts all connections and stops the broker, without a word to its clients. Restart
// brings it back.
func (s *Server) Kill() {
	if s.s != nil {
		s.s.Shutdown()
		s.s = nil
	}
}

// Clients is how many connections there are.
func (s *Server) Clients() int { return s.s.Clients() }

// Replicas is what the streams of a single server have.
func (s *Server) Replicas() int { return 1 }

// Broker connects an engine's end that is closed with the test. url is filled in.
func (s *Server) Broker(t testing.TB, c broker.Config) *broker.Broker {
	t.Helper()
	c.URL = s.url
	return connect(t, c)
}

func connect(t testing.TB, c broker.Config) *broker.Broker {
	t.Helper()
	if c.Logger == nil {
		c.Logger = Quiet()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b, err := broker.Connect(ctx, c)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// Client connects a worker's end that is closed with the test.
func (s *Server) Client(t testing.TB) *broker.Client {
	t.Helper()
	return dial(t, s.url)
}

func dial(t testing.TB, url string) *broker.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := broker.Dial(ctx, broker.Options{URL: url, Logger: Quiet()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Quiet is a logger that says nothing: tests break connections on purpose.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
