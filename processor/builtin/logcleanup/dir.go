package logcleanup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// fileID tells files apart on one machine. It is zero where the system does not say.
type fileID struct{ dev, ino uint64 }

// dir is an open folder below the root. All that is done in it is done through its handle, so
// that nobody can put another folder in its place; no link is followed to reach it.
type dir struct {
	root  *os.Root
	file  *os.File
	info  fs.FileInfo // when it was opened
	parts []string    // of the path relative to the sweep's root

	newest *order // files from here on are kept as the newest; nil for none
	all    bool   // all are kept as the newest: there are no more than that
}

// errSwapped: what was listed as a folder or file is something else now.
var errSwapped = errors.New("it was replaced while the clean-up ran")

// sub opens a folder in d that was listed as want. The "/." makes the system refuse what is no
// folder without opening it; a link that os.Root follows within the root is found out by its
// identity.
func (d *dir) sub(name string, want fs.FileInfo) (*dir, error) {
	if !want.IsDir() {
		return nil, errSwapped
	}
	root, err := d.root.OpenRoot(name + "/.")
	if err != nil {
		if now, lerr := d.root.Lstat(name); lerr == nil && !os.SameFile(now, want) {
			return nil, errSwapped
		}
		return nil, err
	}
	out, err := openDir(root)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(out.info, want) {
		out.close()
		return nil, errSwapped
	}
	out.parts = append(slices.Clone(d.parts), name)
	return out, nil
}

// openDir takes over root, also if it fails.
func openDir(root *os.Root) (*dir, error) {
	f, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		_ = root.Close()
		return nil, err
	}
	return &dir{root: root, file: f, info: info}, nil
}

func (d *dir) close() {
	_ = d.file.Close()
	_ = d.root.Close()
}

// again opens the same folder for another reading of its names.
func (d *dir) again() (*os.File, error) { return d.root.Open(".") }

// path is that of a name in d, relative to the sweep's root, with slashes.
func (d *dir) path(name string) string {
	if len(d.parts) == 0 {
		return name
	}
	return strings.Join(d.parts, "/") + "/" + name
}

// lookup opens the folder that a path lies in, from the top, component by component.
func (d *dir) lookup(path string) (*dir, error) {
	parts := strings.Split(path, "/")
	at := d
	for _, name := range parts[:len(parts)-1] {
		info, err := at.root.Lstat(name)
		var next *dir
		if err == nil {
			next, err = at.sub(name, info)
		}
		if at != d {
			at.close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	if at == d { // the caller closes what it gets
		root, err := d.root.OpenRoot(".")
		if err != nil {
			return nil, err
		}
		return openDir(root)
	}
	return at, nil
}
