package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

// command runs one command line in this process.
func command(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	code = execute(args, &console{&o, &e})
	return o.String(), e.String(), code
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestValidate_Broken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/broken/*.[yj]*")
	require.NoError(t, err)
	require.Greater(t, len(files), 5)
	out, errs, code := command(append([]string{"validate", "testdata/good.yaml"}, files...)...)
	require.Equal(t, exitInvalid, code)
	require.Empty(t, errs)
	golden(t, "testdata/validate.golden", out)
}

func TestValidate_JSON(t *testing.T) {
	t.Parallel()
	out, _, code := command("validate", "-o", "json", "testdata/good.yaml", "testdata/broken/cycle.yaml", "testdata/none.yaml")
	require.Equal(t, exitInvalid, code)
	var verdicts []verdict
	require.NoError(t, json.Unmarshal([]byte(out), &verdicts))
	require.Len(t, verdicts, 3)
	require.Equal(t, verdict{File: "testdata/good.yaml", OK: true, Documents: 1, Nodes: 2, Problems: verdicts[0].Problems}, verdicts[0])
	require.Equal(t, 6, verdicts[1].Problems[0].Line)
	require.Equal(t, "there is no such file; check the path", verdicts[2].Problems[0].Message)
}

func TestValidate_Good(t *testing.T) {
	t.Parallel()
	out, errs, code := command("validate", "testdata/good.yaml", "demo.yaml")
	require.Zero(t, code)
	require.Empty(t, errs)
	require.Equal(t, "testdata/good.yaml: ok, 2 nodes\ndemo.yaml: ok, 5 nodes\n", out)
}
