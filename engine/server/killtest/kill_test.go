//go:build unix

package killtest

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kills is how many bad things happen in all setups together.
func kills(t testing.TB) int {
	said := os.Getenv("FANJET_KILLS")
	if said == "" {
		return 20
	}
	n, err := strconv.Atoi(said)
	require.NoError(t, err, "FANJET_KILLS")
	return n
}

func seed(t testing.TB) uint64 {
	said := os.Getenv("FANJET_KILL_SEED")
	if said == "" {
		var b [8]byte
		_, err := crand.Read(b[:])
		require.NoError(t, err)
		return binary.LittleEndian.Uint64(b[:]) >> 32
	}
	n, err := strconv.ParseUint(said, 10, 64)
	require.NoError(t, err, "FANJET_KILL_SEED")
	return n
}

// dice kill and freeze processes while there is work.
type dice struct {
	*rand.Rand
	w     *world
	ended chan outcome
	busy  int
	count map[string]int
}

type outcome struct {
	p   *proc
	err error
}

// strike does something bad to a process that is well, beside everything else.
func (d *dice) strike() {
	var well []*proc
	for _, p := range d.w.procs {
		if !p.busy {
			well = append(well, p)
		}
	}
	if len(well) == 0 {
		d.heal()
		d.strike()
		return
	}
	if d.w.db != nil && d.IntN(12) == 0 {
		d.database()
		return
	}
	p := well[d.IntN(len(well))]
	what, length := "kill", time.Duration(d.IntN(500))*time.Millisecond
	if d.IntN(4) == 0 {
		what, length = "freeze", time.Second+time.Duration(d.IntN(4000))*time.Millisecond
	}
	d.count[what+" "+p.role.Kind]++
	d.w.t.Logf("%6.2fs %s %s (%d), %v", time.Since(d.w.began).Seconds(), what, p.role.Name, p.cmd.Process.Pid, length)
	p.busy = true
	d.busy++
	go func() {
		var err error
		if what == "kill" {
			err = p.kill(length)
		} else {
			err = p.freeze(length)
		}
		d.ended <- outcome{p, err}
	}()
}

// database kills the database, beside whatever else is under way.
func (d *dice) database() {
	pause := time.Duration(d.IntN(2000)) * time.Millisecond
	d.count["kill database"]++
	d.w.t.Logf("%6.2fs kill the database, %v", time.Since(d.w.began).Seconds(), pause)
	d.w.db.Kill(d.w.t)
	wait(pause)
	d.w.db.Start(d.w.t)
}

// heal waits until one process is well again.
func (d *dice) heal() {
	o := <-d.ended
	require.NoError(d.w.t, o.err)
	o.p.busy = false
	d.busy--
}

// pause lets time pass, and processes come back.
func (d *dice) pause(length time.Duration) {
	over := time.After(length)
	for {
		select {
		case o := <-d.ended:
			require.NoError(d.w.t, o.err)
			o.p.busy = false
			d.busy--
		case <-over:
			return
		}
	}
}

// TestKill shows point 7 of the issue, and C05, C28, C31: whatever process dies at whatever
// moment, everything reaches its right end.
func TestKill(t *testing.T) {
	t.Parallel()
	n, s := kills(t), seed(t)
	t.Logf("FANJET_KILLS=%d FANJET_KILL_SEED=%d", n, s)
	shares := []int{n / 2, n - n/2, 0}
	if n > 40 {
		shares = []int{n * 35 / 100, n * 35 / 100, n - 2*(n*35/100)}
	}
	for i, one := range []struct {
		name string
		setup
	}{
		{"broker in the server", setup{servers: 1, workers: 3, slots: 4}},
		{"broker apart", setup{servers: 1, workers: 3, slots: 4, apart: true}},
		{"two servers on MariaDB", setup{servers: 2, workers: 3, slots: 4, apart: true, mariadb: true}},
	} {
		if shares[i] == 0 {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			killed(t, one.setup, shares[i], s+uint64(i))
		})
	}
}

func killed(t *testing.T, s setup, n int, seed uint64) {
	w := newWorld(t, s)
	c := newCallers(w)
	d := &dice{Rand: rand.New(rand.NewPCG(seed, 1)), w: w, ended: make(chan outcome, 16), count: map[string]int{}}
	maps, flows, ones := 0, 0, 0
	mapping := func() {
		job := []string{"sum", "fold"}[maps%2]
		c.trigger(job, load{Key: fmt.Sprintf("map-%d", maps), N: 20_000, MS: 8})
		maps++
	}
	wave := func(most int) {
		c.ones(fmt.Sprintf("wave%d", ones), most)
		ones += most
	}
	mapping()
	c.trigger("flow", load{Key: "flow-0", N: 300})
	flows++
	for i := range n {
		length := time.Duration(100+d.IntN(1900)) * time.Millisecond
		if d.IntN(4) == 0 { // nearly at once
			length /= 20
		}
		d.pause(length)
		if each := max(500/n, 1); ones < 500 {
			wave(min(each+1, 500-ones))
		}
		if i%5 == 4 {
			c.trigger("flow", load{Key: fmt.Sprintf("flow-%d", flows), N: 300})
			flows++
		}
		if c.active() == 0 { // the load must not end before the kills
			mapping()
		}
		d.strike()
	}
	if ones < 500 {
		wave(500 - ones)
	}
	for d.busy > 0 {
		d.heal()
	}
	last := time.Now()
	tickets := c.acknowledged()
	c.settled(tickets, 3*time.Minute)
	t.Logf("%v: %d maps of 20000, %d workflows, %d instances; all final %v after the last restart; %d calls were repeated", d.count, maps, flows, ones, time.Since(last).Round(10*time.Millisecond), c.retries)
	w.drained()
	w.termAll()
	w.verify(tickets, c.keys)
	w.explain(s)
	w.quiet()
}
