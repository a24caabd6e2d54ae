package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// childPatience is how long a worker command may take to end before it is killed.
const childPatience = 5 * time.Second

// child is a worker command that runs beside this process, in a process group of its own.
type child struct {
	command string
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{} // closed when it has ended
	err     error         // why, once done is closed
}

// startChild runs the command by the shell. Each line it writes goes to out.
func startChild(command string, env []string, out io.Writer) (*child, error) {
	lines := &lineWriter{out: out, prefix: "worker: "}
	c := &child{command: command, started: time.Now(), done: make(chan struct{})}
	c.cmd = shellCommand(command)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = lines, lines
	// Children of its own may hold the pipe after it has ended.
	c.cmd.WaitDelay = childPatience
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the worker command %q: %w", command, err)
	}
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
		lines.flush()
	}()
	return c, nil
}

// ended is the error for a command that ended by itself; call it after done.
func (c *child) ended() error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("the worker command %q ended after %s (%s) before the workflow did; its lines above say why",
		c.command, short(time.Since(c.started)), how)
}

// stop asks the whole group to end, and kills it when patience or hurry is over.
func (c *child) stop(hurry context.Context) {
	terminate(c.cmd)
	timer := time.NewTimer(childPatience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	case <-hurry.Done():
	}
	kill(c.cmd)
	<-c.done
}

// lineWriter hands whole lines on, each with a prefix. Safe for concurrent use.
type lineWriter struct {
	out    io.Writer
	prefix string
	mu     sync.Mutex
	rest   []byte
}

const maxLine = 64 << 10 // a longer line is broken

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		switch {
		case i >= 0:
			w.emit(w.rest[:i])
			w.rest = w.rest[i+1:]
		case len(w.rest) > maxLine:
			w.emit(w.rest)
			w.rest = nil
		default:
			return len(p), nil
		}
	}
}

func (w *lineWriter) emit(line []byte) {
	// The command must not fail because nobody can see its lines.
	_, _ = w.out.Write(append([]byte(w.prefix), append(bytes.TrimRight(line, "\r"), '\n')...))
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.emit(w.rest)
		w.rest = nil
	}
}
