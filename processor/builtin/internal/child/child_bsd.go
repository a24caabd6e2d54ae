//go:build unix && !linux

package child

import "syscall"

func attributes(u *User) (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(u)}, nil
}

func (c *Child) start() error {
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.cmd.Wait() // told by the state
		close(c.exited)
	}()
	return nil
}

func (c *Child) wait() error {
	<-c.exited
	return nil
}

func (c *Child) terminate() {
	_ = syscall.Kill(-c.PID(), syscall.SIGTERM)
	_ = syscall.Kill(-c.PID(), syscall.SIGCONT)
}

func (c *Child) kill() { _ = syscall.Kill(-c.PID(), syscall.SIGKILL) }

func (c *Child) anybody() bool { return syscall.Kill(-c.PID(), 0) == nil }

// Unread tells whether the program left some of its input unread. Here that is not known.
func (c *Child) Unread() bool { return false }
