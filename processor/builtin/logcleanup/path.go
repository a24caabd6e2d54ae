package logcleanup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// systemFolders are never a root; logs lie deeper.
var systemFolders = []string{
	"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/opt", "/proc",
	"/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec",
	"/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/var/run",
	"/Applications", "/Library", "/System", "/Users", "/Volumes", "/private", "/private/etc", "/private/tmp", "/private/var",
}

// systemTrees are never a root, nor is anything below.
var systemTrees = []string{"/boot", "/etc", "/proc", "/sys", "/private/etc", "/System"}

// checkPath refuses a root by its text alone.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("it is empty; write the folder in full, such as /var/log/shop")
	case strings.ContainsRune(p, 0):
		return errors.New("it has a NUL byte")
	case strings.ContainsAny(p, "$`") || strings.Count(p, "%") > 1:
		return fmt.Errorf("%q: variables are not expanded, since an unset one would change the folder; write it in full", p)
	case p[0] == '~':
		return fmt.Errorf("%q: ~ is not expanded; write the folder in full", p)
	case !absolute(p):
		return fmt.Errorf("%q is not absolute; write the folder in full, such as /var/log/shop", p)
	}
	slashed := strings.ReplaceAll(p, `\`, "/")
	if p[0] == '/' {
		slashed = p // a backslash is an ordinary character there
	}
	for part := range strings.SplitSeq(slashed, "/") {
		if part == "." || part == ".." {
			return fmt.Errorf("%q has the component %q; write the folder that it means", p, part)
		}
	}
	return checkFolder(p, strings.TrimRight(slashed, "/"))
}

// absolute takes drive letters too: the server that checks may run elsewhere than the worker.
func absolute(p string) bool {
	if p[0] == '/' {
		return true
	}
	letter := p[0] | 0x20
	return len(p) >= 3 && letter >= 'a' && letter <= 'z' && p[1] == ':' && (p[2] == '/' || p[2] == '\\')
}

// checkFolder refuses the folders that are somebody else's by their name.
func checkFolder(said, clean string) error {
	for strings.Contains(clean, "//") {
		clean = strings.ReplaceAll(clean, "//", "/")
	}
	parts := strings.Split(clean, "/")
	switch {
	case clean == "" || len(parts) < 2:
		return fmt.Errorf("%q is the top of a filesystem", said)
	case slices.Contains(systemFolders, clean):
		return fmt.Errorf("%q is a folder of the system; name the folder of the logs below it", said)
	case slices.ContainsFunc(systemTrees, func(tree string) bool { return within(tree, clean) }):
		return fmt.Errorf("%q lies in a folder of the system that has no logs", said)
	case len(parts) == 3 && (parts[1] == "home" || parts[1] == "Users"):
		return fmt.Errorf("%q is a home folder; name the folder of the logs below it", said)
	}
	return nil
}

// within tells whether p is dir or lies below it, both clean.
func within(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimRight(dir, string(filepath.Separator))+string(filepath.Separator))
}
