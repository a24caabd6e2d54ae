package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The logs that the demo cleans up: it makes them itself, in a temporary folder that is
// the only one its workers may clean.

const (
	logAges   = 9    // rotated logs of each folder, a day apart
	logBytes  = 8192 // of each
	cleanDays = 5    // older_than of demo.yaml
)

// demoLogs is a folder of logs and what of it is to be left.
type demoLogs struct {
	temp string // removed at the end
	root string
	made int
	stay []string // sorted paths below root
}

// newDemoLogs makes the logs of three services; those of audit are excluded from cleaning.
func newDemoLogs(now time.Time) (*demoLogs, error) {
	temp, err := os.MkdirTemp("", "fanjet-logs-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder for logs: %w; set TMPDIR to one that can be written", err)
	}
	l := &demoLogs{temp: temp}
	if err := l.fill(now); err != nil {
		return nil, errors.Join(fmt.Errorf("make logs for the clean-up: %w", err), l.remove())
	}
	return l, nil
}

func (l *demoLogs) fill(now time.Time) error {
	real, err := filepath.EvalSymlinks(l.temp) // a link is no root
	if err != nil {
		return err
	}
	l.root = filepath.Join(real, "logs")
	line := []byte(strings.Repeat("a line of a log\n", logBytes/16))
	for _, service := range []string{"api", "audit", "web"} {
		if err := os.MkdirAll(filepath.Join(l.root, service), 0o750); err != nil {
			return err
		}
		for age := range logAges + 1 { // the one of age 0 is being written
			name := service + "/" + service + ".log"
			if age > 0 {
				name += fmt.Sprintf(".%d", age)
			}
			if age <= cleanDays || service == "audit" {
				l.stay = append(l.stay, name)
			}
			file := filepath.Join(l.root, filepath.FromSlash(name))
			// An hour less, so that none is on the edge.
			then := now.Add(-time.Duration(age) * 24 * time.Hour).Add(time.Hour)
			if age == 0 {
				then = now
			}
			if err := errors.Join(os.WriteFile(file, line, 0o640), os.Chtimes(file, then, then)); err != nil {
				return err
			}
			l.made++
		}
	}
	slices.Sort(l.stay)
	return nil
}

func (l *demoLogs) remove() error { return os.RemoveAll(l.temp) }

// old is how many are to be removed.
func (l *demoLogs) old() int { return l.made - len(l.stay) }

// check compares what is there now with what is to be left; nothing to say is right.
func (l *demoLogs) check() (wrong []string, err error) {
	var there []string
	err = fs.WalkDir(os.DirFS(l.root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			there = append(there, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the logs that are left: %w", err)
	}
	for _, path := range there {
		if !slices.Contains(l.stay, path) {
			wrong = append(wrong, "log "+path+" is old and is still there")
		}
	}
	for _, path := range l.stay {
		if !slices.Contains(there, path) {
			wrong = append(wrong, "log "+path+" was to be kept and is gone")
		}
	}
	return wrong, nil
}
