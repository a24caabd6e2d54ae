package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/broker"
)

// square is a MapReduce over numbers.
func square() MapReduce[int, int64, int64] {
	return MapReduce[int, int64, int64]{
		Split: func(_ context.Context, _ *Task, n int, emit func(int64) error) error {
			for i := range n {
				if err := emit(int64(i)); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, _ *Task, i int64) (int64, error) { return i * i, nil },
		Reduce: func(_ context.Context, _ *Task, values *Values[int64]) (any, error) {
			var sum int64
			for v := range values.All() {
				sum += v
			}
			return map[string]int64{"sum": sum, "failed": values.Failed(), "total": values.Total()}, nil
		},
	}
}

func TestRun_reports_a_chunk_of_sub_tasks_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, square(), 1)
		m := b.deliver(subChunk(1, 1, 1, 512), 1)
		synctest.Wait()
		acks, _, _ := m.said()
		require.Equal(t, 1, acks)
		done := b.kinds(broker.ReportSucceeded)
		require.Len(t, done, 1)
		require.Empty(t, done[0].Numbers, "the whole chunk")
		require.Zero(t, done[0].ResultSeq)
		require.Empty(t, b.f.results, "nobody collects in mode map")
		b.end()
	})
}

func TestRun_stores_values_before_it_reports_them(t *testing.T) {
	t.Parallel()
	for _, combine := range []bool{false, true} {
		t.Run(fmt.Sprint("combine ", combine), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := square()
				if combine {
					p.Combine = func(_ context.Context, vs []int64) (sum int64) {
						for _, v := range vs {
							sum += v
						}
						return sum
					}
				}
				hold := make(chan struct{})
				b := start(t, p, 1, func(f *fake, _ *Config) {
					f.resultFn = func(*broker.ResultBatch) error { <-hold; return nil }
				})
				c := subChunk(1, 1, 1, 100)
				c.Collect = true
				m := b.deliver(c, 1)
				synctest.Wait()
				require.Empty(t, b.kinds(broker.ReportSucceeded))
				require.Zero(t, b.w.Stats().Busy, "the slot does not wait for the broker")
				close(hold)
				synctest.Wait()
				acks, _, _ := m.said()
				require.Equal(t, 1, acks)
				require.Len(t, b.f.results, 1)
				r := b.f.results[0]
				require.Len(t, r.Numbers, 100)
				require.Equal(t, combine, r.Folded)
				if combine {
					require.Equal(t, [][]byte{[]byte("338350")}, r.Values)
				} else {
					require.Len(t, r.Values, 100)
				}
				require.EqualValues(t, 1, b.kinds(broker.ReportSucceeded)[0].ResultSeq)
				b.end()
			})
		})
	}
}

func TestRun_sends_values_unfolded_when_the_fold_fails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := square()
		p.Combine = func(context.Context, []int64) int64 { panic("no") }
		b := start(t, p, 1)
		c := subChunk(1, 1, 1, 3)
		c.Collect = true
		b.deliver(c, 1)
		synctest.Wait()
		require.False(t, b.f.results[0].Folded)
		require.Len(t, b.f.results[0].Values, 3)
		b.end()
	})
}

// A result message is bounded; one larger value travels alone; one over the bound fails alone.
func TestRun_bounds_values(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(_ context.Context, task *Task) (any, error) {
			return make([]byte, []int{1: 100 << 10, 2: 200 << 10, 3: 400 << 10, 4: broker.MaxItemBytes, 5: broker.MaxItemBytes + 1}[task.Number()]), nil
		})
		b := start(t, p, 1)
		c := subChunk(1, 1, 1, 5)
		c.Collect = true
		m := b.deliver(c, 1)
		synctest.Wait()
		acks, _, _ := m.said()
		require.Equal(t, 1, acks)
		var got []int64
		for _, r := range b.f.results {
			got = append(got, r.Numbers...)
			size := 0
			for _, v := range r.Values {
				size += len(v)
			}
			require.True(t, size <= maxBatchBytes || len(r.Values) == 1)
		}
		slices.Sort(got)
		require.Equal(t, []int64{1, 2, 3, 4}, got)
		failed := b.kinds(broker.ReportFailed)
		require.Equal(t, []int64{5}, numbers(failed))
		require.Contains(t, failed[0].Error.Message, "the value has 524289 bytes; at most 524288 travel")
		b.end()
	})
}

// What is finished does not wait for the end of a chunk of slow tasks, and a long chunk gives the
// rest back.
func TestRun_of_slow_tasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(_ context.Context, task *Task) (any, error) {
			switch {
			case task.Number() <= 3:
				<-time.After(10 * time.Millisecond)
			case task.Number() == 4:
				<-time.After(time.Hour)
			}
			return nil, nil
		})
		b := start(t, p, 1)
		m := b.deliver(subChunk(1, 1, 1, 100), 1)
		pass(100 * time.Millisecond)
		require.Equal(t, []int64{1, 2, 3}, numbers(b.kinds(broker.ReportSucceeded)))
		pass(4 * time.Second)
		back := numbers(b.kinds(broker.ReportReturned))
		require.Len(t, back, 96)
		require.EqualValues(t, 5, back[0])
		pass(time.Hour)
		require.Equal(t, []int64{1, 2, 3, 4}, numbers(b.kinds(broker.ReportSucceeded)))
		acks, _, _ := m.said()
		require.Equal(t, 1, acks)
		b.end()
	})
}

// A processor that finished does not wait behind a slow one even if it was fast.
func TestRun_hands_over_what_waits_behind_a_slow_task(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(ctx context.Context, task *Task) (any, error) {
			if task.Number() == 2 {
				<-time.After(time.Minute)
			}
			return nil, nil
		})
		b := start(t, p, 1)
		b.deliver(subChunk(1, 1, 1, 2), 1)
		pass(3 * time.Second)
		require.Equal(t, []int64{1}, numbers(b.kinds(broker.ReportSucceeded)))
		pass(time.Minute)
		b.end()
	})
}

// Whatever its tasks do, every number of a chunk is accounted exactly once, and the chunk is acked.
func TestRun_accounts_every_number_once(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "tasks")
		fates := rapid.SliceOfN(rapid.IntRange(0, 5), n, n).Draw(rt, "fates")
		collect := rapid.Bool().Draw(rt, "collect")
		combine := rapid.Bool().Draw(rt, "combine")
		outage := rapid.IntRange(0, 5).Draw(rt, "outage")
		drain := rapid.SampledFrom([]time.Duration{-1, 0, 100 * time.Millisecond, 400 * time.Millisecond}).Draw(rt, "drain after")
		synctest.Test(t, func(t *testing.T) {
			p := MapReduce[int, int64, int64]{
				Split: func(context.Context, *Task, int, func(int64) error) error { return nil },
				Work: func(ctx context.Context, task *Task, i int64) (int64, error) {
					switch fates[i-1] {
					case 1:
						return 0, errors.New("no")
					case 2:
						panic("no")
					case 3:
						<-time.After(300 * time.Millisecond)
					case 4:
						task.Logger().Info("hello")
					case 5:
						return 0, task.Map("more", []int{1, 2, 3})
					}
					return i, nil
				},
				Reduce: func(context.Context, *Task, *Values[int64]) (any, error) { return nil, nil },
			}
			if combine {
				p.Combine = func(_ context.Context, vs []int64) (sum int64) {
					for _, v := range vs {
						sum += v
					}
					return sum
				}
			}
			failing := outage
			b := start(t, p, 2, func(f *fake, _ *Config) {
				f.reportFn = func(context.Context, *broker.ReportBatch) error {
					if failing > 0 {
						failing--
						return broker.ErrUnavailable
					}
					return nil
				}
			})
			c := subChunk(1, 1, 1, n)
			c.Collect = collect
			m := b.deliver(c, 1)
			if drain >= 0 {
				if drain > 0 {
					pass(drain)
				}
				b.stop()
			}
			pass(time.Minute)
			b.end()
			acks, naks, _ := m.said()
			if drain == 0 && len(naks) > 0 {
				require.Zero(t, acks)
				require.Empty(t, b.heard(), "a chunk is begun or given back, not both")
				return
			}
			require.Equal(t, 1, acks)
			require.Empty(t, naks)
			count := map[int64]int{}
			for _, kind := range []broker.ReportKind{broker.ReportSucceeded, broker.ReportFailed, broker.ReportReturned} {
				for _, r := range b.kinds(kind) {
					if len(r.Numbers) == 0 {
						for i := range int64(n) {
							count[i+1]++
						}
					}
					for _, x := range r.Numbers {
						count[x]++
					}
					require.Equal(t, kind == broker.ReportSucceeded && collect, r.ResultSeq > 0)
				}
			}
			for i := range int64(n) {
				require.Equal(t, 1, count[i+1], "number %d", i+1)
			}
			stored := map[int64]int{}
			for _, r := range b.f.results {
				for _, x := range r.Numbers {
					stored[x]++
				}
			}
			for x, k := range stored {
				require.Equal(t, 1, k, "value of number %d", x)
			}
			require.Zero(t, b.w.room.used)
		})
	})
}

// Reports survive a broker that is away, in bounded memory: the slots wait.
func TestReporter_keeps_reports_while_the_broker_is_away(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		big := Func(func(context.Context, *Task) (any, error) { return strings.Repeat("x", 400<<10), nil })
		b := start(t, big, 4, func(f *fake, _ *Config) {
			f.reportFn = func(context.Context, *broker.ReportBatch) error {
				if away.Load() {
					return broker.ErrUnavailable
				}
				return nil
			}
		})
		var sent []*message
		for i := int64(1); b.w.slots.taken() < 4; i++ {
			sent = append(sent, b.deliver(rootChunk(i), 1))
			synctest.Wait()
			require.Less(t, i, int64(200), "the slots never block")
		}
		require.LessOrEqual(t, b.w.room.used, roomBytes+4*(401<<10))
		pass(time.Hour)
		for _, m := range sent {
			acks, naks, _ := m.said()
			require.Zero(t, acks)
			require.Empty(t, naks)
		}
		away.Store(false)
		pass(5 * time.Second)
		require.Len(t, b.kinds(broker.ReportSucceeded), len(sent))
		for _, m := range sent {
			acks, _, _ := m.said()
			require.Equal(t, 1, acks)
		}
		require.Zero(t, b.w.room.used)
		b.end()
	})
}

// While one batch is under way everything else rides in the next; a start that is over by then
// is not told.
func TestReporter_batches_by_back_pressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold, first := make(chan struct{}), true
		b := start(t, echo, 100, func(f *fake, _ *Config) {
			f.reportFn = func(context.Context, *broker.ReportBatch) error {
				if first {
					first = false
					<-hold
				}
				return nil
			}
		})
		for i := range int64(100) {
			b.deliver(rootChunk(64*(i+1)), 1) // all of shard 0
			synctest.Wait()
		}
		close(hold)
		synctest.Wait()
		require.Equal(t, 2, b.f.batches)
		require.Len(t, b.kinds(broker.ReportSucceeded), 100)
		require.LessOrEqual(t, len(b.kinds(broker.ReportStarted)), 1)
		b.end()
	})
}

func TestReporter_splits_what_is_too_large(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(_ context.Context, task *Task) (any, error) {
			return strings.Repeat("x", int(task.Instance())), nil
		})
		b := start(t, p, 8, func(f *fake, _ *Config) {
			f.reportFn = func(_ context.Context, b *broker.ReportBatch) error {
				size := 0
				for _, r := range b.Reports {
					size += len(r.Result)
				}
				if size > 1000 {
					return broker.ErrTooLarge
				}
				return nil
			}
		})
		for _, id := range []int64{64, 640, 960, 6400} {
			b.deliver(rootChunk(id), 1)
		}
		synctest.Wait()
		require.Len(t, b.kinds(broker.ReportSucceeded), 3)
		failed := b.kinds(broker.ReportFailed)
		require.Len(t, failed, 1)
		require.Contains(t, failed[0].Error.Message, "the result has 6402 bytes")
		b.end()
	})
}

func TestTask_checkpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(_ context.Context, task *Task) (any, error) {
			var at int
			old, err := task.Checkpointed(&at)
			if err != nil || !old {
				return nil, fmt.Errorf("checkpoint %v: %w", old, err)
			}
			for ; at < 5; at++ {
				if err := task.Checkpoint(at + 1); err != nil {
					return nil, err
				}
			}
			if _, err := task.Checkpointed(&at); err != nil {
				return nil, err
			}
			return at, task.Checkpoint(strings.Repeat("x", broker.MaxCheckpointBytes))
		})
		b := start(t, p, 1)
		c := rootChunk(1)
		c.Tasks[0].Checkpoint = []byte("3")
		b.deliver(c, 1)
		synctest.Wait()
		var saved []string
		for _, r := range b.kinds(broker.ReportCheckpoint) {
			saved = append(saved, string(r.Result))
		}
		require.Equal(t, []string{"4", "5"}, saved)
		require.Contains(t, b.kinds(broker.ReportFailed)[0].Error.Message, "the checkpoint has 65538 bytes; at most 65536")
		b.end()
	})
}

func TestTask_reduces_over_pages_of_results(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, square(), 1, func(f *fake, _ *Config) {
			for i := range 10 {
				f.results = append(f.results, &broker.ResultBatch{Values: [][]byte{fmt.Append(nil, i), fmt.Append(nil, 100*i)}})
			}
			retries := 3
			f.askFn = func(q *broker.AskRequest) (*broker.AskReply, error) {
				if retries--; retries > 0 {
					return nil, broker.ErrUnavailable
				}
				if q.From == 0 {
					return &broker.AskReply{Results: []broker.Range{{First: 1, Last: 4}}, Next: 5, Failed: 2, Total: 22}, nil
				}
				return &broker.AskReply{Results: []broker.Range{{First: 6, Last: 6}, {First: 8, Last: 10}}}, nil
			}
		})
		reduce := func(id int64) *broker.Chunk {
			c := rootChunk(id)
			c.Phase, c.Mode, c.Run = broker.PhaseReduce, ModeMapReduce, 1
			return c
		}
		b.deliver(reduce(1), 1)
		pass(time.Minute)
		require.JSONEq(t, `{"sum":3535,"failed":2,"total":22}`, string(b.kinds(broker.ReportSucceeded)[0].Result))

		b.f.results = b.f.results[:9] // one is lost: the reduce must not succeed on less
		b.deliver(reduce(2), 1)
		pass(time.Minute)
		require.Len(t, b.kinds(broker.ReportSucceeded), 1)
		require.Contains(t, b.kinds(broker.ReportFailed)[0].Error.Message, "read results: run 1 of instance 2: not found")
		b.end()
	})
}

// C43: a flood of lines.
func TestLogger_ships_lines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		p := Func(func(_ context.Context, task *Task) (any, error) {
			log := task.Logger().With("customer", 7).WithGroup("g")
			if task.Number() == 0 {
				log.Debug("first", "a", "b c")
				log.Error(strings.Repeat("💥", 5000) + "\xff")
				return nil, nil
			}
			line := strings.Repeat("x", 1000)
			for range 100_000 {
				log.Info(line)
			}
			return nil, nil
		})
		b := start(t, p, 1, func(f *fake, _ *Config) {
			f.logFn = func(_ context.Context, l *broker.LogBatch) error {
				if l.Number == 1 {
					<-stuck
				}
				return nil
			}
		})
		b.deliver(rootChunk(1), 1)
		synctest.Wait()
		var lines []broker.LogLine
		for _, l := range b.f.logs {
			lines = append(lines, l.Lines...)
		}
		require.Len(t, lines, 2)
		require.Equal(t, `first customer=7 g.a="b c"`, lines[0].Text)
		require.Equal(t, slog.LevelDebug, slog.Level(lines[0].Level))
		require.LessOrEqual(t, len(lines[1].Text), maxLine)
		require.True(t, utf8.ValidString(lines[1].Text))
		require.Contains(t, lines[1].Text, "… (cut: ")
		rep := b.kinds(broker.ReportSucceeded)[0]
		require.EqualValues(t, 1, rep.LogFrom)
		require.EqualValues(t, len(b.f.logs), rep.LogTo)

		at := time.Now()
		b.deliver(subChunk(2, 1, 1, 1), 1)
		pass(3 * time.Second)
		require.Len(t, b.kinds(broker.ReportSucceeded), 2, "a stuck log stream holds nobody up")
		require.Less(t, time.Since(at), 4*time.Second)
		lost := b.w.Stats().LinesLost
		require.Greater(t, lost, int64(80_000))
		b.w.logs.mu.Lock()
		require.LessOrEqual(t, b.w.logs.bytes, maxLogQueue+1024)
		b.w.logs.mu.Unlock()
		close(stuck)
		synctest.Wait()
		last := b.f.logs[len(b.f.logs)-1].Lines
		require.Equal(t, fmt.Sprintf("… %d lines dropped: the log could not be stored as fast as it came", lost), last[len(last)-1].Text)
		b.end()
	})
}
