// Package embedded runs a nats-server with JetStream in this process. It is apart from
// package broker so that programs that only speak to a broker never link the server.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Config says where the server keeps its data and who may come in.
type Config struct {
	// Dir holds the streams; required. One process at a time may use it.
	Dir string
	// Host to listen on; default 127.0.0.1.
	Host string
	// Port to listen on; 0 is 4222, -1 any free one.
	Port int
	// DontListen opens no port: only InProcess reaches the server.
	DontListen bool
	// Name of the server; default "fanjet".
	Name string
	// Cluster makes the server one of several; by default it stands alone. Each needs a Name of
	// its own then.
	Cluster Cluster
	// MaxStore is what the streams may claim of the disk, in bytes; default 1 TiB. JetStream
	// reserves a stream's whole MaxBytes when it is made, so that this bounds the sum of all
	// bounds (3.25 GiB an app with stock settings), not what is used.
	MaxStore int64
	// MaxPayload bounds one message; default 8 MiB.
	MaxPayload int32
	// MaxPending bounds what waits for one slow connection; default 256 MiB.
	MaxPending int64
	// SyncInterval is how often the disk is synced; default 5 s. An ack means written, not
	// synced: a power failure may take that much.
	SyncInterval time.Duration
	// User and Password, or Token, are asked of every connection; none lets anybody in.
	User, Password, Token string
	// ReadyWait bounds the start, which reads the streams; default 1 min.
	ReadyWait time.Duration
	// Logger hears the server's warnings and errors; default slog.Default().
	Logger *slog.Logger
}

// Cluster says how a server meets the others of its cluster.
type Cluster struct {
	// Name of the cluster; empty means none.
	Name string
	// Port where the others connect, on the server's Host.
	Port int
	// Routes are the others, as nats://host:port of their cluster ports; its own may be there.
	Routes []string
}

// A client that answers no pings is cut off after pingEvery times one more than pingsOut: a
// frozen engine process is asked nothing more, and a frozen worker fed nothing. The stock
// setting is six minutes. Between the nodes of a cluster it stays as it is: their elections
// find out sooner.
const (
	pingEvery      = 3 * time.Second
	pingsOut       = 2
	routePingEvery = 30 * time.Second
)

// Server is a running server. Safe for concurrent use.
type Server struct {
	ns   *server.Server
	lock *dirLock
	once sync.Once
}

// Start starts a server and returns when it takes connections.
func Start(c Config) (*Server, error) {
	if c.Dir == "" {
		return nil, errors.New("start broker: no data directory given; set one")
	}
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.Port == 0 {
		c.Port = server.DEFAULT_PORT
	}
	if c.Name == "" {
		c.Name = "fanjet"
	}
	if c.MaxStore <= 0 {
		c.MaxStore = 1 << 40
	}
	if c.MaxPayload <= 0 {
		c.MaxPayload = 8 << 20
	}
	if c.MaxPending <= 0 {
		c.MaxPending = 256 << 20
	}
	if c.SyncInterval <= 0 {
		c.SyncInterval = 5 * time.Second
	}
	if c.ReadyWait <= 0 {
		c.ReadyWait = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("start broker: data directory %s: %w", c.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("start broker: make its data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	s, err := start(c, dir)
	if err != nil {
		lock.release()
		return nil, fmt.Errorf("start broker: %w", err)
	}
	s.lock = lock
	return s, nil
}

func start(c Config, dir string) (*Server, error) {
	if !c.DontListen && c.Port > 0 {
		if err := tryPort(c.Host, c.Port); err != nil {
			return nil, err
		}
	}
	o := &server.Options{
		ServerName: c.Name, Host: c.Host, Port: c.Port, DontListen: c.DontListen,
		JetStream: true, StoreDir: dir, JetStreamMaxStore: c.MaxStore, JetStreamMaxMemory: 256 << 20,
		// Without it, 1000 consumers a stream, which a stream's own -1 does not lift.
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1},
		SyncInterval:    c.SyncInterval,
		MaxPayload:      c.MaxPayload, MaxPending: c.MaxPending,
		WriteDeadline: 10 * time.Second,
		PingInterval:  pingEvery, MaxPingsOut: pingsOut,
		Username: c.User, Password: c.Password, Authorization: c.Token,
		NoSigs: true,
	}
	if c.Cluster.Name != "" {
		if err := tryPort(c.Host, c.Cluster.Port); err != nil {
			return nil, err
		}
		o.Cluster = server.ClusterOpts{Name: c.Cluster.Name, Host: c.Host, Port: c.Cluster.Port, PingInterval: routePingEvery}
		o.Routes = server.RoutesFromStr(strings.Join(c.Cluster.Routes, ","))
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	told := &logger{log: c.Logger}
	ns.SetLoggerV2(told, false, false, false)
	// Start returns at once, but with DontListen it may still be at work.
	go ns.Start()
	s := &Server{ns: ns}
	if !ns.ReadyForConnections(c.ReadyWait) {
		ns.Shutdown()
		ns.WaitForShutdown()
		if last := told.last(); last != "" {
			return nil, fmt.Errorf("it did not come up: %s", last)
		}
		return nil, fmt.Errorf("it did not come up within %v", c.ReadyWait)
	}
	if !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("it has no JetStream in %s: %s", dir, told.last())
	}
	return s, nil
}

// tryPort finds out whether the port is free: the server itself would only log that it is
// not, and wait.
func tryPort(host string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // it does not wait
	if err != nil {
		return fmt.Errorf("cannot listen on %s, port %d; is another broker running there? Choose another port: %w", host, port, err)
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("try port %d: %w", port, err)
	}
	return nil
}

// ClientURL is where clients connect, nats://host:port; without credentials.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// InProcess is the option that connects without a port. Fast for publishing, slow for
// consuming much: its pipe has no buffer.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.ns) }

// Clients is how many connections there are.
func (s *Server) Clients() int { return s.ns.NumClients() }

// DiskBytes is what the streams take on disk.
func (s *Server) DiskBytes() (uint64, error) {
	v, err := s.ns.Jsz(nil)
	if err != nil {
		return 0, fmt.Errorf("ask the broker for its size: %w", err)
	}
	return v.Store, nil
}

// Healthy is nil when the server and its streams are in order.
func (s *Server) Healthy() error {
	if h := s.ns.Healthz(&server.HealthzOptions{}); h.Error != "" {
		return fmt.Errorf("broker: %s", h.Error)
	}
	return nil
}

// Shutdown stops the server and waits until everything is written and the directory free.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.ns.Shutdown()
		s.ns.WaitForShutdown()
		s.lock.release()
	})
}

// logger hands the server's log on. Its chatter is for debugging only.
type logger struct {
	log *slog.Logger
	mu  sync.Mutex
	err string
}

func (l *logger) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *logger) say(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "broker: "+fmt.Sprintf(format, v...))
}

func (l *logger) keep(format string, v []any) {
	l.mu.Lock()
	l.err = fmt.Sprintf(format, v...)
	l.mu.Unlock()
}

func (l *logger) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l *logger) Debugf(format string, v ...any)  {}
func (l *logger) Tracef(format string, v ...any)  {}

func (l *logger) Errorf(format string, v ...any) {
	l.keep(format, v)
	l.say(slog.LevelError, format, v)
}

// Fatalf must not end the process: the start fails instead.
func (l *logger) Fatalf(format string, v ...any) {
	l.keep(format, v)
	l.say(slog.LevelError, format, v)
}
