//go:build !unix

package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// dirLock keeps a second process out of a data directory. Here it is a file that is held
// open under an exclusive name; after a crash it is taken over, as it can be removed then.
type dirLock struct {
	f    *os.File
	path string
}

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "LOCK")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("data directory %s is in use by another broker; stop it, or give this one a directory of its own: %w", dir, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &dirLock{f: f, path: path}, nil
}

func (l *dirLock) release() {
	_ = l.f.Close()
	_ = os.Remove(l.path)
}
