package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

func mapping(mode string, fn func(task *Task) error) (*broker.Chunk, Processor) {
	c := rootChunk(1)
	c.Mode, c.Run = mode, 1
	return c, Func(func(_ context.Context, t *Task) (any, error) { return nil, fn(t) })
}

// stagedItems reads the stage as a feed must: in order, a batch that was seen already or that
// lies beyond a gap is skipped, since it is sent again behind what filled the gap.
func stagedItems(t *testing.T, f *fake) (items [][]byte, last *broker.StageBatch) {
	t.Helper()
	for _, b := range f.staged {
		if b.First != int64(len(items)) {
			continue
		}
		size := 0
		for _, i := range b.Items {
			size += len(i)
		}
		require.True(t, len(b.Items) <= broker.MaxStageItems && size <= broker.MaxStageBytes || len(b.Items) == 1)
		items, last = append(items, b.Items...), b
	}
	return items, last
}

func TestMap_takes_slices_and_iterators(t *testing.T) {
	t.Parallel()
	type item struct {
		A int `json:"a"`
	}
	fail := errors.New("no more")
	for _, tc := range []struct {
		name  string
		items any
		want  []string
		err   string
	}{
		{"bytes", [][]byte{[]byte("x"), nil, {0xff}}, []string{"x", "", "\xff"}, ""},
		{"strings", []string{"x", "💥"}, []string{`"x"`, `"💥"`}, ""},
		{"structs", []item{{1}, {2}}, []string{`{"a":1}`, `{"a":2}`}, ""},
		{"array", [2]int{3, 4}, []string{"3", "4"}, ""},
		{"any", []any{1, "x", nil, []byte("raw")}, []string{"1", `"x"`, "null", "raw"}, ""},
		{"iterator", slices.Values([]item{{1}}), []string{`{"a":1}`}, ""},
		{"iterator of ints", iter.Seq[int](func(y func(int) bool) { _ = y(1) && y(2) }), []string{"1", "2"}, ""},
		{"iterator with errors", iter.Seq2[item, error](func(y func(item, error) bool) { _ = y(item{1}, nil) && y(item{}, fail) }), nil, `read items of map "m": no more`},
		{"nil", nil, nil, ""},
		{"nil slice", []item(nil), nil, ""},
		{"channels in it", []any{1, make(chan int)}, nil, `encode item 1 of map "m"`},
		{"a string", "x", nil, "items must be a slice"},
		{"one []byte", []byte("x"), nil, "items must be a slice"},
		{"nil func", iter.Seq[item](nil), nil, "items must be a slice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, p := mapping(ModeMap, func(task *Task) error { return task.Map("m", tc.items) })
				b := start(t, p, 1)
				b.deliver(c, 1)
				synctest.Wait()
				if tc.err != "" {
					require.Contains(t, b.kinds(broker.ReportFailed)[0].Error.Message, tc.err)
				} else {
					items, _ := stagedItems(t, b.f)
					var got []string
					for _, i := range items {
						got = append(got, string(i))
					}
					require.Equal(t, tc.want, got)
					require.EqualValues(t, len(tc.want), b.kinds(broker.ReportSucceeded)[0].Emitted)
				}
				b.end()
			})
		})
	}
}

// C19: a map of nothing, of nil, and no map at all.
func TestMap_of_zero(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fn   func(*Task) error
		want int64
	}{
		"empty list":  {func(t *Task) error { return t.Map("m", []int{}) }, 0},
		"nil":         {func(t *Task) error { return t.Map("m", nil) }, 0},
		"not called":  {func(*Task) error { return nil }, -1},
		"several":     {func(t *Task) error { return errors.Join(t.Map("m", []int{1}), t.Map("n", []int{2, 3})) }, 3},
		"none and so": {func(t *Task) error { return errors.Join(t.Map("m", []int{}), t.Map("n", []int{2, 3})) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, p := mapping(ModeMapReduce, tc.fn)
				b := start(t, p, 1)
				b.deliver(c, 1)
				synctest.Wait()
				require.Equal(t, tc.want, b.kinds(broker.ReportSucceeded)[0].Emitted)
				b.end()
			})
		})
	}
}

func TestMap_streams_a_hundred_thousand_items(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 100_000
		buf := make([]byte, 0, 16)
		c, p := mapping(ModeMap, func(task *Task) error {
			return task.Map("m", iter.Seq[[]byte](func(yield func([]byte) bool) {
				for i := range n {
					buf = fmt.Appendf(buf[:0], "item %d", i) // reused, as bufio.Scanner does
					if !yield(buf) {
						return
					}
				}
			}))
		})
		b := start(t, p, 1, func(f *fake, _ *Config) { f.slowStage = true })
		b.deliver(c, 1)
		pass(time.Minute)
		items, last := stagedItems(t, b.f)
		require.Len(t, items, n)
		require.Equal(t, stageWindow, b.f.mostFlying, "the window is used, and bounds the memory")
		require.Equal(t, "item 54321", string(items[54321]))
		rep := b.kinds(broker.ReportSucceeded)[0]
		require.EqualValues(t, n, rep.Emitted)
		require.Equal(t, last.Hash, rep.EmittedHash)
		require.Equal(t, last.Token, rep.Token)
		require.EqualValues(t, 1, rep.StageFirst)
		require.EqualValues(t, len(b.f.staged), rep.StageSeq)
		h := uint64(fnvOffset)
		for _, i := range items {
			h = fnvPart(fnvPart(h, "m"), i)
		}
		require.Equal(t, h, rep.EmittedHash)
		for _, r := range b.kinds(broker.ReportEmitted) {
			require.LessOrEqual(t, r.Emitted, int64(n))
			require.NotZero(t, r.StageFirst)
		}
		b.end()
	})
}

func TestMap_refuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode, text string
		items      any
		prepare    func(*fake, *broker.Chunk)
	}{
		"standalone":    {ModeStandalone, "the mode of the instance is standalone; a job that maps has mode map or map_reduce", []int{1}, nil},
		"broadcast":     {ModeBroadcast, "mode of the instance is broadcast", []int{1}, nil},
		"one too large": {ModeMap, `item 1 of map "m" has 524289 bytes; at most 524288 travel`, [][]byte{make([]byte, broker.MaxItemBytes), make([]byte, broker.MaxItemBytes+1)}, nil},
		"over its quota": {
			ModeMap, "about 1048576 bytes of items; its quota is 1000000",
			[][]byte{make([]byte, 512<<10), make([]byte, 512<<10), make([]byte, 512<<10)},
			func(f *fake, c *broker.Chunk) { c.StageQuota, f.used = 1_000_000, 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, p := mapping(tc.mode, func(task *Task) error {
					_ = task.Map("m", tc.items) // ignored: the task fails all the same
					return task.Map("m", tc.items)
				})
				b := start(t, p, 1, func(f *fake, _ *Config) {
					if tc.prepare != nil {
						tc.prepare(f, c)
					}
				})
				b.deliver(c, 1)
				synctest.Wait()
				e := b.kinds(broker.ReportFailed)[0].Error
				require.Contains(t, e.Message, tc.text)
				require.Equal(t, broker.ErrorPermanent, e.Kind)
				b.end()
			})
		})
	}
}

func TestMap_fails_the_task_even_if_its_error_is_ignored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := mapping(ModeMap, func(task *Task) error { _ = task.Map("m", []any{make(chan int)}); return nil })
		b := start(t, p, 1)
		b.deliver(c, 1)
		synctest.Wait()
		require.Len(t, b.kinds(broker.ReportFailed), 1)
		b.end()
	})
}

func TestMap_waits_for_room(t *testing.T) {
	t.Parallel()
	items := make([]string, 5000)
	t.Run("and gets it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			refusals := map[int64]int{512: 3, 1024: 2, 4608: 5}
			c, p := mapping(ModeMap, func(task *Task) error { return task.Map("m", items) })
			b := start(t, p, 1, func(f *fake, _ *Config) {
				f.stageFn = func(b *broker.StageBatch) error {
					f.mu.Lock()
					defer f.mu.Unlock()
					if refusals[b.First] > 0 {
						refusals[b.First]--
						return []error{broker.ErrNoRoom, broker.ErrUnavailable}[refusals[b.First]%2]
					}
					return nil
				}
			})
			b.deliver(c, 1)
			pass(time.Minute)
			got, _ := stagedItems(t, b.f)
			require.Len(t, got, 5000)
			require.EqualValues(t, 5000, b.kinds(broker.ReportSucceeded)[0].Emitted)
			b.end()
		})
	})
	t.Run("in vain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, p := mapping(ModeMap, func(task *Task) error { return task.Map("m", items) })
			b := start(t, p, 1, func(f *fake, _ *Config) {
				f.stageFn = func(b *broker.StageBatch) error {
					if b.First >= 1024 {
						return broker.ErrNoRoom
					}
					return nil
				}
			})
			b.deliver(c, 1)
			pass(29 * time.Second)
			require.Empty(t, b.kinds(broker.ReportFailed))
			pass(5 * time.Second)
			rep := b.kinds(broker.ReportFailed)[0]
			require.Equal(t, broker.ErrorRoom, rep.Error.Kind)
			require.Contains(t, rep.Error.Message, "after 1024 items and 30s of waiting")
			require.EqualValues(t, 1024, rep.Emitted)
			require.Zero(t, b.w.Stats().Busy)
			b.end()
		})
	})
	t.Run("until it is stopped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, p := mapping(ModeMap, func(task *Task) error { return task.Map("m", items) })
			b := start(t, p, 1, func(f *fake, _ *Config) {
				f.stageFn = func(*broker.StageBatch) error { return broker.ErrUnavailable }
			})
			b.deliver(c, 1)
			pass(time.Hour)
			require.Empty(t, b.kinds(broker.ReportFailed), "a broker that is away costs patience, not the task")
			b.f.control(broker.Control{Kind: broker.ControlStop, Instance: 1, Attempt: 1})
			pass(time.Second)
			require.Equal(t, broker.ErrorStopped, b.kinds(broker.ReportFailed)[0].Error.Kind)
			b.end()
		})
	})
}

func TestMap_from_sub_tasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Func(func(_ context.Context, task *Task) (any, error) {
			if task.Number()%2 == 0 {
				return task.Number(), task.Map("deep", []int64{task.Number()})
			}
			return task.Number(), nil
		})
		b := start(t, p, 1)
		c := subChunk(1, 1, 1, 4)
		c.Collect = true
		b.deliver(c, 1)
		synctest.Wait()
		emitted := map[int64]int64{}
		for _, r := range b.kinds(broker.ReportSucceeded) {
			require.NotZero(t, r.ResultSeq)
			for _, n := range r.Numbers {
				emitted[n] = r.Emitted
			}
		}
		require.Equal(t, map[int64]int64{1: -1, 2: 1, 3: -1, 4: 1}, emitted)
		for _, s := range b.f.staged {
			var n int64
			require.NoError(t, json.Unmarshal(s.Items[0], &n))
			require.Equal(t, s.Mapper, n)
		}
		b.end()
	})
}
