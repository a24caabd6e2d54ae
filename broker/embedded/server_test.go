package embedded_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func start(t *testing.T, c embedded.Config) *embedded.Server {
	t.Helper()
	c.Logger = quiet()
	s, err := embedded.Start(c)
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

func TestOneProcessAtATimeUsesADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, embedded.Config{Dir: dir, Port: -1})
	_, err := embedded.Start(embedded.Config{Dir: dir, Port: -1, Logger: quiet()})
	require.ErrorContains(t, err, "is in use by another broker")
	s.Shutdown()
	s.Shutdown() // once more is harmless
	start(t, embedded.Config{Dir: dir, Port: -1})
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, text, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = embedded.Start(embedded.Config{Dir: dir, Port: port, Logger: quiet()})
	require.ErrorContains(t, err, "port "+text)
	require.ErrorContains(t, err, "Choose another port")
	// Nothing is left behind that would keep the next start out.
	start(t, embedded.Config{Dir: dir, Port: -1})
}

func TestADirectoryIsRequired(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start(embedded.Config{})
	require.ErrorContains(t, err, "no data directory")
}

func TestStreamsOutliveTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dir := t.TempDir()
	for range 2 {
		s := start(t, embedded.Config{Dir: dir, Port: -1})
		b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: s.ClientURL(), Logger: quiet()}})
		require.NoError(t, err)
		before, err := b.ReportsEnd(ctx)
		if err != nil {
			require.ErrorIs(t, err, broker.ErrNotFound)
			require.NoError(t, b.EnsureReports(ctx))
			c, err := broker.Dial(ctx, broker.Options{URL: s.ClientURL(), Logger: quiet()})
			require.NoError(t, err)
			_, err = c.PublishReports(ctx, 1, &broker.ReportBatch{App: "shop"})
			require.NoError(t, err)
			c.Close()
		} else {
			require.Equal(t, uint64(1), before)
		}
		require.NoError(t, s.Healthy())
		b.Close()
		s.Shutdown()
	}
}

func TestCredentialsAreAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server embedded.Config
		good   broker.Options
		bad    broker.Options
	}{
		"password": {embedded.Config{User: "u", Password: "secret"}, broker.Options{User: "u", Password: "secret"}, broker.Options{User: "u", Password: "wrong"}},
		"token":    {embedded.Config{Token: "secret"}, broker.Options{Token: "secret"}, broker.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.server.Dir, c.server.Port = t.TempDir(), -1
			s := start(t, c.server)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			c.good.URL, c.good.Logger = s.ClientURL(), quiet()
			end, err := broker.Dial(ctx, c.good)
			require.NoError(t, err)
			require.True(t, end.Connected())
			end.Close()
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c.bad.URL, c.bad.Logger = s.ClientURL(), quiet()
			_, err = broker.Dial(short, c.bad)
			require.ErrorIs(t, err, broker.ErrUnavailable)
			require.ErrorIs(t, err, nats.ErrAuthorization)
		})
	}
}

func TestDialWaitsForABrokerThatComes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, embedded.Config{Dir: dir, Port: -1})
	u, err := url.Parse(s.ClientURL())
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	s.Shutdown()

	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = broker.Dial(short, broker.Options{URL: s.ClientURL(), Logger: quiet()})
	require.ErrorIs(t, err, broker.ErrUnavailable)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dialed := make(chan error, 1)
	go func() {
		c, err := broker.Dial(ctx, broker.Options{URL: u.String(), Logger: quiet()})
		if err == nil {
			c.Close()
		}
		dialed <- err
	}()
	start(t, embedded.Config{Dir: dir, Port: port})
	require.NoError(t, <-dialed)
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), DontListen: true})
	nc, err := nats.Connect("", s.InProcess())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Flush())
	require.Equal(t, 1, s.Clients())
	_, err = s.DiskBytes()
	require.NoError(t, err)
}
