//go:build linux

package logcleanup

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var compressing = map[string]any{"action": ActionCompress}

func unzip(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(zip)
	require.NoError(t, err)
	return string(raw)
}

func zipped(t testing.TB, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	_, err := zip.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	return b.Bytes()
}

func TestCompress(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := p.file("d/a.log", 100*day, 1_000_000)
	require.NoError(t, os.Chmod(path, 0o640))
	p.file("young.log", day, 100)
	p.file("empty.log", 100*day, 0)
	p.file("was.log.gz", 100*day, 100)
	long := p.file(strings.Repeat("n", 250)+".log", 100*day, 10)
	linked := p.file("linked.log", 100*day, 10)
	require.NoError(t, os.Link(linked, filepath.Join(p.root, "linked.txt")))
	rep := p.run(map[string]any{"action": ActionCompress, "include": []string{"**/*.log", "**/*.gz"}})
	require.Equal(t, strings.Repeat("x", 1_000_000), unzip(t, path+".gz"))
	require.NoFileExists(t, path)
	info, err := os.Stat(path + ".gz")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	require.True(t, info.ModTime().Equal(p.now.Add(-100*day)), "so that a retention by age goes on to work")
	require.EqualValues(t, 1, rep.Files)
	require.InDelta(t, 1_000_000, rep.Bytes, 10_000)
	require.EqualValues(t, 2, rep.Kept[ReasonCompressed])
	require.EqualValues(t, 1, rep.Kept[ReasonHardLinked])
	require.EqualValues(t, 1, rep.Errors)
	require.Contains(t, rep.Failures[0].Error, "too long")
	require.FileExists(t, long)
	require.FileExists(t, linked)
	require.Equal(t, []string{"a.log.gz"}, namesIn(t, filepath.Join(p.root, "d")))
}

func namesIn(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A name that is taken is not overwritten, unless it is the complete copy of a run that died
// before it removed the original.
func TestCompressAfterACrash(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("x", 70_000)
	whole := zipped(t, content)
	for name, c := range map[string]struct {
		there []byte
		done  bool
	}{
		"complete":             {whole, true},
		"complete, two parts":  {append(zipped(t, content[:100]), zipped(t, content[100:])...), true},
		"cut in its trailer":   {whole[:len(whole)-3], false},
		"cut in its middle":    {whole[:len(whole)/2], false},
		"empty":                {nil, false},
		"no gzip":              {[]byte("hello"), false},
		"other content":        {zipped(t, content[1:]+"y"), false},
		"longer":               {zipped(t, content+"x"), false},
		"shorter":              {zipped(t, content[1:]), false},
		"followed by nonsense": {append(bytes.Clone(whole), 1, 2, 3), false},
	} {
		p := newPlace(t)
		path := p.file("a.log", 100*day, len(content))
		require.NoError(t, os.WriteFile(path+".gz", c.there, 0o644), name)
		rep := p.run(compressing)
		if c.done {
			require.EqualValues(t, 1, rep.Files, name)
			require.NoFileExists(t, path, name)
		} else {
			require.Contains(t, rep.KeptSamples, Kept{"a.log", ReasonExists}, name)
			require.FileExists(t, path, name)
		}
		got, err := os.ReadFile(path + ".gz")
		require.NoError(t, err)
		require.Equal(t, string(c.there), string(got), name)
	}
}

// F16, of this processor: what a crash left behind is taken away by a later run, and not before
// it is surely left behind.
func TestF16HalfMadeCopies(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := p.file("a.log", 100*day, 10)
	temp := p.file("d/"+tempName(), 100*day, 3)
	locked, err := os.Open(path)
	require.NoError(t, err)
	require.True(t, lock(locked))
	change := map[string]any{"action": ActionCompress, "open_files": OpenDelete}
	rep := p.run(change)
	require.EqualValues(t, 2, rep.Kept[ReasonInProgress], "the copy, however old it looks, and the file another run is at")
	require.Zero(t, rep.Files)
	require.NoError(t, locked.Close())
	p.run(change)
	require.Equal(t, strings.Repeat("x", 10), unzip(t, path+".gz"))
	require.FileExists(t, temp)
	p.now = time.Now().Add(2 * time.Hour)
	p.run(change)
	require.Equal(t, []string{"a.log.gz", "d/"}, p.left())
}

// A failure at any step leaves the original and nothing half-made.
func TestCompressFailures(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := p.file("a.log", 100*day, 100)
	p.cleaner.sys.unlink = func(d *dir, name string, folder bool) error {
		if name == "a.log" {
			return syscall.EPERM
		}
		return unlink(d, name, folder)
	}
	rep := p.run(compressing)
	require.EqualValues(t, 1, rep.Errors)
	require.Equal(t, []string{"a.log", "a.log.gz"}, p.left(), "the copy stays: somebody may rely on it already")
	p.cleaner.sys = realSystem()
	require.EqualValues(t, 1, p.run(compressing).Files, "and serves when the original can be removed")
	require.Equal(t, []string{"a.log.gz"}, p.left())
	require.NoError(t, os.Remove(path+".gz"))
	p.file("a.log", 100*day, 100)

	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by the test")
	big := p.file("big.log", 200*day, 40<<20)
	p.cleaner.sys.open = func() (map[fileID]struct{}, int, error) { cancel(stop); return nil, 0, nil }
	_, err := p.try(ctx, compressing)
	require.ErrorIs(t, err, stop)
	require.Equal(t, []string{"a.log", "big.log"}, p.left())
	require.FileExists(t, path)

	// Somebody writes to the file while it is read.
	p.cleaner.sys.open = realSystem().open
	require.NoError(t, os.Remove(path))
	writing, err := os.OpenFile(big, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer writing.Close()
	d := p.dir()
	defer d.close()
	info, err := d.root.Lstat("big.log")
	require.NoError(t, err)
	_, err = writing.WriteString("late line")
	require.NoError(t, err)
	s := &sweep{plan: &plan{compress: true}, sys: realSystem(), rec: &recorder{}, now: p.now}
	_, err = s.compress(t.Context(), d, "big.log", info)
	require.ErrorIs(t, err, keepError(ReasonChanged))
	require.Equal(t, []string{"big.log"}, p.left())
}

func (p *place) dir() *dir {
	p.t.Helper()
	root, err := os.OpenRoot(p.root)
	require.NoError(p.t, err)
	d, err := openDir(root)
	require.NoError(p.t, err)
	return d
}

// F17: several workers of one disk work on the same files at once: every file is compressed once,
// counted once and loses nothing.
func TestF17ManyAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	content := map[string]string{}
	for i := range 30 {
		name := fmt.Sprintf("%d.log", i)
		raw := make([]byte, 1+rand.IntN(50_000))
		for j := range raw {
			raw[j] = "abcdefgh\n"[rand.IntN(9)]
		}
		require.NoError(t, os.WriteFile(p.file(name, 100*day, 0), raw, 0o644))
		p.age(filepath.Join(p.root, name), 100*day)
		content[name] = string(raw)
	}
	var sum [2]int64
	for i, change := range []map[string]any{compressing, {"include": []string{"*.log.gz"}}} {
		if i == 1 {
			for name, want := range content {
				require.Equal(t, want, unzip(t, filepath.Join(p.root, name+".gz")))
			}
			require.Len(t, p.left(), len(content))
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				rep, err := p.try(context.Background(), change)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || rep.Errors > 0 {
					t.Errorf("%v %+v %v", err, rep, rep.Failures)
					return
				}
				sum[i] += rep.Files
			})
		}
		all.Wait()
	}
	require.Equal(t, [2]int64{30, 30}, sum, "no double counting")
	require.Empty(t, p.left())
}
