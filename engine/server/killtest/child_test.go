//go:build unix

// Package killtest kills real processes: servers, workers and brokers, at random moments
// under load, and checks that everything reaches its right end. The processes are this test
// binary itself, told by an environment variable what to be.
package killtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage"
)

const roleEnv = "FANJET_KILL_ROLE"

// clockMark is where a process says in its log what its wall clock shows.
const clockMark = "clock"

// role says what a process is.
type role struct {
	Kind string // server, broker, worker
	Name string
	// DB, of a server, is its database.
	DB string
	// NATS, of a broker or a server that embeds one, is the broker's directory.
	NATS string
	Port int
	// Cluster, of a broker, is where it meets the others.
	Cluster  embedded.Cluster
	Replicas int
	URL      string // of the broker
	// Skew is how far the wall clock is ahead of the machine's.
	Skew time.Duration
	// Ledger, of a worker, is where it notes what it begins and ends.
	Ledger string
	Slots  int
	Drain  time.Duration

	AckWait, Lease, Beat, Silent time.Duration
}

func TestMain(m *testing.M) {
	said := os.Getenv(roleEnv)
	if said == "" {
		os.Exit(m.Run())
	}
	var r role
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		fmt.Fprintln(os.Stderr, "role:", err)
		os.Exit(2)
	}
	// Whoever started this process holds the other end: no process outlives the test.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	slog.SetDefault(log)
	if err := skew(r.Skew); err != nil {
		log.Error("the wall clock is the machine's", "err", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log.Info("begins", "pid", os.Getpid(), clockMark, time.Now().UnixMilli())
	if err := r.run(ctx, log); err != nil {
		log.Error("ends", "err", err)
		os.Exit(1)
	}
	log.Info("ends cleanly")
	os.Exit(0)
}

func (r *role) run(ctx context.Context, log *slog.Logger) error {
	switch r.Kind {
	case "broker":
		ns, err := r.broker(log)
		if err != nil {
			return err
		}
		<-ctx.Done()
		ns.Shutdown()
		return nil
	case "server":
		return r.server(ctx, log)
	case "worker":
		return r.worker(ctx, log)
	}
	return fmt.Errorf("no role %q", r.Kind)
}

func (r *role) broker(log *slog.Logger) (*embedded.Server, error) {
	return embedded.Start(embedded.Config{Dir: r.NATS, Port: r.Port, Name: r.Name, Cluster: r.Cluster, Logger: log})
}

func (r *role) server(ctx context.Context, log *slog.Logger) (err error) {
	db, err := storage.Open(ctx, storage.Config{URL: r.DB, ConnectTimeout: time.Minute, Logger: log})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r.NATS != "" {
		ns, err := r.broker(log)
		if err != nil {
			return err
		}
		defer ns.Shutdown()
	}
	b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: r.URL, Name: r.Name, Logger: log}, AckWait: r.AckWait, Replicas: r.Replicas})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer b.Close()
	s, err := server.New(server.Config{
		Name: r.Name, Store: db, Broker: b, AckWait: r.AckWait, Lease: r.Lease, BeatEvery: r.Beat, Silent: r.Silent, Log: log,
		// By the dice one task may lose more of its workers than is a bad omen elsewhere.
		MaxLost: 20,
	})
	if err != nil {
		return err
	}
	go func() {
		<-s.Ready()
		log.Info("ready")
	}()
	err = s.Run(ctx)
	log.Info("counted", "stats", s.Stats())
	return err
}

// interrupted leaves out what only says that the process was told to end while it began.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *role) worker(ctx context.Context, log *slog.Logger) error {
	l, err := openLedger(r.Ledger, r.Name)
	if err != nil {
		return err
	}
	w := processor.NewWorker(processor.Config{App: app, Name: r.Name, URL: r.URL, Slots: r.Slots, DrainTimeout: r.Drain, Logger: log})
	l.register(w)
	err = w.Run(ctx)
	log.Info("counted", "stats", w.Stats())
	return err
}
