//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dirLock keeps a second process out of a data directory. The kernel drops it when the
// process dies, so that nothing is left to clean up.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the lock of its data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		// Only the lock matters now.
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another broker; stop it, or give this one a directory of its own", dir)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &dirLock{f: f}, nil
}

// release gives the directory free. The file stays: removing it would let two hold locks
// on two files of that name.
func (l *dirLock) release() { _ = l.f.Close() }
