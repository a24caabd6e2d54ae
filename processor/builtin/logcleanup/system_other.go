//go:build !linux && !darwin && !freebsd

package logcleanup

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

const openFlags = os.O_RDONLY

func unlink(d *dir, name string, folder bool) error {
	info, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() != folder {
		return errSwapped
	}
	return d.root.Remove(name)
}

// dangling is never certain without asking the target through the folder's handle.
func dangling(*dir, string) (bool, error) { return false, nil }

func space(*dir) (free, total int64, err error) {
	return 0, 0, errors.New("the free space is not known on " + runtime.GOOS)
}

func footprintOf(info fs.FileInfo) footprint {
	return footprint{bytes: info.Size(), links: 1, changed: info.ModTime()}
}

func lock(*os.File) bool { return true }

func chown(*os.File, fs.FileInfo) {}
