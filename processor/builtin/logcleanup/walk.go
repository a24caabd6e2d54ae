package logcleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	maxDepth  = 128 // folders below the root; each costs two descriptors while it is walked
	nameBatch = 256 // names read at once, so that a huge folder costs no memory
)

// visitor gets an entry of d that is no folder.
type visitor func(d *dir, name string, info fs.FileInfo) error

// walk looks at everything below d in the order of the disk. visit gets each entry that is no
// folder. Folders' own troubles are recorded in the first walk only.
func (s *sweep) walk(ctx context.Context, d *dir, visit visitor) error {
	if s.plan.keepNewest > 0 && s.plan.perFolder {
		if err := s.rankFolder(ctx, d); err != nil {
			return err
		}
	}
	return s.entries(ctx, d, d.file, func(name string, info fs.FileInfo) error {
		if info.IsDir() {
			return s.enter(ctx, d, name, info, visit)
		}
		return visit(d, name, info)
	})
}

// entries calls each for what lies in d.
func (s *sweep) entries(ctx context.Context, d *dir, f *os.File, each func(name string, info fs.FileInfo) error) error {
	for {
		names, err := f.Readdirnames(nameBatch)
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info, err := d.root.Lstat(name)
			if errors.Is(err, fs.ErrNotExist) {
				s.vanished()
				continue
			}
			if err != nil {
				err = s.failWalk(d.path(name), "look at", err)
			} else {
				err = each(name, info)
			}
			if err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, fs.ErrNotExist): // the folder itself was removed
			return nil
		case err != nil:
			return s.failWalk(d.path("."), "list folder", err)
		}
	}
}

func (s *sweep) enter(ctx context.Context, d *dir, name string, info fs.FileInfo, visit visitor) error {
	path := func() string { return d.path(name) + "/" }
	if s.excluded(d, name) {
		s.keepWalk(ReasonExcluded, path)
		return nil
	}
	sub, why, err := s.open(d, name, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.vanished()
		return nil
	case err != nil:
		return s.failWalk(path(), "open folder", err)
	case why != "":
		s.keepWalk(why, path)
		return nil
	}
	defer sub.close()
	return s.walk(ctx, sub, visit)
}

// open opens a folder below d unless there is a reason to keep out of it.
func (s *sweep) open(d *dir, name string, info fs.FileInfo) (*dir, Reason, error) {
	if len(d.parts) >= maxDepth {
		return nil, "", fmt.Errorf("it lies more than %d folders deep", maxDepth)
	}
	id := footprintOf(info).id
	if id.dev != s.dev {
		return nil, ReasonMount, nil
	}
	if s.off[id] && id != (fileID{}) {
		return nil, ReasonExcluded, nil
	}
	sub, err := d.sub(name, info)
	if errors.Is(err, errSwapped) {
		return nil, ReasonChanged, nil
	}
	if err != nil {
		return nil, "", err
	}
	mounted, err := s.sys.mountTop(sub)
	if err != nil || mounted {
		sub.close()
		return nil, ReasonMount, err
	}
	sub.newest, sub.all = d.newest, d.all
	return sub, "", nil
}

// excluded tells whether an exclude fits the name in d.
func (s *sweep) excluded(d *dir, name string) bool {
	s.parts = append(append(s.parts[:0], d.parts...), name)
	for _, g := range s.plan.exclude {
		if g.excludes(s.parts) {
			return true
		}
	}
	return false
}

// selected tells whether the patterns select the file, and if not, why. Every other filter
// narrows this set further: filters only ever make a run clean less.
func (s *sweep) selected(d *dir, name string) (bool, Reason) {
	if s.excluded(d, name) {
		return false, ReasonExcluded
	}
	for _, g := range s.plan.include {
		if g.match(s.parts) {
			return true, ""
		}
	}
	return false, ReasonName
}

// judge says why the entry is kept, or nothing if it is to be cleaned.
func (s *sweep) judge(d *dir, name string, info fs.FileInfo) (Reason, error) {
	link := info.Mode().Type() == fs.ModeSymlink
	switch {
	case link && !s.plan.dangling:
		return ReasonLink, nil
	case !link && !info.Mode().IsRegular():
		return ReasonSpecial, nil
	case isTemp(name) && s.now.Sub(footprintOf(info).changed) < tempAge:
		return ReasonInProgress, nil
	case isTemp(name) && s.plan.compress: // left by a crash, of this processor itself
		return "", nil
	}
	if ok, why := s.selected(d, name); !ok {
		return why, nil
	}
	switch {
	case s.now.Sub(info.ModTime()) < s.plan.olderThan:
		return s.plan.youngReason, nil
	case s.plan.largerThan > 0 && info.Size() <= s.plan.largerThan:
		return ReasonSmall, nil
	case link:
		dangling, err := dangling(d, name)
		if err == nil && !dangling {
			return ReasonLink, nil
		}
		return "", err
	case s.plan.compress && (info.Size() == 0 || compressed(name)):
		return ReasonCompressed, nil
	case s.plan.compress && footprintOf(info).links > 1:
		return ReasonHardLinked, nil
	case s.plan.keepNewest > 0 && (d.all || d.newest != nil && placeOf(d, name, info).compare(*d.newest) >= 0):
		return ReasonNewest, nil
	}
	return "", nil
}

func placeOf(d *dir, name string, info fs.FileInfo) order {
	return order{info.ModTime().UnixNano(), d.path(name)}
}

// rank finds from where on the selected files of a walk are the newest.
type rank struct{ newest firstOf[order] }

func newRank(n int) *rank {
	return &rank{firstOf[order]{n: n, compare: func(a, b order) int { return b.compare(a) }}}
}

func (r *rank) add(s *sweep, d *dir, name string, info fs.FileInfo) {
	if !info.Mode().IsRegular() || isTemp(name) {
		return
	}
	if ok, _ := s.selected(d, name); ok {
		r.newest.offer(placeOf(d, name, info))
	}
}

func (r *rank) apply(d *dir) {
	if from, ok := r.newest.last(); ok {
		d.newest, d.all = &from, false
	} else {
		d.newest, d.all = nil, true
	}
}

// rankFolder ranks the files of one folder, not of those below.
func (s *sweep) rankFolder(ctx context.Context, d *dir) error {
	f, err := d.again()
	if err != nil {
		return s.failWalk(d.path("."), "list folder", err)
	}
	defer f.Close()
	r := newRank(s.plan.keepNewest)
	counting := s.counting
	s.counting = false
	err = s.entries(ctx, d, f, func(name string, info fs.FileInfo) error {
		if !info.IsDir() {
			r.add(s, d, name, info)
		}
		return nil
	})
	s.counting = counting
	r.apply(d)
	return err
}

// The walks after the first one meet the same troubles again.

func (s *sweep) vanished() {
	if s.counting {
		s.rec.Vanished++
	}
}

func (s *sweep) keepWalk(why Reason, path func() string) {
	if s.counting {
		s.rec.keep(why, path)
	}
}

func (s *sweep) failWalk(path, do string, err error) error {
	if s.counting {
		return s.fail(path, do, err)
	}
	return nil
}

// tempAge is when a half-made copy was surely left behind by a crash.
const tempAge = time.Hour
