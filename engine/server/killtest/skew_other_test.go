//go:build unix && !(linux && amd64)

package killtest

import (
	"errors"
	"time"
)

// skew can move the wall clock of a process on other systems.
func skew(by time.Duration) error {
	if by == 0 {
		return nil
	}
	return errors.ErrUnsupported
}
