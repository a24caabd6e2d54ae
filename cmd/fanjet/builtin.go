package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/exec"
	"github.com/fanjet/fanjet/processor/builtin/http"
	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
	"github.com/fanjet/fanjet/processor/builtin/shell"
)

// builtinFlags enable the built-in processors, of which a worker has none by itself: each is
// a right that whoever may start jobs of the app gets on this machine.
type builtinFlags struct {
	Exec        string   `placeholder:"CMD" help:"Run this program, in any language, and serve the processors it announces."`
	Shell       bool     `help:"Serve shell: scripts and programs that jobs bring along."`
	ShellDir    []string `type:"path" sep:"none" placeholder:"DIR" help:"A folder that shell jobs may work in; may be repeated."`
	HTTP        bool     `name:"http" help:"Serve http: requests to public addresses."`
	HTTPPrivate []string `name:"http-allow-private" sep:"none" placeholder:"CIDR" help:"Private addresses that http jobs may call all the same, such as 10.1.0.0/16; may be repeated."`
	CleanupRoot []string `sep:"none" placeholder:"DIR" help:"Serve log-cleanup, for logs in this folder or below it; may be repeated."`
}

// builtins are the processors that the flags ask for.
type builtins struct {
	named map[string]processor.Processor
	http  *http.Processor
	pool  *exec.Pool
}

// check makes what starts nothing, and so finds what is wrong with the flags.
func (f *builtinFlags) check() (*builtins, error) {
	b := &builtins{named: map[string]processor.Processor{}}
	if len(f.ShellDir) > 0 && !f.Shell {
		return nil, invalid("--shell-dir is for the jobs of --shell; give that too")
	}
	if len(f.HTTPPrivate) > 0 && !f.HTTP {
		return nil, invalid("--http-allow-private is for the jobs of --http; give that too")
	}
	if f.Shell {
		p, err := shell.New(shell.Config{Dirs: f.ShellDir})
		if err != nil {
			return nil, invalid("--shell: %w", err)
		}
		b.named["shell"] = p
	}
	if f.HTTP {
		var allowed []netip.Prefix
		for _, text := range f.HTTPPrivate {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, invalid("--http-allow-private %s: write it as ADDRESS/BITS, such as 10.1.0.0/16 or 127.0.0.1/32", text)
			}
			allowed = append(allowed, prefix)
		}
		p, err := http.New(http.Config{AllowPrivate: allowed})
		if err != nil {
			return nil, invalid("--http: %w", err)
		}
		b.http, b.named["http"] = p, p
	}
	if len(f.CleanupRoot) > 0 {
		c := logcleanup.Config{Roots: f.CleanupRoot}
		if err := c.Validate(); err != nil {
			return nil, invalid("--cleanup-root: %w", err)
		}
		b.named[logcleanup.Name] = logcleanup.New(c)
	}
	return b, nil
}

// start starts the program of --exec, if there is one. The caller closes b.
func (b *builtins) start(ctx context.Context, command string, slots int, log *logger) (err error) {
	if command == "" {
		return nil
	}
	b.pool, err = exec.New(ctx, exec.Config{Command: programLine(command), Instances: slots, Logger: log.Logger})
	if err != nil {
		return fmt.Errorf("--exec: %w", err)
	}
	log.Info("the program serves processors", "command", command, "processors", strings.Join(b.pool.Names(), ", "))
	return nil
}

func (b *builtins) register(w *processor.Worker) {
	for name, p := range b.named {
		w.Register(name, p)
	}
	if b.pool != nil {
		b.pool.Register(w)
	}
}

// close ends what the processors keep; call it after the worker has ended.
func (b *builtins) close() {
	if b.pool != nil {
		b.pool.Close()
	}
	if b.http != nil {
		b.http.Close()
	}
}
