//go:build linux

package logcleanup

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const day = 24 * time.Hour

// place is a folder of logs in a temporary folder, with a neighbour that nobody may touch.
type place struct {
	t       testing.TB
	base    string
	root    string
	outside string
	now     time.Time
	cleaner *cleaner
}

func newPlace(t testing.TB) *place {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	// Others may pass, so that a run under another user's rights comes this far.
	require.NoError(t, os.Chmod(filepath.Dir(base), 0o755))
	p := &place{t: t, base: base, root: filepath.Join(base, "logs"), outside: filepath.Join(base, "precious"), now: time.Now().Truncate(time.Second)}
	require.NoError(t, os.Mkdir(p.root, 0o755))
	require.NoError(t, os.Mkdir(p.outside, 0o755))
	p.cleaner = newCleaner(Config{Roots: []string{p.root}, Now: func() time.Time { return p.now }})
	return p
}

// file makes a file below the root (or at an absolute path), last written so long ago.
func (p *place) file(path string, age time.Duration, size int) string {
	p.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.root, path)
	}
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(p.t, os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o644))
	p.age(path, age)
	return path
}

func (p *place) age(path string, age time.Duration) {
	p.t.Helper()
	at := unix.NsecToTimespec(p.now.Add(-age).UnixNano())
	require.NoError(p.t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}

func (p *place) link(target, name string, age time.Duration) {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(p.t, os.Symlink(target, path))
	p.age(path, age)
}

// params are the usual ones with changes; a nil value takes a field away.
func (p *place) params(changes map[string]any) []byte {
	p.t.Helper()
	all := map[string]any{"root": p.root, "include": []string{"**/*.log"}, "older_than": "7d"}
	for k, v := range changes {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	raw, err := json.Marshal(all)
	require.NoError(p.t, err)
	return raw
}

func (p *place) try(ctx context.Context, changes map[string]any) (*Report, error) {
	return p.cleaner.clean(ctx, p.params(changes), slog.New(slog.DiscardHandler))
}

func (p *place) run(changes map[string]any) *Report {
	p.t.Helper()
	rep, err := p.try(context.Background(), changes)
	require.NoError(p.t, err)
	return rep
}

// left is everything below the root, folders with a slash at the end, sorted.
func (p *place) left() []string {
	p.t.Helper()
	out := []string{}
	require.NoError(p.t, filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == p.root {
			return err
		}
		rel, _ := filepath.Rel(p.root, path)
		if d.IsDir() {
			rel += "/"
		}
		out = append(out, rel)
		return nil
	}))
	slices.Sort(out)
	return out
}

// asNobody runs f with the rights of another user when this process has root's: file access is
// checked by the thread's own ids, and the thread ends with the goroutine.
func asNobody(t testing.TB, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setfsgid(65534); err != nil {
			done <- err
			return
		}
		if err := unix.Setfsuid(65534); err != nil {
			done <- err
			return
		}
		f()
	}()
	require.NoError(t, <-done)
}

// own gives everything below path to the user of asNobody.
func own(t testing.TB, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 65534, 65534)
	}))
}

// immutable makes even root fail, where the filesystem can do that.
func immutable(t testing.TB, path string) bool {
	t.Helper()
	const immutableFlag = 0x10
	set := func(on bool) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		flags &^= immutableFlag
		if on {
			flags |= immutableFlag
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if set(true) != nil {
		return false
	}
	t.Cleanup(func() { require.NoError(t, set(false)) })
	return true
}
