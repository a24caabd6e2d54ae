package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// StandbySuffix marks, in the name of a server's row, one that takes no shards because it
// has no broker connection.
const StandbySuffix = " (standby)"

// Config of a Cluster.
type Config struct {
	// Name is shown to people; it need not be unique.
	Name string
	// TTL is how long the lease lasts; default 3 s. A dead server's shards are free after it.
	TTL time.Duration
	// Renew is the pause between renewals, and between looks at the shards; default TTL/3.
	Renew time.Duration
	// FlushTimeout bounds Handler.Lost; default 5 s.
	FlushTimeout time.Duration
	// Connected tells whether the broker connection is up; nil: always. Without it for
	// BrokerGrace (default 3 s) the server becomes a standby if another one is live.
	Connected   func() bool
	BrokerGrace time.Duration
	// OnStep hears of a step of the database's clock of more than 1 s, once for each step,
	// from the goroutine that renews the lease: it must return soon.
	OnStep func(step time.Duration)
	// OnChange hears that the server has joined, left or given shards up, so that the others
	// can be told to Look; it must return soon. Default: nobody is told, and they find out
	// within Renew.
	OnChange func()
	// Clock reads the monotonic and the wall clock as durations since any fixed moment each.
	// Default: the machine's.
	Clock func() (mono, wall time.Duration)
	// Log defaults to slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.TTL, 3*time.Second)
	def(&c.Renew, c.TTL/3)
	def(&c.FlushTimeout, 5*time.Second)
	def(&c.BrokerGrace, 3*time.Second)
	if c.Connected == nil {
		c.Connected = func() bool { return true }
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Clock == nil {
		start := time.Now()
		wall := start.Round(0)
		c.Clock = func() (time.Duration, time.Duration) {
			t := time.Now()
			return t.Sub(start), t.Round(0).Sub(wall)
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Handler hears which shards the server owns. Calls about one shard never overlap.
type Handler interface {
	// Gained says that the shard is the server's at that epoch, which is committed. Calls
	// come one after the other and must return soon: loading goes elsewhere.
	Gained(shard engine.Shard)
	// Lost says that the shard goes, or is gone. It returns when nothing of the owner is in
	// flight any more. While ctx is open the server still owns the shard and the owner may
	// flush; ctx has ended from the start if it is too late. Calls about different shards
	// come together.
	Lost(ctx context.Context, shard engine.Shard)
}

// Cluster is one server's part in the cluster. Safe for concurrent use.
type Cluster struct {
	cfg     Config
	store   engine.ServerStore
	handler Handler
	ids     ids

	lease  atomic.Pointer[lease] // nil while not joined
	lapses atomic.Uint64         // how often the lease had ended before a renewal came
	seen   atomic.Uint64         // the lapses since which the shards were looked at

	clockMu sync.Mutex
	clock   reading
	lastNow int64 // the highest Now since the last step

	poked      chan struct{} // a token asks for a look
	joined     chan struct{} // closed at the first join
	joinedOnce sync.Once

	mu   sync.Mutex
	held map[uint8]engine.Shard
	live []engine.Server
}

// New makes a Cluster. Nothing happens before Run.
func New(cfg Config, store engine.ServerStore, handler Handler) *Cluster {
	return &Cluster{
		cfg: cfg.withDefaults(), store: store, handler: handler,
		poked: make(chan struct{}, 1), joined: make(chan struct{}), held: map[uint8]engine.Shard{},
	}
}

// Joined is closed once the server has its first number: NextID and Now work from then on.
func (c *Cluster) Joined() <-chan struct{} { return c.joined }

// Look has the server look at the others and at the shards soon, and not only after its next
// renewal: one of them has changed something.
func (c *Cluster) Look() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// Number is the server's number, 0 while it has none. It may change when a lease is lost.
func (c *Cluster) Number() int16 {
	if l := c.lease.Load(); l != nil {
		return l.number
	}
	return 0
}

// Owns is the shard as held, if the server believes to own it. Whether it may act on that
// is Deciding's to say, and the fence's.
func (c *Cluster) Owns(shard uint8) (engine.Shard, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.held[shard]
	return s, ok
}

// Owned lists what Owns would say yes to, in no order.
func (c *Cluster) Owned() []engine.Shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]engine.Shard, 0, len(c.held))
	for _, s := range c.held {
		out = append(out, s)
	}
	return out
}

// Servers are the live servers as last seen, standbys included.
func (c *Cluster) Servers() []engine.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]engine.Server(nil), c.live...)
}

// Run joins, renews and divides until ctx ends; then it flushes, gives everything up and
// returns nil. It may be called once. A database that is away is logged and waited for.
func (c *Cluster) Run(ctx context.Context) error {
	standby := false
	for ctx.Err() == nil {
		standby = c.term(ctx, standby)
	}
	return nil
}

// term is the life of one lease, from the join to its end. It returns whether the next one
// is a standby's.
func (c *Cluster) term(ctx context.Context, standby bool) (next bool) {
	name := c.cfg.Name
	if standby {
		name += StandbySuffix
	}
	l := c.join(ctx, name)
	if l == nil {
		return standby
	}
	c.joinedOnce.Do(func() { close(c.joined) })
	c.cfg.OnChange()

	base := context.WithoutCancel(ctx)
	renewCtx, cancel := context.WithCancel(base)
	renewed, taken := make(chan struct{}, 1), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { c.renewing(renewCtx, l, renewed, taken) })
	defer wg.Wait()
	defer cancel()

	look := &look{c: c, number: l.number, token: l.token, standby: standby}
	for {
		if change := look.once(ctx); change {
			next = !standby
			break
		}
		select {
		case <-renewed:
			continue
		case <-c.poked:
			continue
		case <-ctx.Done():
		case <-taken:
			c.lease.Store(nil)
			c.lose(base, c.Owned(), false)
			return standby
		}
		break
	}
	c.lose(base, c.Owned(), true)
	if next && !look.replaceable(ctx) {
		next = false // while it flushed, the others went: it comes back for its shards
	}
	cancel()
	wg.Wait()
	c.lease.Store(nil)
	leave, done := context.WithTimeout(base, c.cfg.TTL)
	defer done()
	if err := c.store.LeaveServer(leave, l.number, l.token); err != nil {
		c.cfg.Log.Warn("could not leave the cluster, the lease will expire", "number", l.number, "err", err)
	} else {
		c.cfg.OnChange()
	}
	return next
}

// lose tells the handler of shards that go, all at once, and forgets them. With flush it
// leaves the handler time, and the server still owns them meanwhile.
func (c *Cluster) lose(base context.Context, shards []engine.Shard, flush bool) {
	if len(shards) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(base, c.cfg.FlushTimeout)
	defer cancel()
	if !flush || !c.Deciding() {
		cancel()
	}
	var wg sync.WaitGroup
	for _, s := range shards {
		wg.Go(func() { c.handler.Lost(ctx, s) })
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range shards {
		delete(c.held, s.Shard)
	}
}

func (c *Cluster) pause(ctx context.Context) {
	t := time.NewTimer(c.cfg.Renew)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func standing(s engine.Server) bool { return strings.HasSuffix(s.Name, StandbySuffix) }
