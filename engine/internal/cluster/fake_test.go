package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

// database is a ServerStore in memory; its clock is the bubble's, moved by skew.
type database struct {
	mu      sync.Mutex
	skew    time.Duration
	servers map[int16]engine.Server
	shards  [engine.Shards]engine.Shard
}

func newDatabase() *database {
	d := &database{servers: map[int16]engine.Server{}}
	for i := range d.shards {
		d.shards[i].Shard = uint8(i)
	}
	return d
}

func (d *database) step(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skew += by
}

func (d *database) now() int64 { return time.Now().Add(d.skew).UnixMilli() }

func (d *database) liveLocked(n int16) bool { return n != 0 && d.servers[n].Until > d.now() }

func (d *database) Now(context.Context) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now(), nil
}

func (d *database) JoinServer(_ context.Context, name string, token uint64, ttl int64) (*engine.Server, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := int16(1); n <= MaxNumber; n++ {
		if !d.liveLocked(n) {
			s := engine.Server{Number: n, Name: name, Token: token, Until: d.now() + ttl, StartedAt: d.now(), LastID: d.servers[n].LastID}
			d.servers[n] = s
			return &s, nil
		}
	}
	return nil, engine.ErrConflict
}

func (d *database) RenewServer(_ context.Context, number int16, token uint64, ttl, lastID int64) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[number]
	if s.Token != token {
		return 0, engine.ErrFenced
	}
	s.Until, s.LastID = d.now()+ttl, lastID
	d.servers[number] = s
	return d.now(), nil
}

func (d *database) LeaveServer(_ context.Context, number int16, token uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[number]
	if s.Token != token {
		return engine.ErrFenced
	}
	s.Until, s.Token = 0, 0
	d.servers[number] = s
	for i := range d.shards {
		if d.shards[i].Owner == number {
			d.shards[i].Owner = 0
		}
	}
	return nil
}

func (d *database) LiveServers(context.Context) (out []engine.Server, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := int16(1); n <= int16(len(d.servers)); n++ {
		if d.liveLocked(n) {
			out = append(out, d.servers[n])
		}
	}
	return out, nil
}

func (d *database) ShardOwners(context.Context) ([]engine.Shard, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]engine.Shard(nil), d.shards[:]...), nil
}

func (d *database) ClaimShard(_ context.Context, shard uint8, number int16, token uint64) (*engine.Shard, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.servers[number].Token != token || !d.liveLocked(number) {
		return nil, engine.ErrFenced
	}
	s := &d.shards[shard]
	if s.Owner != number && d.liveLocked(s.Owner) {
		return nil, engine.ErrConflict
	}
	s.Owner = number
	s.Epoch++
	got := *s
	return &got, nil
}

func (d *database) ReleaseShard(_ context.Context, shard uint8, number int16, epoch int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := &d.shards[shard]; s.Owner == number && s.Epoch == epoch {
		s.Owner = 0
		return nil
	}
	return engine.ErrFenced
}

// cable is a server's way to the database; cut, every call hangs until its context ends.
type cable struct {
	*database
	mu    sync.Mutex
	off   bool
	blind bool // only the looks at the cluster hang
}

func (w *cable) blindfold(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = on
}

func (w *cable) cut(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = off
}

func (w *cable) pass(ctx context.Context) error {
	w.mu.Lock()
	off := w.off
	w.mu.Unlock()
	if off {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (w *cable) RenewServer(ctx context.Context, number int16, token uint64, ttl, lastID int64) (int64, error) {
	if err := w.pass(ctx); err != nil {
		return 0, err
	}
	return w.database.RenewServer(ctx, number, token, ttl, lastID)
}

func (w *cable) LeaveServer(ctx context.Context, number int16, token uint64) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	return w.database.LeaveServer(ctx, number, token)
}

func (w *cable) LiveServers(ctx context.Context) ([]engine.Server, error) {
	w.mu.Lock()
	blind := w.blind
	w.mu.Unlock()
	if blind {
		<-ctx.Done()
		return nil, engine.ErrUnavailable
	}
	if err := w.pass(ctx); err != nil {
		return nil, err
	}
	return w.database.LiveServers(ctx)
}

// town is a database and the servers on it. It checks at every gain that nobody else that
// decides holds the shard, and that no (shard, epoch) was ever another's.
type town struct {
	t       *testing.T
	db      *database
	mu      sync.Mutex
	nodes   []*node
	gained  map[[2]int64]*node
	flushes int
}

type node struct {
	*Cluster
	town      *town
	wire      *cable
	flush     time.Duration
	connected bool
	frozen    bool          // its clocks stand still
	lag       time.Duration // what its monotonic clock missed while frozen
	wallLag   time.Duration
	frozeAt   time.Time
	steps     []time.Duration
	stop      context.CancelFunc
	ended     chan struct{}
	start     time.Time
	gains     []time.Time
	tooLate   int
}

func newTown(t *testing.T) *town {
	return &town{t: t, db: newDatabase(), gained: map[[2]int64]*node{}}
}

func (w *town) start(name string, change ...func(*node)) *node {
	n := &node{town: w, wire: &cable{database: w.db}, connected: true, ended: make(chan struct{}), start: time.Now()}
	for _, f := range change {
		f(n)
	}
	n.Cluster = New(Config{
		Name: name, Log: slog.New(slog.DiscardHandler),
		Connected: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return n.connected },
		OnStep:    func(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); n.steps = append(n.steps, d) },
		Clock:     n.clockNow,
	}, n.wire, n)
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	go func() { defer close(n.ended); _ = n.Run(ctx) }()
	return n
}

func (n *node) clockNow() (time.Duration, time.Duration) {
	n.town.mu.Lock()
	defer n.town.mu.Unlock()
	t := time.Now()
	if n.frozen {
		t = n.frozeAt
	}
	return t.Sub(n.start) - n.lag, t.Sub(n.start) - n.wallLag
}

func (n *node) freeze() {
	n.wire.cut(true)
	n.town.mu.Lock()
	defer n.town.mu.Unlock()
	n.frozen, n.frozeAt = true, time.Now()
}

// thaw lets the clocks run again. The monotonic one has missed the pause; the wall clock
// too if it is a slept one.
func (n *node) thaw(wallToo bool) {
	n.town.mu.Lock()
	pause := time.Since(n.frozeAt)
	n.frozen = false
	n.lag += pause
	if wallToo {
		n.wallLag += pause
	}
	n.town.mu.Unlock()
}

func (n *node) Gained(s engine.Shard) {
	w := n.town
	w.mu.Lock()
	if other, ok := w.gained[[2]int64{int64(s.Shard), s.Epoch}]; ok {
		w.t.Errorf("shard %d epoch %d was gained by %s and %s", s.Shard, s.Epoch, other.cfg.Name, n.cfg.Name)
	}
	w.gained[[2]int64{int64(s.Shard), s.Epoch}] = n
	n.gains = append(n.gains, time.Now())
	var others []*node
	for _, o := range w.nodes {
		if !o.frozen { // a frozen one runs no code that could ask
			others = append(others, o)
		}
	}
	w.mu.Unlock()
	for _, o := range others {
		if _, owns := o.Owns(s.Shard); o != n && owns && o.Deciding() {
			w.t.Errorf("%s gained shard %d while %s decides for it", n.cfg.Name, s.Shard, o.cfg.Name)
		}
	}
}

func (n *node) Lost(ctx context.Context, s engine.Shard) {
	if ctx.Err() != nil {
		n.town.mu.Lock()
		n.tooLate++
		n.town.mu.Unlock()
		return
	}
	if n.flush > 0 {
		<-time.After(n.flush)
	}
	held, ok := n.Owns(s.Shard)
	n.town.db.mu.Lock()
	row := n.town.db.shards[s.Shard]
	n.town.db.mu.Unlock()
	n.town.mu.Lock()
	defer n.town.mu.Unlock()
	n.town.flushes++
	if !ok || held != s || row.Epoch != s.Epoch || row.Owner == 0 {
		n.town.t.Errorf("shard %d was gone before it was flushed: %+v", s.Shard, row)
	}
}

// kill is kill -9: nothing reaches the database any more.
func (n *node) kill() { n.wire.cut(true) }

// close ends the servers. Whoever is cut off times out in the bubble's time.
func (w *town) close() {
	for _, n := range w.nodes {
		n.stop()
		<-n.ended
	}
}

// requireAllOwned requires that the nodes decide, and that together they own every shard, once.
func (w *town) requireAllOwned(nodes ...*node) {
	w.t.Helper()
	seen := map[uint8]string{}
	for _, n := range nodes {
		require.True(w.t, n.Deciding())
		for _, s := range n.Owned() {
			require.Empty(w.t, seen[s.Shard])
			seen[s.Shard] = n.cfg.Name
		}
	}
	require.Len(w.t, seen, engine.Shards)
}
