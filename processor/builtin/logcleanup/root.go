package logcleanup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// errMissing: the root does not exist here, and it would be allowed if it did.
var errMissing = errors.New("the folder does not exist on this worker")

// openRoot opens the root of a plan after every check that needs the worker's own disk. Links in
// the path are resolved first, and all checks are made on what they lead to.
func (c *cleaner) openRoot(said string) (*dir, error) {
	if len(c.cfg.Roots) == 0 {
		return nil, errors.New("this worker allows no roots; list the folders that may be cleaned in logcleanup.Config.Roots")
	}
	clean := filepath.Clean(said)
	at, err := filepath.EvalSymlinks(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.allowedByName(clean):
		return nil, errMissing
	case errors.Is(err, fs.ErrNotExist):
		return nil, c.notAllowed(said, clean)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("root %q: a part of the path is a file, not a folder", said)
	case err != nil:
		return nil, fmt.Errorf("resolve root: %w", err)
	}
	top, rel, ok := c.allowed(at)
	if !ok {
		return nil, c.notAllowed(said, at)
	}
	info, err := os.Lstat(at)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at root: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("root %q is a file, not a folder", said)
	}
	if err := c.checkResolved(at); err != nil {
		return nil, err
	}
	d, err := openBelow(top, rel)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	mounted, err := c.sys.mountTop(d)
	switch {
	case err != nil:
	case !os.SameFile(d.info, info):
		err = fmt.Errorf("root %q: %w", said, errSwapped)
	case mounted:
		err = fmt.Errorf("root %q is the top of a mounted filesystem; name a folder below it", said)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// openBelow goes through the allowed root's own handle, which no link leads out of.
func openBelow(top, rel string) (*dir, error) {
	above, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	root, err := above.OpenRoot(filepath.ToSlash(rel) + "/.")
	if err != nil {
		return nil, err
	}
	return openDir(root)
}

// allowed finds the allowed root that a resolved path is or lies in.
func (c *cleaner) allowed(at string) (top, rel string, ok bool) {
	for _, a := range c.cfg.Roots {
		top, err := filepath.EvalSymlinks(a)
		if err != nil || !within(top, at) {
			continue
		}
		if rel, err := filepath.Rel(top, at); err == nil {
			return top, rel, true
		}
	}
	return "", "", false
}

func (c *cleaner) allowedByName(clean string) bool {
	for _, a := range c.cfg.Roots {
		if within(filepath.Clean(a), clean) {
			return true
		}
	}
	return false
}

func (c *cleaner) notAllowed(said, at string) error {
	led := ""
	if at != filepath.Clean(said) {
		led = fmt.Sprintf(", which leads to %q,", at)
	}
	return fmt.Errorf("root %q%s is in none of the roots this worker allows (%s)", said, led, strings.Join(c.cfg.Roots, ", "))
}

// checkResolved refuses what only this machine knows to be somebody else's.
func (c *cleaner) checkResolved(at string) error {
	if err := checkFolder(at, filepath.ToSlash(at)); err != nil {
		return fmt.Errorf("root, links resolved: %w", err)
	}
	for _, home := range homes() {
		if within(at, home) {
			return fmt.Errorf("root %q is or holds the home folder %s", at, home)
		}
	}
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		if within(at, filepath.Dir(exe)) {
			return fmt.Errorf("root %q is or holds the folder of this worker's program", at)
		}
	}
	for _, e := range c.cfg.Excluded {
		if target, err := filepath.EvalSymlinks(e); err == nil {
			e = target
		}
		if within(filepath.Clean(e), at) {
			return fmt.Errorf("root %q lies in %s, which this worker's configuration excludes", at, e)
		}
	}
	return nil
}

// homes are those of this user and, where /etc/passwd tells, of people; the accounts of services
// often have their log folders for a home.
func homes() []string {
	var out []string
	add := func(home string) {
		if !filepath.IsAbs(home) || filepath.Clean(home) == "/" {
			return
		}
		out = append(out, filepath.Clean(home))
		if at, err := filepath.EvalSymlinks(home); err == nil && at != "/" {
			out = append(out, at)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(home)
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return out
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 7 {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && (uid == 0 || uid >= 1000 && uid < 65534) {
			add(fields[5])
		}
	}
	return out
}
