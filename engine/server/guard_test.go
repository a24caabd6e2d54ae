package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/cluster"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/dispatch"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// flaky is a store that can be read in part.
type flaky struct {
	engine.Store
	state engine.ShardState
	app   error // of App and AppByName
	rows  map[int64]*engine.Instance
}

func (f *flaky) Apps(context.Context) ([]engine.App, error) {
	return []engine.App{{ID: 1, Name: "test"}}, nil
}

func (f *flaky) LoadShard(context.Context, uint8, int16, int64) (*engine.ShardState, error) {
	st := f.state
	return &st, nil
}

func (f *flaky) App(_ context.Context, id int64) (*engine.App, error) {
	if f.app != nil {
		return nil, f.app
	}
	return &engine.App{ID: id, Name: "test"}, nil
}

func (f *flaky) AppByName(_ context.Context, name string) (*engine.App, error) {
	if f.app != nil {
		return nil, f.app
	}
	return &engine.App{ID: 1, Name: name}, nil
}

func (f *flaky) Instance(_ context.Context, id int64) (*engine.Instance, error) {
	if in := f.rows[id]; in != nil {
		return in, nil
	}
	return nil, f.app
}

func (f *flaky) JobVersion(context.Context, int64, int32) (*engine.Job, error) {
	return nil, engine.ErrNotFound
}

func (f *flaky) WorkflowVersion(context.Context, int64, int32) (*engine.WorkflowDef, error) {
	return nil, engine.ErrNotFound
}

// What is on its way must be loaded whole: a row that is left out is never looked for again.
func TestShardIsReadWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := &flaky{app: engine.ErrUnavailable}
	s := &Server{cfg: Config{Store: f}, caches: newCaches()}
	f.state.Instances = []engine.Instance{{ID: 1, App: 1, Job: 2, Status: engine.StatusRunning, Attempt: 1}}
	_, _, _, err := s.readShard(t.Context(), engine.Shard{})
	require.ErrorIs(t, err, engine.ErrUnavailable)
	f.state = engine.ShardState{Workflows: []engine.WorkflowInstance{{ID: 3, App: 1, Workflow: 4, Version: 1, Status: engine.StatusRunning}}}
	_, _, _, err = s.readShard(t.Context(), engine.Shard{})
	require.ErrorIs(t, err, engine.ErrUnavailable)

	// What is gone is loaded, with the reason why it cannot run.
	f.app = nil
	f.state.Instances = []engine.Instance{{ID: 1, App: 1, Job: 2, Status: engine.StatusRunning, Attempt: 1}}
	st, rows, works, err := s.readShard(t.Context(), engine.Shard{})
	require.NoError(t, err)
	require.Len(t, st.Instances, 1)
	require.Len(t, rows, 1)
	require.ErrorIs(t, rows[0].Err, engine.ErrNotFound)
	require.Len(t, works, 1)
	require.ErrorIs(t, works[0].Err, engine.ErrNotFound)
}

// A server that was frozen in the middle of a commit wakes up with the answer and takes it
// for new. Without the lease nothing is said of it.
func TestNothingIsSaidWithoutTheLease(t *testing.T) {
	t.Parallel()
	s := &Server{inbox: newInbox(), cluster: cluster.New(cluster.Config{}, nil, nil)}
	c := &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: 7, Attempt: 1}, Shard: 3, Epoch: 2}
	s.perform([]track.Effect{track.Publish{Chunk: c}, track.Direct{Worker: "w", Chunk: c, Ask: 9}}, commit.Result{CommittedAt: time.Now()})
	got := s.inbox.take()
	require.Len(t, got, 2)
	require.Equal(t, track.Unpublished{Shard: 3, Key: c.ChunkKey, Err: errStale}, got[0].event)
	require.Equal(t, track.Directed{Shard: 3, Key: c.ChunkKey, Worker: "w", Ask: 9, Err: errStale}, got[1].event)
}

func TestReportsArePurgedAfterTheStreamWasLost(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Broker: brokertest.Run(t).Broker(t, broker.Config{})}, purgeEvery: -1, cluster: cluster.New(cluster.Config{}, nil, nil)}
	require.NoError(t, s.cfg.Broker.EnsureReports(t.Context()))
	s.owned[5].Store(true)
	s.purgedTo[5] = 1000 // of the stream that was lost
	s.cursors[5].Store(7)
	s.purgeReports(t.Context())
	require.EqualValues(t, 7, s.purgedTo[5])
}

// A purge that the broker could not take is made up for when it is back.
func TestPurgeThatFailedDoesNotCount(t *testing.T) {
	t.Parallel()
	up := brokertest.Run(t)
	s := &Server{cfg: Config{Broker: up.Broker(t, broker.Config{}), Log: slog.New(slog.DiscardHandler)}}
	up.Kill()
	err := s.purgeOnce(t.Context(), purge{Purge: track.Purge{App: "test", Instance: 7, Tasks: true}})
	require.ErrorIs(t, err, broker.ErrUnavailable)
	s.purges.add(track.Purge{App: "test", Instance: 7, Tasks: true}, 1)
	due := s.purges.due(1)
	require.Len(t, due, 1)
	s.purges.again(5, due...)
	require.Empty(t, s.purges.due(4))
	require.Equal(t, purgeTimes, s.purges.due(5)[0].left)
}

// One app's trouble must not keep the streams of the others, nor the recovery, waiting.
func TestStreamsOfOthersAreMade(t *testing.T) {
	t.Parallel()
	f := &flaky{app: engine.ErrNotFound}
	s := &Server{
		cfg:   Config{Store: f, Broker: brokertest.Run(t).Broker(t, broker.Config{}), Log: slog.New(slog.DiscardHandler)},
		fleet: dispatch.NewFleet(0),
	}
	s.fleet.Observe(1, &broker.Beat{App: "stray", Worker: "w", Incarnation: 1, Slots: 1})
	require.NoError(t, s.ensureAll(t.Context()))
	f.app = engine.ErrUnavailable
	require.ErrorIs(t, s.ensureAll(t.Context()), engine.ErrUnavailable)
}

func TestMissedOrderIsRepeatedOnceForAnInstance(t *testing.T) {
	t.Parallel()
	var o orders
	o.add(track.Order{App: "a", Control: broker.Control{Kind: broker.ControlStop, Instance: 7, Attempt: 2}})
	o.stop[7] = stopped{"a", 2, time.Now().Add(-time.Minute)}
	held := []broker.ChunkKey{{Instance: 7, Attempt: 2, Chunk: 1}, {Instance: 7, Attempt: 2, Chunk: 2}, {Instance: 7, Attempt: 3}, {Instance: 8, Attempt: 1}}
	require.Equal(t, []broker.Control{{Kind: broker.ControlStop, Instance: 7, Attempt: 2}}, o.missed(&broker.Beat{App: "a", Held: held}))
	require.Empty(t, o.missed(&broker.Beat{App: "b", Held: held}))
}

// Waiting for what another server owns wakes nobody here and must leave nothing behind.
func TestWaitLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := &Server{}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	looks := 0
	_, err := waitFor(ctx, s, 7, func(context.Context, int64) (int, error) {
		require.Len(t, s.waits.m[7], 1)
		switch looks++; looks {
		case 2:
			s.waits.done(7)
		case 4:
			cancel(enough)
		default:
		}
		return 0, nil
	}, func(int) bool { return false })
	require.ErrorIs(t, err, enough)
	require.Empty(t, s.waits.m)
}

// What is due must come due after the database's clock was put back an hour, and nothing
// may see the time go back.
func TestClockPutBackRunsOn(t *testing.T) {
	t.Parallel()
	var c clock
	require.EqualValues(t, 5_000_000, c.at(5_000_000, 100))
	require.EqualValues(t, 5_001_000, c.at(5_001_000, 1_100))
	const back = 3_600_000
	last := int64(5_001_000)
	for mono := int64(1_101); mono <= 21_100; mono++ {
		got := c.at(5_001_000-back+mono-1_100, mono)
		require.GreaterOrEqual(t, got, last)
		last = got
	}
	require.EqualValues(t, 5_001_000+10_000, last, "half the speed")
	require.EqualValues(t, 6_000_000, c.at(6_000_000, 30_000), "the database's clock has caught up")
	require.EqualValues(t, 6_000_000, c.at(5_999_999, 29_000))
}

// Reports that pile up wait outside once those inside are many bytes.
func TestInboxIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newInbox()
	require.True(t, b.put(item{bytes: inboxBytes}, true))
	require.True(t, b.put(item{}, false), "the loop's own never wait")
	put := make(chan bool, 1)
	go func() { put <- b.put(item{bytes: 1}, true) }()
	seen := len(b.take())
	require.True(t, <-put)
	require.Equal(t, 3, seen+len(b.take()))
	require.True(t, b.put(item{bytes: inboxBytes}, true))
	go func() { put <- b.put(item{bytes: 1}, true) }()
	b.close()
	require.False(t, <-put)
}

// A node that its workflow stops is stopped, even if its row cannot be read at once.
func TestStopOfANodeOutlivesAFailedRead(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Store: &flaky{app: engine.ErrUnavailable}}, inbox: newInbox(), ctx: t.Context()}
	own := engine.Command{Kind: engine.CommandStop, Target: 7}
	s.fetchFor(t.Context(), track.Load{ID: 7, Command: own})
	got := s.inbox.take()
	require.Len(t, got, 1)
	require.Equal(t, track.Command{Command: own}, got[0].event)
	// One that is stored is read again by the sweep.
	own.ID = 5
	s.fetchFor(t.Context(), track.Load{ID: 7, Command: own})
	require.Empty(t, s.inbox.take())
}

// Where an app's streams are gone, the listing that finds nothing makes them again.
func TestListingMakesStreamsAgain(t *testing.T) {
	t.Parallel()
	b := brokertest.Run(t).Broker(t, broker.Config{})
	s := &Server{cfg: Config{Broker: b, Log: slog.New(slog.DiscardHandler)}, fleet: dispatch.NewFleet(0)}
	s.fleet.Observe(1, &broker.Beat{App: "test", Worker: "w", Incarnation: 1, Slots: 1, Pools: []string{"gpu"}})
	require.NoError(t, b.EnsureReports(t.Context()))
	got := s.list(t.Context(), track.List{App: &track.App{ID: 1, Name: "test"}, Instances: []int64{7}, Shards: []uint8{3}})
	require.NoError(t, got.Err)
	require.Empty(t, got.Present)
	done := make(chan error, 1)
	b.PublishChunk("", broker.LaneNormal, "gpu", &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: 7, Attempt: 1}, App: "test", Shard: 3}, func(err error) { done <- err })
	require.NoError(t, <-done)
	got = s.list(t.Context(), track.List{App: &track.App{ID: 1, Name: "test"}, Instances: []int64{7}, Shards: []uint8{3}})
	require.NoError(t, got.Err)
	require.Equal(t, map[int64][]int64{7: {0}}, got.Present)
}

// The purge of a stopped instance is only in memory: whoever owns the shard next finds what
// is left in the lane, before a worker does.
func TestChunksOfFinalInstancesAreFound(t *testing.T) {
	t.Parallel()
	b := brokertest.Run(t).Broker(t, broker.Config{})
	f := &flaky{rows: map[int64]*engine.Instance{
		7: {ID: 7, App: 1, Shard: 3, Status: engine.StatusStopped}, 8: {ID: 8, App: 1, Shard: 3, Status: engine.StatusRunning},
		9: {ID: 9, App: 1, Shard: 4, Status: engine.StatusStopped},
	}}
	s := &Server{cfg: Config{Broker: b, Store: f}, cluster: cluster.New(cluster.Config{}, nil, nil)}
	s.owned[3].Store(true)
	require.NoError(t, b.EnsureApp(t.Context(), "test", "", []string{broker.PoolAny}))
	for id := range f.rows {
		done := make(chan error, 1)
		b.PublishChunk("", broker.LaneNormal, broker.PoolAny, &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: id, Attempt: 1}, App: "test"}, func(err error) { done <- err })
		require.NoError(t, <-done)
	}
	require.True(t, s.findLeftovers(t.Context()))
	due := s.purges.due(s.now())
	require.Len(t, due, 1)
	require.Equal(t, track.Purge{App: "test", Instance: 7, Tasks: true, Run: -1}, due[0].Purge)
	require.NoError(t, s.purgeOnce(t.Context(), due[0]))
	counts, err := b.TaskCounts(t.Context(), "test", "")
	require.NoError(t, err)
	require.Equal(t, map[int64]int{8: 1, 9: 1}, counts)
}

// A lease that lapses for a moment, because the database is slow, must not have every shard
// loaded again: what may not be said is not said, and that is all.
func TestLapsedLeaseLoadsNothingAgain(t *testing.T) {
	t.Parallel()
	s := &Server{inbox: newInbox(), cluster: cluster.New(cluster.Config{}, nil, nil), commit: commit.New(commit.Config{}, nil)}
	c := &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: 7, Attempt: 1}, Shard: 3}
	var said *broker.AskReply
	st := &track.Stored{Change: engine.Change{Shard: 3}, Effects: []track.Effect{
		track.Publish{Chunk: c},
		track.Answer{Reply: func(a *broker.AskReply) { said = a }, With: &broker.AskReply{Verdict: broker.VerdictYours}},
	}}
	require.True(t, s.committed(st, commit.Result{CommittedAt: time.Now()}))
	require.Equal(t, broker.VerdictRetry, said.Verdict)
	got := s.inbox.take()
	require.Len(t, got, 1)
	require.Equal(t, track.Unpublished{Shard: 3, Key: c.ChunkKey, Err: errStale}, got[0].event)
	require.False(t, s.commit.Broken(3, 0))
	// What rests on a lost Change is not said either, and the shard is loaded again.
	s.commit.Break(3, 0)
	said = nil
	require.False(t, s.committed(st, commit.Result{CommittedAt: time.Now()}))
	require.Nil(t, said)
	require.NotNil(t, s.inbox.take()[0].do)
}
