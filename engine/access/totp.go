package access

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/fanjet/fanjet/engine"
)

// TOTPSize is how many random bytes the key of a second factor has (RFC 4226, R6: 160 bits).
const TOTPSize = 20

const (
	totpStep   = 30_000 // ms
	totpDigits = 6
)

// totp is the code of a step (RFC 6238, 4.2; RFC 4226, 5.3).
func totp(key []byte, step int64, digits int, algorithm func() hash.Hash) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	mac := hmac.New(algorithm, key)
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0x0f
	n := binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
	mod := uint32(1)
	for range digits {
		mod *= 10
	}
	code := strconv.FormatUint(uint64(n%mod), 10)
	return strings.Repeat("0", digits-len(code)) + code
}

// VerifyTOTP finds the step whose code it is (RFC 6238 with SHA-1, 30 s, 6 digits, as
// authenticator apps have it): that of now, the one before or the one after (5.2). A step
// that is not above lastStep was taken already and counts no more. The step returned is for
// engine.UserStore.EndLogin, which takes it once for all servers.
func VerifyTOTP(key []byte, code string, now, lastStep int64) (int64, error) {
	code = strings.ReplaceAll(code, " ", "")
	current := now / totpStep
	found := int64(-1)
	for _, step := range []int64{current - 1, current, current + 1} {
		if subtle.ConstantTimeCompare([]byte(totp(key, max(step, 0), totpDigits, sha1.New)), []byte(code)) == 1 && step > lastStep && found < 0 {
			found = step
		}
	}
	if len(key) == 0 || found < 0 {
		return 0, fmt.Errorf("the code is wrong, or was used already: wait for the next: %w", ErrUnauthenticated)
	}
	return found, nil
}

// TOTPURI is what an authenticator app reads from a QR code (the key URI format).
func TOTPURI(key [TOTPSize]byte, issuer, user string) string {
	secret := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(key[:])
	issuer = engine.CutText(issuer, engine.MaxName)
	return "otpauth://totp/" + percent(issuer, "") + ":" + percent(user, "@") + "?secret=" + secret + "&issuer=" + percent(issuer, "") +
		"&algorithm=SHA1&digits=" + strconv.Itoa(totpDigits) + "&period=30"
}
