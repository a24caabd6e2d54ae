package logcleanup

import (
	"syscall"

	"github.com/fanjet/fanjet/processor"
)

// NewReadOnly is New on a disk that refuses every removal.
func NewReadOnly(c Config) processor.Processor {
	out := newCleaner(c)
	out.sys.unlink = func(*dir, string, bool) error { return syscall.EROFS }
	return out
}
