//go:build linux

package logcleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// F01: links are looked at, never followed.
func TestF01Links(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	lay := func() {
		p.file("live.log", time.Hour, 10)
		p.file(filepath.Join(p.outside, "data.log"), 100*day, 10)
		p.link("live.log", "current.log", 100*day)
		p.link("/etc/hosts", "hosts.log", 100*day)
		p.link(p.outside, "dir.log", 100*day)
		p.link("nowhere", "dangling.log", 100*day)
		p.link("dangling.log", "to-dangling.log", 100*day)
		p.link("loop.log", "loop.log", 100*day)
		p.link("live.log/x", "below-file.log", 100*day)
		p.link("nowhere", "young.log", time.Hour)
		p.link("nowhere", "other.txt", 100*day)
	}
	lay()
	before := p.left()
	rep := p.run(nil)
	require.Equal(t, before, p.left(), "links are kept by default")
	require.EqualValues(t, 9, rep.Kept[ReasonLink])
	require.Zero(t, rep.Files+rep.Links+rep.Errors)

	rep = p.run(map[string]any{"links": LinksRemoveDangling})
	require.Equal(t, []string{"current.log", "dir.log", "hosts.log", "live.log", "other.txt", "young.log"}, p.left())
	require.EqualValues(t, 4, rep.Links)
	require.Zero(t, rep.Files, "links are no files")
	require.FileExists(t, "/etc/hosts")
	require.FileExists(t, filepath.Join(p.outside, "data.log"))
}

// F02: a folder link leads out of the tree.
func TestF02FolderLink(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file(filepath.Join(p.outside, "a.log"), 100*day, 1)
	p.file("in/a.log", 100*day, 1)
	p.link(p.outside, "old", 100*day)
	p.link("in", "sibling", 100*day)
	rep := p.run(map[string]any{"remove_empty_dirs": true, "links": LinksRemoveDangling})
	require.FileExists(t, filepath.Join(p.outside, "a.log"))
	require.EqualValues(t, 1, rep.Files, "reached once, not through the link as well")
	require.EqualValues(t, 3, rep.Seen, "two links and one file")
}

// F04: a folder that somebody just made stays, an old empty one goes on request.
func TestF04EmptyFolders(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.now = time.Now().Add(time.Second)
	require.NoError(t, os.Mkdir(filepath.Join(p.root, "fresh"), 0o755))
	p.file("old/deep/a.log", 100*day, 1)
	p.file("old/deep/b.log", 100*day, 1)
	p.file("used/a.log", 100*day, 1)
	p.file("full/a.log", 100*day, 1)
	p.file("full/keep.txt", 100*day, 1)
	require.NoError(t, os.MkdirAll(filepath.Join(p.root, "empty/of/empty"), 0o755))
	for _, name := range []string{"empty/of/empty", "empty/of", "empty", "old/deep", "old", "full"} {
		p.age(filepath.Join(p.root, name), 100*day)
	}
	rep := p.run(nil)
	require.Zero(t, rep.Dirs, "only on request")
	require.DirExists(t, filepath.Join(p.root, "empty/of/empty"))

	p.file("old/deep/a.log", 100*day, 1)
	p.file("used/a.log", 100*day, 1)
	p.age(filepath.Join(p.root, "old/deep"), 100*day)
	rep = p.run(map[string]any{"remove_empty_dirs": true})
	require.Equal(t, []string{"fresh/", "full/", "full/keep.txt", "used/"}, p.left(), "used was changed by others just now, old only by this run")
	require.EqualValues(t, 5, rep.Dirs)
	require.NoError(t, os.WriteFile(filepath.Join(p.root, "fresh/first.log"), []byte("line"), 0o644))
}

// F04: somebody comes between the look and the removal.
func TestF04EmptyFolderRace(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	require.NoError(t, os.Mkdir(filepath.Join(p.root, "old"), 0o755))
	p.age(filepath.Join(p.root, "old"), 100*day)
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		p.file("old/new.txt", 0, 1)
		return unlink(d, name, folder)
	}
	rep := p.run(map[string]any{"remove_empty_dirs": true})
	require.FileExists(t, filepath.Join(p.root, "old/new.txt"))
	require.Zero(t, rep.Errors+rep.Dirs)
}

// F05: bad entries do not end the sweep, and each is listed.
func TestF05BadEntries(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for i := range 97 {
		p.file(fmt.Sprintf("good/%02d.log", i), 100*day, 1)
	}
	p.file("locked/1.log", 100*day, 1)
	p.file("locked/2.log", 100*day, 1)
	fixed := p.file("good/immutable.log", 100*day, 1)
	p.file("secret/a.log", 100*day, 1)
	own(t, p.root)
	require.NoError(t, os.Chmod(filepath.Join(p.root, "locked"), 0o555))
	require.NoError(t, os.Chmod(filepath.Join(p.root, "secret"), 0o000))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(p.root, "locked"), 0o755)
		_ = os.Chmod(filepath.Join(p.root, "secret"), 0o755)
	})
	if !immutable(t, fixed) {
		p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
			if name == "immutable.log" {
				return syscall.EPERM
			}
			return unlink(d, name, folder)
		}
	}
	asNobody(t, func() {
		rep, err := p.try(context.Background(), map[string]any{"on_error": OnErrorStop})
		require.ErrorIs(t, err, errStopped)
		require.ErrorContains(t, err, "secret/: permission denied")
		require.Nil(t, rep)
		rep, err = p.try(context.Background(), map[string]any{"on_error": OnErrorReport})
		require.NoError(t, err)
		require.Equal(t, StatusPartial, rep.Status)
		require.EqualValues(t, 97, rep.Files)
		require.EqualValues(t, 4, rep.Errors)
		require.ElementsMatch(t, []Failure{
			{"secret/", "open folder", "permission denied"},
			{"good/immutable.log", ActionDelete, "operation not permitted"},
			{"locked/1.log", ActionDelete, "permission denied"},
			{"locked/2.log", ActionDelete, "permission denied"},
		}, rep.Failures)
		rep, err = p.try(context.Background(), map[string]any{"on_error": OnErrorFail})
		require.ErrorContains(t, err, "locked/2.log: permission denied")
		require.ErrorContains(t, err, "4 entries failed")
		require.Nil(t, rep)
	})
}

// F07: an active file is young by its last write; an idle open one is kept or not, as asked, and
// counts as freed only if it is.
func TestF07OpenFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("active.log", time.Second, 4096)
	idle := p.file("idle.log", 100*day, 8192)
	p.file("closed.log", 100*day, 4096)
	reader, err := os.Open(idle)
	require.NoError(t, err)
	defer reader.Close()

	rep := p.run(nil)
	require.Equal(t, []string{"active.log", "idle.log"}, p.left())
	require.Contains(t, rep.KeptSamples, Kept{"active.log", ReasonYoung})
	require.Contains(t, rep.KeptSamples, Kept{"idle.log", ReasonOpen})
	require.EqualValues(t, 4096, rep.Bytes)

	rep = p.run(map[string]any{"open_files": OpenDelete})
	require.Equal(t, []string{"active.log"}, p.left())
	require.Zero(t, rep.Bytes)
	require.EqualValues(t, 8192, rep.BytesHeldOpen)

	p.cleaner.sys.open = func() (map[fileID]struct{}, int, error) { return nil, 0, errors.New("no /proc") }
	_, err = p.try(t.Context(), nil)
	require.ErrorContains(t, err, "no /proc", "what cannot be known is not guessed")
	p.cleaner.sys.open = func() (map[fileID]struct{}, int, error) { return nil, 3, nil }
	require.Contains(t, strings.Join(p.run(nil).Notes, " "), "other users")
}

// F10: every further filter only ever cleans less.
func TestF10FiltersAreAnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("old.pdf", time.Hour, 10)
	p.file("young.pdf", time.Minute, 10)
	p.file("old.txt", time.Hour, 10)
	p.file("dir.pdf/old.txt", time.Hour, 10)
	p.age(filepath.Join(p.root, "dir.pdf"), time.Hour)
	p.file("big.pdf", time.Hour, 5000)
	rep := p.run(map[string]any{"include": []string{"**/*.pdf"}, "older_than": "30m", "larger_than": "1KiB"})
	require.EqualValues(t, 1, rep.Files)
	require.NoFileExists(t, filepath.Join(p.root, "big.pdf"))
	rep = p.run(map[string]any{"include": []string{"**/*.pdf"}, "older_than": "30m"})
	require.Equal(t, []string{"dir.pdf/", "dir.pdf/old.txt", "old.txt", "young.pdf"}, p.left())
	require.EqualValues(t, 2, rep.Kept[ReasonName])
}

// F11: two thousand entries that cannot be removed, more than one batch holds.
func TestF11UndeletableEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.cleaner.batch = 300
	for i := range 2000 {
		p.file(fmt.Sprintf("d/%04d.log", i), 100*day+time.Duration(i%7)*time.Hour, 0)
	}
	require.NoError(t, os.Chmod(filepath.Join(p.root, "d"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(p.root, "d"), 0o755) })
	asNobody(t, func() {
		rep, err := p.try(context.Background(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2000, rep.Errors, "each counted once")
		require.Len(t, rep.Failures, maxErrors, "and the list is bounded")
		require.EqualValues(t, 2000, rep.Seen)
	})
	require.Len(t, p.left(), 2001)
}

// F11: stop and timeout work in the middle of a sweep.
func TestF11StopInTheMiddle(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for i := range 1000 {
		p.file(fmt.Sprintf("%04d.log", i), 100*day, 0)
	}
	stop := errors.New("stopped by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		if n++; n == 10 {
			cancel(stop)
		}
		return unlink(d, name, folder)
	}
	_, err := p.try(ctx, nil)
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, "10 files deleted", "the error says how far it came")
	require.Len(t, p.left(), 990)
	_, err = p.try(ctx, nil)
	require.ErrorIs(t, err, stop, "and while it lists")
}

// F13: the oldest go first over the whole set, whatever their names, folders and sizes.
func TestF13OldestFirst(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{2, 3, 100} {
		p := newPlace(t)
		p.cleaner.batch = batch
		for i, name := range []string{"b/web.1.log", "z/api.2.log", "a/web.3.log", "api.4.log", "c/d/cron.5.log", "web.6.log", "y/7.log"} {
			p.file(name, time.Duration(100-i)*day, 4096)
		}
		rep := p.run(map[string]any{"max_files": 3})
		require.Equal(t, []string{"a/", "api.4.log", "b/", "c/", "c/d/", "c/d/cron.5.log", "web.6.log", "y/", "y/7.log", "z/"}, p.left())
		require.EqualValues(t, 4, rep.Kept[ReasonLimit])
		require.Contains(t, strings.Join(rep.Notes, "\n"), "max_files")

		rep = p.run(map[string]any{"max_bytes": "9000"})
		require.EqualValues(t, 2, rep.Files, "another would pass the bound")
		require.EqualValues(t, 2, rep.Kept[ReasonLimit])

		free := int64(1_000_000)
		p.cleaner.sys.space = func(*dir) (int64, int64, error) { return free, 2_000_000, nil }
		rep = p.run(map[string]any{"older_than": nil, "until_free": "1004000"})
		require.EqualValues(t, 1, rep.Files)
		require.Equal(t, []string{"a/", "b/", "c/", "c/d/", "y/", "y/7.log", "z/"}, p.left())
		require.True(t, *rep.GoalReached)
		require.EqualValues(t, 1, rep.Kept[ReasonEnoughFree])
		rep = p.run(map[string]any{"until_free": "50%"})
		require.Zero(t, rep.Files, "enough is free from the start")
		rep = p.run(map[string]any{"until_free": "90%", "dry_run": true})
		require.EqualValues(t, 1, rep.Files)
		rep = p.run(map[string]any{"until_free": "90%"})
		require.False(t, *rep.GoalReached)
		require.Contains(t, strings.Join(rep.Notes, "\n"), "not reached")
		_, err := p.try(t.Context(), map[string]any{"until_free": "3MB"})
		require.ErrorContains(t, err, "has 2000000")
	}
}

func TestKeepNewest(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 100} {
		p := newPlace(t)
		p.cleaner.batch = batch
		lay := func() {
			for i := range 5 {
				p.file(fmt.Sprintf("a/%d.log", i), time.Duration(10+i)*day, 1)
				p.file(fmt.Sprintf("b/%d.log", i), time.Duration(20+i)*day, 1)
			}
			p.file("a/new.txt", 0, 1)
		}
		lay()
		rep := p.run(map[string]any{"older_than": nil, "keep_newest": 6})
		require.EqualValues(t, 6, rep.Kept[ReasonNewest])
		require.Equal(t, []string{"a/", "a/0.log", "a/1.log", "a/2.log", "a/3.log", "a/4.log", "a/new.txt", "b/", "b/0.log"}, p.left())
		lay()
		p.run(map[string]any{"older_than": nil, "keep_newest": 2, "keep_newest_per": PerFolder})
		require.Equal(t, []string{"a/", "a/0.log", "a/1.log", "a/new.txt", "b/", "b/0.log", "b/1.log"}, p.left())
		p.run(map[string]any{"older_than": nil, "keep_newest": 100})
		require.Len(t, p.left(), 7, "fewer than that are all kept")
		p.run(map[string]any{"older_than": "15d", "keep_newest": 1})
		require.Equal(t, []string{"a/", "a/0.log", "a/1.log", "a/new.txt", "b/"}, p.left(), "and age holds too")
	}
}

// Hostile names are ordinary names, and the report stays readable.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	names := []string{
		"-rf.log", "--no-preserve-root.log", "a\nb.log", "\r\x1b[2J.log", "\xff\xfe\x80.log", " .log", "  lead.log", "tail .log", "*.log", "[x].log", "$HOME.log", "`id`.log", "';--.log", `back\slash.log`,
		"\"quoted\".log", "~.log", "..log", "...log", "\u202egol.log", "日志.log", strings.Repeat("n", 251) + ".log", "\x01\x7f.log",
	}
	for _, n := range names {
		p.file("d/"+n, 100*day, 1)
		p.file("-d\n\xff/"+n, 100*day, 1)
	}
	rep := p.run(map[string]any{"dry_run": true})
	require.EqualValues(t, 2*len(names), rep.Files)
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		if len(d.parts) > 0 && d.parts[0] == "d" {
			return syscall.EPERM
		}
		return unlink(d, name, folder)
	}
	rep = p.run(nil)
	require.EqualValues(t, len(names), rep.Files)
	require.EqualValues(t, len(names), rep.Errors)
	for _, f := range rep.Failures {
		require.NotContains(t, f.Path, "\n")
		require.NotContains(t, f.Path, "\x1b")
		require.NotContains(t, f.Path, "\uFFFD")
	}
	p.cleaner.sys = realSystem()
	require.EqualValues(t, len(names), p.run(nil).Files)
}

// A tree deeper than a path may be long is refused from a certain depth, not followed for ever.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	at := p.root
	for range maxDepth + 3 {
		at += "/d"
	}
	p.file(at+"/deep.log", 100*day, 1)
	p.file("d/d/d/a.log", 100*day, 1)
	rep := p.run(map[string]any{"remove_empty_dirs": true})
	require.EqualValues(t, 1, rep.Files)
	require.EqualValues(t, 1, rep.Errors)
	require.Contains(t, rep.Failures[0].Error, "more than 128 folders deep")
	require.FileExists(t, at+"/deep.log")
}

// A file with two names counts once, and a sparse one by its blocks.
func TestBytesReallyFreed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one := p.file("one.log", 100*day, 8192)
	require.NoError(t, os.Link(one, filepath.Join(p.root, "two.log")))
	sparse := p.file("sparse.log", 0, 0)
	require.NoError(t, os.Truncate(sparse, 1<<30))
	p.age(sparse, 100*day)
	elsewhere := p.file("kept.log", 100*day, 4096)
	require.NoError(t, os.Link(elsewhere, filepath.Join(p.outside, "kept.log")))
	rep := p.run(map[string]any{"larger_than": "1KB"})
	require.EqualValues(t, 4, rep.Files)
	require.EqualValues(t, 8192, rep.Bytes)
}

// Sockets, pipes and devices are nobody's logs, and no pipe makes the sweep wait.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	require.NoError(t, unix.Mkfifo(filepath.Join(p.root, "pipe.log"), 0o644))
	l, err := net.Listen("unix", filepath.Join(p.root, "s.log"))
	require.NoError(t, err)
	defer l.Close()
	p.age(filepath.Join(p.root, "pipe.log"), 100*day)
	p.age(filepath.Join(p.root, "s.log"), 100*day)
	rep := p.run(map[string]any{"action": ActionCompress})
	require.EqualValues(t, 2, rep.Kept[ReasonSpecial])
	require.Zero(t, rep.Errors)
}

// What is mounted or bound below the root is not entered.
func TestMountsAreNotEntered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file(filepath.Join(p.outside, "a.log"), 100*day, 1)
	require.NoError(t, os.Mkdir(filepath.Join(p.root, "bound"), 0o755))
	p.file("b/a.log", 100*day, 1)
	if !bind(t, p.outside, filepath.Join(p.root, "bound")) {
		p.file("bound/a.log", 100*day, 1)
		p.cleaner.sys.mountTop = func(d *dir) (bool, error) { return len(d.parts) > 0 && d.parts[0] == "bound", nil }
	}
	rep := p.run(map[string]any{"remove_empty_dirs": true})
	require.EqualValues(t, 1, rep.Files)
	require.Contains(t, rep.KeptSamples, Kept{"bound/", ReasonMount})
	require.FileExists(t, filepath.Join(p.outside, "a.log"))
	require.FileExists(t, filepath.Join(p.root, "bound/a.log"))
}

// F14: the worker's own folders below a root are kept whatever the patterns say, by any name.
func TestF14ExcludedBelowTheRoot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("data/a.log", 100*day, 1)
	p.file("x/a.log", 100*day, 1)
	require.NoError(t, os.Symlink(filepath.Join(p.root, "data"), filepath.Join(p.base, "alias")))
	p.cleaner.cfg.Excluded = []string{filepath.Join(p.base, "alias")}
	rep := p.run(map[string]any{"exclude": []string{"nothing"}})
	require.FileExists(t, filepath.Join(p.root, "data/a.log"))
	require.Contains(t, rep.KeptSamples, Kept{"data/", ReasonExcluded})
	p.file("audit/deep/a.log", 100*day, 1)
	rep = p.run(map[string]any{"exclude": []string{"audit"}, "remove_empty_dirs": true})
	require.FileExists(t, filepath.Join(p.root, "audit/deep/a.log"))
	require.Zero(t, rep.Files)
}

// Files that go, come and change between listing and removal.
func TestVanishingAndChangingFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for i := range 6 {
		p.file(fmt.Sprintf("%d.log", i), time.Duration(100-i)*day, 10)
	}
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		if name == "0.log" {
			require.NoError(t, os.Remove(filepath.Join(p.root, "1.log")))
			p.file("2.log", 0, 20)                                                                   // written to
			require.NoError(t, os.Rename(p.file("new", 97*day, 10), filepath.Join(p.root, "3.log"))) // replaced: same size and time
			require.NoError(t, os.Remove(filepath.Join(p.root, "4.log")))
			require.NoError(t, os.Mkdir(filepath.Join(p.root, "4.log"), 0o755)) // an empty folder in its place
			p.age(filepath.Join(p.root, "4.log"), 96*day)
		}
		return unlink(d, name, folder)
	}
	rep := p.run(nil)
	require.Equal(t, []string{"2.log", "3.log", "4.log/"}, p.left())
	require.EqualValues(t, 2, rep.Files)
	require.EqualValues(t, 1, rep.Vanished)
	require.EqualValues(t, 3, rep.Kept[ReasonChanged])
	require.Zero(t, rep.Errors)

	// The removal itself takes no folder for a file, nor the other way round.
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		require.NoError(t, os.Remove(filepath.Join(p.root, name)))
		require.NoError(t, os.Mkdir(filepath.Join(p.root, name), 0o755))
		return unlink(d, name, folder)
	}
	p.file("9.log", 100*day, 1)
	rep = p.run(nil)
	require.EqualValues(t, 2, rep.Errors, "9.log, and 3.log from before")
	require.DirExists(t, filepath.Join(p.root, "9.log"))
	require.DirExists(t, filepath.Join(p.root, "3.log"))
}

// F17: a worker without the folder has nothing to do, and says so.
func TestF17MissingFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	rep := p.runRoot(filepath.Join(p.root, "not/here"))
	require.Equal(t, StatusMissing, rep.Status)
	require.Contains(t, strings.Join(rep.Notes, "\n"), "does not exist")
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("a.log", 100*day, 4096)
	p.file("d/b.log", 100*day, 4096)
	p.link("nowhere", "l.log", 100*day)
	require.NoError(t, os.Mkdir(filepath.Join(p.root, "e"), 0o755))
	p.age(filepath.Join(p.root, "e"), 100*day)
	before := p.left()
	for _, action := range []string{ActionDelete, ActionCompress} {
		rep := p.run(map[string]any{"dry_run": true, "action": action, "remove_empty_dirs": true, "links": LinksRemoveDangling})
		require.Equal(t, before, p.left())
		require.EqualValues(t, 2, rep.Files)
		require.EqualValues(t, 8192, rep.Bytes)
		require.EqualValues(t, 1, rep.Links)
		require.EqualValues(t, 1, rep.Dirs)
	}
}

// The bounds of the worker hold whatever a job asks.
func TestWorkersBounds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.cleaner.cfg.MaxFiles = 2
	for i := range 4 {
		p.file(fmt.Sprintf("%d.log", i), time.Duration(100-i)*day, 1)
	}
	rep := p.run(map[string]any{"max_files": 1000})
	require.EqualValues(t, 2, rep.Files)
	require.Contains(t, strings.Join(rep.Notes, "\n"), "lowered from 1000")
	require.Equal(t, []string{"2.log", "3.log"}, p.left())
}
