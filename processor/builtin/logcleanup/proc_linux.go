package logcleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const knowsOpenFiles = true

// maxOpenFiles bounds the memory for open files: 16 bytes each and the map around them.
const maxOpenFiles = 2_000_000

// mountTop asks by handle; only this finds a folder of the same filesystem bound elsewhere.
func mountTop(d *dir) (bool, error) {
	var st unix.Statx_t
	err := d.control(func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	})
	if errors.Is(err, unix.ENOSYS) {
		return false, nil // the sweep compares devices as well
	}
	if err != nil {
		return false, fmt.Errorf("ask whether something is mounted: %w", err)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// openFiles reads the descriptors of every process. Those of other users' processes are hidden
// from a worker that is not root; mapped files without a descriptor are not seen.
func openFiles() (files map[fileID]struct{}, hidden int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	files = map[fileID]struct{}{}
	for _, pid := range names {
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		err := openOf("/proc/"+pid+"/fd", files)
		switch {
		case errors.Is(err, fs.ErrPermission):
			hidden++
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
			return nil, 0, fmt.Errorf("list open files: %w", err)
		}
	}
	return files, hidden, nil
}

func openOf(folder string, files map[fileID]struct{}) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	fds, err := f.Readdirnames(-1)
	for _, fd := range fds {
		path := folder + "/" + fd
		// Sockets and pipes are told by the text of the link, without a look at them.
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "/dev/pts/") {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if files[footprintOf(info).id] = struct{}{}; len(files) > maxOpenFiles {
			return fmt.Errorf("more than %d files are open on this machine", maxOpenFiles)
		}
	}
	return err
}

func changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
