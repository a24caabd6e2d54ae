package brokertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// stage stores batches without waiting in between, and returns their sequences.
func (e *ends) stage(instance int64, run int32, batches int, items func(i int) [][]byte) []uint64 {
	e.Helper()
	seqs := make([]uint64, batches)
	var once endOnce
	done := make(chan error, batches)
	for i := range batches {
		b := &broker.StageBatch{Instance: instance, Run: run, Mapper: 3, First: int64(i), Name: "items", Items: items(i)}
		e.ok(e.w.Stage("shop", "", b, func(seq uint64, err error) {
			once.call(i)
			seqs[i] = seq
			done <- err
		}))
	}
	for range batches {
		e.ok(wait(e, "the ack of a stage batch", done))
	}
	e.ok(once.check(batches))
	return seqs
}

func small(i int) [][]byte { return [][]byte{fmt.Appendf(nil, "item %d", i)} }

func stageAndResults(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	const batches = 2500
	seqs := e.stage(1, 1, batches, small)
	e.stage(1, 2, 3, small)
	for i := 1; i < batches; i++ {
		require.Greater(t, seqs[i], seqs[i-1], "stored in the order of the calls")
	}
	n, err := e.w.StageUsed(e.ctx, "shop", "", 1, 1)
	e.ok(err)
	require.Equal(t, uint64(batches), n)
	from, read := uint64(0), 0
	for {
		page, err := e.b.ReadStage(e.ctx, "shop", "", 1, 1, from, 1100)
		e.ok(err)
		for _, s := range page {
			require.Equal(t, seqs[read], s.Seq)
			require.Equal(t, small(read), s.Items)
			require.Equal(t, int64(read), s.First)
			read++
			from = s.Seq + 1
		}
		if len(page) < 1100 {
			break
		}
	}
	require.Equal(t, batches, read)
	one, err := e.b.ReadStaged(e.ctx, "", "shop", seqs[7])
	e.ok(err)
	require.Equal(t, small(7), one.Items)
	_, err = e.b.ReadStaged(e.ctx, "", "shop", 999_999)
	require.ErrorIs(t, err, broker.ErrNotFound)
	empty, err := e.b.ReadStage(e.ctx, "shop", "", 1, 9, 0, 10)
	e.ok(err)
	require.Empty(t, empty)

	const results = 3000
	var at []uint64
	for i := range results {
		seq, err := e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 1, Run: 1, Numbers: []int64{int64(i)}, Values: [][]byte{fmt.Appendf(nil, "%d", i)}})
		e.ok(err)
		at = append(at, seq)
	}
	// All but every hundredth, which the owner did not accept.
	var ranges []broker.Range
	var want []int64
	for i := 0; i < results; i += 100 {
		ranges = append(ranges, broker.Range{First: at[i+1], Last: at[i+99]})
		for j := i + 1; j < i+100; j++ {
			want = append(want, int64(j))
		}
	}
	var got []int64
	e.ok(e.w.ReadResults(e.ctx, "shop", "", 1, 1, ranges, func(b *broker.ResultBatch) error {
		require.Equal(t, fmt.Sprint(b.Numbers[0]), string(b.Values[0]))
		got = append(got, b.Numbers...)
		return nil
	}))
	require.Equal(t, want, got)
	e.ok(e.w.ReadResults(e.ctx, "shop", "", 1, 1, nil, func(*broker.ResultBatch) error { return errors.New("none is listed") }))
	stop := errors.New("enough")
	require.Equal(t, stop, e.w.ReadResults(e.ctx, "shop", "", 1, 1, ranges, func(*broker.ResultBatch) error { return stop }))
	past := append(append([]broker.Range{}, ranges...), broker.Range{First: at[results-1] + 1, Last: at[results-1] + 1})
	err = e.w.ReadResults(e.ctx, "shop", "", 1, 1, past, func(*broker.ResultBatch) error { return nil })
	require.ErrorIs(t, err, broker.ErrNotFound)
	// A listed one that is another run's is missing too.
	seq, err := e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 2, Run: 1})
	e.ok(err)
	err = e.w.ReadResults(e.ctx, "shop", "", 1, 1, []broker.Range{{First: seq, Last: seq}}, func(*broker.ResultBatch) error { return nil })
	require.ErrorIs(t, err, broker.ErrNotFound)
}

func purgeRun(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	e.stage(1, 1, 50, small)
	e.stage(1, 2, 50, small)
	e.stage(2, 1, 50, small)
	_, err := e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 1, Run: 1})
	e.ok(err)
	e.ok(e.b.PurgeRun(e.ctx, "shop", "", 1, 1))
	stage, results, tasks, err := e.b.RunCounts(e.ctx, "shop", "", 1)
	e.ok(err)
	require.Equal(t, []uint64{50, 0, 0}, []uint64{stage, results, tasks})
	e.ok(e.b.PurgeRun(e.ctx, "shop", "", 1, 0))
	stage, _, _, err = e.b.RunCounts(e.ctx, "shop", "", 1)
	e.ok(err)
	require.Zero(t, stage)
	stage, _, _, err = e.b.RunCounts(e.ctx, "shop", "", 2)
	e.ok(err)
	require.Equal(t, uint64(50), stage)
}

// purgeSlices removes a run of 150 MiB that lies mixed with another.
func purgeSlices(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	body := make([]byte, 250<<10)
	e.stage(2, 1, 40, small)
	e.stage(1, 1, 600, func(int) [][]byte { return [][]byte{body} })
	e.stage(2, 1, 40, small)
	e.ok(e.b.PurgeRun(e.ctx, "shop", "", 1, 1))
	for instance, want := range map[int64]uint64{1: 0, 2: 80} {
		stage, _, _, err := e.b.RunCounts(e.ctx, "shop", "", instance)
		e.ok(err)
		require.Equal(t, want, stage)
	}
}

func logs(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	// Two instances of one bucket.
	a, b := int64(1), int64(2)
	for broker.LogBucket(a) != broker.LogBucket(b) {
		b++
	}
	var seqs []uint64
	for i := range 10 {
		for _, id := range []int64{a, b} {
			seq, err := e.w.PublishLog(e.ctx, "shop", "", &broker.LogBatch{Instance: id, Number: int64(i), Worker: "w", Lines: []broker.LogLine{{At: 5, Level: -4, Text: "hello"}}})
			e.ok(err)
			if id == a {
				seqs = append(seqs, seq)
			}
		}
	}
	read := func(from, to uint64) (numbers []int64) {
		e.ok(e.b.ReadLogs(e.ctx, "shop", "", a, from, to, func(_ uint64, l *broker.LogBatch) error {
			require.Equal(t, a, l.Instance)
			numbers = append(numbers, l.Number)
			return nil
		}))
		return numbers
	}
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, read(0, 0))
	require.Equal(t, []int64{2, 3, 4}, read(seqs[2], seqs[4]))
}
