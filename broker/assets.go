package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

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

// How long making an asset is tried again: an election takes some seconds, and so does a
// cluster that has just been started.
const (
	assetPatience = 20 * time.Second
	assetPause    = 100 * time.Millisecond
	// bareWait is how long a broker may say that it has no JetStream.
	bareWait = 3 * time.Second
)

// patiently does what makes an asset until it works, or fails for good, or ctx or the
// patience ends. A lost connection ends it at once.
func (b *Broker) patiently(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, assetPatience)
	defer cancel()
	begin := time.Now()
	for {
		try, done := context.WithTimeout(ctx, requestWait)
		err := do(try)
		done()
		switch {
		case err == nil, !passing(err), !b.l.connected():
			return err
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled) && time.Since(begin) > bareWait:
			return err
		}
		if pause(ctx, assetPause) != nil {
			return err // it says more than that the time is over
		}
	}
}

// passing tells whether an error may be that of an election, or of a cluster whose servers
// have not all met yet.
func passing(err error) bool {
	var theirs *jetstream.APIError
	if errors.As(err, &theirs) && theirs.ErrorCode == codeNoPeers {
		return strings.Contains(theirs.Description, "offline") || !strings.Contains(theirs.Description, "storage")
	}
	return errors.Is(border("", err), ErrUnavailable)
}

// explain says what to do about an error of making an asset that wants room bytes.
func (b *Broker) explain(op string, room int64, err error) error {
	var theirs *jetstream.APIError
	if errors.As(err, &theirs) {
		if theirs.ErrorCode == codeNotClustered {
			return fmt.Errorf("%s: %d replicas are asked of a NATS server that is not in a cluster; connect to a cluster of at least 3 servers with JetStream, or ask for 1 replica: %w", op, b.c.Replicas, err)
		}
		if theirs.ErrorCode == codeNoPeers {
			return fmt.Errorf("%s: not enough servers of the cluster can take it, with %d replicas and %d MiB reserved; start those that are down, raise their store limit (max_file_store), or ask for fewer replicas: %w: %w", op, b.c.Replicas, room>>20, ErrUnavailable, err)
		}
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%s: the NATS server has no JetStream for this user; start it with JetStream (nats-server -js): %w: %w", op, ErrUnavailable, err)
	}
	err = border(op, err)
	if errors.Is(err, ErrNoRoom) {
		return fmt.Errorf("the broker's store limit cannot hold another %d MiB; raise it, lower the bounds of streams, or use a shared set: %w", room>>20, err)
	}
	return err
}

// stream makes the stream, or brings the one that is there into shape. What is in order is
// not touched: in a cluster every change is a round of its leaders. What only an operator
// sets (placement, description) stays.
func (b *Broker) stream(ctx context.Context, c jetstream.StreamConfig) error {
	return b.assets.once(ctx, c.Name, func() error {
		c.Storage = jetstream.FileStorage
		c.Replicas = b.c.Replicas
		c.MaxConsumers = -1
		c.AllowDirect = true
		err := b.patiently(ctx, func(ctx context.Context) error {
			s, err := b.js.Stream(ctx, c.Name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				_, err = b.js.CreateStream(ctx, c)
				// Two servers at once: the other made it, in another shape.
				if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
					s, err = b.js.Stream(ctx, c.Name)
				}
			}
			if err != nil || s == nil {
				return err
			}
			is := s.CachedInfo().Config
			if is.Replicas > c.Replicas {
				return fmt.Errorf("it has %d replicas and this process was told %d; give all engine processes the same number", is.Replicas, c.Replicas)
			}
			to := is
			to.Subjects, to.Retention, to.Discard = c.Subjects, c.Retention, c.Discard
			to.MaxBytes, to.MaxAge, to.Compression = c.MaxBytes, c.MaxAge, c.Compression
			to.Storage, to.Replicas, to.MaxConsumers, to.AllowDirect = c.Storage, c.Replicas, c.MaxConsumers, c.AllowDirect
			if reflect.DeepEqual(is, to) {
				return nil
			}
			_, err = b.js.UpdateStream(ctx, to)
			return err
		})
		return b.explain("make stream "+c.Name, c.MaxBytes, err)
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
		c := jetstream.ConsumerConfig{
			Durable:       name,
			AckPolicy:     jetstream.AckExplicitPolicy,
			DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait:       b.c.AckWait,
			MaxDeliver:    -1,
			MaxAckPending: maxAckPending,
			MaxWaiting:    maxWaiting,
			FilterSubject: taskLaneFilter(app, set, lane, pool),
		} // its replicas are those of the stream
		err := b.patiently(ctx, func(ctx context.Context) error {
			d, err := b.js.Consumer(ctx, stream, name)
			if err == nil {
				is := d.CachedInfo().Config
				if is.AckWait == c.AckWait && is.MaxDeliver == c.MaxDeliver && is.MaxAckPending == c.MaxAckPending &&
					is.MaxWaiting == c.MaxWaiting && is.FilterSubject == c.FilterSubject {
					return nil
				}
			} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return err
			}
			_, err = b.js.CreateOrUpdateConsumer(ctx, stream, c)
			return err
		})
		return b.explain("make durable "+name+" of "+stream, 0, err)
	})
}
