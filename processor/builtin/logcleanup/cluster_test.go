//go:build linux

package logcleanup_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

const (
	roleEnv = "FANJET_LOGCLEANUP_WORKER"
	day     = 24 * time.Hour
)

// role says what a worker process is.
type role struct {
	Name, URL string
	Roots     []string
	ReadOnly  bool // it sees a disk that refuses it: by another user's rights, or else by injection
}

// TestMain is a worker when the environment says so, and runs the tests otherwise.
func TestMain(m *testing.M) {
	said := os.Getenv(roleEnv)
	if said == "" {
		os.Exit(m.Run())
	}
	var r role
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		fmt.Fprintln(os.Stderr, "role:", err)
		os.Exit(2)
	}
	go func() { // whoever started this process holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, r.Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (r *role) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := logcleanup.Config{Roots: r.Roots}
	p := logcleanup.New(cfg)
	switch {
	case r.ReadOnly && os.Geteuid() == 0:
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(65534); err != nil {
			return err
		}
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	case r.ReadOnly:
		p = logcleanup.NewReadOnly(cfg)
	}
	w := processor.NewWorker(processor.Config{App: "test", Name: r.Name, URL: r.URL, Slots: 2, Logger: log})
	w.Register(logcleanup.Name, p)
	return w.Run(ctx)
}

// cluster is a server with real parts and three worker processes: a and b are alike, and to c the
// disk is read-only.
type cluster struct {
	t      *testing.T
	server *server.Server
	base   string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Dir(base), 0o755)) // c passes under another user's rights
	c := &cluster{t: t, base: base}
	ctx, cancel := context.WithCancel(t.Context())
	nats := brokertest.Run(t)
	db, err := storage.Open(ctx, storage.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fanjet.db"), Logger: brokertest.Quiet()})
	require.NoError(t, err)
	c.server, err = server.New(server.Config{Store: db, Broker: nats.Broker(t, broker.Config{}), Log: brokertest.Quiet()})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, db.Close())
	})
	select {
	case <-c.server.Ready():
	case err := <-ended:
		require.NoError(t, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		// Each may clean the shared folder and one of its own; only a and b have "some".
		roots := []string{filepath.Join(base, "shared"), filepath.Join(base, "own-"+name), filepath.Join(base, "some")}
		c.worker(role{Name: name, URL: nats.URL(), Roots: roots, ReadOnly: name == "c"})
	}
	require.Eventually(t, func() bool { return len(c.server.Workers("test")) == 3 }, 60*time.Second, 10*time.Millisecond)
	return c
}

func (c *cluster) worker(r role) {
	c.t.Helper()
	said, err := json.Marshal(r)
	require.NoError(c.t, err)
	exe, err := os.Executable()
	require.NoError(c.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+string(said))
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		_ = hold.Close()
		require.NoError(c.t, err, "worker %s", r.Name)
	})
}

func (c *cluster) file(path string, age time.Duration) string {
	c.t.Helper()
	path = filepath.Join(c.base, path)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, make([]byte, 4096), 0o644))
	at := time.Now().Add(-age)
	require.NoError(c.t, os.Chtimes(path, at, at))
	return path
}

func (c *cluster) run(rule string, params map[string]any) (*engine.Instance, logcleanup.Summary) {
	c.t.Helper()
	raw, err := json.Marshal(params)
	require.NoError(c.t, err)
	name := fmt.Sprintf("clean-%d", time.Now().UnixNano())
	_, err = c.server.SaveJob(c.t.Context(), "test", name, "", workflow.Spec{Processor: logcleanup.Name, Mode: workflow.Broadcast, Rule: rule})
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	id, err := c.server.Trigger(ctx, server.Trigger{App: "test", Job: name, Params: raw})
	require.NoError(c.t, err)
	in, err := c.server.WaitInstance(ctx, id)
	require.NoError(c.t, err)
	var sum logcleanup.Summary
	if in.Status == engine.StatusSucceeded {
		require.NoError(c.t, json.Unmarshal(in.Result, &sum), string(in.Result))
	}
	return in, sum
}

func by(sum logcleanup.Summary, worker string) logcleanup.WorkerSummary {
	for _, w := range sum.Each {
		if w.Worker == worker {
			return w
		}
	}
	return logcleanup.WorkerSummary{}
}

var hostile = []string{"-rf.log", "a\nb.log", "\xff\xfe.log", " .log", "*.log", "$HOME.log", "`id`.log", "\x1b[2J.log", "日志.log", strings.Repeat("n", 251) + ".log"}

// F17, F01, F02, F05: a broadcast on three worker processes over trees with hostile names, links,
// races and permissions.
func TestF17BroadcastOnThreeProcesses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	precious := c.file("precious/a.log", 100*day)

	t.Run("one disk shared by all", func(t *testing.T) {
		const folders = 40
		for i := range folders {
			for _, name := range hostile {
				c.file(fmt.Sprintf("shared/%02d\n-x/%s", i, name), 100*day)
			}
			require.NoError(t, os.Symlink(filepath.Join(c.base, "precious"), filepath.Join(c.base, fmt.Sprintf("shared/%02d\n-x/out.log", i))))
			c.file(fmt.Sprintf("shared/%02d\n-x/young.log", i), day)
		}
		stop := c.swap("shared/07\n-x")
		params := map[string]any{"root": filepath.Join(c.base, "shared"), "include": []string{"**/*.log"}, "older_than": "7d"}
		in, sum := c.run("", params)
		stop()
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
		_, last := c.run("", params) // what the swapper hid
		require.EqualValues(t, folders*len(hostile), sum.Files+last.Files, "each file is counted once")
		require.EqualValues(t, 4096*folders*len(hostile), sum.Bytes+last.Bytes)
		require.EqualValues(t, 3, sum.Workers)
		require.Zero(t, by(sum, "c").Files)
		require.Zero(t, by(sum, "a").Errors+by(sum, "b").Errors)
		require.FileExists(t, precious)
		require.FileExists(t, filepath.Join(c.base, "shared/00\n-x/young.log"))
		require.FileExists(t, filepath.Join(c.base, "shared/00\n-x/out.log"))
	})

	t.Run("one worker is not allowed to remove, another lacks the folder", func(t *testing.T) {
		c.file("own-c/a.log", 100*day)
		params := map[string]any{"root": filepath.Join(c.base, "own-c"), "include": []string{"*.log"}, "older_than": "7d"}
		in, _ := c.run("", params)
		require.Equal(t, engine.StatusFailed, in.Status)
		require.Contains(t, in.Error, "none of the roots this worker allows")
		in, sum := c.run("any", params)
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
		require.Equal(t, logcleanup.StatusPartial, by(sum, "c").Status)
		require.EqualValues(t, 1, by(sum, "c").Errors)
		require.Equal(t, logcleanup.StatusFailed, by(sum, "a").Status)
		require.Contains(t, by(sum, "a").Error, "none of the roots")
		require.EqualValues(t, 2, sum.Failed)

		params["on_error"] = logcleanup.OnErrorFail
		in, _ = c.run("any", params)
		require.Equal(t, engine.StatusFailed, in.Status, "the rule of the broadcast says what failures mean")

		params = map[string]any{"root": filepath.Join(c.base, "some"), "include": []string{"*.log"}, "older_than": "7d"}
		in, sum = c.run("", params)
		require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
		require.EqualValues(t, 3, sum.Missing, "a missing folder is a success with a note")
		require.Contains(t, sum.Note, "no worker has the folder")
	})

	t.Run("a wrong job is refused before any worker is asked", func(t *testing.T) {
		in, _ := c.run("any", map[string]any{"root": "/", "include": []string{"*"}, "older_than": "0d"})
		require.Equal(t, engine.StatusFailed, in.Status)
		for _, says := range []string{"top of a filesystem", "names nothing", "would mean everything"} {
			require.Contains(t, in.Error, says)
		}
	})
}

// swap moves a folder away, puts a link that leads out in its place, and back, until stopped.
func (c *cluster) swap(folder string) (stop func()) {
	at, aside := filepath.Join(c.base, folder), filepath.Join(c.base, "aside")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			if os.Rename(at, aside) == nil {
				_ = os.Symlink(filepath.Join(c.base, "precious"), at)
				_ = os.Remove(at)
				_ = os.Rename(aside, at)
			}
		}
	}()
	return func() { close(done); <-ended }
}
