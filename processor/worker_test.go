package processor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

var echo = Func(func(_ context.Context, t *Task) (any, error) { return t.Key(), nil })

// gated is a processor whose tasks wait to be let go, or for their context.
type gated struct {
	began chan int64
	let   chan struct{}
}

func newGated() *gated { return &gated{make(chan int64, 1024), make(chan struct{})} }

func (g *gated) Process(ctx context.Context, t *Task) (any, error) {
	g.began <- t.Number()
	select {
	case <-g.let:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestWorker_runs_a_root_task_and_acks_after_the_report(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		b := start(t, echo, 4, func(f *fake, _ *Config) {
			f.reportFn = func(context.Context, *broker.ReportBatch) error { <-hold; return nil }
		})
		c := rootChunk(7)
		c.Key = "order-1"
		m := b.deliver(c, 1)
		synctest.Wait()
		acks, _, _ := m.said()
		require.Zero(t, acks, "acked before the report was stored")
		require.Len(t, b.w.beat().Held, 1)
		close(hold)
		synctest.Wait()
		acks, _, _ = m.said()
		require.Equal(t, 1, acks)
		rep := b.kinds(broker.ReportSucceeded)[0]
		require.Equal(t, c.ChunkKey, rep.ChunkKey)
		require.Equal(t, `"order-1"`, string(rep.Result))
		require.EqualValues(t, -1, rep.Emitted)
		require.Equal(t, []int64{0}, rep.Numbers)
		require.Empty(t, b.w.beat().Held)
		b.end()
	})
}

func TestWorker_says_what_is_wrong_with_its_configuration(t *testing.T) {
	t.Parallel()
	err := NewWorker(Config{App: "Big App", Slots: -1, Tags: []string{"ok", "no dots."}}).
		Register("p", echo).Register("p", echo).Register("", echo).Register("nil", nil).Run(t.Context())
	for _, part := range []string{`App is "Big App"`, "Slots is -1", `"no dots."`, `"p" is registered twice`, `processor name ""`, `"nil" is nil`} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorContains(t, NewWorker(Config{App: "a"}).Run(t.Context()), "no processor is registered")
	for range 20 {
		require.Regexp(t, name63, defaultName())
	}
}

// C14: the worker starts before the server does.
func TestWorker_registers_as_long_as_it_takes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, echo, 1, func(f *fake, _ *Config) {
			f.registerFn = func(n int) (broker.Registration, error) {
				switch {
				case n < 3:
					return broker.Registration{}, broker.ErrNoResponders
				case n < 5:
					return broker.Registration{Error: "starting", Retry: true}, nil
				}
				return broker.Registration{Set: "s1"}, nil
			}
		})
		pass(time.Minute)
		require.Equal(t, 5, b.f.offered)
		require.NotEmpty(t, b.beats())
		b.f.options.OnUp() // the connection was lost and is back: registered anew
		synctest.Wait()
		require.Equal(t, 6, b.f.offered)
		b.end()
	})
}

func TestWorker_ends_with_the_reason_when_it_is_refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, echo, 1, func(f *fake, _ *Config) {
			f.registerFn = func(int) (broker.Registration, error) {
				return broker.Registration{Error: "app a does not exist"}, nil
			}
		})
		require.ErrorContains(t, <-b.done, "app a does not exist")
	})
}

func TestWorker_keeps_in_progress_what_it_holds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 1)
		m := b.deliver(rootChunk(1), 1)
		pass(21 * time.Second) // AckWait is 8 s
		_, _, alive := m.said()
		require.Equal(t, 10, alive)
		require.Equal(t, 1, b.lastBeat().Busy)
		close(g.let)
		b.end()
	})
}

// C22: a worker that does not know the processor refuses, and the work waits for one that does.
func TestWorker_refuses_what_it_cannot_run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, echo, 1)
		unknown := rootChunk(1)
		unknown.Processor = "billing"
		m1 := b.deliver(unknown, 1)
		reduce := rootChunk(2)
		reduce.Phase = broker.PhaseReduce
		m2 := b.deliver(reduce, 1)
		synctest.Wait()
		refused := b.kinds(broker.ReportRefused)
		require.Len(t, refused, 2)
		text := map[int64]string{}
		for _, r := range refused {
			text[r.Instance] = r.Error.Message
		}
		require.Contains(t, text[1], `no processor "billing"; it has ["p"]`)
		require.Contains(t, text[2], "no Reduce")
		for _, m := range []*message{m1, m2} {
			acks, _, _ := m.said()
			require.Equal(t, 1, acks)
		}
		require.Empty(t, b.kinds(broker.ReportStarted))
		b.end()
	})
}

func TestWorker_asks_before_it_runs_what_is_doubtful(t *testing.T) {
	t.Parallel()
	stale := func(b *bench) { b.f.control(broker.Control{Kind: broker.ControlEpoch, Shard: 1, Epoch: 5}) }
	for _, tc := range []struct {
		name      string
		delivered int
		age       time.Duration
		before    func(*bench)
		asked     bool
	}{
		{"fresh", 1, time.Second, nil, false},
		{"redelivered", 2, 0, nil, true},
		{"older than AckWait", 1, 9 * time.Second, nil, true},
		{"of an old epoch", 1, 0, stale, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := start(t, echo, 1, func(f *fake, _ *Config) {
					f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
						return &broker.AskReply{Verdict: broker.VerdictYours}, nil
					}
				})
				if tc.before != nil {
					tc.before(b)
				}
				m := b.deliverOn("high/any", rootChunk(1), tc.delivered, tc.age)
				synctest.Wait()
				require.Equal(t, tc.asked, len(b.f.asked) == 1)
				acks, _, _ := m.said()
				require.Equal(t, 1, acks)
				require.Len(t, b.kinds(broker.ReportSucceeded), 1)
				b.end()
			})
		})
	}
}

func TestWorker_does_as_the_owner_says(t *testing.T) {
	t.Parallel()
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, echo, 1, func(f *fake, _ *Config) {
				f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
					return &broker.AskReply{Verdict: broker.VerdictHeld}, nil
				}
			})
			m := b.deliver(rootChunk(1), 2)
			synctest.Wait()
			_, naks, _ := m.said()
			require.Equal(t, []time.Duration{5 * time.Second}, naks)
			require.Zero(t, b.w.Stats().Busy)
			require.Empty(t, b.w.beat().Held)
			require.Empty(t, b.kinds(broker.ReportStarted))
			b.end()
		})
	})
	t.Run("done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, echo, 1, func(f *fake, _ *Config) {
				f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
					return &broker.AskReply{Verdict: broker.VerdictDone}, nil
				}
			})
			m := b.deliver(rootChunk(1), 2)
			synctest.Wait()
			acks, _, _ := m.said()
			require.Equal(t, 1, acks)
			require.Empty(t, b.heard())
			b.end()
		})
	})
	t.Run("partly done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := start(t, echo, 1, func(f *fake, _ *Config) {
				f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
					return &broker.AskReply{Verdict: broker.VerdictYours, Done: []int64{1, 3}}, nil
				}
			})
			b.deliver(subChunk(1, 1, 1, 4), 2)
			synctest.Wait()
			require.Equal(t, []int64{2, 4}, numbers(b.kinds(broker.ReportSucceeded)))
			b.end()
		})
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := 0
			b := start(t, echo, 1, func(f *fake, _ *Config) {
				f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
					switch n++; {
					case n < 20:
						return nil, broker.ErrNoResponders
					case n < 30:
						return &broker.AskReply{Verdict: broker.VerdictRetry}, nil
					}
					return &broker.AskReply{Verdict: broker.VerdictYours}, nil
				}
			})
			m := b.deliver(rootChunk(1), 2)
			pass(10 * time.Second)
			acks, naks, alive := m.said()
			require.Zero(t, acks)
			require.Empty(t, naks)
			require.NotZero(t, alive, "kept in progress while asking")
			require.Empty(t, b.heard(), "never runs on a guess")
			pass(time.Minute)
			require.Len(t, b.kinds(broker.ReportSucceeded), 1)
			b.end()
		})
	})
}

// C25: AckWait passed while the processor was busy; the chunk comes again to the same worker. It
// does not run twice, and the newest delivery is the one acked.
func TestWorker_adopts_the_redelivery_of_what_it_runs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 2)
		c := rootChunk(1)
		first := b.deliver(c, 1)
		synctest.Wait()
		again := b.deliver(c, 2)
		synctest.Wait()
		require.Len(t, g.began, 1)
		require.EqualValues(t, 1, b.w.Stats().Redelivered)
		close(g.let)
		synctest.Wait()
		acks, _, _ := again.said()
		require.Equal(t, 1, acks)
		acks, _, _ = first.said()
		require.Zero(t, acks)
		require.Len(t, b.kinds(broker.ReportSucceeded), 1)

		// Once more after it is over: the owner is asked, and knows it is done.
		b.f.askFn = func(*broker.AskRequest) (*broker.AskReply, error) {
			return &broker.AskReply{Verdict: broker.VerdictDone}, nil
		}
		late := b.deliver(c, 1)
		synctest.Wait()
		acks, _, _ = late.said()
		require.Equal(t, 1, acks)
		require.Len(t, g.began, 1)
		b.end()
	})
}

func TestWorker_gives_surplus_back_at_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 2)
		b.deliverOn("bulk/any", rootChunk(1), 1, 0)
		closed := b.deliverOn("bulk/any", rootChunk(2), 1, 0)
		b.deliver(rootChunk(3), 1)
		full := b.deliver(rootChunk(4), 1)
		synctest.Wait()
		for _, m := range []*message{closed, full} {
			_, naks, _ := m.said()
			require.Len(t, naks, 1)
		}
		require.Len(t, g.began, 2)
		require.EqualValues(t, 2, b.w.Stats().Surplus)
		close(g.let)
		b.end()
	})
}

// C40: stop.
func TestWorker_stops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 4)
		running := b.deliver(subChunk(1, 1, 1, 3), 1)
		other := b.deliver(rootChunk(2), 1)
		asking := b.deliver(subChunk(1, 2, 4, 3), 2)
		pass(time.Second)
		at := time.Now()
		b.f.control(broker.Control{Kind: broker.ControlStop, Instance: 1, Attempt: 1})
		synctest.Wait()
		require.Equal(t, at, time.Now(), "the context ends at once")
		failed := b.kinds(broker.ReportFailed)
		require.Len(t, failed, 1)
		require.Equal(t, broker.ErrorStopped, failed[0].Error.Kind)
		require.Len(t, g.began, 2, "the rest of the chunk does not start")
		for _, m := range []*message{running, asking} {
			acks, _, _ := m.said()
			require.Equal(t, 1, acks)
		}
		acks, _, _ := other.said()
		require.Zero(t, acks)

		late := b.deliver(subChunk(1, 3, 7, 1), 1)
		synctest.Wait()
		acks, _, _ = late.said()
		require.Equal(t, 1, acks, "what was stopped is refused and acked")
		require.Equal(t, broker.DirectedRefused, b.f.directed(subChunk(1, 4, 8, 1)))
		next := rootChunk(1)
		next.Attempt, next.Chunk = 2, 9
		b.deliver(next, 1)
		synctest.Wait()
		require.Len(t, g.began, 3, "a later attempt is another matter")

		pass(11 * time.Minute)
		b.w.mu.Lock()
		require.Empty(t, b.w.stops, "forgotten after ten minutes")
		b.w.mu.Unlock()
		close(g.let)
		b.end()
	})
}

func TestWorker_takes_directed_chunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 1)
		c := rootChunk(1)
		c.Directed = true
		require.Equal(t, broker.DirectedAccepted, b.f.directed(c))
		require.Equal(t, broker.DirectedAccepted, b.f.directed(c), "it holds it already")
		require.Equal(t, broker.DirectedBusy, b.f.directed(rootChunk(2)), "no slot")
		for i := range int64(3) { // shares run beside the slots
			share := rootChunk(3)
			share.Phase, share.Directed, share.Chunk, share.ShardTotal = broker.PhaseShare, true, i+1, 3
			share.Tasks[0].Number = i
			require.Equal(t, broker.DirectedAccepted, b.f.directed(share))
		}
		unknown := rootChunk(4)
		unknown.Processor = "x"
		require.Equal(t, broker.DirectedRefused, b.f.directed(unknown))
		b.f.control(broker.Control{Kind: broker.ControlEpoch, Shard: 5, Epoch: 9})
		require.Equal(t, broker.DirectedBusy, b.f.directed(rootChunk(5)), "its sender is no longer the owner")
		synctest.Wait()
		require.Len(t, g.began, 4)
		require.Equal(t, 4, b.w.beat().Directed)
		require.Len(t, b.w.beat().Held, 4)
		require.Equal(t, 1, b.w.beat().Busy)
		close(g.let)
		synctest.Wait()
		require.Equal(t, broker.DirectedAccepted, b.f.directed(c), "finished a moment ago")
		require.Len(t, g.began, 4)
		b.end()
	})
}

// C38: SIGTERM with running tasks: nothing new, all end once.
func TestWorker_drains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		b := start(t, g, 4, func(_ *fake, c *Config) { c.DrainTimeout = time.Minute })
		chunk := b.deliver(subChunk(1, 1, 1, 3), 1)
		asking := b.deliver(rootChunk(2), 2)
		synctest.Wait()
		b.stop()
		synctest.Wait()
		require.Equal(t, []int64{2, 3}, numbers(b.kinds(broker.ReportReturned)), "unstarted tasks go back")
		_, naks, _ := asking.said()
		require.Equal(t, []time.Duration{0}, naks)
		late := b.deliver(rootChunk(3), 1)
		_, naks, _ = late.said()
		require.Len(t, naks, 1)
		require.Equal(t, broker.DirectedRefused, b.f.directed(rootChunk(4)))
		require.True(t, b.f.pullers["high/any"].closed)

		n := len(b.beats())
		pass(20 * time.Second)
		require.Greater(t, len(b.beats()), n+8, "it beats on")
		last := b.lastBeat()
		require.True(t, last.Draining)
		require.Len(t, last.Held, 1)
		_, _, alive := chunk.said()
		require.GreaterOrEqual(t, alive, 9)

		close(g.let)
		require.NoError(t, <-b.done)
		acks, _, _ := chunk.said()
		require.Equal(t, 1, acks)
		require.Equal(t, []int64{1}, numbers(b.kinds(broker.ReportSucceeded)))
		require.Empty(t, b.lastBeat().Held)
	})
}

func TestWorker_hands_back_what_outlives_the_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		deaf := Func(func(ctx context.Context, task *Task) (any, error) {
			if task.Instance() == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			<-free
			return nil, nil
		})
		b := start(t, deaf, 2, func(_ *fake, c *Config) { c.DrainTimeout = 10 * time.Second })
		polite, rude := b.deliver(rootChunk(1), 1), b.deliver(rootChunk(2), 1)
		synctest.Wait()
		at := time.Now()
		b.f.control(broker.Control{Kind: broker.ControlDrain, Worker: "w1"})
		require.NoError(t, <-b.done)
		require.Equal(t, 15*time.Second, time.Since(at))
		require.Len(t, b.kinds(broker.ReportReturned), 2, "both are given back, neither failed")
		require.Empty(t, b.kinds(broker.ReportFailed))
		for _, m := range []*message{polite, rude} {
			acks, _, _ := m.said()
			require.Equal(t, 1, acks)
		}
		close(free)
		b.stop()
	})
}

func TestWorker_survives_its_processors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := Func(func(_ context.Context, task *Task) (any, error) {
			var how string
			if err := task.Params(&how); err != nil {
				return nil, err
			}
			switch how {
			case "panic":
				panic("out of cheese")
			case "goexit":
				runtime.Goexit()
			case "cancel":
				return nil, fmt.Errorf("give up: %w", Cancel(errors.New("no such customer")))
			case "later":
				return nil, RetryAfter(time.Minute)
			case "room":
				return nil, fmt.Errorf("map: %w", ErrNoRoom)
			case "long":
				return nil, errors.New(strings.Repeat("é💥\xff", 10_000))
			case "silent":
				return nil, errors.New("")
			case "big":
				return strings.Repeat("x", broker.MaxItemBytes), nil
			case "fits":
				return strings.Repeat("x", broker.MaxItemBytes-2), nil
			case "func":
				return func() {}, nil
			}
			return nil, nil
		})
		b := start(t, bad, 1)
		for i, tc := range []struct {
			params string
			kind   broker.ErrorKind
			text   string
		}{
			{`"panic"`, broker.ErrorPanic, "panic: out of cheese"},
			{`"goexit"`, broker.ErrorPanic, "runtime.Goexit"},
			{`"cancel"`, broker.ErrorPermanent, "give up: no such customer"},
			{`"later"`, broker.ErrorFailed, "tried again after 1m0s"},
			{`"room"`, broker.ErrorRoom, "no room"},
			{`"long"`, broker.ErrorFailed, "… (cut: 90000 bytes)"},
			{`"silent"`, broker.ErrorFailed, "without a message"},
			{`"big"`, broker.ErrorPermanent, "has 524290 bytes; at most 524288"},
			{`"func"`, broker.ErrorPermanent, "cannot be encoded"},
			{`{`, broker.ErrorInput, "decode params as *string"},
			{`"fits"`, 0, ""},
		} {
			m := b.deliver(withParams(rootChunk(int64(i+1)), tc.params), 1)
			synctest.Wait()
			acks, _, _ := m.said()
			require.Equal(t, 1, acks, tc.params)
			if tc.kind == 0 {
				require.Len(t, b.kinds(broker.ReportSucceeded), 1)
				continue
			}
			failed := b.kinds(broker.ReportFailed)
			require.Len(t, failed, i+1, tc.params)
			e := failed[i].Error
			require.Equal(t, tc.kind, e.Kind, tc.params)
			require.Contains(t, e.Message, tc.text)
			require.LessOrEqual(t, len(e.Message), maxMessage)
			require.Equal(t, strings.ToValidUTF8(e.Message, "?"), e.Message)
			if tc.params == `"panic"` {
				require.Contains(t, e.Stack, "worker_test.go")
			}
			if tc.params == `"later"` {
				require.Equal(t, time.Minute, e.RetryAfter)
			}
		}
		require.Zero(t, b.w.Stats().Busy)
		b.end()
	})
}

func TestWorker_times_tasks_out(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		p := Func(func(ctx context.Context, task *Task) (any, error) {
			if task.Number() == 2 {
				<-free // ignores its context
				return nil, nil
			}
			if task.Number() == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		})
		b := start(t, p, 1)
		c := subChunk(1, 1, 1, 3)
		c.TaskTimeout = 100 * time.Millisecond
		m := b.deliver(c, 1)
		pass(8 * time.Second)
		failed := b.kinds(broker.ReportFailed)
		require.Len(t, failed, 2)
		require.Equal(t, broker.ErrorTimeout, failed[0].Error.Kind)
		require.Contains(t, failed[0].Error.Message, "timed out after 100ms")
		require.Equal(t, broker.ErrorTimeout, failed[1].Error.Kind)
		require.Contains(t, failed[1].Error.Message, "left behind")
		require.EqualValues(t, 1, b.w.Stats().Abandoned)
		require.Zero(t, b.w.Stats().Busy, "the slot is free again")
		acks, _, _ := m.said()
		require.Equal(t, 1, acks)
		n := len(b.heard())
		close(free) // what it still brings is dropped
		synctest.Wait()
		require.Len(t, b.heard(), n)
		require.Zero(t, b.w.left.Load())
		b.end()
	})
}

// The memory of what finished is bounded in number and in time.
func TestRecent(t *testing.T) {
	t.Parallel()
	var f recent
	at := time.Unix(1, 0)
	key := func(i int) broker.ChunkKey { return broker.ChunkKey{Instance: int64(i)} }
	for i := range 3 * maxRecent {
		f.add(key(i), at)
	}
	require.Len(t, f.at, maxRecent)
	require.False(t, f.has(key(2*maxRecent-1), at))
	require.True(t, f.has(key(2*maxRecent), at))
	require.False(t, f.has(key(2*maxRecent), at.Add(finishedMemory+1)))
}

// testKey is a key of this test alone.
type testKey struct{}

func TestTaskContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), testKey{}, 5))
		for _, look := range []bool{false, true} {
			var c taskContext
			c.init(parent, time.Second, time.Now())
			if look {
				require.NotNil(t, c.Done())
			}
			require.NoError(t, c.Err())
			require.NoError(t, context.Cause(&c))
			require.Equal(t, 5, c.Value(testKey{}))
			child, stop := context.WithCancel(&c)
			defer stop()
			pass(2 * time.Second)
			require.ErrorIs(t, context.Cause(&c), ErrTimeout)
			require.ErrorIs(t, context.Cause(child), ErrTimeout)
		}
		var late taskContext // nobody looked before the deadline passed
		late.init(parent, time.Second, time.Now())
		pass(2 * time.Second)
		require.ErrorIs(t, late.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, context.Cause(&late), ErrTimeout)

		var ended taskContext
		ended.init(parent, 0, time.Now())
		ended.end(errEnded)
		require.ErrorIs(t, ended.Err(), context.Canceled)
		<-ended.Done()
		require.ErrorIs(t, context.Cause(&ended), errEnded)

		var stopped taskContext
		stopped.init(parent, 0, time.Now())
		cancel(ErrStopped)
		require.ErrorIs(t, stopped.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(&stopped), ErrStopped)
	})
}
