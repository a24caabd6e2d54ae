package dispatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

func spec(change ...func(*workflow.Spec)) *workflow.Spec {
	s := &workflow.Spec{Processor: "resize"}
	for _, f := range change {
		f(s)
	}
	return s
}

func routing(r workflow.Routing) func(*workflow.Spec) {
	return func(s *workflow.Spec) { s.Routing = r }
}

func TestPick_predicates(t *testing.T) {
	t.Parallel()
	label := func(k, v string) func(*broker.Beat) {
		return func(b *broker.Beat) { b.Labels = map[string]string{k: v} }
	}
	free := func(cpu float64, mem, disk int64) func(*broker.Beat) {
		return func(b *broker.Beat) { b.FreeCPU, b.FreeMemory, b.FreeDisk = cpu, mem, disk }
	}
	for _, c := range []struct {
		name   string
		beats  []*broker.Beat
		spec   *workflow.Spec
		change func(*Fleet, *Request)
		want   string
		reason engine.Reason
		why    string
	}{
		{name: "fits", beats: []*broker.Beat{beat("a")}, want: "a"},
		{name: "no worker at all", reason: engine.ReasonNoWorker, why: "no live worker of app shop is in pool any"},
		{name: "processor", beats: []*broker.Beat{beat("a", processors("scan")), beat("b")}, want: "b"},
		{
			name: "no processor", beats: []*broker.Beat{beat("a", processors("scan")), beat("b", processors())}, reason: engine.ReasonNoWorker,
			why: "none of 2 live workers in pool any can take processor resize now: 2 without the processor",
		},
		{name: "capability", beats: []*broker.Beat{beat("a", processors("resize")), beat("b")}, change: func(_ *Fleet, r *Request) { r.Need = broker.CapMap }, want: "b"},
		{name: "pool", beats: []*broker.Beat{beat("a"), beat("b", pools("gpu"))}, spec: spec(func(s *workflow.Spec) { s.Pool = "gpu" }), want: "b"},
		{name: "label", beats: []*broker.Beat{beat("a"), beat("b", label("zone", "north")), beat("c", label("zone", "south"))}, spec: spec(func(s *workflow.Spec) { s.Labels = map[string]string{"zone": "south"} }), want: "c"},
		{name: "draining", beats: []*broker.Beat{beat("a", draining), beat("b")}, want: "b"},
		{
			name: "maintenance", beats: []*broker.Beat{beat("a"), beat("b", draining)}, change: func(f *Fleet, _ *Request) { f.SetMaintenance("shop", "a", true) },
			reason: engine.ReasonNoWorker, why: "none of 2 live workers in pool any can take processor resize now: 1 draining, 1 in maintenance",
		},
		{name: "cpu", beats: []*broker.Beat{beat("a", free(0.5, 0, 0)), beat("b", free(2, 0, 0))}, spec: spec(func(s *workflow.Spec) { s.MinCPU = 1 }), want: "b"},
		{name: "memory", beats: []*broker.Beat{beat("a", free(9, 100, 0)), beat("b", free(0, 200, 0))}, spec: spec(func(s *workflow.Spec) { s.MinMemory = 200 }), want: "b"},
		{name: "disk", beats: []*broker.Beat{beat("a", free(9, 9, 0)), beat("b", free(0, 0, 5))}, spec: spec(func(s *workflow.Spec) { s.MinDisk = 5 }), want: "b"},
		{name: "unknown resources pass", beats: []*broker.Beat{beat("a")}, spec: spec(func(s *workflow.Spec) { s.MinCPU, s.MinMemory, s.MinDisk = 9, 9, 9 }), want: "a"},
		{name: "excluded", beats: []*broker.Beat{beat("a"), beat("b")}, change: func(_ *Fleet, r *Request) { r.Exclude = []string{"a"} }, want: "b"},
		{
			name: "full at the last beat", beats: []*broker.Beat{beat("a", busy(4))}, reason: engine.ReasonQueued,
			why: "none of 1 live workers in pool any can take processor resize now: 1 full",
		},
		{name: "the owner's count goes before the beat's", beats: []*broker.Beat{beat("a", busy(4)), beat("b")}, change: func(_ *Fleet, r *Request) {
			r.Load = func(w string) int { return map[string]int{"a": 3, "b": 4}[w] }
		}, want: "a"},
		{name: "designated", beats: []*broker.Beat{beat("a"), beat("b"), beat("c")}, spec: spec(routing(workflow.RoutingDesignated), func(s *workflow.Spec) { s.Designated = []string{"b"} }), want: "b"},
		{
			name: "designated is away", beats: []*broker.Beat{beat("a")}, spec: spec(routing(workflow.RoutingDesignated), func(s *workflow.Spec) { s.Designated = []string{"b"} }), reason: engine.ReasonNoWorker,
			why: "none of 1 live workers in pool any can take processor resize now: 1 not designated",
		},
		{
			name: "round robin over full ones", beats: []*broker.Beat{beat("a", busy(4)), beat("b", busy(4))}, spec: spec(routing(workflow.RoutingRoundRobin)), reason: engine.ReasonQueued,
			why: "none of 2 live workers in pool any can take processor resize now: 2 full",
		},
		{name: "another app's worker", beats: []*broker.Beat{beat("a", func(b *broker.Beat) { b.App = "bank" })}, reason: engine.ReasonNoWorker, why: "no live worker of app shop is in pool any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fleet(c.beats...)
			r := Request{App: "shop", Spec: c.spec}
			if r.Spec == nil {
				r.Spec = spec()
			}
			if c.change != nil {
				c.change(f, &r)
			}
			got := f.Pick(r)
			require.Equal(t, c.want, got.Worker)
			require.Equal(t, c.reason, got.Reason)
			require.Equal(t, c.why, got.Why)
			require.Equal(t, got, f.Pick(r), "the same answer again")
		})
	}
}

func TestPick_random_is_even_and_follows_the_seed(t *testing.T) {
	t.Parallel()
	f := many(10)
	n := map[string]int{}
	for seed := range int64(10_000) {
		r := Request{App: "shop", Spec: spec(routing(workflow.RoutingRandom)), Seed: seed}
		got := f.Pick(r).Worker
		require.Equal(t, got, f.Pick(r).Worker)
		n[got]++
	}
	require.Len(t, n, 10)
	for w, k := range n {
		require.InDelta(t, 1000, k, 150, w)
	}
}

func TestPick_round_robin_takes_turns_and_passes_over_full_ones(t *testing.T) {
	t.Parallel()
	f := fleet(beat("a"), beat("b", processors("scan")), beat("c"), beat("d"))
	full := ""
	turn := func(seed int64) string {
		return f.Pick(Request{App: "shop", Spec: spec(routing(workflow.RoutingRoundRobin)), Seed: seed, Load: func(w string) int {
			if w == full {
				return 4
			}
			return 0
		}}).Worker
	}
	var got []string
	for seed := range int64(6) {
		got = append(got, turn(seed))
	}
	require.Equal(t, []string{"a", "c", "d", "a", "c", "d"}, got)
	full = "d"
	require.Equal(t, "a", turn(2), "round the corner")
	full = "a"
	require.Equal(t, "c", turn(0))
}

func TestPick_consistent_hash_moves_only_the_newcomers_share(t *testing.T) {
	t.Parallel()
	f := many(20)
	pick := func(key string) string {
		return f.Pick(Request{App: "shop", Spec: spec(routing(workflow.RoutingHash)), Key: key}).Worker
	}
	const keys = 10_000
	before := make([]string, keys)
	for i := range before {
		before[i] = pick(fmt.Sprint("customer-", i))
	}
	f.Observe(0, beat("w9999"))
	moved := 0
	for i, old := range before {
		if now := pick(fmt.Sprint("customer-", i)); now != old {
			require.Equal(t, "w9999", now, "a key moves only to the newcomer")
			moved++
		}
	}
	require.InDelta(t, keys/21, moved, 100)
	require.Equal(t, f.Pick(Request{App: "shop", Spec: spec(routing(workflow.RoutingHash), func(s *workflow.Spec) { s.RoutingKey = "k" }), Key: "x"}).Worker, pick("k"),
		"the spec's key goes before the instance's")

	home := pick("k")
	c := f.Pick(Request{App: "shop", Spec: spec(routing(workflow.RoutingHash)), Key: "k", Load: func(w string) int {
		if w == home {
			return 10
		}
		return 0
	}})
	require.Empty(t, c.Worker, "it waits for its worker")
	require.Equal(t, engine.ReasonQueued, c.Reason)
}

func TestPick_least_loaded_compares_shares_of_slots(t *testing.T) {
	t.Parallel()
	slots := func(n int) func(*broker.Beat) { return func(b *broker.Beat) { b.Slots = n } }
	f := fleet(beat("a", slots(4), busy(2)), beat("b", slots(20), busy(6)), beat("c", slots(2), busy(1)))
	least := Request{App: "shop", Spec: spec(routing(workflow.RoutingLeast))}
	require.Equal(t, "b", f.Pick(least).Worker)
	f.Observe(0, beat("b", slots(20), busy(12)))
	n := map[string]int{}
	for least.Seed = range int64(1000) {
		n[f.Pick(least).Worker]++
	}
	require.InDelta(t, 500, n["a"], 100, "a and c are equal: the seed decides")
	require.Equal(t, 1000, n["a"]+n["c"])
}

func TestPick_max_workers_is_a_stable_subset(t *testing.T) {
	t.Parallel()
	f := many(30)
	s := spec(routing(workflow.RoutingRandom), func(s *workflow.Spec) { s.MaxWorkers = 3 })
	took := func(group int64) map[string]bool {
		seen := map[string]bool{}
		for seed := range int64(300) {
			seen[f.Pick(Request{App: "shop", Spec: s, Group: group, Seed: seed}).Worker] = true
		}
		return seen
	}
	first := took(1)
	require.Len(t, first, 3)
	require.NotEqual(t, first, took(2), "another job has others")
	shares := f.Shares("shop", s, 1)
	require.Len(t, shares, 3)
	for _, x := range shares {
		require.True(t, first[x.Worker], "a broadcast of the same group has the same ones")
	}

	// A full or refusing member does not bring in a fourth one.
	member := shares[0].Worker
	c := f.Pick(Request{App: "shop", Spec: s, Group: 1, Exclude: []string{shares[0].Worker, shares[1].Worker, shares[2].Worker}})
	require.Empty(t, c.Worker)
	require.Contains(t, c.Why, "27 beyond max_workers")
	// One that leaves is replaced, the others stay.
	f.SetMaintenance("shop", member, true)
	second := took(1)
	require.Len(t, second, 3)
	same := 0
	for w := range second {
		if first[w] {
			same++
		}
	}
	require.Equal(t, 2, same)
}

func TestNeedsDirected(t *testing.T) {
	t.Parallel()
	both := []*broker.Beat{beat("a"), beat("b")}
	for _, c := range []struct {
		name  string
		beats []*broker.Beat
		spec  *workflow.Spec
		want  bool
	}{
		{"lane", both, spec(), false},
		{"lane by name", both, spec(routing(workflow.RoutingLane)), false},
		{"nobody there", nil, spec(), false},
		{"rolling deploy", []*broker.Beat{beat("a"), beat("b", processors("scan"))}, spec(), true},
		{"the one without it drains", []*broker.Beat{beat("a"), beat("b", processors("scan"), draining)}, spec(), false},
		{"the one without it is in another pool", []*broker.Beat{beat("a", pools("gpu")), beat("b", processors("scan"))}, spec(func(s *workflow.Spec) { s.Pool = "gpu" }), false},
		{"nobody has it", []*broker.Beat{beat("a", processors("scan"))}, spec(), false},
		{"random", both, spec(routing(workflow.RoutingRandom)), true},
		{"hash", both, spec(routing(workflow.RoutingHash)), true},
		{"labels", both, spec(func(s *workflow.Spec) { s.Labels = map[string]string{"a": "b"} }), true},
		{"max_workers", both, spec(func(s *workflow.Spec) { s.MaxWorkers = 1 }), true},
		{"cpu", both, spec(func(s *workflow.Spec) { s.MinCPU = 1 }), true},
		{"memory", both, spec(func(s *workflow.Spec) { s.MinMemory = 1 }), true},
		{"disk", both, spec(func(s *workflow.Spec) { s.MinDisk = 1 }), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, fleet(c.beats...).NeedsDirected("shop", c.spec))
		})
	}
	f := fleet(both...)
	f.SetMaintenance("shop", "a", true)
	require.True(t, f.NeedsDirected("shop", spec()), "a worker in maintenance would still pull from the lane")
	f.SetMaintenance("shop", "b", true)
	require.False(t, f.NeedsDirected("shop", spec()), "nobody may take it: it waits")
}

// C22: two groups of workers with disjoint processors; one group is killed. Its work
// waits: it goes neither to the lane nor to the others, and is not failed.
func TestC22_work_of_a_dead_group_waits(t *testing.T) {
	t.Parallel()
	f := fleet(beat("img-1"), beat("img-2"), beat("txt-1", processors("scan")), beat("txt-2", processors("scan")))
	require.True(t, f.NeedsDirected("shop", spec()))
	require.Contains(t, []string{"img-1", "img-2"}, f.Pick(Request{App: "shop", Spec: spec()}).Worker)

	for now := int64(1000); now <= 6000; now += 1000 {
		f.Observe(now, beat("txt-1", processors("scan")))
		f.Observe(now, beat("txt-2", processors("scan")))
		dead := f.Expire(now, true)
		if now < 6000 {
			require.Empty(t, dead)
		} else {
			require.Equal(t, []Dead{{"shop", "img-1", 1}, {"shop", "img-2", 1}}, dead)
		}
	}
	require.True(t, f.Pool("shop", "any").NoneHas("resize"))
	c := f.Pick(Request{App: "shop", Spec: spec()})
	require.Empty(t, c.Worker)
	require.Equal(t, engine.ReasonNoWorker, c.Reason)
	require.Equal(t, "none of 2 live workers in pool any can take processor resize now: 2 without the processor", c.Why)
	require.Empty(t, f.Shares("shop", spec(), 1))

	f.Observe(7000, beat("img-3"))
	require.Equal(t, "img-3", f.Pick(Request{App: "shop", Spec: spec()}).Worker)
}

// C16, C17: a broadcast's members are fixed when it fires. Who dies is known as dead by
// its incarnation, and who joins or restarts is no member.
func TestC16_C17_membership_of_a_broadcast(t *testing.T) {
	t.Parallel()
	f := fleet(beat("c"), beat("a"), beat("b", incarnation(5)), beat("x", processors("scan")), beat("y", draining))
	members := f.Shares("shop", spec(), 1)
	require.Equal(t, []Target{{"a", 1}, {"b", 5}, {"c", 1}}, members)

	f.Observe(1000, beat("d"))
	require.True(t, f.Observe(1000, beat("b", incarnation(6))).Restarted)
	alive := func(m Target) bool { return f.Alive("shop", m.Worker, m.Incarnation) }
	require.True(t, alive(members[0]))
	require.False(t, alive(members[1]), "another incarnation is not the member")
	require.True(t, alive(members[2]))
	require.Equal(t, []Target{{"a", 1}, {"b", 6}, {"c", 1}, {"d", 1}}, f.Shares("shop", spec(), 1), "they take part in the next one")
}

func BenchmarkPick(b *testing.B) {
	f := many(1000)
	for _, r := range []workflow.Routing{workflow.RoutingRandom, workflow.RoutingRoundRobin, workflow.RoutingHash, workflow.RoutingLeast} {
		b.Run(string(r), func(b *testing.B) {
			q := Request{App: "shop", Spec: spec(routing(r)), Key: "customer-7"}
			for b.Loop() {
				q.Seed++
				if c := f.Pick(q); c.Worker == "" {
					b.Fatal(c.Why)
				}
			}
		})
	}
}
