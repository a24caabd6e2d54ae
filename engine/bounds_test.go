package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
)

func TestCutText(t *testing.T) {
	t.Parallel()
	t.Run("at its bound text stays whole, one byte over it is marked", func(t *testing.T) {
		t.Parallel()
		const bound = 100
		for _, n := range []int{0, 1, bound - 1, bound} {
			s := strings.Repeat("a", n)
			require.Equal(t, s, engine.CutText(s, bound))
		}
		cut := engine.CutText(strings.Repeat("a", bound+1), bound)
		require.Len(t, cut, bound)
		require.Contains(t, cut, "[cut, 101 bytes in all]")
	})
	t.Run("a rune is kept whole or not at all", func(t *testing.T) {
		t.Parallel()
		for bound := 40; bound < 60; bound++ {
			cut := engine.CutText(strings.Repeat("😀", 30), bound)
			require.True(t, utf8.ValidString(cut))
			require.LessOrEqual(t, len(cut), bound)
			kept, _, ok := strings.Cut(cut, " … ")
			require.True(t, ok)
			require.Empty(t, strings.Trim(kept, "😀"))
		}
	})
	t.Run("NUL and invalid bytes are replaced", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "a\uFFFDb\uFFFDc", engine.CutText("a\x00b\xff\xfec", 100))
	})
	t.Run("replacing makes text longer, and the bound still holds", func(t *testing.T) {
		t.Parallel()
		cut := engine.CutText(strings.Repeat("a\xff", 50), 100)
		require.LessOrEqual(t, len(cut), 100)
		require.Contains(t, cut, "[cut, 200 bytes in all]")
	})
	t.Run("any text becomes storable", rapid.MakeCheck(func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		bound := rapid.IntRange(0, 300).Draw(t, "bound")
		cut := engine.CutText(s, bound)
		require.NoError(t, engine.CheckText("text", cut, bound))
		require.Equal(t, cut, engine.CutText(cut, bound), "what was cut is not cut again")
		if engine.CheckText("text", s, bound) == nil {
			require.Equal(t, s, cut, "what fits is not touched")
		}
	}))
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	require.NoError(t, engine.CheckText("the title", "", 0))
	require.NoError(t, engine.CheckText("the title", strings.Repeat("x", engine.MaxTitle), engine.MaxTitle))
	require.NoError(t, engine.CheckText("the title", "作业 😀\t\r\n", engine.MaxTitle))
	err := engine.CheckText("the title", strings.Repeat("é", 128), engine.MaxTitle)
	require.ErrorIs(t, err, engine.ErrTooLarge)
	require.EqualError(t, err, "the title has 256 bytes, at most 255 are allowed: too large")
	require.ErrorIs(t, engine.CheckText("the title", "a\x00", engine.MaxTitle), engine.ErrInvalid)
	require.ErrorIs(t, engine.CheckText("the title", "\xed\xa0\x80", engine.MaxTitle), engine.ErrInvalid, "half a surrogate pair")

	require.NoError(t, engine.CheckBytes("the params", make([]byte, 10), 10))
	require.ErrorIs(t, engine.CheckBytes("the params", make([]byte, 11), 10), engine.ErrTooLarge)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "0", "reports", "a_b-c", strings.Repeat("x", engine.MaxName)} {
		require.True(t, engine.ValidName(name), "%q", name)
		require.NoError(t, engine.CheckName("app", name))
	}
	for _, name := range []string{"", "A", "_a", "-a", "a b", "a.b", "a>", "a*", "é", "a\x00", strings.Repeat("x", engine.MaxName+1)} {
		require.False(t, engine.ValidName(name), "%q", name)
		err := engine.CheckName("app", name)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("app %q: 1 to 63 of", name))
	}
}
