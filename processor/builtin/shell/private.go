package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"
)

const (
	prefix = "fanjet-shell-"
	// young is how long a folder without a lock is spared: it may be about to be locked.
	young    = time.Minute
	maxValue = 256 << 10
)

// private is the folder of one run. It is locked while this process lives, so that the one a dead
// process left is told from others, whatever process ids mean here.
type private struct {
	dir  string
	lock *os.File
}

func newPrivate(temp string, u *User) (*private, error) {
	dir, err := os.MkdirTemp(temp, prefix) // 0700
	if err != nil {
		return nil, fmt.Errorf("make the private folder: %w", err)
	}
	p := &private{dir: dir}
	if p.lock, err = lock(dir); err == nil && u != nil {
		err = os.Chown(dir, int(u.UID), int(u.GID))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the private folder: %w", err), p.remove())
	}
	return p, nil
}

// script writes the code to a file that its owner alone may read.
func (p *private) script(code string, u *User) (string, error) {
	path := filepath.Join(p.dir, "script")
	if err := os.WriteFile(path, []byte(code), 0o700); err != nil {
		return "", fmt.Errorf("write the script: %w", err)
	}
	if u != nil {
		if err := os.Chown(path, int(u.UID), int(u.GID)); err != nil {
			return "", fmt.Errorf("write the script: %w", err)
		}
	}
	return path, nil
}

// result is what the script wrote to FANJET_RESULT: JSON, or a text. The folder is the script's,
// so the file is opened within it and must be a plain one.
func (p *private) result() (json.RawMessage, error) {
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, nil // a script may remove its folder
	}
	defer root.Close()
	f, err := root.OpenFile("result", os.O_RDONLY|nonblocking, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read FANJET_RESULT: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("FANJET_RESULT is not a plain file")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read FANJET_RESULT: %w", err)
	case len(raw) > maxValue:
		return nil, fmt.Errorf("FANJET_RESULT has more than %d bytes", maxValue)
	case len(raw) == 0:
		return nil, nil
	case json.Valid(raw):
		return raw, nil
	case !utf8.Valid(raw):
		return nil, errors.New("FANJET_RESULT is neither JSON nor text in UTF-8")
	}
	return json.Marshal(string(raw))
}

// remove removes the folder, also what the script made unreadable.
func (p *private) remove() error {
	err := removeAll(p.dir)
	if p.lock != nil {
		_ = p.lock.Close()
	}
	return err
}

func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("remove the private folder: %w", err)
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			_ = root.Chmod(path, 0o700) // before it is read; what cannot be changed fails below
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the private folder: %w", err)
	}
	return nil
}

// sweep removes the folders that dead processes of this user left.
func sweep(temp string, now time.Time) (removed int, err error) {
	dirs, err := filepath.Glob(filepath.Join(temp, prefix+"*"))
	if err != nil {
		return 0, fmt.Errorf("look for folders that were left: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < young || !ours(info) {
			continue
		}
		l, err := lock(dir)
		if err != nil {
			continue // somebody runs there
		}
		if err := removeAll(dir); err != nil {
			errs = append(errs, err)
		} else {
			removed++
		}
		_ = l.Close()
	}
	return removed, errors.Join(errs...)
}
