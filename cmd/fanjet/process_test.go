//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker/embedded"
)

// built is the binary, built once a run of the tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fanjet-test-")
	if err != nil {
		return "", err
	}
	binaries = dir
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "fanjet"), ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return filepath.Join(dir, "fanjet"), nil
})

var binaries string // its directory, removed at the end

func TestMain(m *testing.M) {
	_ = os.Setenv("FANJET_HTTP", "127.0.0.1:0") // several servers run at the same time
	code := m.Run()
	if binaries != "" {
		_ = os.RemoveAll(binaries)
	}
	os.Exit(code)
}

const patience = 60 * time.Second // a test that waits longer has failed

// process is the binary at work.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   bytes.Buffer
	tmp   string
	lines chan string // of its standard error, as they come
	errs  []string    // those read so far
}

// start runs the binary; its temporary files go to p.tmp.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	binary, err := built()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(binary, args...), tmp: t.TempDir(), lines: make(chan string, 10_000)}
	p.cmd.Env = append(os.Environ(), "TMPDIR="+p.tmp, "FANJET_APP=demo")
	p.cmd.Stdout = &p.out
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// until reads on until a line matches, and returns what the pattern's groups match.
func (p *process) until(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				require.FailNow(p.t, "it ended without a line that matches", "%s\n%s", pattern, strings.Join(p.errs, "\n"))
			}
			p.errs = append(p.errs, line)
			if m := re.FindStringSubmatch(line); m != nil {
				return m
			}
		case <-deadline:
			require.FailNow(p.t, "no line matches", "%s\n%s", pattern, strings.Join(p.errs, "\n"))
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// wait returns what it wrote and its exit code.
func (p *process) wait() (out, errs string, code int) {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for line := range p.lines {
		p.errs = append(p.errs, line)
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return p.out.String(), strings.Join(p.errs, "\n"), p.cmd.ProcessState.ExitCode()
}

// requireClean holds the process to leaving no temporary file.
func (p *process) requireClean() {
	p.t.Helper()
	left, err := os.ReadDir(p.tmp)
	require.NoError(p.t, err)
	require.Empty(p.t, left, "temporary files are left")
}

// demoWorker is the binary's own worker as a --worker command.
func demoWorker(t *testing.T) string {
	t.Helper()
	binary, err := built()
	require.NoError(t, err)
	return "exec " + binary + " worker"
}

// countCommand is the command that runs the demo's workflow, and the worker for it.
func countCommand(t *testing.T, root string, more ...string) (args []string, worker string) {
	t.Helper()
	logs := realDir(t)
	oldLog(t, logs)
	args = []string{"run", "demo.yaml", "--with", "demo-report.yaml", "--param", "root=" + root, "--param", "logs=" + logs}
	return append(args, more...), demoWorker(t) + " --cleanup-root " + logs
}

func TestDemo_SmallTree(t *testing.T) {
	t.Parallel()
	p := start(t, "demo", "--root", smallTree(t))
	out, errs, code := p.wait()
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^files +158$`, out)
	require.Regexp(t, `(?m)^ *\d  file +150  `, out)
	require.Regexp(t, `(?m)^old logs removed +8 of 30$`, out)
	require.Regexp(t, `(?m)^bytes freed +`, out)
	require.Contains(t, out, "\nchecked: equal to a plain loop over the same files")
	require.Contains(t, out, "\nchecked: exactly the 8 old logs of 30 are gone\n")
	for _, node := range []string{"clean", "list", "count", "enough", "report"} {
		require.Regexp(t, `(?m)^\d\d:\d\d:\d\d `+node+`: succeeded`, errs)
	}
	require.NotContains(t, errs, "\x1b")
	require.NotContains(t, errs, "level=")
	p.requireClean()
}

// The decision takes the other path.
func TestDemo_FewWords(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "few"), []byte("very few words, very few"), 0o644))
	p := start(t, "demo", "--root", root, "--workers", "2")
	out, errs, code := p.wait()
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^words +5$`, out)
	require.Contains(t, out, "\nThere are too few words for a ranking.\n\nchecked: equal")
	require.Contains(t, errs, "report: skipped")
	p.requireClean()
}

func TestDemo_Keep(t *testing.T) {
	t.Parallel()
	keep := filepath.Join(t.TempDir(), "kept")
	p := start(t, "demo", "--root", "testdata", "--keep", keep, "--workers", "1", "--slots", "1")
	_, errs, code := p.wait()
	require.Zero(t, code, errs)
	require.FileExists(t, filepath.Join(keep, "fanjet.db"))
	p.requireClean()
}

func TestDemo_Interrupted(t *testing.T) {
	t.Parallel()
	p := start(t, "demo", "--workers", "1", "--slots", "1")
	p.until(`count: running`)
	p.signal(os.Interrupt)
	out, errs, code := p.wait()
	require.Equal(t, exitInterrupted, code, errs)
	require.Empty(t, out)
	require.Contains(t, errs, "stopping: interrupted")
	require.Contains(t, errs, "count: stopped")
	require.True(t, strings.HasSuffix(errs, "fanjet: interrupted"), errs)
	p.requireClean()
}

func TestRun_Worker(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	args, worker := countCommand(t, smallTree(t))
	p := start(t, append(args, "--worker", "echo $$ > "+pid+"; "+worker)...)
	out, errs, code := p.wait()
	require.Zero(t, code, errs)
	lines := strings.Split(out, "\n")
	require.Regexp(t, `^NODE +STATUS +SUB-TASKS +RESULT$`, lines[0])
	require.Regexp(t, `(?m)^clean +succeeded +- +\{"workers":1,"files":0,`, out) // the name does not fit
	require.Regexp(t, `(?m)^list +succeeded +- +\{"root":`, out)
	require.Regexp(t, `(?m)^count +succeeded +(\d+)/\d+ +\{"files":158,`, out)
	require.Regexp(t, `(?m)^enough +succeeded +- +true$`, out)
	require.Regexp(t, `(?m)^report +succeeded +- +\{"rank":\{"totals":`, out)
	require.Contains(t, errs, "workflow word-count succeeded in ")
	requireGone(t, pid)
	p.requireClean()
}

// requireGone holds the process whose id is in the file to having ended.
func requireGone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	// What was killed is there until whoever inherits it has taken its exit status.
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, patience, 5*time.Millisecond)
}

func TestRun_FailedWorkflow(t *testing.T) {
	t.Parallel()
	args, worker := countCommand(t, "/no/such/tree", "--json")
	p := start(t, append(args, "--worker", worker)...)
	out, errs, code := p.wait()
	require.Equal(t, exitFailed, code, errs)
	var got outcome
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "word-count", got.Workflow)
	require.Equal(t, "failed", got.Status)
	require.Positive(t, got.ID)
	nodes := nodesOf(t, out)
	require.Len(t, nodes, 5)
	require.Equal(t, "failed", nodes["list"].Status)
	require.Contains(t, nodes["list"].Error, "walk /no/such/tree")
	require.Equal(t, "canceled", nodes["report"].Status)
	require.Contains(t, errs, "fanjet: workflow word-count failed after ")
	require.NotContains(t, errs, "goroutine")
	p.requireClean()
}

func TestRun_WorkerDiesEarly(t *testing.T) {
	t.Parallel()
	args, _ := countCommand(t, ".")
	p := start(t, append(args, "--worker", "echo no luck >&2; exit 3")...)
	_, errs, code := p.wait()
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, "worker: no luck")
	require.Regexp(t, `fanjet: the worker command "echo no luck >&2; exit 3" ended after \S+ \(exit status 3\) before the workflow did`, errs)
	p.requireClean()
}

func TestRun_Timeout(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "testdata/good.yaml", "--param", "limit=3", "--timeout", "200ms", "--json")
	out, errs, code := p.wait()
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, "no --worker is given: workers of app demo connect with FANJET_URL=nats://127.0.0.1:")
	require.Contains(t, errs, "fanjet: the workflow did not end within 200ms")
	var got outcome
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "stopped", got.Status)
	p.requireClean()
}

func TestRun_UnknownProcessor(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "testdata/good.yaml", "--param", "limit=3", "--worker", demoWorker(t))
	p.until(`node a waits: no worker of app demo has its processor "p"; they have demo-count, demo-list, demo-report\.`)
	p.signal(os.Interrupt)
	_, errs, code := p.wait()
	require.Equal(t, exitInterrupted, code, errs)
}

func TestRun_WaitsForWorkersInVain(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "testdata/good.yaml", "--param", "limit=3", "--timeout", "200ms", "--wait-workers", "2")
	_, errs, code := p.wait()
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, "waiting for 2 workers of app demo, there are 0: the workflow did not end within 200ms")
}

func TestRun_Interrupted(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	// A worker of another app: the workflow waits for ever.
	p := start(t, "run", "testdata/good.yaml", "--param", "limit=3", "--worker", "echo $$ > "+pid+"; FANJET_APP=other "+demoWorker(t))
	p.until(`no worker of app demo is there yet`)
	p.signal(syscall.SIGTERM)
	_, errs, code := p.wait()
	require.Equal(t, exitInterrupted, code, errs)
	require.Contains(t, errs, "stopping: interrupted")
	requireGone(t, pid)
	p.requireClean()
}

// A worker that ignores SIGTERM is killed with its group, at once after a second signal.
func TestRun_InterruptedTwice(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	p := start(t, "run", "testdata/good.yaml", "--param", "limit=3", "--worker", "trap '' TERM; sleep 1000 & echo $! > "+pid+"; wait")
	p.until(`no worker of app demo is there yet`)
	p.signal(os.Interrupt)
	p.until(`stopping: interrupted`)
	p.signal(os.Interrupt)
	_, errs, code := p.wait()
	require.Equal(t, exitInterrupted, code, errs)
	requireGone(t, pid)
	p.requireClean()
}

// logsOf is the folder of logs of a command of countCommand.
func logsOf(t *testing.T, args []string) string {
	t.Helper()
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "logs="); ok {
			return dir
		}
	}
	require.FailNow(t, "no logs", "%q", args)
	return ""
}

// TestServer runs server, worker and run as three processes.
func TestServer(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	server := start(t, "server", "--data", data, "--listen", "127.0.0.1:0", "--token", "s3cret", "--log-format", "json")
	url := server.until(`"server is ready","broker":"(nats://127\.0\.0\.1:\d+)"`)[1]
	args, _ := countCommand(t, smallTree(t), "--server", url)
	worker := start(t, "worker", "--url", url, "--token", "s3cret", "--cleanup-root", logsOf(t, args))
	worker.until("worker runs")

	p := start(t, append(args, "--token", "s3cret", "--json")...)
	out, errs, code := p.wait()
	require.Zero(t, code, errs)
	var got outcome
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "succeeded", got.Status)
	count := nodesOf(t, out)["count"]
	require.Positive(t, count.Total)
	require.Equal(t, count.Total, count.Done)

	p = start(t, append(args, "--token", "wrong")...)
	_, errs, code = p.wait()
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, "and the token right?")
	require.NotContains(t, errs, "wrong")

	_, errs, code = command("signal", "7", "paid", "--server", url, "--token", "s3cret")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "fanjet: the server refused: workflow instance 7: ")
	_, errs, code = command("approve", "7", "ok", "--server", url, "--token", "s3cret", "--reject")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "fanjet: the server refused: workflow instance 7: ")

	_, errs, code = command("server", "--data", data, "--listen", "127.0.0.1:0")
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `start the server: database file \S+fanjet.db: is used by process \d+; stop that one first`, errs)

	_, errs, code = command("server", "--data", t.TempDir(), "--listen", strings.TrimPrefix(url, "nats://"))
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "is another broker running there? Choose another port")

	worker.signal(syscall.SIGTERM)
	_, errs, code = worker.wait()
	require.Zero(t, code, errs)
	server.signal(syscall.SIGTERM)
	_, errs, code = server.wait()
	require.Zero(t, code, errs)
	require.Contains(t, errs, `"server stops"`)
	require.NotContains(t, errs, "s3cret")
}

func TestServer_ExternalNATS(t *testing.T) {
	t.Parallel()
	nats, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Token: "t"})
	require.NoError(t, err)
	t.Cleanup(nats.Shutdown)
	server := start(t, "server", "--data", t.TempDir(), "--nats", nats.ClientURL(), "--token", "t")
	server.until("server is ready")
	args, worker := countCommand(t, "testdata", "--server", nats.ClientURL(), "--token", "t")
	p := start(t, append(args, "--worker", worker)...)
	out, errs, code := p.wait()
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^report +succeeded`, out)
	server.signal(os.Interrupt)
	_, errs, code = server.wait()
	require.Zero(t, code, errs)

	_, errs, code = command("server", "--data", t.TempDir(), "--nats", "nats://127.0.0.1:1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "nothing answers at nats://127.0.0.1:1 within 5s; is NATS running there")
}

func TestRun_NoServer(t *testing.T) {
	t.Parallel()
	nats, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	require.NoError(t, err)
	t.Cleanup(nats.Shutdown)
	_, errs, code := command("run", "testdata/good.yaml", "--param", "limit=3", "--server", nats.ClientURL())
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "no server answers there; start one with fanjet server")
}
