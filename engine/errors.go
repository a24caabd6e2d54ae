package engine

import "errors"

// Errors of the ports. An implementation wraps them; callers match with errors.Is.
var (
	// ErrNotFound: no such row.
	ErrNotFound = errors.New("not found")
	// ErrConflict: a unique fact exists already, or the row has moved on.
	ErrConflict = errors.New("conflict")
	// ErrLimit: as many as may are under way.
	ErrLimit = errors.New("limit reached")
	// ErrFenced: the shard has another owner or epoch; the Change was dropped.
	ErrFenced = errors.New("shard is owned by another server")
	// ErrInvalid: the caller's input breaks a rule; the text says which.
	ErrInvalid = errors.New("invalid")
	// ErrForbidden: the caller may not do it; the text says who may.
	ErrForbidden = errors.New("forbidden")
	// ErrTooLarge: over a stated bound; the text has the sizes.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable: the database or the broker cannot be reached now.
	ErrUnavailable = errors.New("unavailable")
)
