package exec

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	protocol = 1
	maxLine  = 1 << 20 // of the program
	// termGrace is the time between SIGTERM and SIGKILL. With Config.Grace it stays below the 5 s
	// after which a worker leaves a task behind.
	termGrace = 1500 * time.Millisecond
	maxGrace  = 3 * time.Second
)

// Config says what program to run. Only Command is required.
type Config struct {
	// Command is the program and its arguments; no shell is involved.
	Command []string
	// Instances is how many programs may run at once; tasks beyond wait. Default: twice GOMAXPROCS,
	// at least 4, as the slots of a worker. Give the worker's slots if you set those.
	Instances int
	// Dir is the working folder; default that of this process.
	Dir string
	// Env is added to the environment, as NAME=value. The program inherits that of the worker but
	// for the variables that begin with FANJET_, which may hold credentials.
	Env []string
	// StartTimeout is how long a program may take until its hello. Default 10 s.
	StartTimeout time.Duration
	// Grace is how long a program may take to react to a cancel, and to the end of its input. At
	// most 3 s; default 2 s.
	Grace time.Duration
	// IdleTimeout ends a program that had nothing to do for so long. Default 10 min; negative is
	// never.
	IdleTimeout time.Duration
	// LogLimit is how many bytes one task may log; the rest is counted. Default 4 MiB.
	LogLimit int64
	// Logger gets what programs write to standard error between tasks. Default slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Instances == 0 {
		c.Instances = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 10 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 10 * time.Minute
	}
	if c.LogLimit == 0 {
		c.LogLimit = 4 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("exec.Config."+format, args...)) }
	if len(c.Command) == 0 || c.Command[0] == "" {
		bad("Command is empty: give a program and its arguments")
	}
	if c.Instances < 1 || c.Instances > 10_000 {
		bad("Instances is %d: allowed are 1 to 10000", c.Instances)
	}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			bad("Env has %q: give NAME=value", v)
		}
	}
	if c.StartTimeout < 0 {
		bad("StartTimeout is %v: it cannot be negative", c.StartTimeout)
	}
	if c.Grace < 0 || c.Grace > maxGrace {
		bad("Grace is %v: allowed are up to %v", c.Grace, maxGrace)
	}
	if c.LogLimit < 0 {
		bad("LogLimit is %d: it cannot be negative", c.LogLimit)
	}
	return errors.Join(errs...)
}

func (c Config) environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FANJET_") {
			env = append(env, v)
		}
	}
	return append(env, c.Env...)
}
