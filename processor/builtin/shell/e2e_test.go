//go:build linux

package shell_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/internal/worldtest"
	"github.com/fanjet/fanjet/processor/builtin/shell"
	"github.com/fanjet/fanjet/workflow"
)

// From the server to the process and back: a result, an error, a timeout, a stop, and the end
// of the worker. C40.
func TestWorker(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	temp := t.TempDir()
	start := func(name string) (stop func()) {
		p, _ := newShell(t, shell.Config{TempDir: temp, Grace: 300 * time.Millisecond})
		return w.Worker(processor.Config{Name: name, Slots: 4, DrainTimeout: 50 * time.Millisecond}, func(w *processor.Worker) { w.Register("shell", p) })
	}
	drain := start("one")

	in := w.Wait(w.Start("good", workflow.Spec{Processor: "shell"}, object{"script": `echo "hello $1"; echo '[1,2]' > $FANJET_RESULT`, "args": []string{"$(id)"}}))
	require.Equal(t, engine.StatusSucceeded, in.Status)
	var r shell.Result
	require.NoError(t, json.Unmarshal(in.Result, &r))
	require.Equal(t, "hello $(id)", r.Stdout)
	require.JSONEq(t, "[1,2]", string(r.Value))

	in = w.Wait(w.Start("bad", workflow.Spec{Processor: "shell"}, object{"script": "echo no such table >&2; exit 5"}))
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "exit code 5; the end of stderr:\nno such table")

	dir := t.TempDir()
	in = w.Wait(w.Start("slow", workflow.Spec{Processor: "shell", TaskTimeout: workflow.Duration(2 * time.Second)}, object{"script": tree + "sleep 600", "env": object{"D": dir}}))
	require.Equal(t, engine.StatusTimedOut, in.Status, in.Error)
	require.Contains(t, in.Error, "timed out")
	requireGone(t, pids(t, dir))

	dir = t.TempDir()
	id := w.Start("stopped", workflow.Spec{Processor: "shell", Retry: workflow.Retry{Max: 3}}, object{"script": tree + "touch $D/ready; sleep 600", "env": object{"D": dir}})
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, w.Server.StopInstance(w.Ctx, id))
	in = w.Wait(id)
	require.Equal(t, engine.StatusStopped, in.Status)
	require.EqualValues(t, 1, in.Attempt)
	requireGone(t, pids(t, dir))

	// A worker that ends gives the task to another one and leaves no process behind.
	dir = t.TempDir()
	id = w.Start("drained", workflow.Spec{Processor: "shell"}, object{"script": `test -e $D/main && exit 0;` + tree + "touch $D/ready; sleep 600", "env": object{"D": dir}})
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil }, 30*time.Second, 5*time.Millisecond)
	drain()
	requireGone(t, pids(t, dir))
	requireEmpty(t, temp)
	start("two")
	in = w.Wait(id)
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	requireEmpty(t, temp)
}
