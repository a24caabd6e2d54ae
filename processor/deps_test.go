package processor

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What users link when they import this package, the standard library aside, is a promise:
// testdata/deps.txt. A new line there is a decision, not an accident.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	want, err := os.ReadFile("testdata/deps.txt")
	require.NoError(t, err)
	require.Equal(t, strings.Fields(string(want)), strings.Fields(string(out)))
}
