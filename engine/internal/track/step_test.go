package track

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A clock that is put forward an hour times nothing out: nobody has worked longer for it.
func TestStepped(t *testing.T) {
	t.Parallel()
	o := New(Config{}, nil, nil)
	o.now = 1000
	for _, k := range []timerKind{timerInstance, timerRetry, timerTask} {
		o.at(&timer{at: 2000 + int64(k), kind: k, instance: int64(k)})
	}
	in := &inst{heard: 900, listed: 800, chunks: map[int64]*chunk{1: {sentAt: 700, since: 600}}}
	o.insts[7] = in
	o.stepped(3_600_000)
	require.Equal(t, timerRetry, o.timers[0].kind, "what is due at a time of day is due")
	for _, x := range o.timers[1:] {
		require.Greater(t, x.at, int64(3_600_000))
	}
	require.EqualValues(t, 3_600_900, in.heard)
	require.EqualValues(t, 3_600_700, in.chunks[1].sentAt)
}
