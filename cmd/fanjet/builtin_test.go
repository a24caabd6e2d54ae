//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
)

// realDir is a temporary folder by its own name, which a link to it is not.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

// oldLog makes a file that was written two hours ago.
func oldLog(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "old.log")
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o644))
	then := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(file, then, then))
	return file
}

func nodesOf(t *testing.T, out string) map[string]api.NodeStatus {
	t.Helper()
	var got outcome
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	nodes := map[string]api.NodeStatus{}
	for _, n := range got.Nodes {
		nodes[n.Node] = n
	}
	return nodes
}

// A worker with all built-ins, here and on a server in another process.
func TestWorker_Builtins(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pong") }))
	t.Cleanup(site.Close)
	server := start(t, "server", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	url := server.until(`server is ready.* broker=(nats://127\.0\.0\.1:\d+)`)[1]
	for name, more := range map[string][]string{"here": nil, "there": {"--server", url}} {
		t.Run(name, func(t *testing.T) {
			dir := realDir(t)
			old := oldLog(t, dir)
			worker := demoWorker(t) + " --shell --http --http-allow-private 127.0.0.1/32 --cleanup-root " + dir +
				" --exec 'sh ../../processor/builtin/exec/testdata/disk.sh'"
			p := start(t, append([]string{
				"run", "testdata/builtins.yaml", "--with", "testdata/inner.yaml", "--json", "--worker", worker,
				"--param", "logs=" + dir, "--param", "url=" + site.URL,
			}, more...)...)
			p.until(`the program serves processors.*processors=disk`)
			out, errs, code := p.wait()
			require.Zero(t, code, errs)
			nodes := nodesOf(t, out)
			require.Contains(t, string(compact(t, nodes["http"].Result)), `"body":"pong"`)
			require.Regexp(t, `^\{"used_percent":\d+\}$`, string(compact(t, nodes["exec"].Result)))
			require.Contains(t, string(compact(t, nodes["sub"].Result)), `"stdout":"`+dir)
			require.Regexp(t, `"files":1,`, string(compact(t, nodes["clean"].Result)))
			require.NoFileExists(t, old)
			p.requireClean()
		})
	}
	p := start(t, "run", "testdata/builtins.yaml", "--param", "logs=/x", "--param", "url=http://x")
	_, errs, code := p.wait()
	require.NotZero(t, code)
	require.Contains(t, errs, `nests workflow "inner", which is not in app "demo": save it first`)
	require.Contains(t, errs, "; give the file of workflow inner with --with FILE")
}

func compact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// A program that cannot run is told at once, and not by jobs that wait.
func TestWorker_ExecFails(t *testing.T) {
	t.Parallel()
	_, errs, code := command("worker", "--app", "a", "--exec", "echo hello")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "fanjet: --exec: ")
}
