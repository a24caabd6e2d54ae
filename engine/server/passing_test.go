package server_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// odd is a store that answers some reads of an app with an error of no kind the engine knows.
type odd struct {
	engine.Store
	left atomic.Int64
	hit  atomic.Int64
}

func (o *odd) App(ctx context.Context, id int64) (*engine.App, error) {
	if o.left.Add(-1) >= 0 {
		o.hit.Add(1)
		return nil, errors.New("the driver had a bad day")
	}
	return o.Store.App(ctx, id)
}

// A read that failed for whatever reason is the database's trouble: what it was about waits
// and runs, it does not fail.
func TestOddReadFailsNothing(t *testing.T) {
	t.Parallel()
	base := newWorld(t, "")
	base.stopServer()
	store := &odd{Store: base.store}
	w := newWorldWith(t, "", server.Config{Store: store})
	w.store = base.store
	w.worker("w", 1, func(p *processor.Worker) { p.Register("p", who("w")) })
	w.job("j", workflow.Spec{Processor: "p"})
	store.left.Store(3)
	id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "j", Delay: 10 * time.Millisecond})
	require.NoError(t, err)
	in, err := w.server.WaitInstance(w.ctx, id)
	require.NoError(t, err)
	require.EqualValues(t, 3, store.hit.Load())
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
}
