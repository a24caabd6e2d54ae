package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// TestRefusals are command lines that are refused before anything is opened.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "unexpected argument nonsense; see fanjet --help"},
		{[]string{"run"}, `expected "<FILE>"; see fanjet run --help`},
		{[]string{"run", "testdata/none.yaml"}, "testdata/none.yaml: there is no such file; check the path"},
		{[]string{"run", "testdata"}, "testdata: the file cannot be read: is a directory"},
		{[]string{"run", "testdata/broken/cycle.yaml"}, "the workflow cannot run:\ntestdata/broken/cycle.yaml:6:10: "},
		{[]string{"run", "testdata/good.yaml"}, `params of workflow "good": param "limit" is required`},
		{[]string{"run", "testdata/good.yaml", "--param", "limit"}, "--param limit: write it as name=value"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=many"}, `param "limit" must be of type int, not `},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--param", "limit=2"}, "--param limit is given twice"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--param", "lim=2"}, `workflow "good" has no param "lim"`},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--timeout=-1s"}, "--timeout -1s: must not be negative"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--server", "http://x"}, "--server http://x: not an address of NATS; write it as nats://host:4222"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--server", "nats://x:99999"}, "the port must be 1 to 65535"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--server", "nats://x", "--data", "d"}, "leave it out with --server"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--server", "nats://x", "--wait-workers", "2"}, "leave it out with --server"},
		{[]string{"demo", "--root", "testdata/none"}, "there is no such directory"},
		{[]string{"demo", "--workers", "0"}, "--workers must be 1 to 100"},
		{[]string{"worker", "--app", "a", "--url", "mysql://h"}, "--url mysql://h: not an address of NATS"},
		{[]string{"worker", "--app", "a", "--url", "nats://user:secret@h:0"}, "--url nats://user:xxxxx@h:0: the port must be"},
		{[]string{"worker", "--app", "a", "--shell-dir", "/srv"}, "--shell-dir is for the jobs of --shell; give that too"},
		{[]string{"worker", "--app", "a", "--http-allow-private", "10.0.0.0/8"}, "--http-allow-private is for the jobs of --http; give that too"},
		{[]string{"worker", "--app", "a", "--http", "--http-allow-private", "10.0.0.1"}, "--http-allow-private 10.0.0.1: write it as ADDRESS/BITS"},
		{[]string{"worker", "--app", "a", "--cleanup-root", "logs"}, `--cleanup-root: logcleanup.Config.Roots: "logs" is not absolute`},
		{[]string{"worker", "--app", "a", "--cleanup-root", "/"}, `"/" is the top of a filesystem`},
		{[]string{"worker", "--app", "a", "--cleanup-root="}, "it is empty; write the folder in full"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--with", "testdata/none.yaml"}, "none.yaml: there is no such file"},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--with", "testdata/good.yaml"}, `good.yaml: workflow "good" is that of FILE too`},
		{[]string{"run", "testdata/good.yaml", "--param", "limit=1", "--with", "../../examples/01-hello/workflow.yaml"}, `it is of app "hello", but the workflow that runs is of app "demo"`},
		{[]string{"signal", "7", "paid", "--server", "nats://h", "--payload", "{"}, "--payload {: it is not JSON"},
		{[]string{"signal", "paid", "7", "--server", "nats://h"}, "see fanjet signal --help"},
		{[]string{"approve", "7", "ok", "--server", "http://h"}, "--server http://h: not an address of NATS"},
		{[]string{"trigger", "--server", "nats://h", "--app", "a", "--job", "j", "--params", "{"}, "--params {: it is not JSON"},
		{[]string{"trigger", "--server", "nats://h", "--app", "a", "--job", "j", "--count", "0"}, "--count 0: 1 to 100000"},
		{[]string{"trigger", "--server", "nats://h", "--app", "a", "--job", "j", "--delay", "-1s"}, "--delay -1s: must not be negative"},
		{[]string{"trigger", "--server", "nats://h", "--app", "a", "--job", "j", "--lane", "low"}, "--lane must be one of"},
		{[]string{"cancel", "--server", "nats://h", "--app", "a", "--job", "j"}, "missing flags: --key"},
		{[]string{"schedule", "stop", "--server", "nats://h", "--app", "a", "--job", "j"}, "must be one of"},
		{[]string{"schedule", "show", "--server", "nats://h", "--app", "a"}, "missing flags: --job=STRING or --workflow=STRING"},
		{[]string{"ledger", "--server", "nats://h", "--app", "a", "--job", "j", "--from", "yesterday"}, `--from: "yesterday" is no time`},
		{[]string{"ledger", "--server", "nats://h", "--app", "a", "--job", "j", "--from", "now", "--to", "-1h"}, "is after --to"},
		{[]string{"ledger", "--server", "nats://h", "--app", "a", "--job", "j", "--limit", "0"}, "--limit 0: 1 to 10000"},
		{[]string{"verify", "--server", "http://h", "--app", "a", "--job", "j"}, "--server http://h: not an address of NATS"},
		{[]string{"backfill", "--server", "nats://h", "--app", "a", "--job", "j"}, "missing flags: --from"},
		{[]string{"backfill", "--server", "nats://h", "--app", "a", "--job", "j", "--from", "-1h", "--max", "20000"}, "--max 20000: 1 to 10000"},
		{[]string{"apply", "--server", "nats://h"}, "missing flags: --file"},
		{[]string{"server", "--listen", "4222"}, "--listen 4222: write it as HOST:PORT"},
		{[]string{"server", "--listen", "127.0.0.1:http"}, "write it as HOST:PORT"},
		{[]string{"server", "--listen", ":4222"}, "give --token (or FANJET_TOKEN), or listen on 127.0.0.1"},
		{[]string{"server", "--listen", "10.1.2.3:4222"}, "others could reach it"},
		{[]string{"server", "--nats", "nats://h", "--listen", ":1"}, "leave it out with --nats"},
		{[]string{"server", "--creds", "f"}, "--creds is for an external NATS"},
		{[]string{"server", "--beat", "1ms"}, "--beat 1ms: at least 50ms"},
		{[]string{"server", "--log-format", "xml"}, "--log-format must be one of"},
	} {
		out, errs, code := command(c.args...)
		require.Equal(t, exitInvalid, code, c.args)
		require.Empty(t, out, c.args)
		require.Contains(t, errs, c.want, c.args)
	}
}

func TestServer_UnusableParts(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--db", "postgres://h"}, `database URL starts with "postgres": want sqlite: or mysql:`},
		{[]string{"--db", "sqlite:" + filepath.Join(data, "no", "such", "file")}, "its directory does not exist"},
		{[]string{"--data", "main.go"}, "name another one with --data"},
	} {
		_, errs, code := command(append([]string{"server", "--data", data, "--listen", "127.0.0.1:0"}, c.args...)...)
		require.Equal(t, exitFailed, code, c.args)
		require.Contains(t, errs, c.want, c.args)
		require.Contains(t, errs, "fanjet: start the server: ")
	}
}

func TestParamValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		declared   workflow.ParamType
		text, want string
	}{
		{workflow.ParamString, "12", `"12"`},
		{workflow.ParamString, `"quoted"`, `"\"quoted\""`},
		{workflow.ParamInt, "12", "12"},
		{workflow.ParamAny, "12", "12"},
		{workflow.ParamAny, "x=y", `"x=y"`},
		{workflow.ParamList, "[1,2]", "[1,2]"},
		{workflow.ParamBool, "true", "true"},
		{workflow.ParamBool, "yes", `"yes"`},
		{workflow.ParamAny, "", `""`},
	} {
		require.Equal(t, c.want, string(paramValue(c.declared, c.text)), c)
	}
	def, err := workflow.Parse("x", []byte("kind: Workflow\nname: x\napp: x\nparams: {a: text, n: 1}\nnodes: [{id: n, processor: p}]"))
	require.NoError(t, err)
	given, err := parseParams(def, []string{"a=b=c", "n=7"})
	require.NoError(t, err)
	require.Equal(t, map[string]json.RawMessage{"a": json.RawMessage(`"b=c"`), "n": json.RawMessage("7")}, given)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkURL("--url", "nats://a:4222, nats://b"))
	require.Equal(t, "nats://tok@a:4222,nats://u@b", withToken("nats://a:4222,nats://u@b", "tok"))
	require.Equal(t, "nats://a", withToken("nats://a", ""))
	require.Equal(t, "nats://a:1,nats://b", redactURL("nats://tok@a:1,nats://b"))
	for host, want := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "0.0.0.0": false, "::": false, "example.org": false} {
		require.Equal(t, want, loopback(host), host)
	}
	host, port, err := listenAddress("[::1]:0")
	require.NoError(t, err)
	require.Equal(t, "::1", host)
	require.Zero(t, port)
}

func TestVersionLine(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	require.Regexp(t, `^fanjet v1\.2\.3, go1\.\S+, \w+/\w+, git 0123456789ab with local changes$`, versionLine(info))
	require.Regexp(t, `^fanjet \(unknown\), `, versionLine(&debug.BuildInfo{}))
	out, _, code := command("version")
	require.Zero(t, code)
	require.Regexp(t, `^fanjet \S+, go1\.`, out)
}

func TestGoSources(t *testing.T) {
	t.Parallel()
	none := func() string { return "" }
	root := t.TempDir()
	_, err := goSources(none, func() string { return root })
	require.ErrorContains(t, err, "no Go source tree was found on this machine")
	require.ErrorContains(t, err, "name another tree of files with --root DIR")
	real := filepath.Join(root, "real")
	require.NoError(t, os.Mkdir(real, 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(root, "src")))
	got, err := goSources(none, func() string { return root })
	require.NoError(t, err)
	want, err := filepath.EvalSymlinks(real)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	out, errs, code := command()
	require.Zero(t, code)
	require.Empty(t, errs)
	for _, name := range []string{"demo", "run", "validate", "apply", "trigger", "cancel", "schedule", "ledger", "verify", "backfill", "worker", "signal", "approve", "server", "version"} {
		require.Contains(t, out, "\n  "+name+" ")
	}
}
