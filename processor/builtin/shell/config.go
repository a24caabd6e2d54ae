package shell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxScript = 256 << 10
	maxGrace  = 4 * time.Second
	// maxVariable is what one argument or variable can hold, by the limit of Linux.
	maxVariable = 128<<10 - 1
	// maxArguments is what all arguments and variables can hold together.
	maxArguments = 1 << 20
)

// Config says what jobs may do on this worker. The zero value allows scripts of /bin/sh and any
// program, in a private folder.
type Config struct {
	// Interpreters are the programs that jobs may have scripts run by; the first one is the default.
	// They must be absolute paths. Default /bin/sh.
	Interpreters []string
	// Scripts are scripts of this worker that jobs run by their name.
	Scripts map[string]string
	// Named allows Scripts only: no code and no program from the params of a job.
	Named bool
	// Dirs are the folders that jobs may choose as the working folder, with all below them. They
	// must be absolute. None by default.
	Dirs []string
	// Env is set for every script.
	Env map[string]string
	// PassEnv names variables of the worker's own environment that scripts get too. Beware of
	// secrets.
	PassEnv []string
	// User runs scripts as another user, which takes the right to do so (Unix). Nil is the
	// worker's own.
	User *User
	// TempDir is where private folders are made, and where New removes those that a dead worker
	// left. Default os.TempDir.
	TempDir string
	// Grace is the time between SIGTERM and SIGKILL, at most 4 s: a worker waits no longer than
	// 5 s for a stopped task. Default 2 s.
	Grace time.Duration
	// LogLimit is how many bytes of output one run may log; the rest is counted. Default 4 MiB.
	LogLimit int64
}

// User is a user and its group.
type User struct{ UID, GID uint32 }

func (c Config) withDefaults() Config {
	if len(c.Interpreters) == 0 {
		c.Interpreters = []string{"/bin/sh"}
	}
	if c.TempDir == "" {
		c.TempDir = os.TempDir()
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	if c.LogLimit == 0 {
		c.LogLimit = 4 << 20
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("shell.Config."+format, args...)) }
	for _, p := range c.Interpreters {
		if !filepath.IsAbs(p) {
			bad("Interpreters has %q: give an absolute path", p)
		}
	}
	for _, d := range c.Dirs {
		if !filepath.IsAbs(d) {
			bad("Dirs has %q: give an absolute path", d)
		}
	}
	for name := range c.Env {
		if !variable.MatchString(name) {
			bad("Env has %q: %s", name, variableRule)
		}
	}
	for name, script := range c.Scripts {
		if name == "" || strings.TrimSpace(script) == "" || len(script) > maxScript {
			bad("Scripts has %q with %d bytes: a script has a name and 1 to %d bytes", name, len(script), maxScript)
		}
	}
	if c.Named && len(c.Scripts) == 0 {
		bad("Named is set without any Scripts: nothing could run")
	}
	if c.Grace < 0 || c.Grace > maxGrace {
		bad("Grace is %v: allowed are up to %v", c.Grace, maxGrace)
	}
	if c.LogLimit < 0 {
		bad("LogLimit is %d: it cannot be negative", c.LogLimit)
	}
	return errors.Join(errs...)
}

// folder checks the working folder a job chose and gives the real one: links are followed before
// the check.
func (c Config) folder(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("dir %q is not absolute", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("dir %q: %w", dir, errors.Unwrap(err))
	}
	inside := slices.ContainsFunc(c.Dirs, func(root string) bool {
		root, err := filepath.EvalSymlinks(root)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(root, real)
		return err == nil && filepath.IsLocal(rel)
	})
	if !inside {
		return "", fmt.Errorf("dir %q is in none of the folders this worker allows; its configuration names them (Dirs)", dir)
	}
	return real, nil
}
