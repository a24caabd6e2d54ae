package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of stored text, in bytes of UTF-8. What comes through the door (names, params,
// keys) is refused over its bound; what a run produced (errors) is cut with a mark, so that
// a report never fails for its text.
const (
	MaxName       = 63
	MaxTitle      = 255
	MaxText       = 4 << 10 // descriptions, reasons
	MaxKey        = 255
	MaxParams     = 256 << 10
	MaxResult     = 256 << 10
	MaxContext    = 1 << 20
	MaxError      = 16 << 10
	MaxStack      = 32 << 10
	MaxCheckpoint = 64 << 10
	MaxDefinition = 8 << 20
	MaxNodeID     = 128
)

// CheckText refuses text over its bound, with a NUL byte, or that is not UTF-8.
func CheckText(what, s string, bound int) error {
	switch {
	case len(s) > bound:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed: %w", what, len(s), bound, ErrTooLarge)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8: %w", what, ErrInvalid)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%s contains a NUL byte: %w", what, ErrInvalid)
	}
	return nil
}

// CheckBytes refuses a value over its bound.
func CheckBytes(what string, b []byte, bound int) error {
	if len(b) > bound {
		return fmt.Errorf("%s has %d bytes, at most %d are allowed: %w", what, len(b), bound, ErrTooLarge)
	}
	return nil
}

// CutText makes text of any origin storable: valid UTF-8 without NUL, at most bound bytes,
// with a mark that says how much was cut.
func CutText(s string, bound int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= bound {
		return s
	}
	mark := fmt.Sprintf(" … [cut, %d bytes in all]", len(s))
	if len(mark) > bound { // room for less than the mark: the bound comes first
		mark = ""
	}
	cut := bound - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}

// ValidName tells whether s may name an app, pool, worker, job or workflow:
// [a-z0-9][a-z0-9_-]{0,62}.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// CheckName is ValidName as an error that says what is wrong.
func CheckName(what, s string) error {
	if !ValidName(s) {
		return fmt.Errorf("%s %q: 1 to %d of a-z, 0-9, _ and -, starting with a letter or digit: %w", what, s, MaxName, ErrInvalid)
	}
	return nil
}
