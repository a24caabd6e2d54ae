package child

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// mark is the variable by which descendants are recognised. Its value is random for each child.
const mark = "FANJET_CHILD"

// Spec is what to run.
type Spec struct {
	Path string   // looked up in PATH if it has no slash
	Args []string // without the name of the program
	Env  []string // all of it; nothing is inherited
	Dir  string
	// Stdin asks for a pipe; without it the program reads the null device.
	Stdin bool
	// User runs the program as somebody else; nil is the user of this process.
	User *User
}

// User is a user and its group.
type User struct{ UID, GID uint32 }

// Child is a running program. Its pipes belong to the caller until End, which closes them. Stop, Kill
// and End are for one goroutine.
type Child struct {
	Stdin          *os.File // nil unless asked for
	Stdout, Stderr *os.File

	cmd    *exec.Cmd
	token  string
	exited chan struct{}
	swept  bool // nothing can be left
	once   sync.Once
	exit   Exit
}

// Exit is how a program ended.
type Exit struct {
	Code   int            // -1 if a signal ended it
	Signal syscall.Signal // 0 if it exited
}

// String says it in words.
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("ended by signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Start starts the program. The caller must call End.
func Start(s Spec) (*Child, error) {
	token := mark + "=" + rand.Text()
	c := &Child{token: token, exited: make(chan struct{})}
	c.cmd = &exec.Cmd{Path: s.Path, Args: append([]string{s.Path}, s.Args...), Dir: s.Dir, Env: append([]string{token}, s.Env...)}
	path, err := exec.LookPath(s.Path)
	if err != nil {
		return nil, fmt.Errorf("find program %q: %w", s.Path, errors.Unwrap(err))
	}
	c.cmd.Path = path
	attr, err := attributes(s.User)
	if err != nil {
		return nil, err
	}
	c.cmd.SysProcAttr = attr
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	var out, in, errOut *os.File
	c.Stdout, out = pipe()
	c.Stderr, errOut = pipe()
	if s.Stdin {
		in, c.Stdin = pipe()
	}
	for _, f := range []*os.File{out, errOut, in} {
		if f != nil {
			theirs = append(theirs, f)
		}
	}
	if err != nil {
		c.closePipes()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	c.cmd.Stdout, c.cmd.Stderr = out, errOut
	if in != nil {
		c.cmd.Stdin = in
	}
	if err := c.start(); err != nil {
		c.closePipes()
		return nil, fmt.Errorf("start %q: %w", s.Path, err)
	}
	return c, nil
}

// PID of the program, which is also the id of its group.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the program itself has exited; descendants may still run.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Stop asks everything of the program to end, waits at most grace until it has, and kills the
// rest. The pipes stay, so that what was written can still be read.
func (c *Child) Stop(grace time.Duration) {
	defer c.Kill()
	c.terminate()
	limit := time.NewTimer(grace)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for exited := c.exited; exited != nil || c.anybody(); {
		select {
		case <-limit.C:
			return
		case <-exited:
			exited = nil
		case <-look.C:
		}
	}
}

// Kill kills whatever is left of the program; the pipes stay.
func (c *Child) Kill() {
	select {
	case <-c.exited:
		if c.swept {
			return
		}
		c.swept = true
	default:
	}
	c.kill()
}

// End kills whatever is left of the program at once, closes the pipes, and tells how it ended.
// It may be called again.
func (c *Child) End() Exit {
	c.once.Do(func() {
		c.Kill()
		_ = c.wait() // told by the state
		if state := c.cmd.ProcessState; state != nil {
			c.exit = Exit{Code: state.ExitCode()}
			c.exit.Signal = signalOf(state)
		}
		c.closePipes()
	})
	return c.exit
}

func (c *Child) closePipes() {
	for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}
