package logcleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// defaultBatch is how many candidates are held at once.
const defaultBatch = 32_768

// sweep is one run over one root.
//
// Oldest first over the whole set, in bounded memory: a walk keeps the oldest defaultBatch
// candidates in a heap, they are cleaned, and if there were more another walk takes those that
// come after the last one. Each walk begins behind a mark that only moves forward, so a sweep
// ends however many entries cannot be removed. With keep_newest a walk before the first finds
// the place from which on files are kept, with a heap of that many.
type sweep struct {
	plan  *plan
	sys   system
	rec   *recorder
	now   time.Time
	batch int
	top   *dir
	dev   uint64
	off   map[fileID]bool // folders that the worker's configuration excludes

	counting bool     // this walk records what it keeps
	parts    []string // of the path being matched
	last     *dir     // the folder of the last file cleaned
	lastPath string
	inUse    openSet
	touched  map[fileID]touch
	goal     int64 // bytes that shall be free
}

var (
	errLimit   = errors.New("a bound of the run is used up")
	errEnough  = errors.New("enough is free")
	errStopped = errors.New("on_error is stop")
)

// fail records a failure; it is an error only for the policy that ends the sweep.
func (s *sweep) fail(path, do string, err error) error {
	s.rec.fail(path, do, err)
	if s.plan.onError == OnErrorStop {
		return fmt.Errorf("%s %s: %s: %w", do, printable(path), reasonOf(err), errStopped)
	}
	return nil
}

// run does it all. The error is the end of ctx or that of the stop policy.
func (s *sweep) run(ctx context.Context) error {
	defer s.leave()
	s.dev = footprintOf(s.top.info).id.dev
	if err := s.begin(); err != nil {
		return err
	}
	if s.plan.keepNewest > 0 && !s.plan.perFolder {
		r := newRank(s.plan.keepNewest)
		err := s.fresh(ctx, func(d *dir, name string, info fs.FileInfo) error { r.add(s, d, name, info); return nil })
		if err != nil {
			return err
		}
		r.apply(s.top)
	}
	if err := s.passes(ctx); err != nil {
		return err
	}
	if s.plan.dirs {
		if err := s.emptyDirs(ctx); err != nil {
			return err
		}
	}
	s.finish()
	return nil
}

// begin learns what is free and open.
func (s *sweep) begin() error {
	free, total, err := s.sys.space(s.top)
	s.rec.FreeBefore = free
	if s.plan.untilFree != (goal{}) {
		if err != nil {
			return fmt.Errorf("until_free: %w", err)
		}
		if s.goal = s.plan.untilFree.of(total); s.goal > total {
			return fmt.Errorf("until_free asks for %d bytes, and the filesystem has %d", s.goal, total)
		}
	}
	s.inUse = openSet{list: s.sys.open}
	if s.plan.openFiles == OpenKeep {
		if err := s.inUse.refresh(s.rec); err != nil {
			return fmt.Errorf("open_files is keep: %w", err)
		}
	}
	return nil
}

// fresh walks from the top with a new reading of its names.
func (s *sweep) fresh(ctx context.Context, visit visitor) error {
	f, err := s.top.again()
	if err != nil {
		return fmt.Errorf("open root again: %w", err)
	}
	_ = s.top.file.Close()
	s.top.file = f
	return s.walk(ctx, s.top, visit)
}

func (s *sweep) passes(ctx context.Context) error {
	mark := order{mtime: -1 << 63}
	for first := true; ; first = false {
		oldest := firstOf[candidate]{n: s.batch, compare: func(a, b candidate) int { return a.order.compare(b.order) }}
		found := int64(0)
		s.counting = first
		err := s.fresh(ctx, func(d *dir, name string, info fs.FileInfo) error {
			if first {
				s.rec.Seen++
			}
			why, err := s.judge(d, name, info)
			switch {
			case err != nil:
				return s.failWalk(d.path(name), "look at target of", err)
			case why != "":
				s.keepWalk(why, func() string { return d.path(name) })
			default:
				c := candidate{order: placeOf(d, name, info), id: footprintOf(info).id, size: info.Size(), link: !info.Mode().IsRegular()}
				if c.order.compare(mark) > 0 {
					found++
					oldest.offer(c)
				}
			}
			return nil
		})
		s.counting = false
		if err != nil {
			return err
		}
		batch := oldest.take()
		done, err := s.clean(ctx, batch)
		if why := map[error]Reason{errLimit: ReasonLimit, errEnough: ReasonEnoughFree}[err]; why != "" {
			s.leftOver(why, batch[done:], found-int64(done))
			return nil
		}
		if err != nil || found == int64(len(batch)) {
			return err
		}
		mark = batch[len(batch)-1].order
	}
}

// leftOver counts what a bound left: the rest of the batch and what did not fit in it.
func (s *sweep) leftOver(why Reason, batch []candidate, n int64) {
	s.rec.Kept[why] += n
	for _, c := range batch[:min(len(batch), maxKeptSamples)] {
		s.rec.KeptSamples = append(s.rec.KeptSamples, Kept{Path: printable(c.path), Why: why})
	}
}

// clean cleans the candidates in order and tells how many it came to.
func (s *sweep) clean(ctx context.Context, batch []candidate) (int, error) {
	for i, c := range batch {
		if ctx.Err() != nil {
			return i, context.Cause(ctx)
		}
		if s.enough() {
			return i, errEnough
		}
		if s.rec.Files+s.rec.Links >= s.plan.maxFiles {
			s.rec.note("max_files (%d) is used up; the next run goes on with the oldest", s.plan.maxFiles)
			return i, errLimit
		}
		if err := s.cleanOne(ctx, c); err != nil {
			return i, err
		}
	}
	return len(batch), nil
}

// enough tells whether until_free is reached. Some filesystems free late, so that what this run
// freed counts at once; a run rather cleans too little.
func (s *sweep) enough() bool {
	return s.goal > 0 && s.free() >= s.goal
}

func (s *sweep) free() int64 {
	mine := s.rec.FreeBefore + s.rec.Bytes
	if s.plan.dryRun {
		return mine
	}
	free, _, err := s.sys.space(s.top)
	if err != nil {
		return mine
	}
	return max(free, mine)
}

// cleanOne looks at a candidate again by the handle of its folder and cleans it if it is what was
// listed.
func (s *sweep) cleanOne(ctx context.Context, c candidate) error {
	keep := func(why Reason) error {
		s.rec.keep(why, func() string { return c.path })
		return nil
	}
	d, err := s.folder(c.path)
	name := path.Base(c.path)
	var info fs.FileInfo
	if err == nil {
		info, err = d.root.Lstat(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.rec.Vanished++
		return nil
	case errors.Is(err, errSwapped):
		return keep(ReasonChanged)
	case err != nil:
		return s.fail(c.path, "look at", err)
	}
	seen := footprintOf(info)
	link := info.Mode().Type() == fs.ModeSymlink
	if seen.id != c.id || info.Size() != c.size || info.ModTime().UnixNano() != c.mtime || link != c.link || !link && !info.Mode().IsRegular() {
		return keep(ReasonChanged)
	}
	if err := s.inUse.refreshOld(s.rec); err != nil && s.plan.openFiles == OpenKeep {
		return fmt.Errorf("open_files is keep: %w", err)
	}
	open := s.inUse.has(seen.id)
	if open && s.plan.openFiles == OpenKeep {
		return keep(ReasonOpen)
	}
	if s.rec.Bytes+s.rec.BytesHeldOpen+seen.freed() > s.plan.maxBytes {
		s.rec.note("max_bytes (%d) would be passed by %s, the oldest file left, of %d bytes", s.plan.maxBytes, printable(c.path), seen.bytes)
		return errLimit
	}
	return s.act(ctx, d, name, c, info, open)
}

// act does it, or in a dry run counts as if it were done.
func (s *sweep) act(ctx context.Context, d *dir, name string, c candidate, info fs.FileInfo, open bool) error {
	freed := footprintOf(info).freed()
	if !s.plan.dryRun {
		var err error
		s.beforeTouch(d)
		if s.plan.compress && !c.link && !isTemp(name) {
			freed, err = s.compress(ctx, d, name, info)
		} else {
			err = s.sys.unlink(d, name, false)
		}
		s.afterTouch(d)
		var why keepError
		switch {
		case errors.As(err, &why):
			s.rec.keep(Reason(why), func() string { return c.path })
			return nil
		case errors.Is(err, fs.ErrNotExist): // another worker of the same disk was first
			s.rec.Vanished++
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return s.fail(c.path, s.rec.Action, err)
		}
	}
	switch {
	case c.link:
		s.rec.Links++
		return nil
	case open:
		s.rec.BytesHeldOpen += freed
	default:
		s.rec.Bytes += freed
	}
	s.rec.Files++
	return nil
}

// folder opens the folder of a path, no link followed; the last one is kept open.
func (s *sweep) folder(file string) (*dir, error) {
	folder := path.Dir(file)
	if s.last != nil && s.lastPath == folder {
		return s.last, nil
	}
	s.leave()
	d, err := s.top.lookup(file)
	if err == nil {
		s.last, s.lastPath = d, folder
	}
	return d, err
}

func (s *sweep) leave() {
	if s.last != nil {
		s.last.close()
		s.last = nil
	}
}

// finish sums up.
func (s *sweep) finish() {
	if free, _, err := s.sys.space(s.top); err == nil {
		s.rec.FreeAfter = free
	}
	if s.goal > 0 {
		reached := s.free() >= s.goal
		s.rec.GoalReached = &reached
		if !reached {
			s.rec.note("until_free is not reached: %d of %d bytes are free, and nothing more may be cleaned", s.rec.FreeAfter, s.goal)
		}
	}
}

// openSet are the files that processes have open, listed again when the list is old.
type openSet struct {
	list  func() (map[fileID]struct{}, int, error)
	files map[fileID]struct{}
	until time.Time
	err   error
}

func (o *openSet) refresh(rec *recorder) error {
	begun := time.Now()
	var hidden int
	o.files, hidden, o.err = o.list()
	o.until = time.Now().Add(max(5*time.Second, 20*time.Since(begun)))
	if hidden > 0 {
		rec.note("processes of other users hide their open files from this worker; files that only they have open are not kept for it")
	}
	return o.err
}

func (o *openSet) refreshOld(rec *recorder) error {
	if time.Now().Before(o.until) {
		return o.err
	}
	return o.refresh(rec)
}

func (o *openSet) has(id fileID) bool {
	_, ok := o.files[id]
	return ok && id != (fileID{})
}
