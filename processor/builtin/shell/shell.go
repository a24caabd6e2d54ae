package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/internal/child"
)

// Processor runs scripts and programs. It is safe for concurrent use.
type Processor struct{ cfg Config }

// Result is the result of a run that succeeded.
type Result struct {
	ExitCode int `json:"exit_code"`
	// Value is what the script wrote to the file FANJET_RESULT: JSON, or else a text.
	Value json.RawMessage `json:"value,omitempty"`
	// Stdout and Stderr are the last lines written there, at most 4 KiB each.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// Bytes and Lines were written, of which CutLines were not logged.
	Bytes    int64 `json:"bytes"`
	Lines    int64 `json:"lines"`
	CutLines int64 `json:"cut_lines,omitempty"`
}

// New makes the processor and removes private folders that dead workers left in Config.TempDir. The
// error says what is wrong with c.
func New(c Config) (*Processor, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if _, err := sweep(c.TempDir, time.Now()); err != nil {
		slog.Warn("folders that a dead worker left stay", "err", err)
	}
	return &Processor{c}, nil
}

// Process runs what the params of the task say; see Params and Result. Params that are wrong or not
// allowed here fail the task for good.
func (p *Processor) Process(ctx context.Context, task *processor.Task) (any, error) {
	params, err := p.cfg.parse(task.RawParams())
	if err != nil {
		return nil, processor.Cancel(fmt.Errorf("params of shell: %w", err))
	}
	spec := child.Spec{Stdin: params.Stdin != "", User: (*child.User)(p.cfg.User)}
	if params.Dir != "" {
		if spec.Dir, err = p.cfg.folder(params.Dir); err != nil {
			return nil, processor.Cancel(fmt.Errorf("params of shell: %w", err))
		}
	}
	own, err := newPrivate(p.cfg.TempDir, p.cfg.User)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := own.remove(); err != nil {
			task.Logger().Warn("the private folder stays", "err", err)
		}
	}()
	if spec.Dir == "" {
		spec.Dir = own.dir
	}
	if len(params.Argv) > 0 {
		spec.Path, spec.Args = params.Argv[0], params.Argv[1:]
	} else {
		path, err := own.script(params.Script, p.cfg.User)
		if err != nil {
			return nil, err
		}
		spec.Path, spec.Args = params.Interpreter, []string{path}
		for _, a := range params.Args {
			spec.Args = append(spec.Args, string(a))
		}
	}
	if spec.Env, err = p.environment(task, params, own.dir); err != nil {
		return nil, err
	}
	return p.run(ctx, task, spec, string(params.Stdin), own)
}

// run runs the program to its end, or to that of ctx.
func (p *Processor) run(ctx context.Context, task *processor.Task, spec child.Spec, stdin string, own *private) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := child.Start(spec)
	if err != nil {
		return nil, err
	}
	defer c.End()
	out := child.NewOutput(task.Logger(), p.cfg.LogLimit)
	stdout, stderr := out.Stream(slog.LevelInfo), out.Stream(slog.LevelWarn)
	var held [2]bool
	var reading, writing sync.WaitGroup
	reading.Go(func() { held[0] = stdout.Copy(c.Stdout) })
	reading.Go(func() { held[1] = stderr.Copy(c.Stderr) })
	if c.Stdin != nil {
		writing.Go(func() {
			_, _ = c.Stdin.WriteString(stdin) // a program need not read its input
			_ = c.Stdin.Close()
		})
	}
	read := make(chan struct{})
	go func() {
		reading.Wait()
		close(read)
	}()

	p.await(ctx, c, read)
	deadline := time.Now().Add(500 * time.Millisecond) // all are dead; who still holds the pipes is beyond reach
	_ = c.Stdout.SetReadDeadline(deadline)
	_ = c.Stderr.SetReadDeadline(deadline)
	<-read
	exit := c.End() // closes Stdin too, should a write still wait
	writing.Wait()
	counts := out.End()
	if held[0] || held[1] {
		task.Logger().Warn("a process that left the script behind still holds its output; it cannot be found")
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w; the script was ended: %v", context.Cause(ctx), exit)
	case exit.Code != 0:
		return nil, failure(exit, stdout.Tail(), stderr.Tail())
	}
	value, err := own.result()
	if err != nil {
		return nil, processor.Cancel(err)
	}
	return Result{
		Value: value, Stdout: stdout.Tail(), Stderr: stderr.Tail(),
		Bytes: counts.Bytes, Lines: counts.Lines, CutLines: counts.CutLines,
	}, nil
}

// await returns when nothing of the program lives any more.
func (p *Processor) await(ctx context.Context, c *child.Child, read <-chan struct{}) {
	select {
	case <-ctx.Done():
		c.Stop(p.cfg.Grace)
		return
	case <-c.Exited():
	}
	grace := time.NewTimer(p.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
	case <-read:
	case <-grace.C: // something in the background holds the pipes
	}
	c.Kill()
}

func failure(exit child.Exit, stdout, stderr string) error {
	text := exit.String()
	for _, s := range []struct{ name, tail string }{{"stderr", stderr}, {"stdout", stdout}} {
		if s.tail != "" {
			text += fmt.Sprintf("; the end of %s:\n%s", s.name, s.tail)
			break
		}
	}
	return errors.New(text)
}

// environment is all the program gets; later entries win.
func (p *Processor) environment(task *processor.Task, params *Params, dir string) ([]string, error) {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir}
	for _, name := range slices.Concat([]string{"PATH", "HOME", "USER", "LANG", "TZ"}, systemVariables, p.cfg.PassEnv) {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	if p.cfg.User != nil {
		env["HOME"] = dir
		delete(env, "USER")
	}
	env["TMPDIR"] = dir
	maps.Copy(env, p.cfg.Env)
	for name, v := range params.Env {
		if v != nil {
			env[name] = string(*v)
		} else {
			delete(env, name)
		}
	}
	shard, shards := task.Shard()
	scheduled := ""
	if at := task.ScheduledAt(); !at.IsZero() {
		scheduled = at.UTC().Format(time.RFC3339Nano)
	}
	maps.Copy(env, map[string]string{
		"FANJET_APP": task.App(), "FANJET_JOB": task.Job(), "FANJET_KEY": task.Key(), "FANJET_NODE": task.Node(), "FANJET_NAME": task.Name(),
		"FANJET_INSTANCE": strconv.FormatInt(task.Instance(), 10), "FANJET_ATTEMPT": strconv.Itoa(task.Attempt()),
		"FANJET_TASK": strconv.FormatInt(task.Number(), 10), "FANJET_TASK_ATTEMPT": strconv.Itoa(task.TaskAttempt()),
		"FANJET_WORKFLOW": strconv.FormatInt(task.Workflow(), 10),
		"FANJET_SHARD":    strconv.Itoa(shard), "FANJET_SHARDS": strconv.Itoa(shards),
		"FANJET_SCHEDULED_AT": scheduled, "FANJET_RESULT": filepath.Join(dir, "result"),
	})
	if item := task.RawItem(); item != nil {
		if err := data(&Params{Args: []Value{Value(item)}}); err != nil {
			return nil, processor.Cancel(fmt.Errorf("the item of the sub-task as FANJET_ITEM: %w", err))
		}
		env["FANJET_ITEM"] = string(item)
	}
	list := make([]string, 0, len(env))
	for name, v := range env {
		list = append(list, name+"="+v)
	}
	return list, nil
}
