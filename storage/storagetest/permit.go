package storagetest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

func exercisePermits(t *testing.T, s engine.Store) {
	j := saveJob(t, s, workflow.Schedule{}, 2)
	all := newOwners(t, s)
	o, other := all.of(1), all.of(2)
	take := func(o *owner, instances ...int64) engine.Change {
		c := o.change()
		for _, i := range instances {
			c.Permits = append(c.Permits, engine.Permit{Job: j.ID, Instance: i, Max: 2})
		}
		return c
	}
	held := func(want ...int64) {
		t.Helper()
		got, err := s.Permits(t.Context(), j.ID, 10)
		require.NoError(t, err)
		var ids []int64
		for _, p := range got {
			require.Equal(t, engine.Permit{Job: j.ID, Instance: p.Instance, Max: 2}, p)
			ids = append(ids, p.Instance)
		}
		require.Equal(t, want, ids)
	}
	o.must(take(o, 11), take(o, 11))
	held(11)

	// The refused one is dropped alone, with all that is in it; a cursor does not move with it.
	refused, fine := take(other, 13, 14), other.change()
	refused.NewInstances = []engine.Instance{instance(2, engine.StatusDispatched)}
	refused.Cursor = 20
	fine.NewInstances, fine.Cursor = []engine.Instance{instance(2, engine.StatusDispatched)}, 10
	for _, cursor := range []uint64{20, 0} {
		refused.Cursor = cursor
		fine.NewInstances[0].ID = newID()
		errs, err := s.Commit(t.Context(), []engine.Change{refused, fine, take(o, 12), take(other, 15)})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], engine.ErrLimit)
		require.NoError(t, errs[1])
		require.NoError(t, errs[2])
		require.ErrorIs(t, errs[3], engine.ErrLimit)
		held(11, 12)
		_, err = s.Instance(t.Context(), refused.NewInstances[0].ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
		require.Equal(t, fine.NewInstances[0], stored(t, s, fine.NewInstances[0].ID))
		shards, err := s.ShardOwners(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 10, shards[2].Cursor)
	}
	// What is given back makes room in its own Change and in those behind it.
	swap := take(o, 16)
	swap.GonePermits = []engine.Permit{{Job: j.ID, Instance: 11}}
	back := o.change()
	back.GonePermits = []engine.Permit{{Job: j.ID, Instance: 12}, {Job: j.ID, Instance: 99}}
	o.must(swap, back, take(other, 17))
	held(16, 17)
	// Taken and given back in one commit.
	both := o.change()
	both.GonePermits = []engine.Permit{{Job: j.ID, Instance: 16}, {Job: j.ID, Instance: 17}}
	gone := o.change()
	gone.GonePermits = []engine.Permit{{Job: j.ID, Instance: 18}}
	o.must(both, take(o, 18, 19), gone)
	held(19)

	// Whoever loads a shard is told who holds one there, also of those that wait.
	waits := instance(other.shard.Shard, engine.StatusWaiting)
	over := instance(other.shard.Shard, engine.StatusSucceeded)
	granted := take(other, waits.ID, over.ID)
	granted.NewInstances = []engine.Instance{waits, over}
	freed := o.change()
	freed.GonePermits = []engine.Permit{{Job: j.ID, Instance: 19}}
	o.must(freed)
	other.must(granted)
	state, err := s.LoadShard(t.Context(), other.shard.Shard, other.server.Number, other.shard.Epoch)
	require.NoError(t, err)
	require.Equal(t, []engine.Permit{{Job: j.ID, Instance: waits.ID, Max: 2}}, state.Permits)
	require.Equal(t, []engine.Permit{{Job: j.ID, Instance: over.ID, Max: 2}}, state.SparePermits)
	returned := other.change()
	returned.GonePermits = slices.Concat(state.Permits, state.SparePermits)
	other.must(returned)
	missing := all.of(engine.ShardOf(j.ID))
	missing.must(take(missing, 98))
	state, err = s.LoadShard(t.Context(), missing.shard.Shard, missing.server.Number, missing.shard.Epoch)
	require.NoError(t, err)
	require.Contains(t, state.SparePermits, engine.Permit{Job: j.ID, Instance: 98, Max: 2})
	lost := missing.change()
	lost.GonePermits = []engine.Permit{{Job: j.ID, Instance: 98}}
	missing.must(lost)
	o.must(take(o, 19))
	held(19)

	// A conflict beside a permit: the permit is not lost, nor taken twice.
	i := instance(1, engine.StatusDispatched)
	first := take(o, 20)
	first.NewInstances = []engine.Instance{i}
	twice := take(o, 21)
	twice.NewInstances = []engine.Instance{i}
	errs, err := s.Commit(t.Context(), []engine.Change{first, twice})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrLimit)
	held(19, 20)

	// A firing counts those that run by call.
	limited := saveJob(t, s, daily, 1)
	row := schedule(t, s, engine.KindJob, limited.ID)
	owner := all.of(row.Shard)
	c := owner.change()
	c.Permits = []engine.Permit{{Job: limited.ID, Instance: 5, Max: 1}}
	owner.must(c)
	done := owner.fire(firing(row, base+100, workflow.OverlapSkip))
	require.EqualValues(t, 1, done.Skipped)
	c = owner.change()
	c.GonePermits = []engine.Permit{{Job: limited.ID, Instance: 5}}
	c.Firings = []engine.Firing{firing(done.Schedule, base+200, workflow.OverlapSkip)}
	owner.must(c)
	require.Len(t, c.Firings[0].Done.Admitted, 1)
}

// Eight servers want permits of one job at once: never more than there are, and none is lost.
func exercisePermitRaces(t *testing.T, s engine.Store) {
	const callers, each, most = 8, 25, 3
	ctx := t.Context()
	j := saveJob(t, s, workflow.Schedule{}, most)
	owners := make([]*owner, callers)
	for n := range owners {
		owners[n] = own(t, s, uint8(n))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	got, refused := 0, 0
	for _, o := range owners {
		wg.Go(func() {
			for range each {
				p := engine.Permit{Job: j.ID, Instance: newID(), Max: most}
				take, give := o.change(), o.change()
				take.Permits, give.GonePermits = []engine.Permit{p}, []engine.Permit{p}
				errs, err := s.Commit(ctx, []engine.Change{take})
				if err != nil {
					t.Errorf("take: %v", err)
					return
				}
				if errs[0] != nil {
					if !errors.Is(errs[0], engine.ErrLimit) {
						t.Errorf("take: %v", errs[0])
					}
					mu.Lock()
					refused++
					mu.Unlock()
					continue
				}
				mu.Lock()
				got++
				mu.Unlock()
				held, err := s.Permits(ctx, j.ID, 100)
				if err != nil || len(held) == 0 || len(held) > most {
					t.Errorf("held: %v, %v", held, err)
				}
				if errs, err = s.Commit(ctx, []engine.Change{give}); err != nil || errs[0] != nil {
					t.Errorf("give: %v, %v", err, errs)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, callers*each, got+refused)
	require.NotZero(t, got)
	left, err := s.Permits(ctx, j.ID, 100)
	require.NoError(t, err)
	require.Empty(t, left)
	// And all at once, none given back: exactly as many as there are.
	results := make(chan error, callers*each)
	for _, o := range owners {
		wg.Go(func() {
			for range each {
				take := o.change()
				take.Permits = []engine.Permit{{Job: j.ID, Instance: newID(), Max: most}}
				errs, err := s.Commit(ctx, []engine.Change{take})
				results <- errors.Join(err, errs[0])
			}
		})
	}
	wg.Wait()
	close(results)
	got = 0
	for err := range results {
		if err == nil {
			got++
		} else {
			require.ErrorIs(t, err, engine.ErrLimit)
		}
	}
	require.Equal(t, most, got)
	left, err = s.Permits(ctx, j.ID, 100)
	require.NoError(t, err)
	require.Len(t, left, most)
}
