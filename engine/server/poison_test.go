package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// refusing is a store that calls one instance's final row impossible.
type refusing struct {
	engine.Store
	key string
}

func (r refusing) Commit(ctx context.Context, changes []engine.Change) ([]error, error) {
	for i := range changes {
		for _, in := range changes[i].Instances {
			if in.Key == r.key && in.Status.Terminal() {
				errs := make([]error, len(changes))
				for j := range errs {
					errs[j] = engine.ErrUnavailable
				}
				errs[i] = fmt.Errorf("instance %d: %w", in.ID, engine.ErrInvalid)
				rest := append(append([]engine.Change{}, changes[:i]...), changes[i+1:]...)
				others, err := r.Store.Commit(ctx, rest)
				if err != nil {
					return nil, err
				}
				copy(errs, others[:i])
				copy(errs[i+1:], others[i:])
				return errs, nil
			}
		}
	}
	return r.Store.Commit(ctx, changes)
}

// A row that the store refuses costs the report that leads to it, not its shard: everything
// else of the shard goes on, and the report is among the dead letters.
func TestPoisonReport(t *testing.T) {
	t.Parallel()
	base := newWorld(t, "")
	base.stopServer()
	w := newWorldWith(t, "", server.Config{Store: refusing{base.store, "bad"}})
	w.store = base.store
	w.worker("w", 4, func(p *processor.Worker) { p.Register("p", who("w")) })
	w.job("one", workflow.Spec{Processor: "p"})
	bad, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "one", Key: "bad"})
	require.NoError(t, err)
	for i := range 20 {
		id, err := w.server.Trigger(w.ctx, server.Trigger{App: "test", Job: "one", Key: fmt.Sprint(i)})
		if err != nil {
			continue // its shard was being loaded again; the caller is told
		}
		in, err := w.server.WaitInstance(w.ctx, id)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, in.Status)
	}
	dead, err := w.store.DeadLetters(w.ctx, 0, 10)
	require.NoError(t, err)
	require.NotEmpty(t, dead)
	require.Contains(t, dead[0].Reason, "the store refuses")
	in, err := w.store.Instance(w.ctx, bad)
	require.NoError(t, err)
	require.False(t, in.Status.Terminal())
}
