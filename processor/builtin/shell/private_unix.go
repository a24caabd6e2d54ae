//go:build unix

package shell

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblocking = unix.O_NONBLOCK | unix.O_NOFOLLOW

// systemVariables are those without which programs do not start here.
var systemVariables []string

// lock locks the folder, or fails if it is locked.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// ours tells whether this user may remove it: it owns it, or is root.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || int(st.Uid) == os.Geteuid())
}
