package storagetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

func exerciseServers(t *testing.T, s engine.Store) {
	ctx := t.Context()
	const token = 1<<63 + 3
	before, err := s.Now(ctx)
	require.NoError(t, err)
	a, err := s.JoinServer(ctx, "a", token, 60_000)
	require.NoError(t, err)
	require.GreaterOrEqual(t, a.Until, before+60_000)
	require.Equal(t, engine.Server{Number: 1, Name: "a", Token: token, Until: a.Until, StartedAt: a.Until - 60_000}, *a)
	b, err := s.JoinServer(ctx, "b", 2, 60_000)
	require.NoError(t, err)
	require.EqualValues(t, 2, b.Number)

	now, err := s.RenewServer(ctx, a.Number, token, 90_000, 1234)
	require.NoError(t, err)
	require.GreaterOrEqual(t, now, before)
	_, err = s.RenewServer(ctx, a.Number, token+1, 90_000, 1)
	require.ErrorIs(t, err, engine.ErrFenced)
	_, err = s.RenewServer(ctx, 99, token, 90_000, 1)
	require.ErrorIs(t, err, engine.ErrFenced)
	live, err := s.LiveServers(ctx)
	require.NoError(t, err)
	a.Until, a.LastID = now+90_000, 1234
	require.Equal(t, []engine.Server{*a, *b}, live)

	// A clean stop gives number and shards up at once; the promise about ids stays.
	shard, err := s.ClaimShard(ctx, 5, a.Number, token)
	require.NoError(t, err)
	require.NoError(t, s.LeaveServer(ctx, a.Number, 55), "another's token ends nothing")
	require.NoError(t, s.LeaveServer(ctx, a.Number, token))
	_, err = s.RenewServer(ctx, a.Number, token, 90_000, 1)
	require.ErrorIs(t, err, engine.ErrFenced)
	live, err = s.LiveServers(ctx)
	require.NoError(t, err)
	require.Equal(t, []engine.Server{*b}, live)
	shards, err := s.ShardOwners(ctx)
	require.NoError(t, err)
	require.Zero(t, shards[5].Owner)
	require.Equal(t, shard.Epoch, shards[5].Epoch)
	c, err := s.JoinServer(ctx, "c", 3, 60_000)
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Number)
	require.EqualValues(t, 1234, c.LastID)

	// Many at once get different numbers.
	var wg sync.WaitGroup
	numbers := make(chan int16, 20)
	for n := range 20 {
		wg.Go(func() {
			if x, err := s.JoinServer(ctx, "many", uint64(n+100), 60_000); err == nil {
				numbers <- x.Number
			}
		})
	}
	wg.Wait()
	close(numbers)
	seen := map[int16]bool{}
	for n := range numbers {
		require.False(t, seen[n], "number %d twice", n)
		seen[n] = true
	}
	require.Len(t, seen, 20)
}

// A lease ends by the database's clock, and so do all rights of its holder.
func exerciseTakeOver(t *testing.T, s engine.Store) {
	ctx := t.Context()
	dead, err := s.JoinServer(ctx, "dead", 1, 400)
	require.NoError(t, err)
	heir, err := s.JoinServer(ctx, "heir", 2, 600_000)
	require.NoError(t, err)
	held, err := s.ClaimShard(ctx, 9, dead.Number, dead.Token)
	require.NoError(t, err)
	_, err = s.ClaimShard(ctx, 9, heir.Number, heir.Token)
	require.ErrorIs(t, err, engine.ErrConflict)

	// The event waited for is the end of the lease, which only the database tells.
	var taken *engine.Shard
	for taken == nil {
		now, err := s.Now(ctx)
		require.NoError(t, err)
		taken, err = s.ClaimShard(ctx, 9, heir.Number, heir.Token)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrConflict)
			require.LessOrEqual(t, now, dead.Until+1000)
		}
	}
	now, err := s.Now(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, now, dead.Until, "taken before the lease had ended")
	require.Equal(t, held.Epoch+1, taken.Epoch)
	require.Equal(t, heir.Number, taken.Owner)

	c := engine.Change{Fenced: true, Shard: 9, Owner: held.Owner, Epoch: held.Epoch, NewInstances: []engine.Instance{instance(9, engine.StatusDispatched)}}
	require.ErrorIs(t, one(t, s, c), engine.ErrFenced)
	_, err = s.ClaimShard(ctx, 10, dead.Number, dead.Token)
	require.ErrorIs(t, err, engine.ErrFenced)

	// Whoever gets the number does not get the shards with it.
	other, err := s.ClaimShard(ctx, 11, heir.Number, heir.Token)
	require.NoError(t, err)
	next, err := s.JoinServer(ctx, "next", 3, 600_000)
	require.NoError(t, err)
	require.Equal(t, dead.Number, next.Number)
	_, err = s.RenewServer(ctx, dead.Number, dead.Token, 1000, 0)
	require.ErrorIs(t, err, engine.ErrFenced)
	_, err = s.ClaimShard(ctx, 11, next.Number, next.Token)
	require.ErrorIs(t, err, engine.ErrConflict)
	require.NoError(t, s.ReleaseShard(ctx, 11, heir.Number, other.Epoch))
	_, err = s.ClaimShard(ctx, 11, next.Number, next.Token)
	require.NoError(t, err)
}

func exerciseShards(t *testing.T, s engine.Store) {
	ctx := t.Context()
	shards, err := s.ShardOwners(ctx)
	require.NoError(t, err)
	require.Len(t, shards, engine.Shards)
	for n, x := range shards {
		require.Equal(t, engine.Shard{Shard: uint8(n)}, x)
	}
	a, b := own(t, s, 0), own(t, s, 63)
	require.EqualValues(t, 1, a.shard.Epoch)
	_, err = s.ClaimShard(ctx, 0, b.server.Number, b.server.Token)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = s.ClaimShard(ctx, 3, b.server.Number, b.server.Token+1)
	require.ErrorIs(t, err, engine.ErrFenced)
	require.NoError(t, s.ReleaseShard(ctx, 0, a.server.Number, a.shard.Epoch+1))
	require.NoError(t, s.ReleaseShard(ctx, 0, b.server.Number, a.shard.Epoch))
	_, err = s.ClaimShard(ctx, 0, b.server.Number, b.server.Token)
	require.ErrorIs(t, err, engine.ErrConflict, "released by one who did not hold it")
	require.NoError(t, s.ReleaseShard(ctx, 0, a.server.Number, a.shard.Epoch))
	got, err := s.ClaimShard(ctx, 0, b.server.Number, b.server.Token)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Epoch)

	// Of many that claim a free shard at once, one gets it.
	var wg sync.WaitGroup
	won := make(chan int16, 8)
	for range 8 {
		server, err := s.JoinServer(ctx, "x", uint64(newID()), 600_000)
		require.NoError(t, err)
		wg.Go(func() {
			if x, err := s.ClaimShard(ctx, 20, server.Number, server.Token); err == nil {
				won <- x.Owner
			}
		})
	}
	wg.Wait()
	require.Len(t, won, 1)
}
