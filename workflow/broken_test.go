package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every broken document is refused at once, with everything that is wrong in it at its place.
func TestBroken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/broken/*.[yj]*")
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	var out strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		start := time.Now()
		d, err := Parse(filepath.Base(f), data)
		if err == nil {
			_, err = Build(d)
		}
		require.Error(t, err, f)
		require.Less(t, time.Since(start), 5*time.Second, f)
		out.WriteString(err.Error() + "\n\n")
	}
	const golden = "testdata/broken/golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}
