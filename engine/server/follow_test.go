package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

// Jobs that follow each other in a circle, due at the same moments: one goes first, and none
// of them waits for ever.
func TestJobsThatFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.worker("w", 4, quickly)
	save := func(name, after string) server.Definition {
		s := workflow.Schedule{Cron: "* * * * * ?"}
		if after != "" {
			s.After = []workflow.Dependency{{Job: after, Weak: true}}
		}
		return w.scheduled(name, workflow.Spec{Processor: "quick"}, s)
	}
	save("a", "")
	save("b", "a")
	save("c", "b")
	all := []server.Definition{save("a", "c"), {App: "test", Job: "b"}, {App: "test", Job: "c"}}
	w.beat(3, all...)
	for _, d := range all {
		w.halt(d)
		fired, skips := w.ledger(d)
		require.NotEmpty(t, fired)
		for _, k := range skips {
			require.NotEqual(t, engine.SkipDependency, k.Reason)
		}
	}
}
