package cluster

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

const day = idEpoch + 300*24*3600*1000

func promise(g *ids, number int16, now, floor int64) int64 {
	b := g.promise(now, 6000, floor)
	g.promised(number, b, floor, now+3000)
	return b
}

func TestIDs_are_ordered_by_time_and_hold_the_number(t *testing.T) {
	t.Parallel()
	g := &ids{}
	require.Zero(t, g.next(day), "nothing is promised yet")
	promise(g, 1023, day, 0)
	last := int64(0)
	for i := range int64(20_000) {
		id := g.next(day + i/10_000)
		require.Greater(t, id, last)
		require.EqualValues(t, 1023, id>>seqBits&MaxNumber)
		last = id
	}
	require.InDelta(t, day, engine.IDTime(last), 100)
	require.Equal(t, int64(day+2000), engine.IDTime(g.next(day+2000)))
	require.Greater(t, g.next(day-5000), last, "the clock went back, the ids do not")
	require.Positive(t, int64(1)<<40<<msShift, "41 bits fit")
}

func TestIDs_stay_at_or_below_the_promise_and_last_through_an_outage(t *testing.T) {
	t.Parallel()
	g := &ids{}
	bound := g.promise(day, 400, 0)
	g.promised(7, bound, 0, day+200)
	for ms := int64(0); ms < 3_600_000; ms += 1000 { // an hour without a renewal
		id := g.next(day + ms)
		require.NotZero(t, id)
		require.LessOrEqual(t, id, bound)
	}
	n := 0
	for g.next(day) != 0 {
		n++
	}
	require.Greater(t, n, 800_000)
	require.Zero(t, g.next(day+10_000))
	promise(g, 7, day+7000, 0)
	require.Greater(t, g.next(day+7000), bound)
}

func TestIDs_of_a_successor_begin_above_the_promise_whatever_its_clock_says(t *testing.T) {
	t.Parallel()
	old := &ids{}
	bound := promise(old, 3, day, 0)
	for _, now := range []int64{day - 3_600_000, day, day + 1000, day + 3_600_000} {
		g := &ids{}
		promise(g, 3, now, bound)
		require.Greater(t, g.next(now), bound)
	}
	// A process that comes back to its number begins above whoever had it meanwhile.
	floor := promise(&ids{}, 3, day+60_000, bound)
	promise(old, 3, day+1000, floor)
	require.Greater(t, old.next(day+1000), floor)
	// The same process under a new number goes on above its own ids.
	mine := old.next(day + 100)
	promise(old, 9, day-3_600_000, 0)
	id := old.next(day - 3_600_000)
	require.Greater(t, id, mine)
	require.EqualValues(t, 9, id>>seqBits&MaxNumber)
}

func TestIDs_are_unique_under_concurrency(t *testing.T) {
	t.Parallel()
	g := &ids{}
	promise(g, 1, day, 0)
	var wg sync.WaitGroup
	got := make([][]int64, 8)
	for i := range got {
		wg.Go(func() {
			for range 20_000 {
				got[i] = append(got[i], g.next(day))
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for _, list := range got {
		for _, id := range list {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}

func BenchmarkNextID(b *testing.B) {
	g := &ids{}
	promise(g, 1, day, 0)
	g.bound = 1<<63 - 1
	for b.Loop() {
		g.next(day)
	}
}
