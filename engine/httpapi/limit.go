package httpapi

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// waitError says that something was asked too often.
type waitError struct {
	wait time.Duration
	text string
}

// Error tells how long to wait.
func (e *waitError) Error() string {
	return fmt.Sprintf("%s: try again in %s", e.text, max(e.wait.Round(time.Second), time.Second))
}

// Unwrap makes it an engine.ErrLimit.
func (*waitError) Unwrap() error { return engine.ErrLimit }

// limiter lets each key do something burst times at once and then once every so often. It
// knows at most most keys; when it is full of keys that wait, all others are as one, so that
// nobody gets more by coming under many names. It is safe for concurrent use.
type limiter struct {
	burst int
	every time.Duration
	most  int

	mu    sync.Mutex
	full  map[string]time.Time // when the key has all its tries again
	swept time.Time
}

func newLimiter(burst int, every time.Duration, most int) *limiter {
	return &limiter{burst: burst, every: every, most: most, full: map[string]time.Time{}}
}

// take counts one try at the time now; it returns how long to wait if there is none left.
func (l *limiter) take(key string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.full[key]; !known && len(l.full) >= l.most {
		l.sweep(now)
		if len(l.full) >= l.most {
			key = ""
		}
	}
	at := l.full[key]
	if at.Before(now) {
		at = now
	}
	at = at.Add(l.every)
	if wait = at.Sub(now) - time.Duration(l.burst)*l.every; wait > 0 {
		return wait
	}
	l.full[key] = at
	return 0
}

// sweep forgets keys that have all their tries, at most once a second.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for key, at := range l.full {
		if !at.After(now) {
			delete(l.full, key)
		}
	}
}

// network is what one caller is likely to have of addresses: one of IPv4, a /64 of IPv6.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
