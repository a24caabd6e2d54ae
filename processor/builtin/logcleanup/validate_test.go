//go:build linux

package logcleanup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// F14: dangerous roots are refused when a job is saved, and again when it runs.
func TestF14DangerousRoots(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.cleaner.cfg.Roots = []string{"/"} // nobody's list of roots may be the only guard
	for _, root := range []string{
		"", "/", ".", "..", "//", "///", "/.", "/..", "/etc", "/etc/..", "/etc/cron.d", "/var", "/var/log/../..", "/var/log/./x", "~", "~/logs", "~root/logs",
		"$UNSET/logs", "/$UNSET/logs", "/srv/${APP}/logs", "/srv/`x`", "%TEMP%/logs", `C:\`, "C:/", "C:logs", "logs", "./logs", "../logs", "/home", "/home/ada", "/home/ada/",
		"/root", "/root/", "//root//", "/usr", "/usr/bin", "/usr//lib", "/tmp", "/proc/1", "/sys/kernel", "/dev", "/srv/a\x00b", " /srv/logs", "-rf",
	} {
		raw := p.params(map[string]any{"root": root})
		require.Error(t, Validate(raw), "save %q", root)
		_, err := p.try(t.Context(), map[string]any{"root": root})
		require.Error(t, err, "run %q", root)
		require.ErrorContains(t, err, "root")
	}
	for _, root := range []string{"/var/log/shop", "/srv/logs", "/data", `D:\shop\logs`, "/srv/a b/логи", "/srv/100%/x", "/home/ada/logs", "/var/log/shop/", "/srv/..logs"} {
		require.NoError(t, Validate(p.params(map[string]any{"root": root})), root)
	}
}

// F14: patterns and retentions that could mean everything.
func TestF14NothingMeansEverything(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old := p.file("old.log", 1000*day, 1)
	for name, change := range map[string]map[string]any{
		"*": {"include": []string{"*"}}, "**": {"include": []string{"**/*.log", "**"}}, ".*": {"include": []string{".*"}}, "no pattern": {"include": []string{}},
		"empty pattern": {"include": []string{""}}, "absent pattern": {"include": nil}, "empty exclude": {"exclude": []string{""}}, "null pattern": {"include": []any{nil}},
		"retention 0": {"older_than": "0"}, "0d": {"older_than": "0d"}, "0s": {"older_than": "0s"}, "-1": {"older_than": "-1"}, "-1d": {"older_than": "-1d"}, "-7h": {"older_than": "-7h"},
		"absent": {"older_than": nil}, "only size": {"older_than": nil, "larger_than": "1MB"}, "empty": {"older_than": ""}, "number": {"older_than": 7}, "no unit": {"older_than": "7"},
		"1e9 d": {"older_than": "1e9d"}, "1000000000d": {"older_than": "1000000000d"}, "overflow": {"older_than": "99999999999999999999d"}, "overflow w": {"older_than": "9223372036854775807w"}, "ms": {"older_than": "1ms"},
		"keep 0": {"keep_newest": 0}, "keep -1": {"keep_newest": -1}, "keep huge": {"keep_newest": 1_000_000_000}, "keep per": {"keep_newest_per": "folder"},
		"free 0": {"until_free": "0"}, "free 0%": {"until_free": "0%"}, "free 100%": {"until_free": "100%"}, "free -1": {"until_free": "-1GB"}, "free empty": {"until_free": ""},
		"size 0": {"larger_than": "0"}, "size -1": {"larger_than": "-1"}, "size unit": {"larger_than": "1XB"}, "size huge": {"larger_than": "99999999999PiB"},
		"max 0": {"max_files": 0}, "max -1": {"max_files": -1}, "bytes 0": {"max_bytes": "0"},
		"unknown": {"olderthan": "7d"}, "action": {"action": "shred"}, "links": {"links": "follow"}, "open": {"open_files": "maybe"}, "on_error": {"on_error": "ignore"},
		"dirs age": {"empty_dirs_older_than": "7d"}, "dirs 0": {"remove_empty_dirs": true, "empty_dirs_older_than": "0s"},
	} {
		raw := p.params(change)
		require.Error(t, Validate(raw), name)
		_, err := p.try(t.Context(), change)
		require.Error(t, err, name)
	}
	for _, raw := range []string{"", "null", "{}", "[]", "1", `"x"`, "{", `{"root":"/srv/x"} {}`} {
		require.Error(t, Validate(json.RawMessage(raw)), raw)
	}
	require.FileExists(t, old)
	require.NoError(t, Validate(p.params(map[string]any{
		"exclude": []string{"audit"}, "older_than": "2w", "larger_than": "10KiB", "keep_newest": 5, "keep_newest_per": "folder", "until_free": "20%", "action": "compress",
		"remove_empty_dirs": true, "empty_dirs_older_than": "36h", "dry_run": true, "links": "remove_dangling", "open_files": "delete", "max_files": 10, "max_bytes": "1TB", "on_error": "stop",
	})))
	require.NoError(t, Validate(p.params(map[string]any{"older_than": nil, "until_free": "20GiB"})))
}

// F08: truncation is not offered, and the refusal says why.
func TestF08TruncateIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	require.ErrorContains(t, Validate(p.params(map[string]any{"action": "truncate"})), "loses the lines")
}

// F14: what only the worker's own disk tells.
func TestF14RootsOfThisMachine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file(filepath.Join(p.outside, "a.log"), 100*day, 1)
	p.file("sub/a.log", day, 1)
	refused := func(what, root, says string) {
		t.Helper()
		_, err := p.try(t.Context(), map[string]any{"root": root})
		require.ErrorContains(t, err, says, what)
	}
	file := p.file("file.log", 100*day, 1)
	refused("a file", file, "is a file")
	refused("below a file", file+"/x", "is a file")
	refused("not in the list", p.outside, "none of the roots")
	refused("missing and not in the list", p.outside+"/nowhere", "none of the roots")
	refused("a name that begins the same", p.root+"2", "none of the roots")
	p.link(p.outside, "out", 0)
	refused("a link leading out", filepath.Join(p.root, "out"), `leads to "`+p.outside+`", is in none`)
	p.link("/", "top", 0)
	refused("a link to /", filepath.Join(p.root, "top"), "none of the roots")
	p.link("loop", "loop", 0)
	_, err := p.try(t.Context(), map[string]any{"root": filepath.Join(p.root, "loop")})
	require.Error(t, err)

	p.cleaner.cfg.Roots = []string{p.base, "/dev/shm", "/proc"}
	p.cleaner.cfg.Excluded = []string{p.outside}
	refused("the worker's data", p.outside, "excludes")
	p.link("../precious", "inside", 0)
	refused("a link to the worker's data", filepath.Join(p.root, "inside"), "excludes")
	refused("the top of a mount", "/dev/shm", "mounted filesystem")

	exe, err := os.Executable()
	require.NoError(t, err)
	p.cleaner.cfg.Roots = []string{filepath.Dir(exe)}
	refused("the folder of the program", filepath.Dir(exe), "program")

	p.cleaner.cfg.Roots = nil
	refused("no roots by default", p.root, "allows no roots")

	for _, c := range []Config{{Roots: []string{"logs"}}, {Roots: []string{"/"}}, {Excluded: []string{"x"}}, {MaxFiles: -1}} {
		require.Error(t, c.Validate())
		p.cleaner = newCleaner(c)
		_, err := p.try(t.Context(), nil)
		require.ErrorContains(t, err, "logcleanup.Config")
	}
}

// F14: a home folder is known by the machine, not only by its name.
func TestF14HomeFolder(t *testing.T) { // changes the environment
	p := newPlace(t)
	t.Setenv("HOME", filepath.Join(p.root, "sub"))
	p.file("sub/logs/a.log", 100*day, 1)
	for _, root := range []string{p.root, filepath.Join(p.root, "sub")} {
		_, err := p.try(t.Context(), map[string]any{"root": root})
		require.ErrorContains(t, err, "home folder")
	}
	require.EqualValues(t, 1, p.runRoot(filepath.Join(p.root, "sub/logs")).Files)
}

func (p *place) runRoot(root string) *Report {
	p.t.Helper()
	return p.run(map[string]any{"root": root})
}

// A link that leads to another folder within the allowed roots is fine, and every way to write it.
func TestRootsThatAreAllowed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("v2/a.log", 100*day, 1)
	p.link("v2", "current", 0)
	require.EqualValues(t, 1, p.runRoot(filepath.Join(p.root, "current")+"/").Files)
	p.file("v2/b.log", 100*day, 1)
	require.NoError(t, os.Symlink(p.root, filepath.Join(p.base, "alias")))
	p.cleaner.cfg.Roots = []string{filepath.Join(p.base, "alias")}
	require.EqualValues(t, 1, p.run(nil).Files, "the list of roots may go through a link too")
}

// The mount test of the running system, on what is mounted everywhere.
func TestMountTop(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/proc": true, "/proc/self": false, t.TempDir(): false} {
		root, err := os.OpenRoot(path)
		require.NoError(t, err)
		d, err := openDir(root)
		require.NoError(t, err)
		got, err := mountTop(d)
		d.close()
		require.NoError(t, err)
		require.Equal(t, want, got, path)
	}
}

// bind mounts a folder over another one; false where this process may not.
func bind(t testing.TB, from, to string) bool {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Logf("bind %s: %v", to, err)
		return false
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
	return true
}
