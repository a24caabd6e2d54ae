package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// home is where an app's messages are.
type home struct{ app, set string }

// settle gives each home one message of every kind, of the same instance, and a chunk of an
// instance of its own.
func settle(e *ends, homes []home) {
	e.Helper()
	for i, h := range homes {
		e.ok(e.publish(h.set, chunkOf(h.app, 5, int64(1000+i), h.app)))
		e.ok(e.publish(h.set, chunkOf(h.app, int64(100+i), 1, h.app)))
		done := make(chan error, 1)
		e.ok(e.w.Stage(h.app, h.set, &broker.StageBatch{Instance: 5, Run: 1, Items: [][]byte{[]byte(h.app)}}, func(_ uint64, err error) { done <- err }))
		e.ok(wait(e, "the ack of a stage batch", done))
		_, err := e.w.PublishResult(e.ctx, h.app, h.set, &broker.ResultBatch{Instance: 5, Run: 1, Values: [][]byte{[]byte(h.app)}})
		e.ok(err)
		_, err = e.w.PublishLog(e.ctx, h.app, h.set, &broker.LogBatch{Instance: 5, Lines: []broker.LogLine{{Text: h.app}}})
		e.ok(err)
	}
}

// check fails unless the home holds what it was given, and nothing else.
func (h home) check(e *ends, i int) {
	e.Helper()
	n, err := e.b.TaskCounts(e.ctx, h.app, h.set)
	e.ok(err)
	require.Equal(e.T, map[int64]int{5: 1, int64(100 + i): 1}, n)
	list, err := e.b.TaskList(e.ctx, h.app, h.set, 5)
	e.ok(err)
	require.Equal(e.T, []broker.ChunkKey{{Instance: 5, Attempt: 1, Chunk: int64(1000 + i)}}, list)
	holders, err := e.b.RunHolders(e.ctx, h.app, h.set)
	e.ok(err)
	require.Equal(e.T, []int64{5}, holders)
	stage, results, tasks, err := e.b.RunCounts(e.ctx, h.app, h.set, 5)
	e.ok(err)
	require.Equal(e.T, []uint64{1, 1, 1}, []uint64{stage, results, tasks})
	used, err := e.w.StageUsed(e.ctx, h.app, h.set, 5, 1)
	e.ok(err)
	require.Equal(e.T, uint64(1), used)
	staged, err := e.b.ReadStage(e.ctx, h.app, h.set, 5, 1, 0, 10)
	e.ok(err)
	require.Len(e.T, staged, 1)
	require.Equal(e.T, h.app, string(staged[0].Items[0]))
	one, err := e.b.ReadStaged(e.ctx, h.set, h.app, staged[0].Seq)
	e.ok(err)
	require.Equal(e.T, staged[0].Items, one.Items)
	var lines []string
	e.ok(e.b.ReadLogs(e.ctx, h.app, h.set, 5, 0, 0, func(_ uint64, l *broker.LogBatch) error {
		lines = append(lines, l.Lines[0].Text)
		return nil
	}))
	require.Equal(e.T, []string{h.app}, lines)
}

// sharedSets: apps of one shared set see, count, deliver and purge their own only; so does an
// app's own set beside it, and that of an app that is called like a shared one.
func sharedSets(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	homes := []home{{"shop", "s2"}, {"bank", "s2"}, {"shop", ""}, {"s2", ""}}
	for _, h := range homes {
		e.ok(e.b.EnsureApp(e.ctx, h.app, h.set, []string{"any", "gpu"}))
	}
	settle(e, homes)
	for i, h := range homes {
		h.check(e, i)
	}
	// Another app's message, by its sequence.
	staged, err := e.b.ReadStage(e.ctx, "shop", "s2", 5, 1, 0, 10)
	e.ok(err)
	_, err = e.b.ReadStaged(e.ctx, "s2", "bank", staged[0].Seq)
	require.ErrorIs(t, err, broker.ErrNotFound)
	err = e.w.ReadResults(e.ctx, "bank", "s2", 5, 1, []broker.Range{{First: 1, Last: 2}}, func(*broker.ResultBatch) error { return nil })
	require.ErrorIs(t, err, broker.ErrNotFound, "one of the two is the other app's")
	// Each purge takes the app's own only.
	for i, h := range homes {
		e.ok(e.b.PurgeTasks(e.ctx, h.app, h.set, 5))
		e.ok(e.b.PurgeTasks(e.ctx, h.app, h.set, int64(100+i)))
		e.ok(e.b.PurgeRun(e.ctx, h.app, h.set, 5, 0))
		n, err := e.b.TaskCounts(e.ctx, h.app, h.set)
		e.ok(err)
		require.Empty(t, n)
		holders, err := e.b.RunHolders(e.ctx, h.app, h.set)
		e.ok(err)
		require.Empty(t, holders)
		for j := i + 1; j < len(homes); j++ {
			homes[j].check(e, j)
		}
	}
	// Each puller gets its app's chunks only: those of a lane and pool have a durable an app.
	pullers := map[home]counter{}
	for _, h := range homes[:2] {
		p, c := e.puller(h.app, h.set, time.Minute)
		e.ok(p.Want(3))
		pullers[h] = c
	}
	for i := range 3 {
		for _, h := range homes[:2] {
			e.ok(e.publish(h.set, chunkOf(h.app, int64(i+1), 1, fmt.Sprint(h.app, i))))
		}
	}
	for h, c := range pullers {
		for range 3 {
			d := wait(e, "a chunk of "+h.app, c.got)
			require.Equal(t, h.app, d.Chunk.App)
			e.ok(d.Ack())
		}
		require.Empty(t, c.got)
	}
	for _, h := range homes[:2] {
		e.until("all are acked", func() bool {
			n, err := e.b.TaskCounts(e.ctx, h.app, h.set)
			return err == nil && len(n) == 0
		})
	}
}
