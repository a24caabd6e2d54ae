package logcleanup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const maxPattern = 1024 // bytes

// glob is a pattern over the path of a file relative to the root. Matching takes at most the
// product of both lengths, whatever the pattern: stars go back to the last star only.
type glob struct {
	text  string
	parts []globPart // between the slashes
}

// globPart is one component: deep for **, else tokens.
type globPart struct {
	deep   bool
	tokens []token
}

type tokenKind int

const (
	tokenOne     tokenKind = iota // one certain rune
	tokenAny                      // ?
	tokenStar                     // *
	tokenClass                    // [...]
	tokenOutside                  // [!...]
)

type token struct {
	kind   tokenKind
	r      rune
	ranges []rune // pairs of first and last
}

var (
	errNoLiteral = errors.New("it names nothing; name at least one letter or digit, such as **/*.log, so that no pattern means everything")
	errBraces    = errors.New(`{ and } are not supported; write one pattern for each choice, or \{ for the character`)
)

// parseGlob compiles a pattern.
func parseGlob(p string) (glob, error) {
	g := glob{text: p}
	switch {
	case p == "":
		return g, errors.New("it is empty")
	case len(p) > maxPattern:
		return g, fmt.Errorf("it has %d bytes, at most %d are allowed", len(p), maxPattern)
	case p[0] == '/':
		return g, errors.New("it begins with /, but patterns are relative to the root")
	case strings.ContainsRune(p, 0):
		return g, errors.New("it has a NUL byte")
	case !utf8.ValidString(p):
		return g, errors.New("it is not UTF-8")
	}
	for text := range strings.SplitSeq(p, "/") {
		switch text {
		case "":
			return g, errors.New("it has an empty component")
		case ".", "..":
			return g, fmt.Errorf("it has the component %s, which no path below the root has", text)
		case "**":
			g.parts = append(g.parts, globPart{deep: true})
			continue
		}
		tokens, err := parsePart(text)
		if err != nil {
			return g, err
		}
		g.parts = append(g.parts, globPart{tokens: tokens})
	}
	if last := len(g.parts) - 1; g.parts[last].deep { // a/** is what lies below a, not a
		g.parts = append(g.parts, globPart{tokens: []token{{kind: tokenStar}}})
	}
	return g, nil
}

func parsePart(text string) ([]token, error) {
	var out []token
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch r {
		case '*':
			if strings.HasPrefix(text, "**") {
				return nil, errors.New("** must stand alone between slashes, as in a/**/b")
			}
			out = append(out, token{kind: tokenStar})
		case '?':
			out = append(out, token{kind: tokenAny})
		case '{', '}':
			return nil, errBraces
		case '[':
			t, size, err := parseClass(text)
			if err != nil {
				return nil, err
			}
			out, n = append(out, t), size
		case '\\':
			e, size := utf8.DecodeRuneInString(text[1:])
			if size == 0 {
				return nil, errors.New(`it ends with \, which makes the next character an ordinary one`)
			}
			out, n = append(out, token{r: e}), 1+size
		default:
			out = append(out, token{r: r})
		}
		text = text[n:]
	}
	return out, nil
}

// parseClass reads [abc], [a-z] or [!a-z] and tells its length.
func parseClass(text string) (token, int, error) {
	bad := errors.New("it has a [ whose class is empty, reversed or never closed by ]; write \\[ for the character")
	t := token{kind: tokenClass}
	at := 1
	if at < len(text) && (text[at] == '!' || text[at] == '^') {
		t.kind = tokenOutside
		at++
	}
	next := func() (rune, bool) {
		if at < len(text) && text[at] == '\\' {
			at++
		}
		r, n := utf8.DecodeRuneInString(text[at:])
		at += n
		return r, n > 0
	}
	for {
		if at >= len(text) {
			return t, 0, bad
		}
		if text[at] == ']' {
			break
		}
		first, ok := next()
		last := first
		if ok && at+1 < len(text) && text[at] == '-' && text[at+1] != ']' {
			at++
			last, ok = next()
		}
		if !ok || last < first {
			return t, 0, bad
		}
		t.ranges = append(t.ranges, first, last)
	}
	if len(t.ranges) == 0 {
		return t, 0, bad
	}
	return t, at + 1, nil
}

// literal tells whether the pattern names at least one letter or digit.
func (g glob) literal() bool {
	for _, p := range g.parts {
		for _, t := range p.tokens {
			if t.kind == tokenOne && !strings.ContainsRune(".-_ ", t.r) {
				return true
			}
		}
	}
	return false
}

// match tells whether the pattern fits the whole path, given as its components.
func (g glob) match(path []string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(path) {
		switch {
		case i < len(g.parts) && g.parts[i].deep:
			star, mark = i, j
			i++
		case i < len(g.parts) && g.parts[i].match(path[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return !slices.ContainsFunc(g.parts[i:], func(p globPart) bool { return !p.deep })
}

// excludes is match for an exclude: one without a slash fits the last name at any depth.
func (g glob) excludes(path []string) bool {
	if len(g.parts) == 1 {
		path = path[len(path)-1:]
	}
	return g.match(path)
}

func (p globPart) match(s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		if i < len(p.tokens) && p.tokens[i].kind == tokenStar {
			star, mark = i, j
			i++
			continue
		}
		r, n := nextRune(s[j:])
		switch {
		case i < len(p.tokens) && p.tokens[i].match(r):
			i, j = i+1, j+n
		case star >= 0:
			_, n := nextRune(s[mark:])
			mark += n
			i, j = star+1, mark
		default:
			return false
		}
	}
	return !slices.ContainsFunc(p.tokens[i:], func(t token) bool { return t.kind != tokenStar })
}

// nextRune gives a byte that is no UTF-8 as a negative number: ? and * fit it, no literal does.
func nextRune(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return -1 - rune(s[0]), 1
	}
	return r, n
}

func (t token) match(r rune) bool {
	switch t.kind {
	case tokenAny:
		return true
	case tokenClass, tokenOutside:
		in := false
		for i := 0; i < len(t.ranges); i += 2 {
			in = in || t.ranges[i] <= r && r <= t.ranges[i+1]
		}
		return in == (t.kind == tokenClass)
	case tokenOne:
		return r == t.r
	default:
		return false
	}
}
