//go:build !linux

package logcleanup

import (
	"errors"
	"os"
	"path/filepath"
)

const knowsOpenFiles = false

// mountTop compares devices by path; the sweep compares them by handle below the root.
func mountTop(d *dir) (bool, error) {
	above, err := os.Stat(filepath.Dir(d.file.Name()))
	if err != nil || !filepath.IsAbs(d.file.Name()) {
		return false, nil //nolint:nilerr // the sweep compares devices as well
	}
	return footprintOf(above).id.dev != footprintOf(d.info).id.dev, nil
}

func openFiles() (files map[fileID]struct{}, hidden int, err error) {
	return nil, 0, errors.New("open files are known on Linux only")
}
