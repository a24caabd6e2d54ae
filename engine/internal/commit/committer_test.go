package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore hands each transaction to answer, one at a time.
type fakeStore struct {
	answer func(changes []engine.Change) ([]error, error)

	mu  sync.Mutex
	txs [][]engine.Change
}

func (s *fakeStore) Commit(_ context.Context, changes []engine.Change) ([]error, error) {
	s.mu.Lock()
	s.txs = append(s.txs, append([]engine.Change(nil), changes...))
	s.mu.Unlock()
	if s.answer == nil {
		return make([]error, len(changes)), nil
	}
	return s.answer(changes)
}

func (s *fakeStore) transactions() [][]engine.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.txs
}

// ids are the ids of the new instances of each transaction.
func (s *fakeStore) ids() (out [][]int64) {
	for _, tx := range s.transactions() {
		var ids []int64
		for _, c := range tx {
			for _, i := range c.NewInstances {
				ids = append(ids, i.ID)
			}
		}
		out = append(out, ids)
	}
	return out
}

func insert(id int64) engine.Change {
	return engine.Change{NewInstances: []engine.Instance{{ID: id}}}
}

func owned(shard uint8, id int64) engine.Change {
	c := insert(id)
	c.Fenced, c.Shard, c.Owner, c.Epoch = true, shard, 1, 1
	return c
}

func run(t *testing.T, c *Committer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// gate is a store answer that tells when a transaction has begun and waits to be let go.
type gate struct {
	begun chan int
	let   chan error
}

func newGate() *gate { return &gate{begun: make(chan int), let: make(chan error)} }

func (g *gate) answer(changes []engine.Change) ([]error, error) {
	g.begun <- len(changes)
	return make([]error, len(changes)), <-g.let
}

func TestCommitter_takes_together_what_arrived_during_a_commit(t *testing.T) {
	t.Parallel()
	g := newGate()
	store := &fakeStore{answer: g.answer}
	c := New(Config{Log: slog.New(slog.DiscardHandler)}, store)
	stop := run(t, c)

	var order []int64
	var wg sync.WaitGroup
	submit := func(id int64) {
		wg.Add(1)
		c.Submit(insert(id), 0, func(r Result) {
			defer wg.Done()
			order = append(order, id)
			if r.Err != nil || r.CommittedAt.IsZero() {
				t.Errorf("change %d: %+v", id, r)
			}
		})
	}
	submit(1)
	require.Equal(t, 1, <-g.begun)
	for id := int64(2); id <= 2500; id++ {
		submit(id)
	}
	require.Equal(t, 2499, c.Queued())
	for _, n := range []int{1000, 1000, 499} {
		g.let <- nil
		require.Equal(t, n, <-g.begun)
	}
	g.let <- nil
	wg.Wait()
	stop()
	require.Len(t, order, 2500)
	for i, id := range order {
		require.EqualValues(t, i+1, id, "dones come in the order of submission")
	}
	require.Equal(t, Stats{Commits: 4, Changes: 2500, Rows: 2500}, c.Stats())
}

func TestCommitter_bounds_a_transaction_by_bytes_and_lets_a_large_change_travel_alone(t *testing.T) {
	t.Parallel()
	g := newGate()
	store := &fakeStore{answer: g.answer}
	c := New(Config{Log: slog.New(slog.DiscardHandler), MaxRows: 10, MaxBytes: 4096}, store)
	run(t, c)
	var wg sync.WaitGroup
	submit := func(ch engine.Change) { wg.Add(1); c.Submit(ch, 0, func(Result) { wg.Done() }) }

	submit(insert(1))
	require.Equal(t, 1, <-g.begun)
	heavy := insert(3)
	heavy.NewInstances[0].Params = make([]byte, 8192)
	wide := engine.Change{NewTasks: make([]engine.Task, 25)}
	submit(insert(2))
	submit(heavy)
	submit(insert(4))
	submit(wide)
	submit(insert(5))
	for _, n := range []int{1, 1, 1, 1, 1} {
		g.let <- nil
		require.Equal(t, n, <-g.begun)
	}
	g.let <- nil
	wg.Wait()
	require.Equal(t, [][]int64{{1}, {2}, {3}, {4}, nil, {5}}, store.ids())
}

func TestCommitter_breaks_a_fenced_shard_until_it_is_mended(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(n int) ([]error, error){
		"fenced":  func(int) ([]error, error) { return []error{nil, fmt.Errorf("shard 7: %w", engine.ErrFenced)}, nil },
		"unknown": func(int) ([]error, error) { return nil, engine.ErrUnavailable },
		"short":   func(int) ([]error, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, let := make(chan struct{}), make(chan struct{})
			n := 0
			store := &fakeStore{}
			store.answer = func(changes []engine.Change) ([]error, error) {
				if n++; n <= 2 {
					begun <- struct{}{}
					<-let
				}
				if n == 2 {
					return lose(len(changes))
				}
				return make([]error, len(changes)), nil
			}
			c := New(Config{Log: slog.New(slog.DiscardHandler), RetryMin: time.Millisecond}, store)
			run(t, c)
			gen := c.Mend(7)
			errs := make(map[int64]error)
			var wg sync.WaitGroup
			submit := func(ch engine.Change, gen uint32) {
				wg.Add(1)
				id := ch.NewInstances[0].ID
				c.Submit(ch, gen, func(r Result) { errs[id] = r.Err; wg.Done() })
			}
			submit(insert(1), 0)
			<-begun
			submit(insert(2), 0)     // with 3, in the transaction that goes wrong
			submit(owned(7, 3), gen) // lost
			let <- struct{}{}
			<-begun
			submit(owned(7, 4), gen) // decided on top of 3
			submit(insert(5), 0)
			submit(owned(8, 6), 0) // another shard
			let <- struct{}{}
			wg.Wait()
			require.NoError(t, errs[1])
			if name == "fenced" {
				require.NoError(t, errs[2])
				require.ErrorIs(t, errs[3], engine.ErrFenced)
			} else {
				require.Error(t, errs[2], "the unfenced one gets the error")
				require.Error(t, errs[3])
			}
			require.ErrorIs(t, errs[4], ErrBroken)
			require.NoError(t, errs[5])
			require.NoError(t, errs[6])
			require.True(t, c.Broken(7, gen))
			require.False(t, c.Broken(8, 0))

			next := c.Mend(7)
			submit(owned(7, 8), next)
			submit(owned(7, 7), gen) // a straggler of the old generation, after the mend
			wg.Wait()
			require.ErrorIs(t, errs[7], ErrBroken)
			require.NoError(t, errs[8])
			ids := store.ids()
			for _, tx := range ids {
				require.NotContains(t, tx, int64(4))
				require.NotContains(t, tx, int64(7))
			}
		})
	}
}

func TestCommitter_drops_a_conflict_alone_unless_the_owner_breaks(t *testing.T) {
	t.Parallel()
	store := &fakeStore{}
	store.answer = func(changes []engine.Change) ([]error, error) {
		errs := make([]error, len(changes))
		if changes[0].NewInstances[0].ID == 1 {
			errs[0] = engine.ErrConflict
		}
		return errs, nil
	}
	c := New(Config{Log: slog.New(slog.DiscardHandler)}, store)
	run(t, c)
	require.ErrorIs(t, c.Store(t.Context(), owned(3, 1), 0).Err, engine.ErrConflict)
	require.NoError(t, c.Store(t.Context(), owned(3, 2), 0).Err)
	done := make(chan error, 1)
	c.Submit(owned(3, 1), 0, func(r Result) { c.Break(3, 0); done <- r.Err })
	require.ErrorIs(t, <-done, engine.ErrConflict)
	require.ErrorIs(t, c.Store(t.Context(), owned(3, 3), 0).Err, ErrBroken)
}

func TestCommitter_barrier_costs_no_transaction_and_sees_the_loss_before_it(t *testing.T) {
	t.Parallel()
	g := newGate()
	store := &fakeStore{answer: g.answer}
	c := New(Config{Log: slog.New(slog.DiscardHandler), RetryMin: time.Millisecond}, store)
	run(t, c)
	require.NoError(t, c.Store(t.Context(), engine.Change{}, 0).Err)
	require.Empty(t, store.transactions())

	var wg sync.WaitGroup
	var barrier error
	wg.Add(3)
	c.Submit(insert(1), 0, func(Result) { wg.Done() })
	<-g.begun
	c.Submit(owned(5, 2), 0, func(Result) { wg.Done() })
	c.Submit(engine.Change{Fenced: true, Shard: 5}, 0, func(r Result) { barrier = r.Err; wg.Done() })
	g.let <- nil
	require.Equal(t, 1, <-g.begun)
	g.let <- errors.New("disk on fire")
	wg.Wait()
	require.ErrorIs(t, barrier, ErrBroken)
}

func TestCommitter_isolates_a_change_the_database_never_takes(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	store := &fakeStore{}
	store.answer = func(changes []engine.Change) ([]error, error) {
		if changes[0].NewInstances[0].ID == 0 {
			begun <- struct{}{}
			<-let
		}
		for _, c := range changes {
			if c.NewInstances[0].ID == 13 {
				return nil, errors.New("check constraint")
			}
		}
		return make([]error, len(changes)), nil
	}
	c := New(Config{Log: slog.New(slog.DiscardHandler)}, store)
	run(t, c)
	round := func() (failed int) {
		var wg sync.WaitGroup
		for id := int64(0); id < 20; id++ {
			wg.Add(1)
			c.Submit(insert(id), 0, func(r Result) {
				if r.Err != nil {
					failed++
				}
				wg.Done()
			})
			if id == 0 {
				<-begun
			}
		}
		let <- struct{}{}
		wg.Wait()
		return failed
	}
	require.Equal(t, 19, round(), "all that shared the transaction")
	require.Equal(t, 1, round(), "then only the bad one")
}

func TestCommitter_reports_health_and_goes_on_when_the_database_returns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := true
		store := &fakeStore{}
		store.answer = func(changes []engine.Change) ([]error, error) {
			if away {
				return nil, engine.ErrUnavailable
			}
			return make([]error, len(changes)), nil
		}
		probes := 0
		c := New(Config{Log: slog.New(slog.DiscardHandler), Probe: func(context.Context) error {
			if probes++; away {
				return engine.ErrUnavailable
			}
			return nil
		}}, store)
		stop := run(t, c)
		require.True(t, c.Healthy())
		require.ErrorIs(t, c.Store(t.Context(), insert(1), 0).Err, engine.ErrUnavailable)
		require.False(t, c.Healthy())
		require.ErrorIs(t, c.LastError(), engine.ErrUnavailable)
		begin := time.Now()
		require.ErrorIs(t, c.Store(t.Context(), insert(2), 0).Err, engine.ErrUnavailable)
		require.Equal(t, 50*time.Millisecond, time.Since(begin), "it pauses before it tries again")
		away = false
		for !c.Healthy() {
			synctest.Wait()
			<-time.After(10 * time.Millisecond)
		}
		require.Positive(t, probes)
		require.NoError(t, c.Store(t.Context(), insert(3), 0).Err)
		stop()
	})
}

func TestCommitter_blocks_submitters_when_the_queue_is_full(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := New(Config{Log: slog.New(slog.DiscardHandler), QueueRows: 4}, &fakeStore{answer: g.answer})
		stop := run(t, c)
		var wg sync.WaitGroup
		wg.Add(6)
		done := func(Result) { wg.Done() }
		c.Submit(insert(0), 0, done)
		<-g.begun
		for id := int64(1); id <= 4; id++ {
			c.Submit(insert(id), 0, done)
		}
		passed := make(chan struct{})
		go func() { c.Submit(insert(5), 0, done); close(passed) }()
		synctest.Wait()
		select {
		case <-passed:
			t.Fatal("Submit did not block")
		default:
		}
		g.let <- nil
		require.Equal(t, 4, <-g.begun)
		<-passed
		g.let <- nil
		require.Equal(t, 1, <-g.begun)
		g.let <- nil
		wg.Wait()
		stop()
	})
}

func TestCommitter_stores_what_is_queued_at_the_stop_and_refuses_the_rest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := New(Config{Log: slog.New(slog.DiscardHandler), MaxRows: 2, DrainTimeout: time.Second}, &fakeStore{answer: g.answer})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Add(1)
			c.Submit(insert(int64(i)), 0, func(r Result) { errs[i] = r.Err; wg.Done() })
			if i == 0 {
				<-g.begun
			}
		}
		cancel()
		g.let <- nil
		<-g.begun
		<-time.After(2 * time.Second) // the drain's deadline passes within this transaction
		g.let <- nil
		require.NoError(t, <-ended)
		wg.Wait()
		for i, err := range errs {
			if i < 3 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrStopped)
			}
		}
		require.ErrorIs(t, c.Store(t.Context(), insert(9), 0).Err, ErrStopped)
	})
}

// slowStore costs a fixed time a transaction, as an fsync does.
type slowStore struct{ cost time.Duration }

func (s slowStore) Commit(_ context.Context, changes []engine.Change) ([]error, error) {
	for begin := time.Now(); time.Since(begin) < s.cost; {
		<-time.After(s.cost - time.Since(begin))
	}
	return make([]error, len(changes)), nil
}

// BenchmarkOneByOne has eight callers that each wait for their own Change. changes/commit
// is what group commit is worth: 8 is the best there is.
func BenchmarkOneByOne(b *testing.B) {
	c := New(Config{Log: slog.New(slog.DiscardHandler)}, slowStore{cost: 100 * time.Microsecond})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	b.SetParallelism(8 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		got := make(chan Result, 1)
		for pb.Next() {
			c.Submit(insert(1), 0, func(r Result) { got <- r })
			if r := <-got; r.Err != nil {
				b.Error(r.Err)
			}
		}
	})
	cancel()
	<-ended
	s := c.Stats()
	b.ReportMetric(float64(s.Changes)/float64(s.Commits), "changes/commit")
}

// BenchmarkBulk has the queue always full.
func BenchmarkBulk(b *testing.B) {
	c := New(Config{Log: slog.New(slog.DiscardHandler)}, slowStore{})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	change := insert(1)
	for b.Loop() {
		c.Submit(change, 0, func(Result) {})
	}
	c.Store(ctx, engine.Change{}, 0)
	cancel()
	<-ended
}
