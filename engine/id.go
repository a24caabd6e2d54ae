package engine

// An id is 41 bits of milliseconds since IDEpoch, 10 bits of server number, 12 bits of
// sequence: it grows with time, fits in a positive int64 and lasts to 2095.
const (
	IDEpoch = 1767225600000 // 2026-01-01T00:00:00Z
	// IDTimeShift is how far the time in an id is shifted.
	IDTimeShift = 22
)

// IDTime is the time in an id, epoch ms. It may be some seconds ahead of the clock, or
// behind it.
func IDTime(id int64) int64 { return id>>IDTimeShift + IDEpoch }

// FirstID is the lowest id of that time, epoch ms; 0 before IDEpoch.
func FirstID(at int64) int64 { return max(at-IDEpoch, 0) << IDTimeShift }
