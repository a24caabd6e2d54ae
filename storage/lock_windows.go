package storage

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"

	"github.com/fanjet/fanjet/engine"
)

// lockFile takes the lock that keeps a second server away from the file. The system frees
// it when the process dies, however it dies; the file itself stays.
func lockFile(path string) (func() error, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("is used by another process; stop that one first, or use mysql for several servers: %w: %w", engine.ErrUnavailable, err), f.Close())
	}
	return f.Close, nil
}
