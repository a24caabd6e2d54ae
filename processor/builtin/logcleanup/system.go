package logcleanup

import (
	"io/fs"
	"time"
)

// system is what a sweep asks of the operating system beyond os.Root, and the one place where
// tests put failures and races.
type system struct {
	// unlink removes the name in d: a folder if folder is true, and never one if it is false.
	unlink func(d *dir, name string, folder bool) error
	// space is the size of the filesystem and what is free of it for this process.
	space func(d *dir) (free, total int64, err error)
	// mountTop tells whether something is mounted at d, a bind of the same filesystem included.
	mountTop func(d *dir) (bool, error)
	// open lists the files that processes have open, and how many processes hid theirs.
	open func() (files map[fileID]struct{}, hidden int, err error)
}

// realSystem is the one this process runs on.
func realSystem() system {
	return system{unlink: unlink, space: space, mountTop: mountTop, open: openFiles}
}

// footprint is what a file takes on the disk.
type footprint struct {
	id    fileID
	bytes int64  // allocated, which is less than the size of a sparse file
	links uint64 // names it has
	// changed is when its content, names or times were last changed; nobody can set it back.
	changed time.Time
}

// freed is what removing one name gives back: nothing while there are others.
func (f footprint) freed() int64 {
	if f.links > 1 {
		return 0
	}
	return f.bytes
}

// unchanged tells whether a file is as it was, by all that the system says.
func unchanged(was, now fs.FileInfo) bool {
	return was.Mode().Type() == now.Mode().Type() && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime()) &&
		footprintOf(was).id == footprintOf(now).id
}
