//go:build linux

package logcleanup

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// F02: a folder is swapped for a link between listing and removal.
func TestF02SwappedAfterListing(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"../precious", "sibling"} {
		p := newPlace(t)
		for i := range 3 {
			name := fmt.Sprintf("%d.log", i)
			p.file(filepath.Join(p.outside, name), 100*day, 1)
			p.file("sibling/"+name+".keep", 100*day, 1)
			p.file("old/sub/"+name, 90*day, 1)
		}
		p.file("first.log", 200*day, 1)
		p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
			if name == "first.log" {
				require.NoError(t, os.Rename(filepath.Join(p.root, "old"), filepath.Join(p.root, "moved")))
				require.NoError(t, os.Symlink(target, filepath.Join(p.root, "old")))
			}
			return unlink(d, name, folder)
		}
		rep := p.run(map[string]any{"remove_empty_dirs": true})
		require.EqualValues(t, 1, rep.Files)
		require.EqualValues(t, 3, rep.Kept[ReasonChanged])
		require.Len(t, p.left(), 4+1+2+3, "nothing else is gone")
		left, err := os.ReadDir(p.outside)
		require.NoError(t, err)
		require.Len(t, left, 3)
	}
}

// F02: somebody swaps folders for links and pipes all the time, at two depths, while sweeps delete,
// compress and remove empty folders. What lies outside keeps every byte.
func TestF02ConcurrentSwapper(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const files = 20
	for i := range files {
		p.file(filepath.Join(p.outside, fmt.Sprintf("sub/%d.log", i)), 100*day, 100)
		p.file(filepath.Join(p.outside, fmt.Sprintf("%d.log", i)), 100*day, 100)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(p.outside, "empty"), 0o755))
	p.age(filepath.Join(p.outside, "empty"), 100*day)
	cleaned, changed := int64(0), int64(0)
	const rounds = 30
	for round := range rounds {
		require.NoError(t, os.RemoveAll(p.root))
		for i := range files {
			p.file(fmt.Sprintf("a/sub/%d.log", i), 100*day, 100)
			p.file(fmt.Sprintf("b/%d.log", i), 100*day, 100)
			p.file(fmt.Sprintf("b/empty/x%d/y", i), 100*day, 100)
		}
		stop := p.swap([]string{"a", "a/sub", "b", "b/empty"}, []string{p.outside, p.outside + "/sub", "../precious"})
		change := map[string]any{"links": LinksRemoveDangling, "remove_empty_dirs": true, "empty_dirs_older_than": "7d"}
		if round%6 == 1 { // each copy is synced, which takes its time
			change["action"] = ActionCompress
		}
		rep, err := p.try(t.Context(), change)
		stop()
		require.NoError(t, err)
		cleaned += rep.Files
		changed += rep.Kept[ReasonChanged] + rep.Kept[ReasonLink] + rep.Kept[ReasonSpecial] + rep.Vanished
	}
	for i := range files {
		require.FileExists(t, filepath.Join(p.outside, fmt.Sprintf("sub/%d.log", i)))
		require.FileExists(t, filepath.Join(p.outside, fmt.Sprintf("%d.log", i)))
	}
	left, err := os.ReadDir(p.outside)
	require.NoError(t, err)
	require.Len(t, left, files+2, "nothing was made there either")
	require.DirExists(t, filepath.Join(p.outside, "empty"))
	t.Logf("%d files cleaned, %d times something was not what it had been", cleaned, changed)
	require.Positive(t, cleaned)
	require.True(t, changed > 0 || cleaned < rounds*2*files, "the swapper got in the way")
}

// swap puts links and pipes in the place of folders and the folders back, until it is stopped.
func (p *place) swap(folders, targets []string) (stop func()) {
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			at := filepath.Join(p.root, folders[i%len(folders)])
			aside := filepath.Join(p.base, "aside")
			if os.Rename(at, aside) != nil {
				continue
			}
			if i%5 == 0 {
				_ = unix.Mkfifo(at, 0o644)
			} else {
				_ = os.Symlink(targets[i%len(targets)], at)
			}
			runtime.Gosched()
			_ = os.Remove(at)
			_ = os.Rename(aside, at)
		}
	})
	return func() {
		close(done)
		swapper.Wait()
		_ = os.RemoveAll(filepath.Join(p.base, "aside"))
	}
}
