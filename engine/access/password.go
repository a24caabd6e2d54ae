package access

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fanjet/fanjet/engine"
)

// maxPassword bounds what is hashed, in bytes.
const maxPassword = 1024

// PasswordRules say what a password must be. Length counts more than what it is made of (NIST
// SP 800-63B, 5.1.1.2); kinds of characters and an age are there for who must show them
// (GB/T 22239-2019, 8.1.4.1 a).
type PasswordRules struct {
	MinLength int   // characters; default 12, never less than 8
	MinKinds  int   // of lower case, upper case, digits, others; default 0
	MaxAge    int64 // ms until it must be changed; default 0, never
}

// commonPasswords are those that are guessed first and would be long enough, and what longer
// ones are often made of.
var commonPasswords = []string{
	"password", "passw0rd", "p@ssword", "p@ssw0rd", "qwerty", "qwertyuiop", "1q2w3e4r", "1qaz2wsx", "zaq12wsx", "asdfghjkl", "zxcvbnm",
	"letmein", "welcome", "iloveyou", "administrator", "admin", "root", "changeme", "default", "secret", "master", "monkey", "dragon",
	"football", "baseball", "sunshine", "princess", "superman", "batman", "trustno1", "whatever", "abc123", "hunter2", "woaini",
	"5201314", "fanjet", "correcthorsebatterystaple", "test", "guest", "login", "access", "mustang", "shadow", "michael", "internet",
}

// CheckPassword refuses a password that the user of that name may not have. No error shows
// the password.
func (r PasswordRules) CheckPassword(password, name string) error {
	least := max(r.MinLength, 8)
	if r.MinLength == 0 {
		least = 12
	}
	switch {
	case len(password) > maxPassword:
		return fmt.Errorf("the password has %d bytes, at most %d are allowed: %w", len(password), maxPassword, engine.ErrTooLarge)
	case !utf8.ValidString(password):
		return fmt.Errorf("the password is not valid UTF-8: %w", engine.ErrInvalid)
	case strings.ContainsFunc(password, unicode.IsControl):
		return fmt.Errorf("the password contains a control character: %w", engine.ErrInvalid)
	case utf8.RuneCountInString(password) < least:
		return fmt.Errorf("the password is too short: %d characters or more, a sentence will do: %w", least, engine.ErrInvalid)
	case kinds(password) < r.MinKinds:
		return fmt.Errorf("the password needs %d of: lower case, upper case, digits, others: %w", r.MinKinds, engine.ErrInvalid)
	}
	lower := strings.ToLower(password)
	local, _, _ := strings.Cut(name, "@")
	for _, own := range []string{name, local} {
		if len(own) >= 3 && strings.Contains(lower, own) {
			return fmt.Errorf("the password contains the user's name: %w", engine.ErrInvalid)
		}
	}
	if poor(lower) {
		return fmt.Errorf("the password is one of those that are guessed first: take some words that nobody has put together: %w", engine.ErrInvalid)
	}
	return nil
}

// Expired tells whether a password that was set then must be changed: set MustChange of the
// user before OfSession, if so.
func (r PasswordRules) Expired(setAt, now int64) bool { return r.MaxAge > 0 && now-setAt > r.MaxAge }

func kinds(s string) int {
	var lower, upper, digit, other int
	for _, c := range s {
		switch {
		case unicode.IsLower(c):
			lower = 1
		case unicode.IsUpper(c):
			upper = 1
		case unicode.IsDigit(c):
			digit = 1
		default:
			other = 1
		}
	}
	return lower + upper + digit + other
}

// poor tells whether nothing of worth is left once common words, runs as abcd or 4321 and
// what is repeated are taken out.
func poor(lower string) bool {
	for _, w := range commonPasswords {
		for strings.Contains(lower, w) && len(w) >= 4 {
			lower = strings.Replace(lower, w, "\x00", 1)
		}
	}
	left, seen := 0, map[rune]bool{}
	last, step := rune(-1), rune(0)
	for _, c := range lower {
		if c == 0 {
			last, step = -1, 0
			continue
		}
		d := c - last
		run := last >= 0 && (d == 0 || (d == 1 || d == -1) && (d == step || step == 0))
		if !run {
			left++
		}
		if last >= 0 {
			step = d
		}
		last = c
		seen[c] = true
	}
	return left < 5 || len(seen) < 5
}
