package exec

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fanjet/fanjet/processor/builtin/internal/child"
)

// program is one running program. It belongs to one task at a time, or to the pool.
type program struct {
	cfg    *Config
	c      *child.Child
	out    *child.Output
	stderr *child.Stream
	hello  []announced
	idle   *time.Timer // runs while it belongs to the pool
	tasks  int64
	unread bool // of one that failed: it never read what was written last

	lines   chan line // unbuffered: what is not handled is not read
	quit    chan struct{}
	reading sync.WaitGroup
	writing sync.Mutex
	ending  sync.Once
}

// line is what the program wrote, or why there is no more.
type line struct {
	said *said
	err  error
}

// start starts a program and waits for its hello.
func start(ctx context.Context, cfg *Config) (*program, error) {
	c, err := child.Start(child.Spec{Path: cfg.Command[0], Args: cfg.Command[1:], Dir: cfg.Dir, Env: cfg.environment(), Stdin: true})
	if err != nil {
		return nil, err
	}
	p := &program{cfg: cfg, c: c, lines: make(chan line), quit: make(chan struct{})}
	p.out = child.NewOutput(p.quiet(), cfg.LogLimit)
	p.stderr = p.out.Stream(slog.LevelInfo)
	p.reading.Go(p.read)
	p.reading.Go(func() { p.stderr.Copy(c.Stderr) })
	limit := time.NewTimer(cfg.StartTimeout)
	defer limit.Stop()
	select {
	case l := <-p.lines:
		err = p.greet(l)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = fmt.Errorf("program %q did not say hello within %v", cfg.Command[0], cfg.StartTimeout)
	}
	if err != nil {
		return nil, p.fail(err)
	}
	return p, nil
}

// quiet is the log for the time between tasks.
func (p *program) quiet() *slog.Logger { return p.cfg.Logger.With("program", p.c.PID()) }

func (p *program) greet(l line) error {
	switch {
	case l.err != nil:
		return fmt.Errorf("instead of a hello: %w", l.err)
	case l.said.Type != typeHello:
		return broken("the first line of the program has type %q and not %q", l.said.Type, typeHello)
	case l.said.Protocol != protocol:
		return broken("the program speaks protocol %d and this worker %d", l.said.Protocol, protocol)
	case len(l.said.Processors) == 0:
		return broken("the hello of the program has no processors")
	}
	p.hello = l.said.Processors
	return nil
}

// read reads lines until there are no more.
func (p *program) read() {
	r := bufio.NewReaderSize(p.c.Stdout, 64<<10)
	for {
		var l line
		raw, err := readLine(r)
		if err == nil {
			l.said, err = parse(raw)
		}
		l.err = err
		select {
		case p.lines <- l:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// write writes one line. It blocks as long as the program does not read.
func (p *program) write(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends the line
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if _, err := p.c.Stdin.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write to the program: %w", err)
	}
	return nil
}

// hurry bounds all writing that goes on and is to come.
func (p *program) hurry(d time.Duration) { _ = p.c.Stdin.SetWriteDeadline(time.Now().Add(d)) }

// fit tells whether the program can take a task. What it said about tasks that are over is dropped.
func (p *program) fit() bool {
	for {
		select {
		case <-p.c.Exited():
			return false
		case l := <-p.lines:
			if l.err != nil {
				return false
			}
		default:
			return p.c.Stdin.SetWriteDeadline(time.Time{}) == nil
		}
	}
}

// fail ends the program after err and adds what it said last.
func (p *program) fail(err error) error {
	patience := 200 * time.Millisecond // one that crashes says odd things first
	if errors.Is(err, errClosed) {
		patience = time.Second // it is about to exit, most likely
	}
	exited := false
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-p.c.Exited():
		exited = true
	case <-wait.C:
	}
	p.c.Kill()
	<-p.c.Exited()
	p.unread = p.c.Unread()
	exit := p.end()
	if exited {
		err = fmt.Errorf("%w; the program ended: %v", err, exit)
	}
	if tail := p.stderr.Tail(); tail != "" {
		err = fmt.Errorf("%w; the end of its standard error:\n%s", err, tail)
	}
	return err
}

// end collects a program of which nothing lives any more, or kills what does.
func (p *program) end() child.Exit {
	p.ending.Do(func() {
		close(p.quit)
		p.c.Kill()
		_ = p.c.Stdout.SetReadDeadline(time.Now())
		_ = p.c.Stderr.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		p.reading.Wait()
	})
	return p.c.End()
}

// retire lets the program exit: its input ends, then it is asked to, then it is killed.
func (p *program) retire() {
	_ = p.c.Stdin.Close()
	limit := time.NewTimer(p.cfg.Grace)
	defer limit.Stop()
	for done := false; !done; {
		select {
		case <-p.c.Exited():
			done = true
		case <-limit.C:
			p.c.Stop(termGrace)
			done = true
		case <-p.lines: // what it still says
		}
	}
	p.end()
}
