//go:build darwin || freebsd

package logcleanup

import (
	"syscall"
	"time"
)

func changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctimespec.Unix()) }
