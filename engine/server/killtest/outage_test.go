//go:build unix

package killtest

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// entries is what the ledger has of the instances.
func (w *world) entries(ids ...int64) []entry {
	return slices.DeleteFunc(readLedger(w.t, w.ledger), func(e entry) bool { return !slices.Contains(ids, e.key.instance) })
}

// begun waits until n tasks of the instances have begun.
func (w *world) begun(n int, ids ...int64) []entry {
	var list []entry
	w.until(30*time.Second, func() string {
		list = slices.DeleteFunc(w.entries(ids...), func(e entry) bool { return e.what != 'B' })
		if len(list) < n {
			return fmt.Sprintf("%d of %d tasks have begun", len(list), n)
		}
		return ""
	})
	return list
}

func ids(tickets []ticket) (out []int64) {
	for _, k := range tickets {
		out = append(out, k.id)
	}
	return out
}

// once checks that each was run to its end by one process, and by nobody else.
func once(t *testing.T, list []entry, n int) {
	t.Helper()
	seen := map[taskKey]int{}
	for _, e := range list {
		if e.what == 'B' {
			seen[e.key]++
			require.Equal(t, 1, seen[e.key], "%+v ran again", e.key)
		}
	}
	require.Len(t, seen, n)
	require.Len(t, list, 2*n)
}

// TestOutages shows D01, C14 and C28: the database or the broker is away for seconds, under
// load, and everything goes on by itself.
func TestOutages(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name string
		setup
		outage func(w *world)
	}{
		{"the database is killed", setup{servers: 1, workers: 2, slots: 4, apart: true, mariadb: true}, func(w *world) {
			w.db.Kill(w.t)
			wait(3 * time.Second)
			w.db.Start(w.t)
		}},
		{"the database is frozen", setup{servers: 1, workers: 2, slots: 4, apart: true, mariadb: true}, func(w *world) {
			w.db.Signal(w.t, syscall.SIGSTOP)
			wait(5 * time.Second)
			w.db.Signal(w.t, syscall.SIGCONT)
		}},
		{"the broker is killed", setup{servers: 1, workers: 2, slots: 4, apart: true}, func(w *world) {
			require.NoError(w.t, w.of("broker")[0].kill(4*time.Second))
		}},
		{"the broker is frozen", setup{servers: 1, workers: 2, slots: 4, apart: true}, func(w *world) {
			require.NoError(w.t, w.of("broker")[0].freeze(8*time.Second))
		}},
		// What it held is driven again from the database; what a map had emitted is not there,
		// and emitted anew by a further attempt.
		{"the broker loses its disk", setup{servers: 1, workers: 2, slots: 4, apart: true}, func(w *world) {
			p := w.of("broker")[0]
			require.NoError(w.t, p.signal(syscall.SIGKILL))
			<-p.gone
			require.NoError(w.t, os.RemoveAll(p.role.NATS))
			require.NoError(w.t, p.start())
		}},
		{"all workers are killed", setup{servers: 1, workers: 2, slots: 4, apart: true}, func(w *world) {
			ended := make(chan error, 2)
			for _, p := range w.of("worker") {
				go func() { ended <- p.kill(4 * time.Second) }()
			}
			require.NoError(w.t, <-ended)
			require.NoError(w.t, <-ended)
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, one.setup)
			c := newCallers(w)
			c.trigger("fold", load{Key: "map", N: 5_000, MS: 8})
			c.trigger("flow", load{Key: "flow", N: 100})
			c.ones("before", 50)
			w.until(20*time.Second, func() string {
				if n := len(readLedger(t, w.ledger)); n < 1000 {
					return fmt.Sprintf("%d lines of the ledger are written", n)
				}
				return ""
			})
			c.ones("during", 50)
			one.outage(w)
			back := time.Now()
			before := len(readLedger(t, w.ledger))
			w.until(30*time.Second, func() string {
				if len(readLedger(t, w.ledger)) == before {
					return "nothing runs"
				}
				return ""
			})
			t.Logf("work goes on %v after the outage", time.Since(back).Round(10*time.Millisecond))
			c.ones("after", 50)
			tickets := c.acknowledged()
			c.settled(tickets, time.Minute)
			t.Logf("all final %v after the outage", time.Since(back).Round(10*time.Millisecond))
			w.drained()
			w.termAll()
			w.verify(tickets, c.keys)
		})
	}
}

// TestTakeOver measures how long work stands still when its worker or its server dies, and
// shows C31 and C05: what lives is left alone.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{servers: 2, workers: 3, slots: 4, apart: true, mariadb: true})
	c := newCallers(w)

	// Longer than three times AckWait, and nobody dies.
	c.trigger("one-0", load{Key: "long", MS: 7000})
	long := c.acknowledged()

	// A worker dies, and does not come back.
	for i := range 8 {
		c.trigger(fmt.Sprintf("one-%d", i), load{Key: fmt.Sprintf("held-%d", i), MS: 1500})
	}
	held := c.acknowledged()[1:]
	list := w.begun(8, ids(held)...)
	runner := w.begun(1, ids(long)...)[0].pid
	var victim *proc
	lost := map[int64]bool{}
	for _, p := range w.of("worker") {
		if p.cmd.Process.Pid != runner && slices.ContainsFunc(list, func(e entry) bool { return e.pid == p.cmd.Process.Pid }) {
			victim = p
		}
	}
	require.NotNil(t, victim)
	for _, e := range list {
		lost[e.key.instance] = lost[e.key.instance] || e.pid == victim.cmd.Process.Pid
	}
	killed := time.Now()
	require.NoError(t, victim.signal(syscall.SIGKILL))
	<-victim.gone
	w.until(30*time.Second, func() string {
		for id, yes := range lost {
			if yes && !slices.ContainsFunc(w.entries(id), func(e entry) bool { return e.what == 'B' && e.pid != victim.cmd.Process.Pid }) {
				return fmt.Sprintf("what the dead worker had of instance %d does not run", id)
			}
		}
		return ""
	})
	t.Logf("worker killed: its work runs elsewhere after %v (AckWait 2 s, beat 0.5 s)", time.Since(killed).Round(10*time.Millisecond))
	require.NoError(t, victim.start())

	// A server dies, and does not come back.
	server := w.of("server")[0]
	killed = time.Now()
	require.NoError(t, server.signal(syscall.SIGKILL))
	<-server.gone
	all := &callers{w: w, keys: map[string]int{}}
	all.ones("after", 5*oneJobs)
	taken := all.acknowledged()
	t.Logf("server killed: all callers answered after %v", time.Since(killed).Round(10*time.Millisecond))
	w.begun(5*oneJobs, ids(taken)...)
	t.Logf("server killed: instances of all shards run after %v (lease 1.5 s)", time.Since(killed).Round(10*time.Millisecond))
	require.NoError(t, server.start())

	c.settled(append(taken, c.acknowledged()...), time.Minute)
	once(t, w.entries(long[0].id), 1)
	w.drained()
	w.termAll()
	w.verify(append(taken, c.acknowledged()...), map[string]int{})
}

// warm runs short instances until every worker has run one, so that all are there.
func (w *world) warm(c *callers) {
	for i := range 100 {
		c.ones(fmt.Sprintf("warm%d-%d", len(c.acknowledged()), i), 8)
		c.settled(c.acknowledged(), 20*time.Second)
		seen := map[int]bool{}
		for _, e := range readLedger(w.t, w.ledger) {
			seen[e.pid] = true
		}
		if !slices.ContainsFunc(w.of("worker"), func(p *proc) bool { return !seen[p.cmd.Process.Pid] }) {
			return
		}
	}
	require.Fail(w.t, "one worker does all the work")
}

// TestDrain shows C38: SIGTERM lets what runs end, once; what runs too long is run elsewhere.
// Then C14: workers that start first wait for the rest.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{servers: 1, workers: 2, slots: 4})
	c := newCallers(w)
	w.warm(c)
	warm := len(c.acknowledged())
	for i := range 8 {
		c.trigger("one-0", load{Key: fmt.Sprintf("held-%d", i), MS: 3000})
	}
	held := c.acknowledged()[warm:]
	w.begun(8, ids(held)...)
	for i := range 4 {
		c.trigger("one-1", load{Key: fmt.Sprintf("next-%d", i), MS: 50})
	}
	leaver := w.of("worker")[0]
	require.NoError(t, leaver.term())
	left := time.Now().UnixNano()
	c.settled(c.acknowledged(), 20*time.Second)
	once(t, w.entries(ids(held)...), 8)
	for _, e := range w.entries(ids(c.acknowledged())...) {
		require.False(t, e.pid == leaver.cmd.Process.Pid && e.at > left, "a drained worker goes on")
	}

	// Longer than the drain may last: it is handed back and runs on the other worker.
	leaver.role.Drain = 500 * time.Millisecond
	require.NoError(t, leaver.start())
	w.warm(c)
	before := len(c.acknowledged())
	for i := range 8 {
		c.trigger("one-2", load{Key: fmt.Sprintf("too-long-%d", i), MS: 3000})
	}
	long := ids(c.acknowledged()[before:])
	w.begun(8, long...)
	began := time.Now()
	require.NoError(t, leaver.term())
	require.Less(t, time.Since(began), 2500*time.Millisecond, "the drain lasts half a second")
	c.settled(c.acknowledged(), 30*time.Second)
	handed := 0
	for _, e := range w.entries(long...) {
		if e.what == 'B' && e.pid == leaver.cmd.Process.Pid {
			handed++
		}
		require.False(t, e.what == 'E' && e.pid == leaver.cmd.Process.Pid, "a task ended that was canceled")
	}
	require.Positive(t, handed, "the worker that was drained had none of the tasks")
	require.Len(t, w.entries(long...), 2*8+handed)
	w.drained()
	require.NoError(t, leaver.start())
	w.warm(c)
	w.termAll()

	// The workers start first.
	for _, p := range w.of("worker") {
		require.NoError(t, p.start())
	}
	wait(1500 * time.Millisecond)
	require.NoError(t, w.of("server")[0].start())
	up := time.Now()
	c.ones("late", 16)
	c.settled(c.acknowledged(), 30*time.Second)
	t.Logf("workers that started first have done the work %v after the server started", time.Since(up).Round(10*time.Millisecond))
	w.termAll()
	w.verify(c.acknowledged(), c.keys)
}
