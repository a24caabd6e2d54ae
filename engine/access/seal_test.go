package access_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

var (
	oldKey = access.FormatKey("k1", [32]byte{1})
	newKey = access.FormatKey("k2", [32]byte{2})
)

func ring(t require.TestingT, lines ...string) *access.Keyring {
	k, err := access.ParseKeyring([]byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return k
}

func TestSeal(t *testing.T) {
	t.Parallel()
	k := ring(t, "# of today", "", oldKey)
	require.Equal(t, "k1", k.Current())
	label := access.SecretLabel(7, "db-password")
	box, err := k.Seal(label, []byte("hunter2"), [access.SealRandom]byte{1, 2, 3})
	require.NoError(t, err)
	require.NotContains(t, string(box), "hunter2")
	require.Equal(t, "k1", access.KeyOf(box))
	got, err := k.Open(label, box)
	require.NoError(t, err)
	require.Equal(t, "hunter2", string(got))
	for _, other := range []access.Label{access.SecretLabel(8, "db-password"), access.SecretLabel(7, "db-passwor"), access.TOTPLabel(7)} {
		_, err := k.Open(other, box)
		require.ErrorIs(t, err, engine.ErrInvalid, "a row stands in for another")
	}
	_, err = k.Seal(label, make([]byte, engine.MaxSecret+1), [access.SealRandom]byte{})
	require.ErrorIs(t, err, engine.ErrTooLarge)

	// Rotation: the new key comes first, the old one may go once all is wrapped anew.
	both := ring(t, newKey, oldKey)
	moved, err := both.Rewrap(label, box, [access.WrapRandom]byte{9})
	require.NoError(t, err)
	require.Equal(t, "k2", access.KeyOf(moved))
	for _, keys := range []*access.Keyring{both, ring(t, newKey)} {
		got, err := keys.Open(label, moved)
		require.NoError(t, err)
		require.Equal(t, "hunter2", string(got))
	}
	_, err = ring(t, newKey).Open(label, box)
	require.ErrorContains(t, err, `"k1"`)
	_, err = ring(t, newKey).Rewrap(label, box, [access.WrapRandom]byte{9})
	require.ErrorIs(t, err, engine.ErrInvalid)
	_, err = ring(t, access.FormatKey("k1", [32]byte{3})).Open(label, box)
	require.ErrorIs(t, err, engine.ErrInvalid, "another key of that id")
	_, err = both.Rewrap(access.SecretLabel(8, "x"), box, [access.WrapRandom]byte{9})
	require.ErrorIs(t, err, engine.ErrInvalid)
}

func TestSealedBytesCannotBeChanged(t *testing.T) {
	t.Parallel()
	k := ring(t, newKey, oldKey)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "value")
		random := [access.SealRandom]byte(rapid.SliceOfN(rapid.Byte(), access.SealRandom, access.SealRandom).Draw(t, "random"))
		label := access.SecretLabel(rapid.Int64().Draw(t, "app"), rapid.String().Draw(t, "name"))
		box, err := k.Seal(label, value, random)
		require.NoError(t, err)
		got, err := k.Open(label, box)
		require.NoError(t, err)
		require.True(t, bytes.Equal(value, got))
		i := rapid.IntRange(0, len(box)-1).Draw(t, "at")
		changed := bytes.Clone(box)
		changed[i] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		_, err = k.Open(label, changed)
		require.ErrorIs(t, err, engine.ErrInvalid)
		_, err = k.Open(label, box[:i])
		require.ErrorIs(t, err, engine.ErrInvalid)
	})
}

func TestParseKeyring(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "# none", "k1", "k1:AAAA", "K1:" + oldKey[3:], oldKey + "\n" + oldKey, strings.Repeat("x", 1<<17)} {
		_, err := access.ParseKeyring([]byte(bad))
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.NotContains(t, err.Error(), oldKey[3:20])
	}
	require.NotContains(t, fmt.Sprintf("%v", ring(t, oldKey).Current()), oldKey[3:20])
}

func FuzzOpen(f *testing.F) {
	k := ring(f, newKey)
	label := access.SecretLabel(1, "x")
	good, err := k.Seal(label, []byte("value"), [access.SealRandom]byte{4})
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte{1})
	f.Add([]byte{1, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if value, err := k.Open(label, b); err == nil {
			require.Equal(t, "value", string(value))
			require.Equal(t, good, b)
		}
	})
}

func FuzzMaskJSON(f *testing.F) {
	f.Add([]byte(`{"a":["needle-in-it",{"password":"needle-in-it"}]}`))
	f.Add([]byte(`"needle-in-it`))
	m := access.NewMasker("needle-in-it")
	f.Fuzz(func(t *testing.T, b []byte) {
		require.NotContains(t, string(m.JSON(b)), "needle-in-it")
	})
}
