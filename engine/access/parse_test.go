package access

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
)

// RFC 6238, appendix B.
func TestTOTPVectors(t *testing.T) {
	t.Parallel()
	const digits = "1234567890"
	for _, c := range []struct {
		size      int
		algorithm func() hash.Hash
		codes     map[int64]string
	}{
		{20, sha1.New, map[int64]string{59: "94287082", 1111111109: "07081804", 1111111111: "14050471", 1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130"}},
		{32, sha256.New, map[int64]string{59: "46119246", 1111111109: "68084774", 1111111111: "67062674", 1234567890: "91819424", 2000000000: "90698825", 20000000000: "77737706"}},
		{64, sha512.New, map[int64]string{59: "90693936", 1111111109: "25091201", 1111111111: "99943326", 1234567890: "93441116", 2000000000: "38618901", 20000000000: "47863826"}},
	} {
		key := []byte(strings.Repeat(digits, 7)[:c.size])
		for at, want := range c.codes {
			require.Equal(t, want, totp(key, at/30, 8, c.algorithm))
		}
	}
}

func TestVerifyTOTP(t *testing.T) {
	t.Parallel()
	key := []byte("12345678901234567890")
	const at = 1111111111_000
	step := int64(at / totpStep)
	for d := int64(-3); d <= 3; d++ {
		got, err := VerifyTOTP(key, totp(key, step+d, totpDigits, sha1.New), at, 0)
		if d < -1 || d > 1 {
			require.ErrorIs(t, err, ErrUnauthenticated)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, step+d, got)
		_, err = VerifyTOTP(key, totp(key, step+d, totpDigits, sha1.New), at, got)
		require.ErrorIs(t, err, ErrUnauthenticated, "a code counts once")
	}
	got, err := VerifyTOTP(key, "050 471", at, 0)
	require.NoError(t, err)
	require.Equal(t, step, got)
	for _, bad := range []string{"", "0", "050472", "14050471", "05047", "０５０４７１", "-50471"} {
		_, err := VerifyTOTP(key, bad, at, 0)
		require.ErrorIs(t, err, ErrUnauthenticated, bad)
	}
	_, err = VerifyTOTP(nil, totp(nil, step, totpDigits, sha1.New), at, 0)
	require.ErrorIs(t, err, ErrUnauthenticated, "no key, no code")
	require.Equal(t, "otpauth://totp/Fan%20jet:ada@x.example?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Fan%20jet&algorithm=SHA1&digits=6&period=30",
		TOTPURI([TOTPSize]byte(key), "Fan jet", "ada@x.example"))
}

func FuzzParsePHC(f *testing.F) {
	good := HashPassword("x", [SaltSize]byte{7}, HashParams{Memory: 8, Passes: 1, Threads: 1})
	for _, seed := range []string{good, good + "$", strings.Replace(good, "m=8", "m=99999999", 1), strings.Replace(good, "t=1", "t=01", 1), "$argon2id$$$$", "", "$2a$10$x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parsePHC(text)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrInvalid)
			return
		}
		require.Equal(t, text, h.String(), "two texts for one hash")
		require.LessOrEqual(t, h.Memory, uint32(maxMemory))
		require.GreaterOrEqual(t, h.Memory, uint32(minMemory))
		require.NotZero(t, h.Passes)
		require.NotZero(t, h.Threads)
	})
}
