package child

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSweeps bounds how often the kill looks for processes that were just forked.
const maxSweeps = 100

func attributes(u *User) (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential(u)}, nil
}

// start starts the program from a thread that lives as long as the program: Pdeathsig, which
// ends the program when this process is killed, follows the thread. The exit is seen and not
// collected, so that the id of the group stays taken until it is swept.
func (c *Child) start() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for errors.Is(unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		close(c.exited)
	}()
	return <-started
}

func (c *Child) wait() error {
	<-c.exited
	return c.cmd.Wait()
}

// terminate asks the group and all strays to end, stopped ones included.
func (c *Child) terminate() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		_ = syscall.Kill(-c.PID(), sig)
		c.eachStray(sig)
	}
}

// kill kills the group, and strays until there are none: one may fork while it is looked for.
func (c *Child) kill() {
	_ = syscall.Kill(-c.PID(), syscall.SIGKILL)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for range maxSweeps {
		<-pause.C
		if c.eachStray(syscall.SIGKILL) == 0 {
			return
		}
		pause.Reset(time.Millisecond)
	}
}

// anybody tells whether something of the program lives.
func (c *Child) anybody() bool { return c.eachStray(0) > 0 }

// eachStray signals all living processes that carry the mark, and counts them. A process that
// cleared its environment and left the group is not found, nor is one whose environment this
// user may not read.
func (c *Child) eachStray(sig syscall.Signal) (n int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 || pid == os.Getpid() || !c.marked(name) {
			continue
		}
		p, err := os.FindProcess(pid) // a handle: from here on the id cannot become another's
		if err != nil {
			continue
		}
		if c.marked(name) && (sig == 0 || p.Signal(sig) == nil) {
			n++
		}
		_ = p.Release()
	}
	return n
}

func (c *Child) marked(pid string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	return err == nil && bytes.Contains(env, []byte(c.token))
}

// Unread tells whether the program left some of its input unread.
func (c *Child) Unread() bool {
	if c.Stdin == nil {
		return false
	}
	conn, err := c.Stdin.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // FIONREAD; 0 if it is not known
	return err == nil && n > 0
}
