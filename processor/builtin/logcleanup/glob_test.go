package logcleanup

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func mustGlob(t testing.TB, p string) glob {
	t.Helper()
	g, err := parseGlob(p)
	require.NoError(t, err, p)
	return g
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pattern, fits, fitsNot string }{
		{"*.log", "a.log|.log|a.b.log|-rf.log|a\nb.log|\xff\xfe.log", "a/b.log|a.log.1|a.LOG"},
		{"**/*.log", "a.log|a/b.log|a/b/c/d.log", "a.log/b|a/b.txt"},
		{"a/**", "a/b|a/b/c", "a|b/a/c|ab/c"},
		{"**/a/**", "a/b|x/a/b|x/y/a/b/c", "a|x/a|x/b"},
		{"a/**/z", "a/z|a/b/z|a/b/c/z", "a|z|a/zz|b/a/z"},
		{"**/a/**/b/**/c", "a/b/c|x/a/y/b/z/c|a/a/b/b/c/c", "a/c/b|b/a/c"},
		{"?.log", "a.log|é.log|\xff.log", ".log|ab.log"},
		{"[a-c]x", "ax|bx|cx", "dx|x|aax"},
		{"[!a-c]x", "dx|éx|\xffx", "ax|x"},
		{"[^a]x", "bx", "ax"},
		{`[\]a]x`, "]x|ax", "bx"},
		{"[a-]x", "-x|ax", "bx"},
		{`\*\{x\}`, "*{x}", "a{x}"},
		{"app.log.*", "app.log.1|app.log.2.gz", "app.log|xapp.log.1"},
		{"*a*b*c*", "abc|xaxbxcx|aabbcc", "acb|ab"},
	} {
		g := mustGlob(t, c.pattern)
		for p := range strings.SplitSeq(c.fits, "|") {
			require.True(t, g.match(strings.Split(p, "/")), "%s must fit %q", c.pattern, p)
		}
		for p := range strings.SplitSeq(c.fitsNot, "|") {
			require.False(t, g.match(strings.Split(p, "/")), "%s must not fit %q", c.pattern, p)
		}
	}
	for _, bad := range []string{"", "/a", "a//b", "./a", "a/../b", "a**", "**a", "[", "[]", "[a", "[z-a]", `[a\`, `a\`, "{a,b}", "a}", "a\x00", strings.Repeat("a", maxPattern+1), "a/"} {
		_, err := parseGlob(bad)
		require.Error(t, err, "%q", bad)
	}
	for _, everything := range []string{"*", "**", "**/*", ".*", "*.*", "?*", "?", "[!a]*", "**/.*", "-*", "*/*"} {
		require.False(t, mustGlob(t, everything).literal(), everything)
	}
	require.True(t, mustGlob(t, "**/*.log").literal())
}

func TestExcludeErrsOnTheSideOfKeeping(t *testing.T) {
	t.Parallel()
	require.True(t, mustGlob(t, "keep.log").excludes([]string{"a", "b", "keep.log"}))
	require.False(t, mustGlob(t, "keep.log").match([]string{"a", "b", "keep.log"}))
	require.True(t, mustGlob(t, "a/b").excludes([]string{"a", "b"}))
	require.False(t, mustGlob(t, "a/b").excludes([]string{"x", "a", "b"}))
}

// A hostile pattern costs no more than the product of the lengths.
func TestGlobIsNotExponential(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	g := mustGlob(t, strings.Repeat("*a", 500))
	require.False(t, g.match([]string{strings.Repeat("a", 4000) + "b"}))
	g = mustGlob(t, strings.Repeat("**/a/", 200)+"b")
	require.False(t, g.match(strings.Split(strings.Repeat("a/", 2000)+"c", "/")))
	require.Less(t, time.Since(begun), 5*time.Second)
}

// asRegexp says the same in another language.
func (g glob) asRegexp() string {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i, p := range g.parts {
		if p.deep {
			b.WriteString(`(?:[^/]+/)*`)
			continue
		}
		for _, t := range p.tokens {
			switch t.kind {
			case tokenOne:
				b.WriteString(regexp.QuoteMeta(string(t.r)))
			case tokenAny:
				b.WriteString(`[^/]`)
			case tokenStar:
				b.WriteString(`[^/]*`)
			default:
				var set strings.Builder
				for i := 0; i < len(t.ranges); i += 2 {
					set.WriteString(`\x{` + hexOf(t.ranges[i]) + `}-\x{` + hexOf(t.ranges[i+1]) + `}`)
				}
				if t.kind == tokenOutside {
					b.WriteString(`[^/` + set.String() + `]`)
				} else {
					b.WriteString(`[` + set.String() + `]`)
				}
			}
		}
		if i < len(g.parts)-1 {
			b.WriteString("/")
		}
	}
	return b.String() + `\z`
}

func hexOf(r rune) string {
	const digits = "0123456789abcdef"
	var out string
	for ; r > 0 || out == ""; r /= 16 {
		out = string(digits[r%16]) + out
	}
	return out
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{
		{"**/*.log", "a/b.log"}, {"a/**", "a/b"}, {"[a-z]?*", "abc"}, {`\**`, "*x"}, {"**/a/**/b", "a/a/b"}, {"[!\n]x", "\xffx"}, {"**/**", "a"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := parseGlob(pattern)
		parts := strings.Split(path, "/")
		for _, p := range parts {
			if p == "" || len(path) > 4096 {
				return
			}
		}
		if err != nil {
			return
		}
		g.excludes(parts)
		got := g.match(parts)
		// The regexp takes a byte that is no UTF-8 for U+FFFD, and a class may reach / and beyond.
		if !utf8.ValidString(path) || strings.ContainsRune(pattern+path, '\uFFFD') || strings.Contains(pattern, "[") && strings.Contains(pattern, "-") {
			return
		}
		re, err := regexp.Compile(g.asRegexp())
		require.NoError(t, err, g.asRegexp())
		require.Equal(t, re.MatchString(path), got, "%q on %q", pattern, path)
	})
}
