package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

func TestShardOfSpreads(t *testing.T) {
	t.Parallel()
	const perShard = 1000
	ids := map[string]func(i int64) int64{
		"counted":      func(i int64) int64 { return i },
		"time-ordered": func(i int64) int64 { return (30_000_000_000+i)<<22 | 7<<12 },
		"in one burst": func(i int64) int64 { return 30_000_000_000<<22 | i },
		"every 64th":   func(i int64) int64 { return i * 64 },
	}
	for name, id := range ids {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n [engine.Shards]int
			for i := range int64(engine.Shards * perShard) {
				shard := engine.ShardOf(id(i))
				require.Less(t, shard, uint8(engine.Shards))
				n[shard]++
			}
			for shard := range n {
				require.InDelta(t, perShard, n[shard], perShard/4, "shard %d", shard)
			}
		})
	}
}

func TestQueueOf(t *testing.T) {
	t.Parallel()
	queues := map[engine.Queue]int{}
	for app := range int64(500) {
		for _, lane := range []workflow.Lane{workflow.LaneHigh, workflow.LaneNormal, workflow.LaneBulk} {
			for _, pool := range []string{"any", "gpu"} {
				q := engine.QueueOf(app+1<<40, lane, pool)
				require.Equal(t, q, engine.QueueOf(app+1<<40, lane, pool))
				require.GreaterOrEqual(t, q, engine.Queue(0))
				require.Less(t, q, engine.Queue(1<<22))
				queues[q]++
			}
		}
	}
	// Two triples may share a queue; of 3 000 in 4 million places one pair is expected.
	require.Greater(t, len(queues), 2990)
	require.NotEqual(t, engine.QueueOf(1, "ab", "c"), engine.QueueOf(1, "a", "bc"))
}

func TestFeedKey(t *testing.T) {
	t.Parallel()
	queue := rapid.Custom(func(t *rapid.T) engine.Queue { return engine.Queue(rapid.Int64Range(0, 1<<22-1).Draw(t, "queue")) })
	const from, to = 1577836800000, 1577836800000 + 1<<41 - 1
	t.Run("splits into what made it", rapid.MakeCheck(func(t *rapid.T) {
		q, due := queue.Draw(t, "q"), rapid.Int64Range(from, to).Draw(t, "due")
		key := engine.FeedKey(q, due)
		require.GreaterOrEqual(t, key, int64(0))
		gotQ, gotDue := engine.SplitFeedKey(key)
		require.Equal(t, q, gotQ)
		require.Equal(t, due, gotDue)
	}))
	t.Run("orders by due time within a queue, and keeps queues apart", rapid.MakeCheck(func(t *rapid.T) {
		a, b := queue.Draw(t, "a"), queue.Draw(t, "b")
		dueA, dueB := rapid.Int64().Draw(t, "due a"), rapid.Int64().Draw(t, "due b")
		keyA, keyB := engine.FeedKey(a, dueA), engine.FeedKey(b, dueB)
		switch {
		case a < b:
			require.Less(t, keyA, keyB)
		case a > b:
			require.Greater(t, keyA, keyB)
		case dueA <= dueB:
			require.LessOrEqual(t, keyA, keyB, "equal only where the time is beyond the years it holds")
		default:
			require.GreaterOrEqual(t, keyA, keyB)
		}
	}))
	t.Run("is strict within the years it holds", rapid.MakeCheck(func(t *rapid.T) {
		q, due := queue.Draw(t, "q"), rapid.Int64Range(from, to-1).Draw(t, "due")
		require.Less(t, engine.FeedKey(q, due), engine.FeedKey(q, due+1))
	}))
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	exact := 0.0
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		for further, want := range map[int32]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, math.MaxInt32: 5 * time.Minute} {
			require.Equal(t, want, engine.RetryDelay(workflow.Retry{Jitter: &exact}, further, 1), "further attempt %d", further)
		}
	})
	t.Run("a constant delay", func(t *testing.T) {
		t.Parallel()
		r := workflow.Retry{Delay: workflow.Duration(3 * time.Second), Backoff: 1, Jitter: &exact}
		require.Equal(t, 3*time.Second, engine.RetryDelay(r, 1, 1))
		require.Equal(t, 3*time.Second, engine.RetryDelay(r, 1000, 1))
	})
	t.Run("the same decision has the same delay, others spread", func(t *testing.T) {
		t.Parallel()
		seen := map[time.Duration]bool{}
		for seed := range int64(1000) {
			d := engine.RetryDelay(workflow.Retry{}, 1, seed)
			require.Equal(t, d, engine.RetryDelay(workflow.Retry{}, 1, seed))
			seen[d.Truncate(time.Millisecond)] = true
		}
		require.Greater(t, len(seen), 90, "over the 100 ms of its jitter")
	})
	t.Run("stays in its bounds", rapid.MakeCheck(func(t *rapid.T) {
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		r := workflow.Retry{
			Delay:    workflow.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "delay")),
			MaxDelay: workflow.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max delay")),
			Backoff:  rapid.Float64Range(1, 10).Draw(t, "backoff"),
			Jitter:   &jitter,
		}
		further := rapid.Int32Range(1, math.MaxInt32).Draw(t, "further")
		d := engine.RetryDelay(r, further, rapid.Int64().Draw(t, "seed"))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, time.Duration(r.MaxDelay))
		r.Jitter = &exact
		full := engine.RetryDelay(r, further, 0)
		require.LessOrEqual(t, d, full)
		require.GreaterOrEqual(t, float64(d), float64(full)*(1-jitter)-1)
	}))
}
