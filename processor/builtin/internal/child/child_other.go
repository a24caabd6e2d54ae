//go:build !unix

package child

import (
	"errors"
	"os"
	"syscall"
)

func attributes(u *User) (*syscall.SysProcAttr, error) {
	if u != nil {
		return nil, errors.New("this system cannot run a program as another user")
	}
	return nil, nil
}

func signalOf(*os.ProcessState) syscall.Signal { return 0 }

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

// terminate kills: there is no way to ask here. Descendants are not found.
func (c *Child) terminate() { c.kill() }

func (c *Child) kill() { _ = c.cmd.Process.Kill() }

func (c *Child) anybody() bool { return false }

// Unread tells whether the program left some of its input unread. Here that is not known.
func (c *Child) Unread() bool { return false }
