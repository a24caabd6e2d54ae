package processor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// yard is a slots with its lanes, a clock of its own, and queues that fill requests.
type yard struct {
	s      *slots
	at     time.Time
	queue  map[string]int
	ran    map[string]int
	naks   int
	active []string
}

func newYard(total int, pools ...string) *yard {
	y := &yard{s: newSlots(total), at: time.Unix(1, 0), queue: map[string]int{}, ran: map[string]int{}}
	y.s.now = func() time.Time { return y.at }
	for _, p := range pools {
		for _, l := range lanesByPriority {
			y.s.lanes = append(y.s.lanes, &lane{name: l.name, pool: p, weight: l.weight})
		}
	}
	return y
}

// serve asks, and fills what is open, until nothing moves.
func (y *yard) serve() {
	for moved := true; moved; {
		wishes, later := y.s.wishes()
		if moved = len(wishes) > 0; !moved && later {
			y.at, moved = y.at.Add(fresh), true
		}
		for _, l := range y.s.lanes {
			for l.open > 0 && y.queue[l.name] > 0 {
				y.queue[l.name]--
				moved = true
				if y.s.came(l) {
					y.ran[l.name]++
					y.active = append(y.active, l.name)
				} else {
					y.naks++ // it comes back later, to somebody
				}
			}
		}
	}
}

// finish ends n of the running chunks, the oldest first, one by one.
func (y *yard) finish(n int) {
	for ; n > 0 && len(y.active) > 0; n-- {
		l := y.active[0]
		y.active = y.active[1:]
		y.at = y.at.Add(time.Millisecond)
		y.s.free(l)
		y.serve()
	}
}

func TestSlots_share_the_lanes_by_weight(t *testing.T) {
	t.Parallel()
	y := newYard(13, "any")
	for _, l := range lanesByPriority {
		y.queue[l.name] = 100_000
	}
	y.serve()
	y.finish(1300)
	require.InDelta(t, 800, y.ran["high"], 40)
	require.InDelta(t, 400, y.ran["normal"], 40)
	require.InDelta(t, 100, y.ran["bulk"], 40)
	require.LessOrEqual(t, y.naks, 13, "surplus comes from the first probes only")
}

func TestSlots_all_serve_the_only_lane_with_work(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"high", "normal"} {
		y := newYard(100, "any", "gpu")
		y.queue[lane] = 1000
		y.serve()
		require.Len(t, y.active, 100)
		y.finish(500)
		require.Len(t, y.active, 100)
		require.Zero(t, y.naks)
	}
}

func TestSlots_keep_one_from_bulk(t *testing.T) {
	t.Parallel()
	for total, want := range map[int]int{1: 1, 2: 1, 8: 7} {
		y := newYard(total, "any")
		y.queue["bulk"] = 100
		y.serve()
		require.Len(t, y.active, want)
		y.finish(20)
		require.Len(t, y.active, want)
		require.Zero(t, y.naks)
	}
}

func TestSlots_ask_again_when_a_request_ends(t *testing.T) {
	t.Parallel()
	y := newYard(4, "any")
	y.serve()
	l := y.s.lanes[1]
	n := l.open
	require.NotZero(t, n)
	y.s.ended(l, n)
	require.Zero(t, l.open)
	y.serve()
	require.Equal(t, n, l.open)
	y.at = y.at.Add(time.Minute) // its end was never told
	y.s.forget()
	require.Zero(t, l.open)
	y.s.close()
	wishes, _ := y.s.wishes()
	require.Empty(t, wishes)
}

// A lane whose open requests wait in vain does not keep the slots from another.
func TestSlots_of_a_dry_lane_go_to_the_others(t *testing.T) {
	t.Parallel()
	y := newYard(20, "any")
	y.queue["normal"] = 60
	y.serve()
	y.finish(60)
	require.Empty(t, y.active)
	y.at = y.at.Add(time.Second)
	y.queue["high"] = 100
	y.serve()
	require.Len(t, y.active, 20)
}

func TestSlots_never_take_more_than_there_are(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.IntRange(1, 30).Draw(rt, "slots")
		y := newYard(total, "any", "gpu")
		rt.Repeat(map[string]func(*rapid.T){
			"work": func(rt *rapid.T) {
				y.queue[lanesByPriority[rapid.IntRange(0, 2).Draw(rt, "lane")].name] += rapid.IntRange(1, 50).Draw(rt, "n")
				y.serve()
			},
			"finish": func(rt *rapid.T) { y.finish(rapid.IntRange(1, 10).Draw(rt, "n")) },
			"pass":   func(rt *rapid.T) { y.at = y.at.Add(time.Second); y.serve() },
			"expire": func(rt *rapid.T) {
				l := y.s.lanes[rapid.IntRange(0, 5).Draw(rt, "lane")]
				y.s.ended(l, l.open)
				y.serve()
			},
			"": func(rt *rapid.T) {
				require.LessOrEqual(rt, y.s.busy, total)
				require.Equal(rt, len(y.active), y.s.busy)
				for _, l := range y.s.lanes {
					require.LessOrEqual(rt, l.open, max(total, maxProbes))
				}
				if y.s.busy < total { // nothing waits while a slot is free for it
					require.Zero(rt, y.queue["high"]+y.queue["normal"])
				}
			},
		})
	})
}
