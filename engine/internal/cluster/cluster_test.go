package cluster

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// story runs in a bubble: time passes only when everybody waits.
func story(t *testing.T, f func(t *testing.T, w *town)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		defer w.close()
		f(t, w)
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestCluster_single_server_owns_everything_at_once(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a := w.start("a")
		<-a.Joined()
		synctest.Wait()
		w.requireAllOwned(a)
		require.Equal(t, a.start, time.Now(), "no tick was waited for")
		require.EqualValues(t, 1, a.Number())
		require.Len(t, a.Servers(), 1)
		pass(time.Minute)
		require.Len(t, a.gains, engine.Shards, "and nothing moves afterwards")
		require.Equal(t, time.Now().UnixMilli(), a.Now())
	})
}

func TestCluster_divides_shards_and_flushes_before_it_gives_one_up(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a := w.start("a", func(n *node) { n.flush = 1500 * time.Millisecond })
		pass(10 * time.Second)
		b := w.start("b")
		pass(5 * time.Second)
		w.requireAllOwned(a, b)
		require.Greater(t, len(b.Owned()), 20)
		require.Len(t, b.Owned(), w.flushes)
		c := w.start("c")
		pass(10 * time.Second)
		w.requireAllOwned(a, b, c)
		require.Greater(t, len(c.Owned()), 10)
	})
}

func TestCluster_clean_stop_releases_at_once(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a, b := w.start("a"), w.start("b")
		pass(5 * time.Second)
		w.requireAllOwned(a, b)
		flushed := w.flushes
		owned := len(a.Owned())
		a.stop()
		<-a.ended
		require.Equal(t, flushed+owned, w.flushes)
		require.False(t, a.Deciding())
		require.Zero(t, a.Number())
		pass(time.Second)
		w.requireAllOwned(b)
	})
}

func TestCluster_takes_over_within_five_seconds_after_a_kill(t *testing.T) {
	// The kill meets every phase of the renewals.
	for ms := 0; ms < 1000; ms += 100 {
		t.Run(time.Duration(ms*int(time.Millisecond)).String(), func(t *testing.T) {
			story(t, func(t *testing.T, w *town) {
				a := w.start("a")
				pass(300 * time.Millisecond)
				b := w.start("b")
				pass(5*time.Second + time.Duration(ms)*time.Millisecond)
				w.requireAllOwned(a, b)
				a.kill()
				pass(5 * time.Second)
				w.requireAllOwned(b)
				require.False(t, a.Deciding())
			})
		})
	}
}

func TestCluster_cut_off_server_stops_deciding_before_another_one_starts(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a, b := w.start("a"), w.start("b")
		pass(5 * time.Second)
		a.wire.cut(true)
		pass(3 * time.Second)
		require.False(t, a.Deciding())
		require.NotEmpty(t, a.Owned(), "it cannot know what became of them")
		pass(7 * time.Second)
		w.requireAllOwned(b)
		a.wire.cut(false)
		pass(10 * time.Second)
		w.requireAllOwned(a, b)
		require.Positive(t, a.tooLate, "what it had held was lost without a flush")
	})
}

func TestCluster_stops_deciding_by_the_monotonic_clock_when_the_wall_clock_is_set_back(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a := w.start("a")
		pass(5 * time.Second)
		a.wire.cut(true)
		w.mu.Lock()
		a.wallLag += time.Hour
		w.mu.Unlock()
		require.True(t, a.Deciding())
		pass(3 * time.Second)
		require.False(t, a.Deciding())
	})
}

func TestCluster_lapsed_lease_that_nobody_used_keeps_its_shards(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a := w.start("a")
		pass(5 * time.Second)
		a.wire.cut(true)
		pass(20 * time.Second)
		require.False(t, a.Deciding())
		a.wire.cut(false)
		pass(5 * time.Second)
		w.requireAllOwned(a)
		require.Len(t, a.gains, engine.Shards, "the epochs are the old ones: nothing to load again")
	})
}

func TestCluster_renewed_after_a_lapse_decides_nothing_before_it_has_looked(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a, b := w.start("a"), w.start("b")
		pass(5 * time.Second)
		a.wire.blindfold(true)
		pass(5 * time.Second)
		require.True(t, a.Deciding(), "renewals alone keep a lease that never lapsed")
		a.wire.cut(true)
		pass(10 * time.Second)
		a.wire.cut(false)
		pass(10 * time.Second)
		require.NotZero(t, a.Number())
		require.False(t, a.Deciding(), "b may have, and has, taken its shards meanwhile")
		a.wire.blindfold(false)
		pass(10 * time.Second)
		w.requireAllOwned(a, b)
		require.Positive(t, a.tooLate)
	})
}

func TestCluster_frozen_server_believes_nothing_when_it_wakes(t *testing.T) {
	for name, wallToo := range map[string]bool{"wall clock ran": false, "both clocks stood": true} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T, w *town) {
				a, b := w.start("a"), w.start("b")
				pass(5*time.Second + 500*time.Millisecond)
				require.True(t, a.Deciding())
				mine := len(a.Owned())
				a.freeze()
				pass(30 * time.Second)
				a.thaw(wallToo)
				if !wallToo {
					require.False(t, a.Deciding(), "at the moment it wakes")
				}
				a.wire.cut(false)
				pass(10 * time.Second)
				w.requireAllOwned(a, b)
				require.Equal(t, mine, a.tooLate, "everything it held was taken from it")
				require.NotEmpty(t, a.steps, "and it noticed that its clock had stood")
			})
		})
	}
}

func TestCluster_reports_a_step_of_the_clock_once(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		a := w.start("a")
		pass(10*time.Second + time.Millisecond)
		before := a.Now()
		w.db.step(500 * time.Millisecond)
		pass(5 * time.Second)
		require.Empty(t, a.steps, "half a second is no step")
		require.Equal(t, before+5500, a.Now())
		w.db.step(-800 * time.Millisecond)
		last := a.Now()
		for range 200 {
			pass(10 * time.Millisecond)
			require.GreaterOrEqual(t, a.Now(), last)
			last = a.Now()
		}
		require.Empty(t, a.steps)
		id := a.NextID()
		w.db.step(-time.Hour)
		pass(5 * time.Second)
		require.Equal(t, []time.Duration{-time.Hour}, a.steps)
		require.Less(t, a.Now(), last)
		require.Greater(t, a.NextID(), id, "ids never go back")
		w.requireAllOwned(a)
		w.db.step(2 * time.Hour)
		pass(5 * time.Second)
		require.Equal(t, []time.Duration{-time.Hour, 2 * time.Hour}, a.steps)
		w.requireAllOwned(a)
		require.Len(t, a.gains, engine.Shards)
	})
}

func TestCluster_server_without_broker_becomes_a_standby_if_another_can_take_its_shards(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		connect := func(n *node, on bool) { w.mu.Lock(); n.connected = on; w.mu.Unlock() }
		a := w.start("a")
		pass(5 * time.Second)
		connect(a, false)
		pass(20 * time.Second)
		w.requireAllOwned(a) // nobody else is there
		b := w.start("b")
		pass(6 * time.Second)
		w.requireAllOwned(b)
		require.Empty(t, a.Owned())
		require.Equal(t, []string{"a (standby)", "b"}, []string{a.Servers()[0].Name, a.Servers()[1].Name})
		require.NotZero(t, a.NextID())

		connect(a, true)
		pass(5 * time.Second)
		w.requireAllOwned(a, b)
		require.NotEmpty(t, a.Owned())

		// The broker is gone for all: one of them stays.
		connect(a, false)
		connect(b, false)
		pass(20 * time.Second)
		moves := len(a.gains) + len(b.gains)
		pass(time.Minute)
		require.Equal(t, moves, len(a.gains)+len(b.gains), "no to and fro")
		require.Equal(t, engine.Shards, len(a.Owned())+len(b.Owned()))
		require.True(t, len(a.Owned()) == 0 || len(b.Owned()) == 0)
	})
}

func TestCluster_ids_of_killed_and_restarted_servers_never_repeat(t *testing.T) {
	story(t, func(t *testing.T, w *town) {
		seen := map[int64]bool{}
		last := int64(0)
		issue := func(n *node, count int) {
			own := int64(0)
			for range count {
				id := n.NextID()
				require.Greater(t, id, own)
				require.False(t, seen[id])
				seen[id], own = true, id
				last = max(last, id)
			}
		}
		a := w.start("a")
		<-a.Joined()
		issue(a, 3_000)
		for range 5 {
			// A start a moment later, with an earlier clock, gets the same number once the
			// lease has run out; the killed one still issues.
			a.kill()
			issue(a, 100)
			before := last
			pass(3500 * time.Millisecond)
			w.db.step(-400 * time.Millisecond)
			b := w.start("a")
			<-b.Joined()
			require.Equal(t, a.Number(), b.Number())
			issue(b, 3_000)
			issue(a, 3_000)
			require.Greater(t, b.NextID(), before)
			a.stop()
			a = b
		}
	})
}

func TestHome_is_even_and_moves_only_the_share_of_who_comes(t *testing.T) {
	t.Parallel()
	var servers []engine.Server
	require.Zero(t, Home(0, nil))
	for n := int16(1); n <= 8; n++ {
		count := map[int16]int{}
		next := append(append([]engine.Server(nil), servers...), engine.Server{Number: n})
		for s := range uint8(engine.Shards) {
			home := Home(s, next)
			count[home]++
			if old := Home(s, servers); old != 0 && home != old {
				require.Equal(t, n, home, "a shard moves only to the newcomer")
			}
		}
		servers = next
		require.Less(t, math.Abs(float64(count[n])-float64(engine.Shards)/float64(n)), 12.0)
	}
}
