package brokertest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// down checks that every call fails at once while the broker is away, tells its outcome
// once, and works again afterwards.
func down(t *testing.T, in place) {
	downs, ups := make(chan bool, 8), make(chan bool, 8)
	c := broker.Config{Options: broker.Options{OnDown: func() { downs <- true }, OnUp: func() { ups <- true }}}
	e := start(t, in, c)
	e.s.Kill()
	wait(e, "one end is told", downs)
	wait(e, "the other end is told", downs)
	require.False(t, e.b.Connected())
	require.False(t, e.w.Connected())
	begin := time.Now()
	require.ErrorIs(t, e.publish("", chunkOf("shop", 1, 1, "x")), broker.ErrUnavailable)
	require.ErrorIs(t, e.w.Beat(&broker.Beat{App: "shop", Worker: "w"}), broker.ErrUnavailable)
	_, err := e.w.PublishReports(e.ctx, 1, &broker.ReportBatch{App: "shop"})
	require.ErrorIs(t, err, broker.ErrUnavailable)
	_, err = e.w.Ask(e.ctx, &broker.AskRequest{Shard: 1})
	require.ErrorIs(t, err, broker.ErrUnavailable)
	_, err = e.b.ReadStage(e.ctx, "shop", "", 1, 1, 0, 10)
	require.ErrorIs(t, err, broker.ErrUnavailable)
	require.ErrorIs(t, e.b.EnsureApp(e.ctx, "new", "", nil), broker.ErrUnavailable)
	require.Less(t, time.Since(begin), 3*time.Second)
	e.s.Restart()
	wait(e, "one end is told", ups)
	wait(e, "the other end is told", ups)
	e.until("chunks are taken again", func() bool { return e.publish("", chunkOf("shop", 1, 1, "x")) == nil })
	n, err := e.b.TaskCounts(e.ctx, "shop", "")
	e.ok(err)
	require.Equal(t, 1, n[1], "nothing was sent late")
}

// outcomesOverRestarts publishes as fast as it can while the broker goes away: each call
// ends exactly once, and what was acked is there afterwards.
func outcomesOverRestarts(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	const most = 200_000
	var chunks, staged endOnce
	var mu sync.Mutex
	acked := map[int64]bool{}
	refused, restarts, sent := 0, 0, 0
	var under sync.WaitGroup
	for ; sent < most && (restarts < 3 || sent%1000 != 0); sent++ {
		id := int64(sent + 1)
		under.Add(2)
		e.b.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", 1, id, "x"), func(err error) {
			defer under.Done()
			chunks.call(int(id))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked[id] = true
			} else {
				refused++
			}
		})
		// The error is done's as well.
		_ = e.w.Stage("shop", "", &broker.StageBatch{Instance: 1, Run: 1, First: id, Items: small(sent)}, func(_ uint64, err error) {
			defer under.Done()
			staged.call(int(id))
		})
		if sent%3000 == 2999 && restarts < 3 {
			e.s.Restart()
			restarts++
			e.until("both ends are back", func() bool { return e.b.Connected() && e.w.Connected() })
		}
	}
	under.Wait()
	e.ok(chunks.check(sent))
	e.ok(staged.check(sent))
	require.Equal(t, sent, len(acked)+refused)
	var there map[int64]bool
	e.until("the chunks are listed", func() bool {
		keys, err := e.b.TaskList(e.ctx, "shop", "", 1)
		there = map[int64]bool{}
		for _, k := range keys {
			there[k.Chunk] = true
		}
		return err == nil
	})
	for id := range acked {
		require.True(t, there[id], "chunk %d was acked and is gone", id)
	}
}

// endOnce makes sure that a callback comes exactly once.
type endOnce struct {
	mu    sync.Mutex
	calls map[int]int
}

func (o *endOnce) call(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = map[int]int{}
	}
	o.calls[i]++
}

func (o *endOnce) check(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) != n {
		return fmt.Errorf("%d of %d ended", len(o.calls), n)
	}
	for i, c := range o.calls {
		if c != 1 {
			return fmt.Errorf("%d ended %d times", i, c)
		}
	}
	return nil
}
