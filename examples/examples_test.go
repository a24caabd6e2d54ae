// Package examples_test runs every lesson as its README says, and compares what fanjet
// run prints with the lesson's output.golden.
package examples_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

const patience = 2 * time.Minute

func TestExamples(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build(t, bin, "../cmd/fanjet")
	lessons, err := filepath.Glob("[0-9][0-9]-*")
	require.NoError(t, err)
	require.Len(t, lessons, 5)
	for _, lesson := range lessons {
		t.Run(lesson, func(t *testing.T) {
			t.Parallel()
			build(t, bin, "./"+lesson)
			dir := t.TempDir()
			var args []string
			switch lesson {
			case "02-map":
				args = []string{"--param", "dir=" + dir}
			case "04-broadcast":
				args = []string{"--wait-workers", "3"}
			}
			require.Equal(t, readmeFlags(t, lesson), flagNames(args), "the flags of the README and of this test differ")
			requireRun(t, bin, lesson, "output.golden", args...)
			if lesson == "02-map" {
				page, err := os.ReadFile(filepath.Join(dir, "page-07.html"))
				require.NoError(t, err)
				require.Equal(t, "<h1>Chapter 7</h1>\n", string(page))
			}
			if lesson == "05-workflow" {
				requireRun(t, bin, lesson, "small.golden", "--param", `items=[{"name": "pen", "price": 200}]`)
			}
		})
	}
}

func build(t *testing.T, bin, pkg string) {
	t.Helper()
	out, err := exec.Command("go", "build", "-o", filepath.Join(bin, filepath.Base(pkg)), pkg).CombinedOutput()
	require.NoError(t, err, string(out))
}

// requireRun runs the lesson with its own worker and compares what it printed.
func requireRun(t *testing.T, bin, lesson, golden string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args = append([]string{"run", lesson + "/workflow.yaml", "--worker", "exec " + filepath.Join(bin, lesson)}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "fanjet"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that its worker ends too
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), errs.String())
	golden = filepath.Join(lesson, golden)
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), errs.String())
}

var runLine = regexp.MustCompile(`(?m)^ {4}go run \./cmd/fanjet run examples/(\S+)/workflow\.yaml (.*)--worker 'go run \./examples/(\S+)'$`)

// readmeFlags are the flags of the README's command, which must be about the lesson.
func readmeFlags(t *testing.T, lesson string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(lesson, "README.md"))
	require.NoError(t, err)
	m := runLine.FindStringSubmatch(string(text))
	require.NotNil(t, m, "README.md has no command")
	require.Equal(t, []string{lesson, lesson}, []string{m[1], m[3]})
	return flagNames(strings.Fields(m[2]))
}

func flagNames(args []string) []string {
	names := []string{}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--") {
			names = append(names, arg)
		}
	}
	return names
}
