//go:build linux

package exec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/exec"
	"github.com/fanjet/fanjet/processor/builtin/internal/worldtest"
	"github.com/fanjet/fanjet/workflow"
)

// From the server to Python and back: MapReduce over two workers, a shell program, a mapper of many
// items, a stop, and the end of a worker.
func TestWorker(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	start := func(name string, command ...string) (stop func()) {
		pool, _ := newPool(t, exec.Config{Command: command, Instances: 4, Grace: 200 * time.Millisecond})
		return w.Worker(processor.Config{Name: name, Slots: 4, DrainTimeout: 50 * time.Millisecond}, pool.Register)
	}
	start("one", python(t), "testdata/words.py")
	start("two", python(t), "testdata/words.py")
	start("sh", "sh", "testdata/disk.sh")
	drain := start("behave", python(t), "testdata/behave.py")

	in := w.Wait(w.Start("words", workflow.Spec{Processor: "words", Mode: workflow.MapReduce}, object{"text": strings.Repeat("a b c\nb c\nc\n", 200)}))
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"a":200,"b":400,"c":600}`, string(in.Result))

	in = w.Wait(w.Start("disk", workflow.Spec{Processor: "disk"}, nil))
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.Contains(t, string(in.Result), "used_percent")

	in = w.Wait(w.Start("many", workflow.Spec{Processor: "reduce", Mode: workflow.MapReduce}, object{"do": "map", "n": 50, "batch": 100}))
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.JSONEq(t, `{"all":12497500,"n":5000,"total":5000,"failed":0}`, string(in.Result))

	in = w.Wait(w.Start("again", workflow.Spec{Processor: "plain", Retry: workflow.Retry{Max: 3}}, object{"do": "checkpoint"}))
	require.Equal(t, engine.StatusSucceeded, in.Status, in.Error)
	require.Equal(t, "2", string(in.Result))

	in = w.Wait(w.Start("dies", workflow.Spec{Processor: "plain"}, object{"do": "exit", "code": 3}))
	require.Equal(t, engine.StatusFailed, in.Status)
	require.Contains(t, in.Error, "exit code 3; the end of its standard error:\nTraceback: the last words")

	dir := t.TempDir()
	file, ready := filepath.Join(dir, "pids"), filepath.Join(dir, "ready")
	isReady := func() bool { _, err := os.Stat(ready); return err == nil }
	id := w.Start("stopped", workflow.Spec{Processor: "plain"}, object{"do": "hang", "pids": file, "ready": ready})
	require.Eventually(t, isReady, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, w.Server.StopInstance(w.Ctx, id))
	require.Equal(t, engine.StatusStopped, w.Wait(id).Status)
	requireGone(t, pids(t, file)...)

	// A worker that ends gives the task to the next one.
	require.NoError(t, os.Remove(ready))
	require.NoError(t, os.Remove(file))
	id = w.Start("drained", workflow.Spec{Processor: "all"}, object{"do": "wait", "pids": file, "ready": ready})
	require.Eventually(t, isReady, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, os.Remove(ready))
	drain()
	start("next", python(t), "testdata/behave.py")
	require.Eventually(t, isReady, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, w.Server.StopInstance(w.Ctx, id))
	in = w.Wait(id)
	require.Equal(t, engine.StatusStopped, in.Status)
	require.Len(t, pids(t, file), 2, "it ran on both workers")
}
