//go:build linux || darwin || freebsd

package logcleanup

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags keep an open from following a link and from waiting for the other end of a pipe.
const openFlags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// unlink is not os.Root.Remove, which takes an empty folder for a file and the other way round.
func unlink(d *dir, name string, folder bool) error {
	flags := 0
	if folder {
		flags = unix.AT_REMOVEDIR
	}
	return d.control(func(fd int) error { return unix.Unlinkat(fd, name, flags) })
}

// dangling tells whether the link leads nowhere: its target is missing, or it goes in circles. The
// target is only asked for, never opened.
func dangling(d *dir, name string) (bool, error) {
	var st unix.Stat_t
	err := d.control(func(fd int) error { return unix.Fstatat(fd, name, &st, 0) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return true, nil
	}
	return false, err
}

func space(d *dir) (free, total int64, err error) {
	var st unix.Statfs_t
	err = d.control(func(fd int) error { return unix.Fstatfs(fd, &st) })
	block := int64(st.Bsize)                                       // of another type on another system
	return int64(st.Bavail) * block, int64(st.Blocks) * block, err // of another type on another system
}

func footprintOf(info fs.FileInfo) footprint {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return footprint{bytes: info.Size(), links: 1, changed: info.ModTime()}
	}
	// of another type on another system
	return footprint{id: fileID{uint64(st.Dev), uint64(st.Ino)}, bytes: int64(st.Blocks) * 512, links: uint64(st.Nlink), changed: changed(st)}
}

// control hands the folder's descriptor to a system call.
func (d *dir) control(call func(fd int) error) error {
	conn, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var called error
	err = conn.Control(func(fd uintptr) {
		for {
			if called = call(int(fd)); !errors.Is(called, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, called)
}

// lock tells whether this process has the file for itself, as far as others ask too. A disk
// without locks lets everybody pass. It ends when the file is closed.
func lock(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	taken := true
	err = conn.Control(func(fd uintptr) {
		taken = !errors.Is(unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	})
	return taken || err != nil
}

// chown gives the copy the owner of the original; only root can, and it matters only then.
func chown(f *os.File, like fs.FileInfo) {
	if st, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}
