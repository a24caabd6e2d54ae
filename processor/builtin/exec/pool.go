package exec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fanjet/fanjet/processor"
)

// Pool is the running programs of one command. It is safe for concurrent use.
type Pool struct {
	cfg   *Config
	hello []announced
	room  chan struct{} // holds one for each program that is in use

	mu     sync.Mutex
	idle   []*program // the last one was used last
	closed bool
	ends   sync.WaitGroup // programs that are being retired
}

// New starts the first program and reads what processors it announces. The caller must call Close.
// The error says what is wrong with c or with the program.
func New(ctx context.Context, c Config) (*Pool, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	p, err := start(ctx, &c)
	if err != nil {
		return nil, err
	}
	pool := &Pool{cfg: &c, hello: p.hello, room: make(chan struct{}, c.Instances)}
	pool.room <- struct{}{}
	pool.park(p)
	return pool, nil
}

// Names are the names of the processors that the program announced.
func (p *Pool) Names() []string {
	var names []string
	for _, a := range p.hello {
		names = append(names, a.Name)
	}
	return names
}

// Register registers all processors of the program with the worker. A name that is bad or taken is
// the error of the worker's Run.
func (p *Pool) Register(w *processor.Worker) {
	for _, a := range p.hello {
		w.Register(a.Name, p.processor(a))
	}
}

// Processor is the processor of that name, or nil if the program did not announce it.
func (p *Pool) Processor(name string) processor.Processor {
	for _, a := range p.hello {
		if a.Name == name {
			return p.processor(a)
		}
	}
	return nil
}

var errPoolClosed = errors.New("the programs of this worker have been ended")

// Close ends all programs that have nothing to do, and those that have when their tasks end. It
// returns when the former are gone: call it after the worker has ended. A second call does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	for _, x := range idle {
		if x.idle != nil {
			x.idle.Stop()
		}
		p.ends.Go(x.retire)
	}
	p.mu.Unlock()
	p.ends.Wait()
}

// take gives the task a program of its own.
func (p *Pool) take(ctx context.Context) (*program, error) {
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			<-p.room
			return nil, errPoolClosed
		}
		if len(p.idle) == 0 {
			p.mu.Unlock()
			break
		}
		x := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		p.mu.Unlock()
		if x.idle != nil {
			x.idle.Stop()
		}
		if x.fit() {
			return x, nil
		}
		level := slog.LevelDebug // one that serves a single task is in its right
		exit := x.end()
		if exit.Code != 0 {
			level = slog.LevelWarn
		}
		p.cfg.Logger.Log(ctx, level, "a program ended between two tasks; another one is started", "program", x.c.PID(), "exit", exit.String())
	}
	x, err := start(ctx, p.cfg)
	if err == nil && !slices.Equal(x.hello, p.hello) {
		err = x.fail(broken("the program announces other processors than before; restart the worker"))
	}
	if err != nil {
		<-p.room
		return nil, fmt.Errorf("start a program for the task: %w", err)
	}
	return x, nil
}

// park takes a program back after its task.
func (p *Pool) park(x *program) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.idle = append(p.idle, x)
		if p.cfg.IdleTimeout > 0 {
			x.idle = time.AfterFunc(p.cfg.IdleTimeout, func() { p.expire(x) })
		}
	}
	p.mu.Unlock()
	if closed {
		x.retire()
	}
	<-p.room
}

// drop notes that the program of a task is gone.
func (p *Pool) drop() { <-p.room }

// expire retires a program that has been idle for too long.
func (p *Pool) expire(x *program) {
	p.mu.Lock()
	i := slices.Index(p.idle, x)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.ends.Add(1)
	}
	p.mu.Unlock()
	if i >= 0 {
		defer p.ends.Done()
		x.retire()
	}
}
