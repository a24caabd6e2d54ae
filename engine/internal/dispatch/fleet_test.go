package dispatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/workflow"
)

// beat is a beat of a worker of app "shop" with 4 slots and processor "resize".
func beat(name string, change ...func(*broker.Beat)) *broker.Beat {
	b := &broker.Beat{
		App: "shop", Worker: name, Incarnation: 1, Slots: 4, FreeCPU: -1, FreeMemory: -1, FreeDisk: -1,
		Processors: []broker.ProcessorInfo{{Name: "resize", Caps: broker.CapMap}},
	}
	for _, f := range change {
		f(b)
	}
	return b
}

func processors(names ...string) func(*broker.Beat) {
	return func(b *broker.Beat) {
		b.Processors = nil
		for _, n := range names {
			b.Processors = append(b.Processors, broker.ProcessorInfo{Name: n})
		}
	}
}

func pools(names ...string) func(*broker.Beat) { return func(b *broker.Beat) { b.Pools = names } }

func incarnation(n uint64) func(*broker.Beat) { return func(b *broker.Beat) { b.Incarnation = n } }

func draining(b *broker.Beat) { b.Draining = true }

func busy(n int) func(*broker.Beat) { return func(b *broker.Beat) { b.Busy = n } }

func fleet(beats ...*broker.Beat) *Fleet {
	f := NewFleet(0)
	for _, b := range beats {
		f.Observe(0, b)
	}
	return f
}

func counts(v PoolView) [4]int { return [4]int{v.Workers, v.Slots, v.Free, v.Pulling} }

func TestFleet_Observe_tells_what_a_beat_changed(t *testing.T) {
	t.Parallel()
	f := NewFleet(0)
	seq := func(n uint64) func(*broker.Beat) { return func(b *broker.Beat) { b.Seq = n } }
	steps := []struct {
		name string
		beat *broker.Beat
		want News
	}{
		{"first", beat("a", seq(1), processors("x", "y")), News{New: true, Changed: true}},
		{"same", beat("a", seq(2), processors("x", "y")), News{}},
		{"doubled", beat("a", seq(2), processors("x")), News{Stale: true}},
		{"reordered", beat("a", seq(1), processors("x")), News{Stale: true}},
		{"processor gone", beat("a", seq(3), processors("x")), News{Gone: []string{"y"}, Changed: true}},
		{"more slots", beat("a", seq(4), processors("x"), func(b *broker.Beat) { b.Slots = 9 }), News{Changed: true}},
		{"drains", beat("a", seq(5), processors("x"), draining, func(b *broker.Beat) { b.Slots = 9 }), News{Draining: true}},
		{"still drains", beat("a", seq(6), processors("x"), draining, func(b *broker.Beat) { b.Slots = 9 }), News{}},
		{"restarted", beat("a", seq(1), incarnation(2), processors("z")), News{Restarted: true, Former: 1, Gone: []string{"x"}, Changed: true}},
		{"late beat of the old incarnation", beat("a", seq(7), processors("x")), News{Stale: true}},
	}
	for _, s := range steps {
		require.Equal(t, s.want, f.Observe(0, s.beat), s.name)
	}
	require.False(t, f.Alive("shop", "a", 1))
	require.True(t, f.Alive("shop", "a", 2))
	require.Equal(t, [4]int{1, 4, 4, 1}, counts(f.Pool("shop", "any")))
}

func TestFleet_Pool_counts_move_with_the_beats(t *testing.T) {
	t.Parallel()
	f := fleet(beat("a", pools("gpu", "gpu", "any")), beat("b", busy(3)), beat("c", pools("gpu", "big"), processors("resize", "scan")))
	require.Equal(t, [4]int{3, 12, 9, 3}, counts(f.Pool("shop", "any")))
	require.Equal(t, counts(f.Pool("shop", "any")), counts(f.Pool("shop", "")))
	require.Equal(t, [4]int{2, 8, 8, 2}, counts(f.Pool("shop", "gpu")))
	require.Zero(t, f.Pool("shop", "nowhere"))
	require.Zero(t, f.Pool("other", "any"))
	require.True(t, f.Pool("shop", "any").AllHave("resize"))
	require.False(t, f.Pool("shop", "any").AllHave("scan"))
	require.True(t, f.Pool("shop", "big").AllHave("scan"))
	require.False(t, f.Pool("shop", "any").NoneHas("scan"))
	require.True(t, f.Pool("shop", "any").NoneHas("fly"))
	require.False(t, f.Pool("other", "any").AllHave("resize"), "an empty pool has nothing")

	f.Observe(1, beat("b", busy(9)))
	require.Equal(t, [4]int{3, 12, 8, 3}, counts(f.Pool("shop", "any")), "more than busy is busy")
	f.Observe(2, beat("b", busy(1)))
	require.Equal(t, [4]int{3, 12, 11, 3}, counts(f.Pool("shop", "any")))
	before := f.Pool("shop", "any")
	f.Observe(3, beat("c", processors("scan")))
	require.True(t, before.AllHave("resize"), "a view stays as it was")
	require.False(t, f.Pool("shop", "any").AllHave("resize"))
	require.Zero(t, f.Pool("shop", "big"), "it left the pool")
	f.Observe(4, beat("c", processors("scan"), draining))
	require.Equal(t, [4]int{2, 8, 7, 2}, counts(f.Pool("shop", "any")))
	require.True(t, f.Pool("shop", "any").NoneHas("scan"))

	f.SetMaintenance("shop", "a", true)
	require.Equal(t, [4]int{1, 4, 3, 2}, counts(f.Pool("shop", "any")))
	f.Observe(5, beat("a", busy(2)))
	require.Equal(t, [4]int{1, 4, 3, 2}, counts(f.Pool("shop", "any")))
	f.Observe(6, beat("a", busy(2), incarnation(7)))
	v, ok := f.Worker("shop", "a")
	require.True(t, ok && v.Maintenance, "a restart does not end it")
	f.SetMaintenance("shop", "a", false)
	require.Equal(t, [4]int{2, 8, 5, 2}, counts(f.Pool("shop", "any")))
	f.SetMaintenance("shop", "late", true)
	f.Observe(7, beat("late"))
	require.Equal(t, [4]int{2, 8, 5, 3}, counts(f.Pool("shop", "any")), "set before it came")
}

func TestFleet_Pool_equals_a_count_from_scratch_after_any_history(t *testing.T) {
	t.Parallel()
	f := NewFleet(0)
	x := uint64(1)
	draw := func(n uint64) uint64 { x = mix(x, 7); return x % n }
	now := int64(0)
	for range 3000 {
		now += int64(draw(400))
		name := fmt.Sprint("w", draw(12))
		switch draw(10) {
		case 0:
			f.SetMaintenance("shop", name, draw(2) == 0)
		case 1:
			f.Expire(now, draw(5) != 0)
		default:
			f.Observe(now, beat(name, incarnation(1+draw(30)/29), pools([]string{"gpu", "big", "any"}[:draw(4)]...), busy(int(draw(6))),
				processors([]string{"resize", "scan", "fly"}[:draw(4)]...), func(b *broker.Beat) { b.Draining = draw(6) == 0 }))
		}
		for _, pool := range []string{"any", "gpu", "big"} {
			var want PoolView
			have := map[string]int{}
			for _, w := range f.Workers("shop") {
				in := pool == "any"
				for _, p := range w.Beat.Pools {
					in = in || p == pool
				}
				if !in {
					continue
				}
				if !w.Beat.Draining {
					want.Pulling++
				}
				if !w.Beat.Draining && !w.Maintenance {
					want.Workers++
					want.Slots += w.Beat.Slots
					want.Free += max(0, w.Beat.Slots-w.Beat.Busy)
					for _, p := range w.Beat.Processors {
						have[p.Name]++
					}
				}
			}
			got := f.Pool("shop", pool)
			require.Equal(t, counts(want), counts(got))
			for _, p := range []string{"resize", "scan", "fly"} {
				require.Equal(t, have[p] == 0, got.NoneHas(p))
			}
		}
	}
}

func TestFleet_Expire_counts_only_silence_while_connected(t *testing.T) {
	t.Parallel()
	f := fleet(beat("a"), beat("b"))
	tick := func(from, to int64, connected bool) (dead []Dead) {
		for now := from; now <= to; now += 1000 {
			dead = append(dead, f.Expire(now, connected)...)
		}
		return dead
	}
	require.Empty(t, tick(1000, 5000, true))
	f.Observe(5500, beat("b"))
	require.Equal(t, []Dead{{"shop", "a", 1}}, tick(6000, 11_000, true))
	require.False(t, f.Alive("shop", "a", 1))
	require.True(t, f.Alive("shop", "b", 1))

	require.Empty(t, tick(11_000, 60_000, false), "nobody dies while we hear nothing")
	require.Empty(t, tick(61_000, 66_000, true), "a fresh period after the reconnect")
	require.Equal(t, []Dead{{"shop", "b", 1}}, tick(67_000, 67_000, true))
	require.Zero(t, f.Pool("shop", "any"))
	require.True(t, f.Observe(67_500, beat("b")).New)
}

func TestFleet_Expire_spares_all_after_a_pause_of_its_own_and_after_an_amnesty(t *testing.T) {
	t.Parallel()
	f := fleet(beat("a"))
	require.Empty(t, f.Expire(1000, true))
	require.Empty(t, f.Expire(30_000, true), "the server was frozen")
	require.Empty(t, f.Expire(33_000, true))
	f.Amnesty(34_000)
	require.Empty(t, f.Expire(36_000, true))
	require.Empty(t, f.Expire(39_000, true))
	require.Len(t, f.Expire(40_000, true), 1)
}

func TestFleet_Holds_tells_absence_by_beats(t *testing.T) {
	t.Parallel()
	f := NewFleet(0)
	k := broker.ChunkKey{Instance: 9, Attempt: 1, Chunk: 3}
	holding := func(b *broker.Beat) { b.Held = []broker.ChunkKey{k} }
	expect := func(held bool, since int) {
		t.Helper()
		h, n := f.Holds("shop", "a", k)
		require.Equal(t, held, h)
		require.Equal(t, since, n)
	}
	expect(false, 0)
	f.Observe(0, beat("a"))
	f.Observe(0, beat("a"))
	expect(false, 2) // never listed: the caller compares with Beats at the time it was sent
	v, _ := f.Worker("shop", "a")
	require.EqualValues(t, 2, v.Beats)
	f.Observe(0, beat("a", holding))
	expect(true, 0)
	f.Observe(0, beat("a"))
	expect(false, 1)
	f.Observe(0, beat("a", holding))
	expect(true, 0)
	f.Observe(0, beat("a"))
	f.Observe(0, beat("a"))
	expect(false, 2)
	f.Observe(0, beat("a", incarnation(2)))
	expect(false, 1)
	for i := range 1000 {
		f.Observe(0, beat("a", incarnation(2), func(b *broker.Beat) { b.Held = []broker.ChunkKey{{Instance: int64(i)}} }))
	}
	require.LessOrEqual(t, len(f.apps["shop"].workers["a"].held), heldBeats+1, "what is long gone is forgotten")
}

func TestFleet_Missing_wants_two_beats_after_the_acceptance(t *testing.T) {
	t.Parallel()
	f := NewFleet(0)
	k := broker.ChunkKey{Instance: 9, Attempt: 1, Chunk: 3}
	missing := func(since int64) bool { return f.Missing("shop", "a", 1, k, since) }
	require.False(t, missing(0), "there is no such worker")
	f.Observe(2000, beat("a"))
	require.False(t, missing(-1), "one beat is not enough")
	f.Observe(4000, beat("a"))
	require.True(t, missing(1999))
	require.False(t, missing(2000), "only one came after it")
	f.Observe(6000, beat("a", func(b *broker.Beat) { b.Held = []broker.ChunkKey{k} }))
	require.False(t, missing(2000))
	h, ok := f.Holder("shop", k)
	require.True(t, ok)
	require.Equal(t, Target{"a", 1}, h)
	f.Observe(8000, beat("a"))
	require.False(t, missing(2000))
	_, ok = f.Holder("shop", k)
	require.False(t, ok)
	f.Observe(10_000, beat("a"))
	require.True(t, missing(2000))
	f.Observe(12_000, beat("a", incarnation(2)))
	require.False(t, missing(2000), "that incarnation is dead, not missing something")
	_, ok = f.Holder("other", k)
	require.False(t, ok)
}

func TestFleet_Caps_are_those_of_any_live_worker(t *testing.T) {
	t.Parallel()
	with := func(c broker.Caps) func(*broker.Beat) {
		return func(b *broker.Beat) { b.Processors = []broker.ProcessorInfo{{Name: "resize", Caps: c}} }
	}
	f := fleet(beat("a", with(broker.CapMap)), beat("b", with(broker.CapReduce)))
	require.Equal(t, broker.CapMap|broker.CapReduce, f.Caps("shop", "resize"))
	require.Zero(t, f.Caps("shop", "scan"))
	require.Zero(t, f.Caps("other", "resize"))
	f.Observe(1, beat("b", with(broker.CapCombine)))
	require.Equal(t, broker.CapMap|broker.CapCombine, f.Caps("shop", "resize"))
	f.Expire(6000, true)
	f.Observe(6001, beat("b", with(broker.CapPre)))
	require.Equal(t, broker.CapPre, f.Caps("shop", "resize"))
}

func many(n int) *Fleet {
	f := NewFleet(0)
	for i := range n {
		f.Observe(0, beat(fmt.Sprintf("w%04d", i), pools("gpu"), busy(i%5), func(b *broker.Beat) { b.Slots = 10 }))
	}
	return f
}

func BenchmarkPool(b *testing.B) {
	f := many(1000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if v := f.Pool("shop", "gpu"); !v.AllHave("resize") {
				b.Fatal("not all have it")
			}
		}
	})
}

func BenchmarkNeedsDirected(b *testing.B) {
	f := many(1000)
	s := &workflow.Spec{Processor: "resize", Pool: "gpu"}
	for b.Loop() {
		if f.NeedsDirected("shop", s) {
			b.Fatal("the lane will do")
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	f := many(1000)
	beats := make([]*broker.Beat, 1000)
	for i := range beats {
		beats[i] = beat(fmt.Sprintf("w%04d", i), pools("gpu"), busy(i%7), func(b *broker.Beat) { b.Slots = 10 })
	}
	for i := 0; b.Loop(); i++ {
		f.Observe(0, beats[i%1000])
	}
}
