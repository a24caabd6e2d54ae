package logcleanup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// maxTouched bounds the folders remembered as changed by this run; the others wait for the next.
const maxTouched = 65_536

// touch is when somebody else last changed a folder, and when this run did: as long as the folder
// still says the latter, the former is its age.
type touch struct{ others, mine time.Time }

func (s *sweep) beforeTouch(d *dir) {
	if !s.plan.dirs {
		return
	}
	id := footprintOf(d.info).id
	info, err := d.file.Stat()
	if err != nil {
		return
	}
	t, known := s.touched[id]
	if known && t.mine.Equal(info.ModTime()) {
		return
	}
	if !known && len(s.touched) >= maxTouched {
		return
	}
	s.touched[id] = touch{others: info.ModTime()}
}

func (s *sweep) afterTouch(d *dir) {
	if !s.plan.dirs {
		return
	}
	id := footprintOf(d.info).id
	if t, known := s.touched[id]; known {
		if info, err := d.file.Stat(); err == nil {
			t.mine = info.ModTime()
			s.touched[id] = t
		}
	}
}

// idle is since when nobody but this run changed the folder.
func (s *sweep) idle(info fs.FileInfo) time.Time {
	if t, known := s.touched[footprintOf(info).id]; known && t.mine.Equal(info.ModTime()) {
		return t.others
	}
	return info.ModTime()
}

// emptyDirs removes old empty folders, those that hold only such ones included. The system itself
// refuses to remove a folder that is not empty.
func (s *sweep) emptyDirs(ctx context.Context) error {
	f, err := s.top.again()
	if err != nil {
		return s.fail(".", "list folder", err)
	}
	defer f.Close()
	_, err = s.emptyBelow(ctx, s.top, f)
	return err
}

// emptyBelow removes what it may in d and tells whether nothing is left there.
func (s *sweep) emptyBelow(ctx context.Context, d *dir, f *os.File) (empty bool, err error) {
	empty = true
	err = s.entries(ctx, d, f, func(name string, info fs.FileInfo) error {
		if !info.IsDir() || s.excluded(d, name) {
			empty = false
			return nil
		}
		removed, err := s.emptyDir(ctx, d, name, info)
		empty = empty && removed
		return err
	})
	return empty, err
}

// emptyDir removes the folder if it may and tells whether it is gone. What could not be opened or
// read was reported by the walk before.
func (s *sweep) emptyDir(ctx context.Context, d *dir, name string, info fs.FileInfo) (gone bool, err error) {
	sub, why, err := s.open(d, name, info)
	if err != nil || why != "" {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	defer sub.close()
	idle := s.idle(sub.info)
	empty, err := s.emptyBelow(ctx, sub, sub.file)
	if err != nil || !empty || s.now.Sub(idle) < s.plan.dirsOlderThan {
		return false, err
	}
	// Somebody may have come since: then its time is neither the one at first nor ours.
	now, err := sub.file.Stat()
	if err != nil || s.now.Sub(s.idle(now)) < s.plan.dirsOlderThan {
		return false, nil // it is gone or in use: not ours to remove
	}
	if at, err := d.root.Lstat(name); err != nil || !os.SameFile(at, now) {
		return false, nil // another folder is in its place
	}
	if s.plan.dryRun {
		s.rec.Dirs++
		return true, nil
	}
	s.beforeTouch(d)
	err = s.sys.unlink(d, name, true)
	s.afterTouch(d)
	switch {
	case err == nil:
		s.rec.Dirs++
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil // somebody uses it
	}
	return false, s.fail(d.path(name)+"/", "remove empty folder", err)
}
