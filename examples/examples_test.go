// Package examples_test runs every lesson as its README says, and compares what fanjet
// run prints with the lesson's output.golden.
package examples_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
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
	require.Len(t, lessons, 11)
	for _, lesson := range lessons {
		t.Run(lesson, func(t *testing.T) {
			t.Parallel()
			// A link to a folder is no root to clean.
			dir, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			worker := "exec " + filepath.Join(bin, lesson)
			if lesson == "08-any-language" {
				requirePython(t)
				worker = "exec " + filepath.Join(bin, "fanjet") + " worker --exec 'python3 " + lesson + "/words.py'"
			} else {
				build(t, bin, "./"+lesson)
			}
			if lesson == "10-embedded" || lesson == "11-schedules" { // all of it is in the program
				requireOutput(t, exec.Command(filepath.Join(bin, lesson)), filepath.Join(lesson, "output.golden"))
				return
			}
			var args []string
			switch lesson {
			case "02-map":
				args = []string{"--param", "dir=" + dir}
			case "04-broadcast":
				args = []string{"--wait-workers", "3"}
			case "06-decision-nested":
				args = []string{"--with", lesson + "/deliver.yaml"}
			case "07-log-cleanup":
				args = []string{"--param", "logs=" + filepath.Join(dir, "logs"), "--wait-workers", "3"}
				worker += " " + filepath.Join(dir, "logs")
			}
			require.Equal(t, readmeFlags(t, lesson), flagNames(args), "the flags of the README and of this test differ")
			requireRun(t, bin, lesson, "output.golden", worker, args...)
			switch lesson {
			case "02-map":
				page, err := os.ReadFile(filepath.Join(dir, "page-07.html"))
				require.NoError(t, err)
				require.Equal(t, "<h1>Chapter 7</h1>\n", string(page))
			case "05-workflow":
				requireRun(t, bin, lesson, "small.golden", worker, "--param", `items=[{"name": "pen", "price": 200}]`)
			case "06-decision-nested":
				requireRun(t, bin, lesson, "light.golden", worker, append(args, "--param", "kg=3")...)
			}
		})
	}
}

// requirePython fails where there is none: the lesson would go untested.
func requirePython(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("python3")
	require.NoError(t, err, "lesson 8 is written in Python")
}

func build(t *testing.T, bin, pkg string) {
	t.Helper()
	out, err := exec.Command("go", "build", "-o", filepath.Join(bin, filepath.Base(pkg)), pkg).CombinedOutput()
	require.NoError(t, err, string(out))
}

// requireRun runs the lesson with its own worker and compares what it printed.
func requireRun(t *testing.T, bin, lesson, golden, worker string, args ...string) {
	t.Helper()
	args = append([]string{"run", lesson + "/workflow.yaml", "--worker", worker}, args...)
	cmd := exec.Command(filepath.Join(bin, "fanjet"), args...)
	if lesson != "09-signal-approval" {
		requireOutput(t, cmd, filepath.Join(lesson, golden))
		return
	}
	answer := &answering{bin: bin, answered: make(chan error, 1)}
	cmd.Stderr = answer
	requireOutput(t, cmd, filepath.Join(lesson, golden))
	require.NoError(t, <-answer.answered)
}

// requireOutput runs the command and compares what it prints. Its Stderr gets a copy of what
// it says.
func requireOutput(t *testing.T, cmd *exec.Cmd, golden string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout = &out
	if cmd.Stderr == nil {
		cmd.Stderr = io.Discard
	}
	cmd.Stderr = io.MultiWriter(&errs, cmd.Stderr)
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(os.Interrupt) }) // so that its worker ends too
	defer late.Stop()
	require.NoError(t, cmd.Wait(), errs.String())
	got := steady(out.String())
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, errs.String())
}

// answering reads what fanjet run says, and sends the signal and the approval that it asks for.
type answering struct {
	bin      string
	text     bytes.Buffer
	asked    bool
	answered chan error // gets one value
}

var asks = regexp.MustCompile(`fanjet signal (\d+) paid --server (\S+); fanjet approve`)

func (a *answering) Write(p []byte) (int, error) {
	a.text.Write(p)
	m := asks.FindSubmatch(a.text.Bytes())
	if m == nil || a.asked {
		return len(p), nil
	}
	a.asked = true
	id, url := string(m[1]), string(m[2])
	go func() {
		var errs []error
		for _, args := range [][]string{
			{"approve", id, "ok", "--role", "manager", "--by", "ann", "--comment", "fine"},
			{"signal", id, "paid", "--payload", `{"cents": 4900}`},
		} {
			out, err := exec.Command(filepath.Join(a.bin, "fanjet"), append(args, "--server", url)...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", args[0], err, out)
			}
			errs = append(errs, err)
		}
		a.answered <- errors.Join(errs...)
	}()
	return len(p), nil
}

// freed is what the clean-up says of one machine: the blocks of its disk, its name, the time.
var freed = regexp.MustCompile(`"bytes":\d+,.*`)

// steady leaves out what is of the machine.
func steady(out string) string { return freed.ReplaceAllString(out, `"bytes":…`) }

var runLine = regexp.MustCompile(`(?m)^ {4}go run \./cmd/fanjet run examples/(\S+)/workflow\.yaml (.*)--worker 'go run \./(?:cmd/fanjet worker .*)?examples/([^'/ ]+)[^']*'$`)

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
