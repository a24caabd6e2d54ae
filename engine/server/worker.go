package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

func poolsOf(b *broker.Beat) []string {
	pools := slices.Clone(b.Pools)
	if !slices.Contains(pools, broker.PoolAny) {
		pools = append(pools, broker.PoolAny)
	}
	return pools
}

// register takes a worker in: its app's streams are made, and it is told how to behave.
func (s *Server) register(b *broker.Beat, reply func(*broker.Registration)) {
	s.background(func(ctx context.Context) {
		select {
		case s.registers <- struct{}{}:
			defer func() { <-s.registers }()
		case <-ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		app, err := s.admitWorker(ctx, b)
		if err != nil {
			retry := !errors.Is(err, engine.ErrInvalid) && !errors.Is(err, engine.ErrTooLarge)
			reply(&broker.Registration{Error: err.Error(), Retry: retry})
			return
		}
		reply(&broker.Registration{Set: app.Set, AckWait: s.cfg.AckWait, BeatEvery: s.cfg.BeatEvery, Now: s.now()})
		s.beat(b)
	})
}

func (s *Server) admitWorker(ctx context.Context, b *broker.Beat) (*engine.App, error) {
	for _, name := range append([]string{b.Worker}, b.Pools...) {
		if err := engine.CheckName("worker or pool", name); err != nil {
			return nil, err
		}
	}
	if b.Slots < 1 {
		return nil, fmt.Errorf("worker %q has %d slots, it needs one: %w", b.Worker, b.Slots, engine.ErrInvalid)
	}
	app, err := s.EnsureApp(ctx, b.App)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Broker.EnsureApp(ctx, app.Name, app.Set, poolsOf(b)); err != nil {
		return nil, fmt.Errorf("make the streams of app %q: %w", app.Name, err)
	}
	w := engine.Worker{
		App: app.ID, Name: b.Worker, Incarnation: b.Incarnation, Version: engine.CutText(b.Version, engine.MaxName),
		Host: engine.CutText(b.Host, engine.MaxTitle), Pools: poolsOf(b), Labels: b.Labels, Slots: b.Slots,
		FirstSeen: s.now(), LastSeen: s.now(),
	}
	for _, p := range b.Processors {
		w.Processors = append(w.Processors, p.Name)
	}
	if err := s.cfg.Store.SaveWorker(ctx, w); err != nil {
		return nil, fmt.Errorf("save worker %q: %w", b.Worker, err)
	}
	s.maintenance(ctx, app)
	s.cfg.Log.Info("worker registered", "app", app.Name, "worker", b.Worker, "slots", b.Slots)
	return app, nil
}

// maintenance takes in which workers of the app are in maintenance.
func (s *Server) maintenance(ctx context.Context, app *engine.App) {
	rows, err := s.cfg.Store.Workers(ctx, app.ID)
	if err != nil {
		return // the next look comes soon
	}
	for _, w := range rows {
		s.fleet.SetMaintenance(app.Name, w.Name, w.Maintenance)
	}
}

// SetMaintenance puts a worker into maintenance, in which it gets nothing new, or takes it
// out. Other servers see it within some seconds.
func (s *Server) SetMaintenance(ctx context.Context, app, worker string, on bool) error {
	a, err := s.cfg.Store.AppByName(ctx, app)
	if err != nil {
		return fmt.Errorf("app %q: %w", app, err)
	}
	if err := s.cfg.Store.SetMaintenance(ctx, a.ID, worker, on); err != nil {
		return fmt.Errorf("worker %q of app %q: %w", worker, app, err)
	}
	s.fleet.SetMaintenance(app, worker, on)
	s.inbox.put(item{event: track.WorkerNews{App: app}}, true)
	return nil
}

// beat takes a beat in.
func (s *Server) beat(b *broker.Beat) {
	s.inbox.put(item{do: func(now int64) {
		news := s.fleet.Observe(s.mono(), b)
		if news.Stale {
			return
		}
		if news.Restarted {
			s.owner.Handle(now, track.WorkerDead{App: b.App, Worker: b.Worker, Incarnation: news.Former})
		}
		if news.New || news.Restarted || news.Changed || news.Draining || len(news.Gone) > 0 {
			s.owner.Handle(now, track.WorkerNews{App: b.App})
		}
		s.checkSkew(b)
		s.lookForStrays(b)
		for _, c := range s.orders.missed(b) {
			s.background(func(context.Context) {
				if err := s.cfg.Broker.Order(b.App, c); err != nil {
					s.cfg.Log.Debug("the order goes out again with the next beat", "err", err)
				}
			})
		}
	}}, false)
}

// expire gives up workers that were silent for too long.
func (s *Server) expire() {
	s.inbox.put(item{do: func(now int64) {
		for _, d := range s.fleet.Expire(s.mono(), s.cfg.Broker.Connected()) {
			s.cfg.Log.Warn("worker lost", "app", d.App, "worker", d.Worker)
			delete(s.strays, workerName{d.App, d.Worker})
			delete(s.skewed, workerName{d.App, d.Worker})
			s.owner.Handle(now, track.WorkerDead{App: d.App, Worker: d.Worker, Incarnation: d.Incarnation})
		}
	}}, false)
}
