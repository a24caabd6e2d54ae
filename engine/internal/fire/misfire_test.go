package fire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/internal/fire"
	"github.com/fanjet/fanjet/workflow"
)

// A25: a job that fires every 10 s, and a server that is away for 65 s.
func TestMisfireAfterDowntime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		misfire workflow.Misfire
		max     int
		want    string
	}{
		"once":        {workflow.MisfireOnce, 0, "run 10s, misfire 20s-1m10s x6, run 1m20s+5s, run 1m30s"},
		"the default": {"", 0, "run 10s, misfire 20s-1m10s x6, run 1m20s+5s, run 1m30s"},
		"skip":        {workflow.MisfireSkip, 0, "run 10s, misfire 20s-1m20s x7, run 1m30s"},
		"all":         {workflow.MisfireAll, 0, "run 10s, run 20s+1m5s, run 30s+55s, run 40s+45s, run 50s+35s, run 1m0s+25s, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
		"all, capped": {workflow.MisfireAll, 2, "run 10s, misfire 20s-1m0s x5, run 1m10s+15s, run 1m20s+5s, run 1m30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(w *world) {
				s := every(10 * time.Second)
				s.Misfire, s.MisfireMax, s.Overlap = c.misfire, c.max, workflow.OverlapAllow
				j := w.job("j", s, 0)
				o := w.start(fire.Config{}, long)
				w.pass(20*time.Second - time.Millisecond)
				o.stop()
				w.pass(65*time.Second + time.Millisecond)
				o = w.start(fire.Config{}, long)
				w.pass(10 * time.Second)
				require.Equal(t, c.want, j.ledger())
				j.whole()
				o.stop()
			})
		})
	}
}
