package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A22: a clock that is put forward is told apart from one that runs.
func TestClockPutForward(t *testing.T) {
	t.Parallel()
	var c clock
	require.EqualValues(t, 1_000_000, c.at(1_000_000, 0))
	require.Zero(t, c.jumped(), "the first reading is no step")
	require.EqualValues(t, 1_010_500, c.at(1_010_500, 10_000))
	require.Zero(t, c.jumped(), "a renewal corrects by less than a second")
	require.EqualValues(t, 4_611_000, c.at(4_611_000, 10_500))
	require.EqualValues(t, 3_600_000, c.jumped())
	require.Zero(t, c.jumped(), "told once")
}
