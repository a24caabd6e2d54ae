package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/cluster"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/dispatch"
	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/engine/internal/flow"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// Server is an engine process. Safe for concurrent use.
type Server struct {
	cfg     Config
	commit  *commit.Committer
	cluster *cluster.Cluster
	fleet   *dispatch.Fleet
	caches  caches
	start   time.Time
	clock   clock

	ctx       context.Context // of everything that serves; set by Run
	work      sync.WaitGroup
	inbox     *inbox
	publisher chan later
	loads     chan struct{} // bounds loads at a time
	registers chan struct{} // bounds registrations at a time
	published pending
	purges    purges
	// leftoversAt is when the streams are looked through for what is left of final
	// instances, by mono.
	leftoversAt atomic.Int64
	orders      orders
	ready       chan struct{}
	readyOnce   sync.Once
	nudge       chan struct{}
	byName      *cache[string, *engine.App]
	latest      *cache[jobName, fresh]
	schedules   *cache[compiledKey, compiledSchedule]
	fire        *fire.Scheduler

	owned    [engine.Shards]atomic.Bool
	cursors  [engine.Shards]atomic.Uint64 // committed
	fences   [engine.Shards]atomic.Pointer[fire.Fence]
	readGen  atomic.Int64
	stats    atomic.Pointer[track.Stats]
	retained atomic.Int64 // rows deleted for their age

	// Of the loop alone.
	owner       *track.Owner
	flow        *flow.Flow
	moved       []moved
	news        []func()
	nodes       map[int64]nodeRef // instance → node, while it runs
	gens        [engine.Shards]uint32
	held        [engine.Shards]engine.Shard
	strays      strays
	poison      [engine.Shards]poison
	dirtyAt     int64          // mono, since when readDirty
	aside       map[int64]bool // instances that are set aside
	taken       taken
	skewed      map[workerName]time.Time
	asks        [engine.Shards]func()
	loading     int
	readDirty   bool
	reading     [engine.Shards]int64 // the reader whose reports of the shard count
	stopReading func()

	// Of the purger alone.
	purgedTo   [engine.Shards]uint64
	purgedAt   int64
	purgeEvery int64 // ms

	watchers watchers
	waits    waits
	live     *live
}

// New makes a Server. Nothing happens before Run.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	if c.Store == nil || c.Broker == nil {
		return nil, fmt.Errorf("a server needs a store and a broker: %w", engine.ErrInvalid)
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "server"
		}
		c.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	s := &Server{
		cfg: c, fleet: dispatch.NewFleet(3 * c.BeatEvery), caches: newCaches(), start: time.Now(), inbox: newInbox(),
		publisher: make(chan later, 4096), loads: make(chan struct{}, 4), registers: make(chan struct{}, 16),
		ready: make(chan struct{}), nodes: map[int64]nodeRef{}, strays: strays{}, aside: map[int64]bool{}, skewed: map[workerName]time.Time{}, nudge: make(chan struct{}, 1),
		byName: newCache[string, *engine.App](10_000), latest: newCache[jobName, fresh](10_000), schedules: newCache[compiledKey, compiledSchedule](50_000), purgeEvery: 2000,
	}
	s.live = newLive(s)
	s.commit = commit.New(commit.Config{Log: c.Log, Probe: func(ctx context.Context) error {
		_, err := c.Store.Now(ctx)
		return err
	}}, c.Store)
	s.cluster = cluster.New(cluster.Config{
		Name: c.Name, TTL: c.Lease, Connected: c.Broker.Connected, Log: c.Log,
		OnStep: func(step time.Duration) {
			c.Log.Warn("the database's clock has stepped", "step", step)
		},
		OnChange: func() { _ = c.Broker.NudgeServers() }, // a lost one costs a renewal
	}, c.Store, s)
	view := &fleetView{fleet: s.fleet, now: s.now, mono: s.mono, turns: map[string]int64{}}
	s.owner = track.New(track.Config{Silent: c.Silent.Milliseconds(), BeatEvery: c.BeatEvery.Milliseconds(), MaxLost: c.MaxLost}, view, hooks{s})
	s.flow = flow.New(sink{s})
	s.fire = fire.New(fire.Config{Log: c.Log}, firing{s})
	return s, nil
}

// Run serves until ctx ends, then stops cleanly: what is decided is stored, shards are
// released. It returns nil after a clean stop, and an error if it could not begin. It may
// be called once.
func (s *Server) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	serving, stopServing := context.WithCancel(base)
	defer stopServing()
	s.ctx = serving
	committing, stopCommitting := context.WithCancel(base)
	defer stopCommitting()
	var committer, parts sync.WaitGroup
	committer.Go(func() { _ = s.commit.Run(committing) }) // nil by contract
	parts.Go(func() { s.publishing(serving) })
	parts.Go(func() { s.purging(serving) })

	clustering, stopClustering := context.WithCancel(base)
	defer stopClustering()
	clustered := make(chan struct{})
	go func() {
		defer close(clustered)
		_ = s.cluster.Run(clustering) // nil by contract
	}()
	stop := func() {
		// First the shards go, while everything still serves; then the rest. Who looks on
		// goes to another server meanwhile.
		s.live.close()
		stopClustering()
		<-clustered
		stopServing()
		s.inbox.close()
	}
	select {
	case <-ctx.Done():
		stop()
		parts.Wait()
		stopCommitting()
		committer.Wait()
		return nil
	case <-s.cluster.Joined():
	}
	parts.Go(func() { s.loop(serving) })
	parts.Go(func() { s.sweeping(serving) })
	parts.Go(func() { s.fire.Run(serving) })
	parts.Go(func() { s.retaining(serving) })
	parts.Go(func() { s.live.run(serving) })
	unsubscribe, err := s.listen()
	if err == nil {
		<-ctx.Done()
	}
	unsubscribe()
	stop()
	parts.Wait()
	stopCommitting()
	committer.Wait()
	for _, it := range s.inbox.rest() {
		if t, ok := it.event.(track.Triggered); ok && t.Done != nil {
			t.Done(fmt.Errorf("the server is stopping, nothing was stored: %w", engine.ErrUnavailable))
		}
	}
	s.work.Wait()
	s.watchers.close()
	s.waits.close()
	return err
}

// listen subscribes to what comes from workers and callers.
func (s *Server) listen() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	b := s.cfg.Broker
	subscribe := func(f func() (func(), error)) {
		if err != nil {
			return
		}
		var one func()
		if one, err = f(); err == nil {
			stops = append(stops, one)
		}
	}
	subscribe(func() (func(), error) { return b.OnRegister(s.register) })
	subscribe(func() (func(), error) { return b.OnBeat(s.beat) })
	subscribe(func() (func(), error) { return b.OnNudge(s.nudged) })
	subscribe(func() (func(), error) { return b.OnNudgeServers(s.cluster.Look) })
	subscribe(func() (func(), error) { return b.OnInterest(s.live.interest) })
	for name, h := range s.calls() {
		subscribe(func() (func(), error) {
			return b.OnCall(name, func(payload []byte, reply func([]byte)) {
				s.background(func(ctx context.Context) { reply(h(ctx, payload)) })
			})
		})
	}
	b.Watch(func() { s.cfg.Log.Warn("the connection to the broker is lost") }, s.brokerUp)
	return stop, err
}

// brokerUp looks at everything again after the connection was away.
func (s *Server) brokerUp() {
	s.background(func(ctx context.Context) {
		s.cfg.Log.Info("the connection to the broker is back")
		for ctx.Err() == nil && s.cfg.Broker.Connected() {
			if err := s.ensureAll(ctx); err == nil {
				break
			}
			pause(ctx, retryPause)
		}
		s.inbox.put(item{do: func(now int64) {
			s.fleet.Amnesty(s.mono())
			s.readDirty = true
			s.lookForLeftovers()
			s.owner.Handle(now, track.BrokerUp{})
		}}, false)
		s.live.missed()
	})
}

// ensureAll makes the streams of all apps with live workers that are missing.
func (s *Server) ensureAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := s.cfg.Broker.EnsureReports(ctx); err != nil {
		return err
	}
	for _, w := range s.fleet.Workers("") {
		app, err := s.cfg.Store.AppByName(ctx, w.Beat.App)
		if err == nil {
			err = s.cfg.Broker.EnsureApp(ctx, app.Name, app.Set, poolsOf(w.Beat))
		}
		switch {
		case err == nil:
		case errors.Is(err, engine.ErrUnavailable), errors.Is(err, broker.ErrUnavailable), ctx.Err() != nil:
			return err
		default:
			// One app's trouble, or a beat of an app that is not here, keeps nothing from the others.
			s.cfg.Log.Warn("the streams of an app are not as they should be", "app", w.Beat.App, "err", err)
		}
	}
	return nil
}

// mono is a monotonic clock in ms.
func (s *Server) mono() int64 { return time.Since(s.start).Milliseconds() }

// Ready is closed once the server takes work: it owns its shards, and workers can register.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Store is the store the server was given, for reading.
func (s *Server) Store() engine.Store { return s.cfg.Store }

// Workers are the live workers of the app, by name. The beats must not be changed.
func (s *Server) Workers(app string) []broker.Beat {
	var out []broker.Beat
	for _, w := range s.fleet.Workers(app) {
		out = append(out, *w.Beat)
	}
	return out
}

// Stats are counters since the start.
type Stats struct {
	// Stale reports told of something that had moved on; Repeated tasks ran again after
	// their worker died or their message was lost; Refused chunks went to a worker that
	// could not run them; Late successes came after the instance was final; Republished
	// chunks had vanished from the broker; DeadLetters could not be decoded or decided.
	Stale, Repeated, Refused, Late, Republished, DeadLetters int64
	// Active is the number of instances in memory.
	Active int64
	// Commits and Rows were stored.
	Commits, Rows uint64
	// Fired runs were made by schedules; Skipped fires did not run, with their reason in the
	// ledger; Retained rows were deleted for their age.
	Fired, Skipped, Retained int64
}

// Stats returns the counters, at most a second old.
func (s *Server) Stats() Stats {
	var t track.Stats
	if p := s.stats.Load(); p != nil {
		t = *p
	}
	c, f := s.commit.Stats(), s.fire.Stats()
	return Stats{
		Stale: t.Stale, Repeated: t.Repeated, Refused: t.Refused, Late: t.Late, Republished: t.Republished,
		DeadLetters: t.DeadLetters, Active: t.Active, Commits: c.Commits, Rows: c.Rows,
		Fired: f.Fired, Skipped: f.Skipped, Retained: s.retained.Load(),
	}
}

// token is a random number other than 0.
func token() uint64 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("the system has no randomness: " + err.Error())
	}
	return binary.LittleEndian.Uint64(b[:]) | 1
}
