//go:build linux

package exec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
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
	"github.com/fanjet/fanjet/processor/builtin/exec"
	"github.com/fanjet/fanjet/processor/processortest"
)

func TestMain(m *testing.M) {
	os.Setenv("FANJET_TOKEN", "hunter2")
	os.Setenv("EXEC_TEST_PLAIN", "passed on")
	goleak.VerifyTestMain(m)
}

type object map[string]any

// python needs a Python 3; in CI it must be there.
func python(t testing.TB) string {
	t.Helper()
	path, err := osexec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			require.FailNow(t, "python3 is not there, so the protocol is not tested")
		}
		t.Skip("python3 is not there")
	}
	return path
}

// journal takes what programs say between tasks.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func newPool(t testing.TB, c exec.Config) (*exec.Pool, *journal) {
	t.Helper()
	j := &journal{}
	c.Logger = slog.New(slog.NewTextHandler(j, nil))
	if c.Command == nil {
		c.Command = []string{python(t), "testdata/behave.py"}
	}
	p, err := exec.New(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, j
}

func run(t testing.TB, p *exec.Pool, params object) *processortest.Outcome {
	t.Helper()
	return processortest.Run(t, p.Processor("plain"), processortest.Task{Params: params})
}

func TestPython_counts_words(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{Command: []string{python(t), "testdata/words.py"}, Instances: 3})
	require.Equal(t, []string{"words"}, p.Names())
	require.Nil(t, p.Processor("other"))
	text := strings.Repeat("a b c\nb c\nÄ <c> & “c”\n", 100)
	out := processortest.Run(t, p.Processor("words"), processortest.Task{Mode: processor.ModeMapReduce, Params: object{"text": text}, Workers: 3})
	require.NoError(t, out.Err)
	require.JSONEq(t, `{"a":100,"b":200,"c":400,"ä":100}`, string(out.Result))
	require.Equal(t, 300, out.SubTasks)
	require.Contains(t, out.Lines, "300 lines to count")

	out = processortest.Run(t, p.Processor("words"), processortest.Task{Mode: processor.ModeMapReduce, Params: object{"txt": ""}})
	require.ErrorContains(t, out.Err, "root: KeyError: 'text'")
}

func TestSh_looks_at_the_disk(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{Command: []string{"sh", "testdata/disk.sh"}})
	for range 3 {
		out := processortest.Run(t, p.Processor("disk"), processortest.Task{})
		require.NoError(t, out.Err)
		var r struct {
			Used int `json:"used_percent"`
		}
		require.NoError(t, out.Decode(&r))
		require.Positive(t, r.Used)
	}
}

func TestTask_tells_everything(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{})
	at := time.Date(2026, 5, 4, 3, 2, 1, 5e6, time.UTC)
	out := processortest.Run(t, p.Processor("plain"), processortest.Task{
		Params: object{"do": "echo", "html": "<&>"}, Instance: 1<<62 + 1, InstanceAttempt: 2, Job: "nightly", Key: "k\n", Node: "n", ScheduledAt: at, Checkpoint: []int{1}, TaskTimeout: time.Hour,
	})
	require.NoError(t, out.Err)
	var got map[string]any
	require.NoError(t, out.Decode(&got))
	require.InDelta(t, time.Hour.Milliseconds(), got["timeout_ms"], 60_000)
	delete(got, "timeout_ms")
	require.Equal(t, map[string]any{
		"type": "task", "id": 1.0, "processor": "plain", "step": "root", "mode": "standalone", "app": "test", "job": "nightly", "instance": "4611686018427387905",
		"attempt": 2.0, "number": 0.0, "task_attempt": 1.0, "key": "k\n", "node": "n", "workflow": "1", "scheduled_at": "2026-05-04T03:02:01.005Z",
		"params": map[string]any{"do": "echo", "html": "<&>"}, "checkpoint": []any{1.0},
	}, got)
	for item, want := range map[any]string{"text": `"item":"text"`, 5: `"item":5`, "bytes": `"item_base64":"//4="`} {
		if item == "bytes" {
			item = []byte{0xff, 0xfe}
		}
		out = processortest.Run(t, p.Processor("plain"), processortest.Task{Params: object{"do": "echo"}, Item: item, Name: "part"})
		require.NoError(t, out.Err)
		require.Contains(t, strings.ReplaceAll(string(out.Result), ": ", ":"), want)
		require.Contains(t, strings.ReplaceAll(string(out.Result), ": ", ":"), `"step":"sub"`)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{})
	require.Equal(t, []string{"plain", "reduce", "all", "frame"}, p.Names())
	for name, want := range map[string][3]bool{"plain": {}, "reduce": {true}, "all": {true, true, true}, "frame": {false, true, true}} {
		x := p.Processor(name)
		_, reduces := x.(processor.Reducer)
		_, begins := x.(processor.PreProcessor)
		_, ends := x.(processor.PostProcessor)
		require.Equal(t, want, [3]bool{reduces, begins, ends}, name)
	}
	out := processortest.Run(t, p.Processor("reduce"), processortest.Task{Mode: processor.ModeMapReduce, Params: object{"do": "map", "n": 40, "batch": 250}, Workers: 2})
	require.NoError(t, out.Err)
	require.Equal(t, 10_000, out.SubTasks)
	require.JSONEq(t, `{"all":49995000,"n":10000,"total":10000,"failed":0}`, string(out.Result))

	out = processortest.Run(t, p.Processor("frame"), processortest.Task{Mode: processor.ModeBroadcast, Params: object{"result": 7}, Workers: 3})
	require.NoError(t, out.Err)
	require.Equal(t, []string{"pre"}, out.Lines)
	require.JSONEq(t, `{"all":3,"n":3,"total":3,"failed":0}`, string(out.Result))
	require.Equal(t, "7", string(out.Shares[2].Result))

	// A reduce that answers before it read its values: the program serves on.
	out = processortest.Run(t, p.Processor("reduce"), processortest.Task{Mode: processor.ModeMap, Params: object{"do": "pid"}})
	require.NoError(t, out.Err)
	out = processortest.Run(t, p.Processor("reduce"), processortest.Task{Mode: processor.ModeMapReduce, Params: object{"do": "early"}})
	require.NoError(t, out.Err)
	require.JSONEq(t, `"early"`, string(out.Result))
}

func TestProgram_is_used_again(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{Instances: 2})
	pid := string(run(t, p, object{"do": "pid"}).Result)
	for range 20 {
		require.Equal(t, pid, string(run(t, p, object{"do": "pid"}).Result))
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				r := string(run(t, p, object{"do": "pid"}).Result)
				mu.Lock()
				seen[r] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(seen), 2, "more programs than instances")

	var env map[string]string
	require.NoError(t, run(t, p, object{"do": "env"}).Decode(&env))
	require.NotContains(t, env, "FANJET_TOKEN")
	require.Equal(t, "passed on", env["EXEC_TEST_PLAIN"])
}

func TestProgram_that_breaks_fails_its_task_alone(t *testing.T) {
	t.Parallel()
	p, j := newPool(t, exec.Config{Instances: 1})
	line := func(l object) object { return object{"do": "say", "lines": []any{l}} }
	for _, c := range []struct {
		params object
		want   string
	}{
		{object{"do": "exit", "code": 7}, "the program closed its output; the program ended: exit code 7; the end of its standard error:\nTraceback: the last words"},
		{object{"do": "segv"}, "the program ended: ended by signal 11"},
		{object{"do": "close"}, "the program closed its output"},
		{object{"do": "garbage", "text": "debugging…"}, `a line that is no JSON object: "debugging…"; what is for people belongs to standard error`},
		{object{"do": "garbage", "text": "[1]"}, `a line that is no JSON object: "[1]"`},
		{object{"do": "garbage", "text": ""}, `a line that is no JSON object: ""`},
		{object{"do": "garbage", "text": `{"type":5}`}, `no JSON object of this protocol`},
		{object{"do": "garbage", "text": `{"type":"result"}`}, `a line of type "result" with id 0 while it has task`},
		{object{"do": "long", "bytes": 3 << 20}, "a line of more than 1048576 bytes; it begins with \"xxx"},
		{line(object{"type": "answer"}), `a line of type "answer", which this protocol does not have`},
		{line(object{"type": "result", "id": 99}), `a line of type "result" with id 99`},
		{line(object{"type": "hello"}), `a line of type "hello"`},
	} {
		out := run(t, p, c.params)
		require.ErrorContains(t, out.Err, c.want)
		require.Less(t, len(out.Err.Error()), 1000)
		require.NoError(t, run(t, p, object{}).Err, "the next task is not the same one's victim: %s", c.want)
	}
	// What it says about a task that is over is dropped.
	require.Equal(t, "1", string(run(t, p, object{"do": "twice"}).Result))
	require.Equal(t, "5", string(run(t, p, object{"result": 5}).Result))
	// A program that dies between two tasks.
	require.NoError(t, run(t, p, object{"do": "after", "code": 5}).Err)
	require.NoError(t, run(t, p, object{}).Err)
	require.Eventually(t, func() bool { return strings.Contains(j.String(), "exit code 5") }, 10*time.Second, time.Millisecond)
}

func TestProgram_reports(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{LogLimit: 2000})
	say := func(lines ...object) *processortest.Outcome { return run(t, p, object{"do": "say", "lines": lines}) }
	out := say(
		object{"type": "log", "level": "warn", "text": "two\nlines \u0000"}, object{"type": "log", "id": 999, "text": "of nobody"},
		object{"type": "progress", "done": 1, "total": 4, "text": "quarter"}, object{"type": "progress", "done": 2, "total": 4}, object{"type": "progress", "done": 4, "total": 4},
	)
	require.NoError(t, out.Err)
	require.Equal(t, []string{"two", "lines \uFFFD", "progress 1 of 4: quarter", "progress 4 of 4"}, out.Lines)

	many := make([]object, 100)
	for i := range many {
		many[i] = object{"type": "log", "text": strings.Repeat("y", 99)}
	}
	out = say(many...)
	require.NoError(t, out.Err)
	require.Len(t, out.Lines, 22)
	require.Contains(t, out.Lines[21], "79 more lines")

	out = run(t, p, object{"do": "stderr", "n": 3})
	require.NoError(t, out.Err)
	require.Subset(t, append(out.Lines, "line 0", "line 1", "line 2"), []string{"said all"})

	for message, want := range map[string]string{"bad": "bad", "": "the program gave no reason", "a\u0000": "a\uFFFD"} {
		out = processortest.Run(t, p.Processor("plain"), processortest.Task{Params: object{"do": "say", "lines": []any{object{"type": "error", "message": message, "final": true}}}, Attempts: 3})
		require.ErrorContains(t, out.Err, want)
		require.Equal(t, 1, out.Runs)
	}
	out = processortest.Run(t, p.Processor("plain"), processortest.Task{Params: object{"do": "checkpoint"}, Attempts: 5})
	require.NoError(t, out.Err)
	require.Equal(t, "2", string(out.Result))
	require.Len(t, out.Checkpoints, 3)
}

// A refusal of the worker's side (here: a map where none is allowed) is told to the program.
func TestMap_is_refused(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{Grace: 200 * time.Millisecond})
	out := run(t, p, object{"do": "say", "lines": []any{object{"type": "map", "name": "x", "items": []int{1}}}})
	require.ErrorContains(t, out.Err, `map "x": the mode of the instance is standalone`)
	require.NoError(t, run(t, p, object{}).Err)
	out = processortest.Run(t, p.Processor("plain"), processortest.Task{Mode: processor.ModeMap, Params: object{"do": "say", "lines": []any{
		object{"type": "map", "name": "x", "items": []string{strings.Repeat("x", 600<<10)}},
	}}})
	require.ErrorContains(t, out.Err, "at most 524288 travel")
	require.NoError(t, run(t, p, object{}).Err)
}

// A mapper goes no faster than the broker: here it takes nothing until the test lets it.
func TestMap_is_held_back(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{})
	count := filepath.Join(t.TempDir(), "count")
	gate, waiting := make(chan struct{}), make(chan struct{})
	var once sync.Once
	staged := 0
	l := &processor.Local{Stage: func(b *broker.StageBatch) error {
		once.Do(func() { close(waiting) })
		<-gate
		staged += len(b.Items)
		return nil
	}}
	const n = 3000
	raw, err := json.Marshal(object{"do": "flood", "n": n, "count": count})
	require.NoError(t, err)
	done := make(chan processor.Outcome, 1)
	go func() {
		done <- l.Run(t.Context(), p.Processor("plain"), &broker.Chunk{Phase: broker.PhaseRoot, Mode: processor.ModeMap, Params: raw}, &broker.Task{})
	}()
	select {
	case <-waiting:
	case o := <-done:
		require.FailNow(t, "the mapper ended", "%+v", o)
	}
	written := func() int {
		raw, err := os.ReadFile(count)
		require.NoError(t, err)
		k, _ := strconv.Atoi(string(raw)) // between two writes it is empty
		return k
	}
	last, still := written(), 0
	require.Eventually(t, func() bool {
		if now := written(); now == last && now > 0 {
			still++
		} else {
			last, still = now, 0
		}
		return still > 20
	}, 30*time.Second, 10*time.Millisecond)
	require.Less(t, last, 2000, "the program ran ahead of the broker")
	close(gate)
	o := <-done
	require.Nil(t, o.Err)
	require.EqualValues(t, n, o.Emitted)
	require.Equal(t, n, staged)
}

func pids(t testing.TB, file string) (all []int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for s := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(s)
		require.NoError(t, err)
		all = append(all, pid)
	}
	require.NotEmpty(t, all)
	return all
}

func requireGone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				return syscall.Kill(pid, 0) != nil
			}
			_, rest, _ := strings.Cut(string(raw), ") ")
			return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
		}, 10*time.Second, 5*time.Millisecond, "process %d lives", pid)
	}
}

// C40: a program that listens is kept; one that does not is ended with all it started.
func TestCancel(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t, exec.Config{Instances: 1, Grace: 300 * time.Millisecond})
	pid := string(run(t, p, object{"do": "pid"}).Result)
	cancelAt := func(params object, cause error) (processor.Outcome, []string) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var mu sync.Mutex
		var lines []string
		l := &processor.Local{Log: func(_ slog.Level, _ time.Time, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
			if line == "waiting" {
				cancel(cause)
			}
		}}
		raw, err := json.Marshal(params)
		require.NoError(t, err)
		o := l.Run(ctx, p.Processor("plain"), &broker.Chunk{Phase: broker.PhaseRoot, Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
		mu.Lock()
		defer mu.Unlock()
		return o, lines
	}
	for cause, want := range map[error]string{processor.ErrStopped: "cancel stop", processor.ErrDrained: "cancel drain", context.DeadlineExceeded: "cancel timeout"} {
		o, lines := cancelAt(object{"do": "wait"}, cause)
		require.NotNil(t, o.Err)
		require.Contains(t, o.Err.Message, cause.Error())
		require.Equal(t, []string{"waiting", want}, lines)
	}
	require.Equal(t, pid, string(run(t, p, object{"do": "pid"}).Result), "a program that obeys is kept")

	file := filepath.Join(t.TempDir(), "pids")
	begun := time.Now()
	o, _ := cancelAt(object{"do": "hang", "pids": file}, processor.ErrStopped)
	require.Less(t, time.Since(begun), 5*time.Second, "the worker would have left the task behind")
	require.Equal(t, broker.ErrorStopped, o.Err.Kind)
	require.Len(t, pids(t, file), 2)
	requireGone(t, pids(t, file)...)
	require.NotEqual(t, pid, string(run(t, p, object{"do": "pid"}).Result))

	out := processortest.Run(t, p.Processor("plain"), processortest.Task{Params: object{"do": "wait"}, TaskTimeout: 100 * time.Millisecond})
	require.ErrorContains(t, out.Err, "the task timed out after 100ms")

	// All programs are busy: a task that waits for one can be stopped too.
	hold, release := make(chan struct{}), make(chan struct{})
	l := &processor.Local{Log: func(slog.Level, time.Time, string) { close(hold); <-release }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw := []byte(`{"do":"say","lines":[{"type":"log","text":"x"}]}`)
		l.Run(context.Background(), p.Processor("plain"), &broker.Chunk{Phase: broker.PhaseRoot, Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
	}()
	<-hold
	out = processortest.Run(t, p.Processor("plain"), processortest.Task{TaskTimeout: 50 * time.Millisecond})
	require.ErrorContains(t, out.Err, "the task timed out after 50ms")
	close(release)
	<-done
}

func TestClose_leaves_no_process(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, _ := newPool(t, exec.Config{Instances: 3, Grace: 100 * time.Millisecond})
	file := filepath.Join(dir, "pids")
	require.NoError(t, run(t, p, object{"pids": file}).Err)
	p.Close()
	requireGone(t, pids(t, file)...)
	require.ErrorContains(t, run(t, p, object{}).Err, "have been ended")
	p.Close()

	p, _ = newPool(t, exec.Config{IdleTimeout: 20 * time.Millisecond})
	file = filepath.Join(dir, "idle")
	require.NoError(t, run(t, p, object{"pids": file}).Err)
	requireGone(t, pids(t, file)...)
	require.NoError(t, run(t, p, object{}).Err)
}

func TestNew_refuses(t *testing.T) {
	t.Parallel()
	_, err := exec.New(t.Context(), exec.Config{Instances: -1, Env: []string{"=x"}, StartTimeout: -1, Grace: time.Hour, LogLimit: -1})
	for _, want := range []string{"Command is empty", "Instances is -1", `Env has "=x"`, "StartTimeout is", "Grace is 1h", "LogLimit is -1"} {
		require.ErrorContains(t, err, want)
	}
	_, err = exec.New(t.Context(), exec.Config{Command: []string{"no-such-program"}})
	require.ErrorContains(t, err, `find program "no-such-program"`)
	_, err = exec.New(t.Context(), exec.Config{Command: []string{"sleep", "60"}, StartTimeout: 50 * time.Millisecond})
	require.ErrorContains(t, err, `program "sleep" did not say hello within 50ms`)
	for hello, want := range map[string]string{
		`{"type":"hello","protocol":2,"processors":[{"name":"x"}]}`: "the program speaks protocol 2 and this worker 1",
		`{"type":"hello","protocol":1}`:                             "has no processors",
		`{"type":"result"}`:                                         `has type "result" and not "hello"`,
		`Hello, world`:                                              `instead of a hello: the program wrote a line that is no JSON object: "Hello, world"`,
	} {
		_, err = exec.New(t.Context(), exec.Config{Logger: slog.New(slog.DiscardHandler), Command: []string{python(t), "testdata/behave.py"}, Env: []string{"BEHAVE_HELLO=" + hello}})
		require.ErrorContains(t, err, want)
	}
	_, err = exec.New(t.Context(), exec.Config{Logger: slog.New(slog.DiscardHandler), Command: []string{python(t), "testdata/behave.py"}, Env: []string{"BEHAVE_HELLO=x", "BEHAVE_EXIT=1"}})
	require.ErrorContains(t, err, "exit code 3; the end of its standard error:\nbad luck")
}
