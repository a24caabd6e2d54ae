//go:build unix

package killtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/storage"
)

// strikes are what happens in one turn, in an order by dice. A node and a worker come back at
// once.
var strikes = []string{"kill server", "stop server", "kill worker", "freeze worker", "kill broker", "freeze broker"}

// frozen is for how long one server stands still in each turn, beside everything else: ten
// times its lease.
const frozen = 30 * time.Second

// rig is the test of many servers.
type rig struct {
	*rand.Rand
	w       *world
	c       *callers
	f       *fires
	s       *shards
	js      jetstream.JetStream
	waves   int
	stopped []string // keys of what is to be stopped
}

// TestManyServers shows point 5 of the issue, and C04, C05, C31 and D10: three servers whose
// clocks disagree by a minute, a database and a cluster of three brokers. While processes die,
// freeze and are stopped, everything that is scheduled fires once, nothing that was asked for
// is lost, and of a job that may run once at a time one runs.
func TestManyServers(t *testing.T) {
	t.Parallel()
	n, s := max(len(strikes), kills(t)/10), seed(t)
	t.Logf("FANJET_KILLS=%d FANJET_KILL_SEED=%d: %d strikes", kills(t), s, n)
	w := newWorld(t, setup{servers: 3, workers: 3, slots: 4, cluster: true, mariadb: true, lease: 3 * time.Second, skew: []time.Duration{0, 30 * time.Second, -30 * time.Second}})
	r := &rig{Rand: rand.New(rand.NewPCG(s, 2)), w: w, c: newCallers(w), f: newFires(w)}
	db, err := storage.Open(t.Context(), storage.Config{URL: w.dbURL})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	a, err := db.AppByName(t.Context(), app)
	require.NoError(t, err)
	r.f.db, r.f.app, r.s = db, a.ID, &shards{w: w, db: db}
	defer r.f.open()
	r.connect()
	r.s.shared(w.of("server"))
	w.skewed()
	r.well()
	begin := time.Now()
	t.Logf("%6.2fs all servers own shards", begin.Sub(w.began).Seconds())

	for left := n; left > 0; left -= len(strikes) {
		r.turn(min(left, len(strikes)))
	}
	healed := time.Now()
	// A verification leaves out what may be under way.
	wait(11 * time.Second)
	r.f.verify(begin.UnixMilli(), healed.UnixMilli())
	r.f.order("pause")
	tickets := r.c.acknowledged()
	r.cancel()
	last := time.Now()
	r.c.settled(tickets, time.Minute)
	r.f.settled(time.Minute)
	t.Logf("all final %v after the schedules were paused; %d calls were repeated", time.Since(last).Round(10*time.Millisecond), r.c.retries)
	r.f.verifyAll(tickets, r.c.keys)
	r.report(begin, healed)
	w.drained()
	w.termAll()
}

// connect is for questions about the streams.
func (r *rig) connect() {
	nc, err := nats.Connect(r.w.url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(r.w.t, err)
	r.w.t.Cleanup(nc.Close)
	r.js, err = jetstream.New(nc)
	require.NoError(r.w.t, err)
}

// well waits until every stream has all its replicas: only then another node may go.
func (r *rig) well() {
	r.w.until(time.Minute, func() string {
		ctx, cancel := context.WithTimeout(r.w.t.Context(), 3*time.Second)
		defer cancel()
		list, n := r.js.ListStreams(ctx), 0
		for info := range list.Info() {
			n++
			c := info.Cluster
			if c == nil || c.Leader == "" || len(c.Replicas) != nodes-1 {
				return fmt.Sprintf("stream %s: %+v", info.Config.Name, c)
			}
			for _, peer := range c.Replicas {
				if !peer.Current || peer.Offline {
					return fmt.Sprintf("stream %s: %+v is behind", info.Config.Name, peer)
				}
			}
		}
		if err := list.Err(); err != nil {
			return err.Error()
		}
		if n == 0 {
			return "there are no streams"
		}
		return ""
	})
}

// skewed checks that the clocks are as they were asked to be.
func (w *world) skewed() {
	for _, p := range w.of("server") {
		data, err := os.ReadFile(p.logFile())
		require.NoError(w.t, err)
		_, said, _ := strings.Cut(string(data), clockMark+"=")
		said, _, _ = strings.Cut(said, "\n")
		ms, err := strconv.ParseInt(said, 10, 64)
		require.NoError(w.t, err, "%s", data)
		off := time.UnixMilli(ms).Sub(w.began).Truncate(time.Second)
		w.t.Logf("the wall clock of %s is ahead by about %v", p.role.Name, off)
		if os.Getenv("CI") != "" { // elsewhere the system may not let it be moved
			require.InDelta(w.t, p.role.Skew.Seconds(), off.Seconds(), 10, "%s: the wall clock could not be moved", p.role.Name)
		}
	}
}

// turn freezes one server, does everything else to the others meanwhile, and at last restarts all
// of them, one after the other.
func (r *rig) turn(n int) {
	servers := r.w.of("server")
	k := r.IntN(len(servers))
	others := []*proc{servers[(k+1)%3], servers[(k+2)%3]}
	order := r.Perm(len(strikes))[:n]
	r.load()
	thawed := r.s.freeze(servers[k], frozen)
	for _, i := range order {
		r.load()
		what, kind, _ := strings.Cut(strikes[i], " ")
		switch kind {
		case "server":
			p := others[r.IntN(2)]
			if what == "kill" {
				r.s.kill(p)
			} else {
				r.s.stop(p)
			}
			r.s.shared(others)
		default:
			list := r.w.of(kind)
			p, length := list[r.IntN(len(list))], time.Duration(500+r.IntN(2500))*time.Millisecond
			r.w.say(what, p, length)
			if what == "kill" {
				require.NoError(r.w.t, p.kill(length))
			} else {
				require.NoError(r.w.t, p.freeze(length))
			}
			if kind == "broker" {
				r.well()
			}
		}
		wait(time.Duration(r.IntN(1000)) * time.Millisecond)
	}
	require.NoError(r.w.t, <-thawed)
	r.w.say("runs again", servers[k], 0)
	back := time.Now()
	r.s.shared(servers)
	r.w.t.Logf("%6.2fs %s has shards again %v after it woke up", time.Since(r.w.began).Seconds(), servers[k].role.Name, time.Since(back).Round(10*time.Millisecond))
	r.load()
	for _, p := range servers {
		r.s.stop(p)
		r.s.shared(servers)
	}
}

// load is what callers ask of any server in one round.
func (r *rig) load() {
	r.waves++
	r.c.ones(fmt.Sprintf("wave%d", r.waves), 12)
	for i := range 3 {
		r.c.trigger(solo, load{Key: fmt.Sprintf("solo%d-%d", r.waves, i), MS: 30})
	}
	r.c.trigger("fold", load{Key: fmt.Sprintf("map-%d", r.waves), N: 400, MS: 4})
	r.c.trigger("flow", load{Key: fmt.Sprintf("flow-%d", r.waves), N: 50})
	key := fmt.Sprintf("stop-%d", r.waves)
	r.stopped = append(r.stopped, key)
	r.c.trigger("one-3", load{Key: key, MS: 600_000})
	r.c.wg.Go(func() {
		// By a server that need not own it, before or after it was started.
		wait(time.Second)
		r.c.cancelKey(key)
	})
}

// cancel stops what was to be stopped and came too late to be: asked for again after an answer
// had got lost.
func (r *rig) cancel() {
	for _, key := range r.stopped {
		r.c.cancelKey(key)
	}
}

func (c *callers) cancelKey(key string) {
	_, _, err := call(c.w, api.CallCancelKey, api.CancelKeyRequest{App: app, Job: "one-3", Key: key}, func(a api.CancelKeyReply) *api.Error { return a.Error })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
	}
}

// report says how long schedules stood still, and how late they were.
func (r *rig) report(begin, healed time.Time) {
	t := r.w.t
	fired := r.f.fired(begin.UnixMilli(), time.Now().UnixMilli())
	for i, o := range r.s.taken {
		next := healed
		if i+1 < len(r.s.taken) {
			next = r.s.taken[i+1].at
		}
		t.Logf("%6.2fs %-6s %s, %d shards: owned by others after %v, what was due there fired at most %v late", o.at.Sub(r.w.began).Seconds(), o.what, o.who, len(o.shards),
			o.took.Round(10*time.Millisecond), o.stood(fired, next))
	}
	n, p99, most := late(fired, begin.UnixMilli(), healed.UnixMilli())
	t.Logf("during the strikes: %d fires, late %d ms at p99, %d ms at most", n, p99, most)
	n, p99, most = late(fired, healed.Add(2*time.Second).UnixMilli(), healed.Add(10*time.Second).UnixMilli())
	t.Logf("in the calm behind: %d fires, late %d ms at p99, %d ms at most", n, p99, most)
}
