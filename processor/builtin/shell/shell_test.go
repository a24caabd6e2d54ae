//go:build linux

package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/shell"
	"github.com/fanjet/fanjet/processor/processortest"
)

const secret = "SHELL_TEST_SECRET"

func TestMain(m *testing.M) {
	os.Setenv(secret, "hunter2")
	if dir := os.Getenv("SHELL_TEST_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// object is the params of a job.
type object map[string]any

func newShell(t testing.TB, c shell.Config) (*shell.Processor, string) {
	t.Helper()
	if c.TempDir == "" {
		c.TempDir = t.TempDir()
	}
	p, err := shell.New(c)
	require.NoError(t, err)
	return p, c.TempDir
}

func run(t testing.TB, c shell.Config, params object) (*processortest.Outcome, shell.Result) {
	t.Helper()
	p, temp := newShell(t, c)
	return runOn(t, p, temp, processortest.Task{Params: params})
}

// runOn also checks that no private folder stays (F16).
func runOn(t testing.TB, p *shell.Processor, temp string, task processortest.Task) (*processortest.Outcome, shell.Result) {
	t.Helper()
	out := processortest.Run(t, p, task)
	requireEmpty(t, temp)
	var r shell.Result
	if out.Err == nil {
		require.NoError(t, out.Decode(&r))
	}
	return out, r
}

func requireEmpty(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRun(t *testing.T) {
	t.Parallel()
	out, r := run(t, shell.Config{}, object{"script": "echo one; echo two >&2; printf three"})
	require.NoError(t, out.Err)
	require.Equal(t, shell.Result{Stdout: "one\nthree", Stderr: "two", Bytes: 13, Lines: 3}, r)
	require.ElementsMatch(t, []string{"one", "two", "three"}, out.Lines)

	out, r = run(t, shell.Config{}, object{"argv": []string{"printf", "%s|", "a b", "$(id)", "*"}})
	require.NoError(t, out.Err)
	require.Equal(t, "a b|$(id)|*|", r.Stdout)

	out, _ = run(t, shell.Config{}, object{"script": "echo out; echo the disk is full >&2; exit 42"})
	require.ErrorContains(t, out.Err, "exit code 42; the end of stderr:\nthe disk is full")

	out, _ = run(t, shell.Config{}, object{"script": "kill -SEGV $$"})
	require.ErrorContains(t, out.Err, "ended by signal 11")

	out, _ = run(t, shell.Config{}, object{"argv": []string{"no-such-program"}})
	require.ErrorContains(t, out.Err, `find program "no-such-program"`)
}

func TestRun_reads_stdin_and_its_folder(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 20_000)
	out, r := run(t, shell.Config{}, object{"script": "wc -c", "stdin": big})
	require.NoError(t, out.Err)
	require.Equal(t, strconv.Itoa(len(big)), strings.TrimSpace(r.Stdout))

	out, _ = run(t, shell.Config{}, object{"script": "exit 0", "stdin": big}) // never reads it
	require.NoError(t, out.Err)
	out, r = run(t, shell.Config{}, object{"script": "cat; echo end"}) // nothing to read
	require.NoError(t, out.Err)
	require.Equal(t, "end", r.Stdout)

	out, r = run(t, shell.Config{}, object{"script": `test "$PWD" = "$TMPDIR" && touch mine && stat -c %a . script && mkdir -p a/b && touch a/b/c && chmod 0 a/b a`})
	require.NoError(t, out.Err)
	require.Equal(t, "700\n700", r.Stdout)
}

func TestRun_gives_a_value(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`echo '{"n": 5}' > $FANJET_RESULT`: `{"n":5}`,
		`printf 'a text' > $FANJET_RESULT`: `"a text"`,
		`: > $FANJET_RESULT`:               ``,
		`rm -r "$TMPDIR"`:                  ``,
	} {
		out, r := run(t, shell.Config{}, object{"script": script})
		require.NoError(t, out.Err, script)
		require.Equal(t, want, string(r.Value), script)
	}
	for script, want := range map[string]string{
		`head -c 300000 /dev/zero > $FANJET_RESULT`: "more than 262144 bytes",
		`printf '\377' > $FANJET_RESULT`:            "neither JSON nor text",
		`ln -s /etc/passwd $FANJET_RESULT`:          "read FANJET_RESULT",
		`mkfifo $FANJET_RESULT`:                     "not a plain file",
		`mkdir $FANJET_RESULT`:                      "FANJET_RESULT",
	} {
		out, _ := run(t, shell.Config{}, object{"script": script})
		require.ErrorContains(t, out.Err, want, script)
	}
}

// hostile are values that become code wherever somebody splices them.
var hostile = []string{
	`; touch pwned`, `$(touch pwned)`, "`touch pwned`", "a\ntouch pwned\n", `' or 1=1; touch pwned #`, `"; touch pwned; "`,
	`%00`, `--help`, `-rf /`, `$HOME`, `${IFS}`, `\`, `* ?`, "\t", `%s%n`, "\u202e\U0001F4A9",
}

// E20, B23: values reach a script as data.
func TestRun_passes_values_as_data(t *testing.T) {
	t.Parallel()
	for _, v := range hostile {
		script := `printf '%s\0%s\0' "$V" "$1"; cat; test ! -e pwned`
		out, r := run(t, shell.Config{}, object{"script": script, "env": object{"V": v}, "args": []string{v}, "stdin": v})
		require.NoError(t, out.Err)
		want := strings.TrimRight(v+"\uFFFD"+v+"\uFFFD"+v, "\n")
		require.Equal(t, want, r.Stdout)

		out, r = run(t, shell.Config{}, object{"argv": []string{"printf", "[%s]", v}})
		require.NoError(t, out.Err)
		require.Equal(t, "["+v+"]", r.Stdout)
	}
	for _, params := range []object{
		{"script": "true", "env": object{"V": "a\x00b"}}, {"script": "true", "args": []string{"a\x00b"}}, {"argv": []string{"true", "a\x00b"}},
	} {
		out, _ := run(t, shell.Config{}, params)
		require.ErrorContains(t, out.Err, "NUL byte")
	}
	out, r := run(t, shell.Config{}, object{"script": `echo "$A|$B|$C|${D-none}|$E|$1"`, "args": []any{object{"x": 1}}, "env": object{"A": 1.5, "B": true, "C": []any{"x", nil}, "D": nil, "E": ""}})
	require.NoError(t, out.Err)
	require.Equal(t, `1.5|true|["x",null]|none||{"x":1}`, r.Stdout)
	out, r = run(t, shell.Config{}, object{"script": "wc -c", "stdin": "a\x00b"}) // an input may have any byte
	require.NoError(t, out.Err)
	require.Equal(t, "3", strings.TrimSpace(r.Stdout))
}

func TestRun_refuses_params(t *testing.T) {
	t.Parallel()
	named := shell.Config{Named: true, Scripts: map[string]string{"hello": `echo hello "$1"`}}
	for _, c := range []struct {
		cfg    shell.Config
		params any
		want   string
	}{
		{shell.Config{}, nil, "there are none"},
		{shell.Config{}, object{}, `give exactly one of "script", "name" and "argv"`},
		{shell.Config{}, object{"script": " \n"}, `give exactly one of`},
		{shell.Config{}, object{"script": "true", "argv": []string{"true"}}, `give exactly one of`},
		{shell.Config{}, object{"script": "true", "comand": "x"}, `unknown field "comand"`},
		{shell.Config{}, object{"script": 5}, "cannot unmarshal number"},
		{shell.Config{}, []int{1}, "cannot unmarshal array"},
		{shell.Config{}, object{"argv": []string{""}}, "empty name of a program"},
		{shell.Config{}, object{"argv": []string{"true"}, "args": []string{"x"}}, `"args" and "interpreter" are for scripts`},
		{shell.Config{}, object{"script": strings.Repeat("#", 300_000)}, "the script has 300000 bytes"},
		{shell.Config{}, object{"script": "true", "interpreter": "/usr/bin/python3"}, `does not allow the interpreter "/usr/bin/python3"`},
		{shell.Config{}, object{"script": "true", "env": object{"A=B": "x"}}, `env has "A=B"`},
		{shell.Config{}, object{"script": "true", "env": object{"FANJET_KEY": "x"}}, "belong to Fanjet"},
		{shell.Config{}, object{"script": "true", "env": object{"BIG": strings.Repeat("x", 140_000)}}, `use`},
		{shell.Config{}, object{"script": "true", "dir": "/"}, "in none of the folders this worker allows"},
		{shell.Config{}, object{"script": "true", "dir": "tmp"}, "is not absolute"},
		{shell.Config{}, object{"name": "hello"}, `this worker has no script "hello"`},
		{named, object{"script": "true"}, "runs its own scripts only"},
		{named, object{"argv": []string{"true"}}, "runs its own scripts only"},
	} {
		p, temp := newShell(t, c.cfg)
		out, _ := runOn(t, p, temp, processortest.Task{Params: c.params, Attempts: 3})
		if c.want == "use" {
			c.want = `hand it over as "stdin"`
		}
		require.ErrorContains(t, out.Err, c.want)
		require.Equal(t, 1, out.Runs, "what is wrong stays wrong: %s", c.want)
	}
	out, r := run(t, named, object{"name": "hello", "args": []string{"world"}})
	require.NoError(t, out.Err)
	require.Equal(t, "hello world", r.Stdout)
}

func TestNew_refuses(t *testing.T) {
	t.Parallel()
	_, err := shell.New(shell.Config{
		Interpreters: []string{"sh"}, Dirs: []string{"x"}, Env: map[string]string{"1": ""}, Named: true, Grace: time.Minute, LogLimit: -1,
	})
	for _, want := range []string{`Interpreters has "sh"`, `Dirs has "x"`, `Env has "1"`, "Named is set without", "Grace is 1m0s", "LogLimit is -1"} {
		require.ErrorContains(t, err, want)
	}
}

func TestRun_inherits_only_what_is_named(t *testing.T) {
	t.Parallel()
	_, r := run(t, shell.Config{Env: map[string]string{"SET": "yes"}}, object{"script": "env | sed 's/=.*//' | sort"})
	names := strings.Fields(r.Stdout)
	require.NotContains(t, names, secret)
	require.Subset(t, names, []string{"PATH", "HOME", "TMPDIR", "SET", "FANJET_INSTANCE"})
	for _, name := range names {
		known := strings.HasPrefix(name, "FANJET_") || strings.Contains(" PATH HOME USER LANG TZ TMPDIR SET PWD OLDPWD SHLVL _ ", " "+name+" ")
		require.True(t, known, "%s was inherited", name)
	}
	_, r = run(t, shell.Config{PassEnv: []string{secret}}, object{"script": "echo $" + secret})
	require.Equal(t, "hunter2", r.Stdout)
}

func TestRun_tells_where_it_runs(t *testing.T) {
	t.Parallel()
	p, temp := newShell(t, shell.Config{})
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	_, r := runOn(t, p, temp, processortest.Task{
		Params:   object{"script": `echo "$FANJET_APP $FANJET_JOB $FANJET_KEY $FANJET_NODE $FANJET_INSTANCE $FANJET_ATTEMPT $FANJET_TASK $FANJET_TASK_ATTEMPT $FANJET_SCHEDULED_AT $FANJET_SHARD/$FANJET_SHARDS"`},
		Instance: 77, InstanceAttempt: 2, Job: "nightly", Key: "k", Node: "n", ScheduledAt: at,
	})
	require.Equal(t, "test nightly k n 77 2 0 1 2026-05-04T03:02:01Z 0/1", r.Stdout)
	out, _ := runOn(t, p, temp, processortest.Task{Params: object{"script": `test "$FANJET_ITEM" = '{"a":"$(id)"}' && test "$FANJET_NAME" = part`}, Item: object{"a": "$(id)"}, Name: "part"})
	require.NoError(t, out.Err)
}

func TestRun_stays_in_the_folders_it_is_allowed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	allowed, other := filepath.Join(base, "allowed"), filepath.Join(base, "allowed-not")
	require.NoError(t, os.MkdirAll(filepath.Join(allowed, "in"), 0o755))
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, os.Symlink(other, filepath.Join(allowed, "out")))
	require.NoError(t, os.Symlink(filepath.Join(allowed, "in"), filepath.Join(base, "way")))
	cfg := shell.Config{Dirs: []string{allowed}}
	for _, dir := range []string{allowed, filepath.Join(allowed, "in"), filepath.Join(base, "way"), other + "/../allowed/in"} {
		out, r := run(t, cfg, object{"script": "pwd -P", "dir": dir})
		require.NoError(t, out.Err, dir)
		require.True(t, strings.HasPrefix(r.Stdout+"/", allowed+"/"), r.Stdout)
	}
	for _, dir := range []string{other, base, "/", filepath.Join(allowed, "out"), allowed + "/in/../..", filepath.Join(allowed, "none")} {
		out, _ := run(t, cfg, object{"script": "pwd", "dir": dir})
		require.ErrorContains(t, out.Err, "params of shell: dir", dir)
	}
}

// C43: floods of output.
func TestRun_survives_floods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script       string
		bytes, lines int64
	}{
		"2 GB of short lines": {"yes | head -c 2147483648; exit 3", 2 << 30, 1 << 30},
		"a line of 10 MB":     {"head -c 10000000 /dev/zero | tr '\\0' x; exit 3", 10_000_000, 1},
		"1 M lines":           {"seq 1000000; exit 3", 6_888_896, 1_000_000},
		"bytes of no meaning": {"head -c 20000000 /dev/urandom; exit 3", 20_000_000, 0},
		"both streams":        {"(yes err | head -c 100000000 >&2) & yes out | head -c 100000000; wait; exit 3", 200_000_000, 50_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			p, temp := newShell(t, shell.Config{LogLimit: 1 << 20})
			var logged, lines int
			var mark string
			l := &processor.Local{Log: func(_ slog.Level, _ time.Time, line string) {
				require.LessOrEqual(t, len(line), 8<<10)
				logged, lines = logged+len(line), lines+1
				if strings.HasPrefix(line, "… the log was cut") {
					mark = line
				}
			}}
			raw, err := json.Marshal(object{"script": c.script})
			require.NoError(t, err)
			o := l.Run(t.Context(), p, &broker.Chunk{Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
			runtime.ReadMemStats(&after)
			require.NotNil(t, o.Err)
			require.Contains(t, o.Err.Message, "exit code 3")
			require.Less(t, logged, 4<<20)
			if c.lines > 1 {
				require.Contains(t, mark, fmt.Sprintf("%d more lines", c.lines-int64(lines-1)))
			}
			if lines == 1 {
				require.Less(t, logged, 8<<10)
			}
			grown := int64(after.HeapSys) - int64(before.HeapSys)
			require.Less(t, grown, int64(64<<20), "memory is not flat")
			requireEmpty(t, temp)
		})
	}
}

// tree starts processes of every kind that likes to stay, and tells their ids.
const tree = `
trap '' TERM HUP INT
echo $$ > $D/main
sh -c 'trap "" TERM HUP; echo $$ > $D/child; while :; do sleep 1; done' &
setsid sh -c 'trap "" TERM HUP; echo $$ > $D/session; while :; do sleep 1; done' &
(setsid sh -c 'trap "" TERM HUP; echo $$ > $D/daemon; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &)
while [ ! -s $D/main ] || [ ! -s $D/child ] || [ ! -s $D/session ] || [ ! -s $D/daemon ]; do sleep 0.01; done
echo ready
`

func pids(t testing.TB, dir string) (all []int) {
	t.Helper()
	for _, name := range []string{"main", "child", "session", "daemon"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		require.NoError(t, err)
		all = append(all, pid)
	}
	return all
}

func requireGone(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !lives(pid) }, 10*time.Second, 5*time.Millisecond, "process %d lives", pid)
	}
}

// lives tells a living process from one that waits to be collected.
func lives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// C40: nothing of a script stays, whatever it does.
func TestRun_leaves_no_process(t *testing.T) {
	t.Parallel()
	type ending struct {
		name, script string
		cancel       bool
		want         string
	}
	for _, e := range []ending{
		{"stopped", tree + "while :; do sleep 1; done", true, "stopped by the test; the script was ended: ended by signal 9"},
		{"finished", tree + "exit 0", false, ""},
		{"failed", tree + "exit 7", false, "exit code 7"},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p, temp := newShell(t, shell.Config{Grace: 300 * time.Millisecond})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			l := &processor.Local{Log: func(_ slog.Level, _ time.Time, line string) {
				if line == "ready" && e.cancel {
					cancel(fmt.Errorf("stopped by the test"))
				}
			}}
			raw, err := json.Marshal(object{"script": e.script, "env": object{"D": dir}})
			require.NoError(t, err)
			begun := time.Now()
			o := l.Run(ctx, p, &broker.Chunk{Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
			require.Less(t, time.Since(begun), 10*time.Second)
			if e.want == "" {
				require.Nil(t, o.Err)
			} else {
				require.NotNil(t, o.Err)
				require.Contains(t, o.Err.Message, e.want)
			}
			requireGone(t, pids(t, dir))
			requireEmpty(t, temp)
		})
	}
}

func TestRun_lets_a_script_clean_up(t *testing.T) {
	t.Parallel()
	p, temp := newShell(t, shell.Config{})
	out, _ := runOn(t, p, temp, processortest.Task{
		Params:      object{"script": `trap 'echo cleaning; exit 9' TERM; echo begun; while :; do sleep 0.02; done`},
		TaskTimeout: 300 * time.Millisecond,
	})
	require.ErrorContains(t, out.Err, "the task timed out after 300ms; the script was ended: exit code 9")
	require.Subset(t, out.Lines, []string{"begun", "cleaning"})
	// A stopped process is woken to be ended.
	out, _ = runOn(t, p, temp, processortest.Task{Params: object{"script": `kill -STOP $$`}, TaskTimeout: 100 * time.Millisecond})
	require.ErrorContains(t, out.Err, "ended by signal 15")
}

// What outlives its script and is out of reach, because it cleared its environment and left the
// group, costs its output and nothing else.
func TestRun_does_not_wait_for_the_unreachable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, temp := newShell(t, shell.Config{Grace: 50 * time.Millisecond})
	out, _ := runOn(t, p, temp, processortest.Task{Params: object{
		"script": `setsid env -i sh -c 'echo $$ > '$D'/pid; exec sleep 60' & while [ ! -s $D/pid ]; do sleep 0.01; done`, "env": object{"D": dir},
	}})
	require.NoError(t, out.Err)
	require.Contains(t, out.Lines, "a process that left the script behind still holds its output; it cannot be found")
	raw, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	requireGone(t, []int{pid})
}

// F16: many runs, some of them killed, leave nothing.
func TestRun_leaves_no_file(t *testing.T) {
	t.Parallel()
	p, temp := newShell(t, shell.Config{Grace: 20 * time.Millisecond})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 50 {
				task := processortest.Task{Params: object{"script": "touch x; mkdir y; echo $0"}}
				if (i+j)%5 == 0 {
					task = processortest.Task{Params: object{"script": "trap '' TERM; touch x; sleep 60"}, TaskTimeout: 20 * time.Millisecond}
				}
				out := processortest.Run(t, p, task)
				require.Equal(t, (i+j)%5 == 0, out.Err != nil)
			}
		})
	}
	wg.Wait()
	requireEmpty(t, temp)
}

func TestRun_as_another_user(t *testing.T) {
	t.Parallel()
	temp, err := os.MkdirTemp("", "shell-user-") // t.TempDir is within folders of this user alone
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	require.NoError(t, os.Chmod(temp, 0o755))
	p, _ := newShell(t, shell.Config{User: &shell.User{UID: 65534, GID: 65534}, TempDir: temp})
	out, r := runOn(t, p, temp, processortest.Task{Params: object{"script": `id -u; id -g; id -G; touch mine; echo 5 > $FANJET_RESULT`}})
	if os.Geteuid() != 0 {
		require.ErrorContains(t, out.Err, "not permitted")
		return
	}
	require.NoError(t, out.Err)
	require.Equal(t, "65534\n65534\n65534", r.Stdout)
	require.Equal(t, "5", string(r.Value))
}
