package access

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"

	"github.com/fanjet/fanjet/engine"
)

// SaltSize is how many random bytes a password is hashed with (RFC 9106, 3.1).
const SaltSize = 16

const tagSize = 32

// HashParams are the costs of argon2id.
type HashParams struct {
	Memory  uint32 // KiB
	Passes  uint32
	Threads uint8
}

// DefaultHash is the first choice of the OWASP Password Storage Cheat Sheet for argon2id: 19
// MiB, 2 passes, 1 thread. Each hash that is computed at the same time takes its own 19 MiB,
// so bound how many are.
var DefaultHash = HashParams{Memory: 19 << 10, Passes: 2, Threads: 1}

// What an encoded password may ask for; more would be an attack by whoever wrote it.
const (
	maxMemory  = 256 << 10
	maxPasses  = 16
	maxThreads = 16
	minMemory  = 8
)

// phc is an encoded password, read.
type phc struct {
	HashParams
	salt, tag []byte
}

// HashPassword encodes a password with a random salt, as a PHC string of argon2id (RFC 9106):
// $argon2id$v=19$m=19456,t=2,p=1$salt$tag.
func HashPassword(password string, salt [SaltSize]byte, params HashParams) string {
	h := phc{HashParams: params, salt: salt[:]}
	h.tag = h.compute(password, tagSize)
	return h.String()
}

// VerifyPassword tells whether it is the password that was encoded, in time that does not
// depend on how much of it is right. An encoded text that cannot be read is an error, one
// that is empty verifies nothing.
func VerifyPassword(password, encoded string) (bool, error) {
	if encoded == "" {
		return NoPassword(password), nil
	}
	h, err := parsePHC(encoded)
	if err != nil {
		return false, err
	}
	return len(password) <= maxPassword && subtle.ConstantTimeCompare(h.compute(password, uint32(len(h.tag))), h.tag) == 1, nil
}

// NoPassword takes as long as to verify one, for a user that does not exist, so that nobody
// can tell by the time. It is always false.
func NoPassword(password string) bool {
	h := phc{HashParams: DefaultHash, salt: make([]byte, SaltSize)}
	h.compute(password[:min(len(password), maxPassword)], tagSize)
	return false
}

// NeedsRehash tells whether an encoded password that has just been verified was made with
// other costs, so that it is encoded anew.
func NeedsRehash(encoded string, params HashParams) bool {
	h, err := parsePHC(encoded)
	return err != nil || h.HashParams != params || len(h.salt) != SaltSize || len(h.tag) != tagSize
}

func (h *phc) compute(password string, size uint32) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.Passes, h.Memory, h.Threads, size)
}

// String is the encoded form.
func (h *phc) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.Memory, h.Passes, h.Threads,
		base64.RawStdEncoding.EncodeToString(h.salt), base64.RawStdEncoding.EncodeToString(h.tag))
}

// parsePHC reads what String writes, and nothing else. No error shows the text.
func parsePHC(text string) (*phc, error) {
	bad := func(what string) (*phc, error) {
		return nil, fmt.Errorf("encoded password: %s: %w", what, engine.ErrInvalid)
	}
	parts := strings.Split(text, "$")
	if len(text) > 512 || len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return bad("want $argon2id$v=19$m=,t=,p=$salt$tag")
	}
	if parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return bad("another version of argon2")
	}
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return bad("costs")
	}
	var n [3]uint64
	for i, name := range []string{"m=", "t=", "p="} {
		digits, ok := strings.CutPrefix(costs[i], name)
		v, err := strconv.ParseUint(digits, 10, 32)
		if !ok || err != nil {
			return bad("costs")
		}
		n[i] = v
	}
	if n[0] > maxMemory || n[1] < 1 || n[1] > maxPasses || n[2] < 1 || n[2] > maxThreads || n[0] < minMemory*n[2] {
		return bad("costs out of bounds")
	}
	h := &phc{HashParams: HashParams{Memory: uint32(n[0]), Passes: uint32(n[1]), Threads: uint8(n[2])}}
	var err error
	if h.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4]); err != nil || len(h.salt) < 8 || len(h.salt) > 64 {
		return bad("salt")
	}
	if h.tag, err = base64.RawStdEncoding.Strict().DecodeString(parts[5]); err != nil || len(h.tag) < 16 || len(h.tag) > 64 {
		return bad("tag")
	}
	if h.String() != text {
		return bad("not as it is written")
	}
	return h, nil
}
