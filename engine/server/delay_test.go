package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// A delay is kept: never early. How late is printed, and asserted only against the sweep,
// which would find what the owner forgot: a second a piece.
func TestDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 2, func(p *processor.Worker) {
		p.Register("now", processor.Func(func(context.Context, *processor.Task) (any, error) { return time.Now().UnixMilli(), nil }))
	})
	w.job("now", workflow.Spec{Processor: "now"})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var late []int64
	for i := range 20 {
		wg.Go(func() {
			d := time.Duration(i*i) * time.Millisecond
			id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "now", Delay: d})
			if err != nil {
				t.Error(err)
				return
			}
			in, err := w.server.WaitInstance(w.ctx, id)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			late = append(late, in.StartedAt-in.DueAt)
		})
	}
	wg.Wait()
	t.Logf("late by ms: %v", late)
	require.Len(t, late, 20)
	swept := 0
	for _, ms := range late {
		require.GreaterOrEqual(t, ms, int64(0))
		if ms > 800 {
			swept++
		}
	}
	require.Less(t, swept, 10)
}
