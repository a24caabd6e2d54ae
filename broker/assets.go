package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// assets remembers which streams and durables are there, and lets one caller make each.
type assets struct {
	mu   sync.Mutex
	made map[string]*asset
}

type asset struct {
	busy chan struct{} // one token: who holds it makes the asset
	ok   bool
}

func (a *assets) forget() {
	a.mu.Lock()
	a.made = nil
	a.mu.Unlock()
}

// once runs create unless it has succeeded for name before; callers of the same name wait.
func (a *assets) once(ctx context.Context, name string, create func() error) error {
	a.mu.Lock()
	if a.made == nil {
		a.made = map[string]*asset{}
	}
	s := a.made[name]
	if s == nil {
		s = &asset{busy: make(chan struct{}, 1)}
		a.made[name] = s
	}
	a.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.busy }()
	if s.ok {
		return nil
	}
	if err := create(); err != nil {
		return err
	}
	s.ok = true
	return nil
}

// Durables as the architecture wants them.
const (
	maxAckPending = 16384
	maxWaiting    = 8192 // pull requests over all workers; the default 512 starves the others
)

func (b *Broker) stream(ctx context.Context, c jetstream.StreamConfig) error {
	return b.assets.once(ctx, c.Name, func() error {
		c.Storage = jetstream.FileStorage
		c.Replicas = b.c.Replicas
		c.MaxConsumers = -1
		c.AllowDirect = true
		_, err := b.js.CreateOrUpdateStream(ctx, c)
		// Two servers at once: the other made it, in the same or in another shape.
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			_, err = b.js.UpdateStream(ctx, c)
		}
		err = border("make stream "+c.Name, err)
		if errors.Is(err, ErrNoRoom) {
			return fmt.Errorf("the broker's store limit cannot hold another %d MiB; raise it, lower the bounds of streams, or use a shared set: %w", c.MaxBytes>>20, err)
		}
		return err
	})
}

// EnsureReports creates the reports stream; idempotent, cheap when it is there.
func (b *Broker) EnsureReports(ctx context.Context) error {
	return b.stream(ctx, jetstream.StreamConfig{
		Name: reportStream, Subjects: []string{allReports},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: b.c.ReportBytes,
	})
}

// EnsureApp creates the streams of the app's set and the durables of every lane for each
// pool; idempotent and cheap when nothing is missing. Safe to call from many servers at once.
func (b *Broker) EnsureApp(ctx context.Context, app, set string, pools []string) error {
	if err := checkApp(app, set); err != nil {
		return err
	}
	for _, c := range []jetstream.StreamConfig{
		{
			Name: kindTask.streamOf(app, set), Subjects: []string{kindTask.all(app, set)},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxBytes: b.c.TaskBytes,
		},
		{
			Name: kindStage.streamOf(app, set), Subjects: []string{kindStage.all(app, set)},
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: b.c.StageBytes,
		},
		{
			Name: kindResult.streamOf(app, set), Subjects: []string{kindResult.all(app, set)},
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: b.c.ResultBytes,
		},
		{
			Name: kindLog.streamOf(app, set), Subjects: []string{kindLog.all(app, set)},
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, MaxBytes: b.c.LogBytes,
			MaxAge: b.c.LogAge, Compression: jetstream.S2Compression,
		},
	} {
		if err := b.stream(ctx, c); err != nil {
			return fmt.Errorf("app %s: %w", app, err)
		}
	}
	for _, pool := range pools {
		if !ValidName(pool) {
			return fmt.Errorf("app %s: pool name %q must match [a-z0-9][a-z0-9_-]{0,62}", app, pool)
		}
		for _, lane := range Lanes {
			if err := b.durable(ctx, app, set, lane, pool); err != nil {
				return fmt.Errorf("app %s: %w", app, err)
			}
		}
	}
	return nil
}

func (b *Broker) durable(ctx context.Context, app, set, lane, pool string) error {
	stream, name := kindTask.streamOf(app, set), durableName(app, set, lane, pool)
	return b.assets.once(ctx, stream+" "+name, func() error {
		_, err := b.js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable:       name,
			AckPolicy:     jetstream.AckExplicitPolicy,
			DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait:       b.c.AckWait,
			MaxDeliver:    -1,
			MaxAckPending: maxAckPending,
			MaxWaiting:    maxWaiting,
			FilterSubject: taskLaneFilter(app, set, lane, pool),
		})
		return border("make durable "+name+" of "+stream, err)
	})
}
