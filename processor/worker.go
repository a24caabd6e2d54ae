package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	// roomBytes bounds what is finished and not stored.
	roomBytes = 32 << 20
	// flushPatience is how long the end of a worker waits for its last reports to be stored.
	flushPatience = 10 * time.Second
	sdkVersion    = "go/1"
)

// Worker runs the tasks of one app with the processors registered. It dials out to the
// broker and listens on no port.
type Worker struct {
	cfg         Config
	log         *slog.Logger
	dial        func(ctx context.Context, o broker.Options) (link, error)
	incarnation uint64
	errs        []error
	procs       map[string]*registered

	life    context.Context // ends when Run returns
	kill    context.CancelCauseFunc
	link    link
	reports *reporter
	logs    *logShipper
	room    *room
	slots   *slots
	asset   atomic.Pointer[string] // the app's stream set
	ackWait time.Duration
	up      chan struct{} // the connection came back
	drainme chan struct{} // an order to drain
	count   struct {
		chunks, succeeded, failed, returned, refused, surplus, redelivered, asked, stopped, abandoned, linesLost atomic.Int64
	}
	left atomic.Int64 // goroutines left behind and still running

	mu       sync.Mutex
	running  bool
	draining bool
	empty    chan struct{} // closed when nothing is held; set while draining
	held     map[broker.ChunkKey]*run
	beside   int // runs that take no slot
	stops    map[int64]stopOrder
	finished recent
	epochs   [broker.Shards]int64
}

// NewWorker makes a worker; Run starts it. What is wrong with c is the error of Run.
func NewWorker(c Config) *Worker {
	c = c.withDefaults()
	w := &Worker{
		cfg: c, dial: dial, incarnation: rand.Uint64() | 1,
		log:   c.Logger.With("app", c.App, "worker", c.Name),
		procs: map[string]*registered{}, held: map[broker.ChunkKey]*run{},
		stops: map[int64]stopOrder{},
		room:  newRoom(roomBytes), slots: newSlots(c.Slots),
		up: make(chan struct{}, 1), drainme: make(chan struct{}, 1),
	}
	if err := c.validate(); err != nil {
		w.errs = append(w.errs, err)
	}
	return w
}

// Register adds a Processor by the name that jobs call it by, before Run. A name that is bad or
// already taken is the error of Run.
func (w *Worker) Register(name string, p Processor) *Worker {
	switch {
	case checkProcessorName(name) != nil:
		w.errs = append(w.errs, checkProcessorName(name))
	case p == nil:
		w.errs = append(w.errs, fmt.Errorf("processor %q is nil", name))
	case w.procs[name] != nil:
		w.errs = append(w.errs, fmt.Errorf("processor %q is registered twice", name))
	default:
		w.procs[name] = newRegistered(name, p)
	}
	return w
}

// Name is the worker's name, the default one if Config had none.
func (w *Worker) Name() string { return w.cfg.Name }

// RunUntilSignal is Run until SIGTERM or SIGINT, which begin the drain. A second signal ends
// the process at once, as signals do.
func (w *Worker) RunUntilSignal(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return w.Run(ctx)
}

// Run works until ctx ends or the engine orders a drain, and then drains: it takes nothing new,
// gives back what has not started, lets running tasks go on for Config.DrainTimeout, cancels what
// still runs (it is run elsewhere), and returns nil when everything is reported. While no broker or
// no server answers it goes on trying, so a worker may start first. It returns an error when the
// worker is set up wrongly or is refused. A Worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.procs) == 0 {
		w.errs = append(w.errs, errors.New("no processor is registered"))
	}
	if err := errors.Join(w.errs...); err != nil {
		return err
	}
	w.mu.Lock()
	again := w.running
	w.running = true
	w.mu.Unlock()
	if again {
		return errors.New("this Worker has run already; make a new one")
	}
	w.life, w.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.kill(errEnded)

	l, err := w.dial(ctx, broker.Options{
		URL: w.cfg.URL, Name: w.cfg.App + "/" + w.cfg.Name,
		User: w.cfg.User, Password: w.cfg.Password, Token: w.cfg.Token, CredsFile: w.cfg.CredsFile,
		OnDown: func() { w.log.Warn("the broker is away; work goes on, reports wait") },
		OnUp:   w.onUp,
		Logger: w.log,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("connect to the broker at %s: %w", w.cfg.URL, err)
	}
	defer l.Close()
	w.link = l
	reg, err := w.register(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return w.work(ctx, reg)
}

func (w *Worker) onUp() {
	w.log.Info("the broker is back")
	select {
	case w.up <- struct{}{}:
	default:
	}
}

// register introduces the worker, for as long as it takes.
func (w *Worker) register(ctx context.Context) (broker.Registration, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		reg, err := w.link.Register(ctx, *w.beat())
		switch {
		case ctx.Err() != nil:
			return reg, ctx.Err()
		case err == nil && reg.Error == "":
			w.asset.Store(&reg.Set)
			return reg, nil
		case err == nil && !reg.Retry:
			return reg, fmt.Errorf("app %s refuses worker %s: %s", w.cfg.App, w.cfg.Name, reg.Error)
		case err != nil:
			w.log.Warn("no server answers the registration; trying on", "err", err)
		default:
			w.log.Warn("not registered yet; trying on", "reason", reg.Error)
		}
		sleep(ctx, pause)
	}
}

// set is the app's stream set.
func (w *Worker) set() string { return *w.asset.Load() }

// work runs between registration and the end of the drain.
func (w *Worker) work(ctx context.Context, reg broker.Registration) error {
	w.ackWait = reg.AckWait
	if w.ackWait <= 0 {
		w.ackWait = 8 * time.Second
	}
	every := reg.BeatEvery
	if every <= 0 {
		every = 2 * time.Second
	}
	if skew := time.Since(time.UnixMilli(reg.Now)); reg.Now != 0 && (skew > 5*time.Second || skew < -5*time.Second) {
		w.log.Warn("the clocks of server and worker disagree; nothing depends on it but the times shown", "skew", skew.Round(time.Second))
	}
	w.reports = newReporter(w.life, w.link, broker.ReportBatch{App: w.cfg.App, Worker: w.cfg.Name, Incarnation: w.incarnation}, w.log)
	w.logs = newLogShipper(w.life, w.cfg.Name, func(ctx context.Context, b *broker.LogBatch) (uint64, error) {
		return w.link.PublishLog(ctx, w.cfg.App, w.set(), b)
	}, func(n int) { w.count.linesLost.Add(int64(n)) })

	stopControl, err := w.link.OnControl(w.cfg.App, w.onControl)
	if err != nil {
		return fmt.Errorf("listen for orders: %w", err)
	}
	defer stopControl()
	stopDirected, err := w.link.OnDirected(w.cfg.App, w.cfg.Name, w.onDirected)
	if err != nil {
		return fmt.Errorf("listen for directed work: %w", err)
	}
	defer stopDirected()
	if err := w.openLanes(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.keepBeating(every) })
	wg.Go(func() { w.keep(w.ackWait / 4) })
	wg.Go(func() { w.slots.run(w.life.Done()) })
	wg.Go(w.comeBack)
	w.slots.poke()
	w.log.Info("worker runs", "slots", w.cfg.Slots, "pools", w.cfg.pools(), "processors", len(w.procs))

	select {
	case <-ctx.Done():
	case <-w.drainme:
		w.log.Info("ordered to drain")
	}
	w.drain()
	w.kill(errEnded)
	wg.Wait()
	return nil
}

func (w *Worker) openLanes() error {
	for _, pool := range w.cfg.pools() {
		for _, lp := range lanesByPriority {
			l := &lane{name: lp.name, pool: pool, weight: lp.weight}
			p, err := w.link.Puller(w.cfg.App, w.set(), l.name, l.pool, pullExpiry,
				func(d *delivery) { w.receive(l, d) },
				func(n int) { w.slots.ended(l, n) })
			if err != nil {
				return fmt.Errorf("open lane %s of pool %s: %w", l.name, l.pool, err)
			}
			l.pull = p
			w.slots.mu.Lock()
			w.slots.lanes = append(w.slots.lanes, l)
			w.slots.mu.Unlock()
		}
	}
	return nil
}

// comeBack registers again after the connection was lost: a broker that lost its disk gets its
// streams back so.
func (w *Worker) comeBack() {
	for {
		select {
		case <-w.life.Done():
			return
		case <-w.up:
		}
		if _, err := w.register(w.life); err != nil && w.life.Err() == nil {
			w.log.Error("registration after the connection was lost", "err", err)
		}
		w.slots.poke()
	}
}

// keep visits everything held, a quarter of AckWait apart.
func (w *Worker) keep(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-w.life.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		for _, r := range w.holding() {
			r.tend(now)
		}
		w.prune(now)
		w.slots.forget()
	}
}

func (w *Worker) holding() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*run, 0, len(w.held))
	for _, r := range w.held {
		all = append(all, r)
	}
	return all
}

// drain ends the work, in the order Run documents.
func (w *Worker) drain() {
	w.mu.Lock()
	w.draining = true
	w.empty = make(chan struct{})
	if len(w.held) == 0 {
		close(w.empty)
	}
	empty := w.empty
	w.mu.Unlock()
	w.log.Info("worker drains", "held", len(w.holding()), "timeout", w.cfg.DrainTimeout)
	w.slots.close()
	_ = w.link.Beat(w.beat()) // the next one says it again
	for _, r := range w.holding() {
		r.mu.Lock()
		asking := r.asking
		r.mu.Unlock()
		if asking {
			r.cancel(ErrDrained)
		} else {
			r.yield()
		}
	}
	if !within(empty, w.cfg.DrainTimeout) {
		for _, r := range w.holding() {
			r.stop(ErrDrained)
		}
		if !within(empty, patience) {
			for _, r := range w.holding() {
				r.leave(true)
			}
		}
	}
	ctx, cancel := context.WithTimeout(w.life, flushPatience)
	defer cancel()
	if !w.reports.drain(ctx) {
		w.log.Warn("some reports could not be stored; their tasks are run again")
	}
	within(empty, time.Second) // acks follow the reports
	w.logs.drain(ctx)
	_ = w.link.Beat(w.beat())
	if err := w.link.Flush(ctx); err != nil {
		w.log.Warn("the last acks may not have reached the broker", "err", err)
	}
	w.log.Info("worker ends", "chunks", w.count.chunks.Load(), "succeeded", w.count.succeeded.Load(), "failed", w.count.failed.Load(), "returned", w.count.returned.Load())
}

func within(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// forget lets go of a run. ran tells that it was executed here.
func (w *Worker) forget(r *run, ran bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, r.key())
	if !r.slot {
		w.beside--
	}
	if ran {
		w.finished.add(r.key(), time.Now())
	}
	if w.empty != nil && len(w.held) == 0 {
		select {
		case <-w.empty:
		default:
			close(w.empty)
		}
	}
}

// leftBehind counts goroutines that ignore their context: +1 is granted while there are fewer
// of them than slots.
func (w *Worker) leftBehind(n int64) bool {
	now := w.left.Add(n)
	if n < 0 {
		return true
	}
	w.count.abandoned.Add(1)
	if now > int64(w.cfg.Slots) {
		w.left.Add(-n)
		w.count.abandoned.Add(-1)
		return false
	}
	return true
}

// tell notes what could not be said to the broker: the message comes back and is asked about.
func (w *Worker) tell(err error) {
	if err != nil {
		w.log.Debug("a word to the broker was lost", "err", err)
	}
}

// Stats are the running totals.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	held := len(w.held)
	w.mu.Unlock()
	c := &w.count
	return Stats{
		Chunks: c.chunks.Load(), Succeeded: c.succeeded.Load(), Failed: c.failed.Load(), Returned: c.returned.Load(),
		Refused: c.refused.Load(), Surplus: c.surplus.Load(), Redelivered: c.redelivered.Load(), Asked: c.asked.Load(),
		Stopped: c.stopped.Load(), Abandoned: c.abandoned.Load(), LinesLost: c.linesLost.Load(),
		Busy: w.slots.taken(), Held: held,
	}
}

// processors are the registered ones, for the beat.
func (w *Worker) processors() []broker.ProcessorInfo {
	out := make([]broker.ProcessorInfo, 0, len(w.procs))
	for _, p := range w.procs {
		out = append(out, broker.ProcessorInfo{Name: p.name, Caps: p.caps})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
