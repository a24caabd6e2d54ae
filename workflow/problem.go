package workflow

import (
	"fmt"
	"sort"
	"strings"
)

// maxProblems bounds how many problems one call reports; the last one says that there are more.
const maxProblems = 100

// Problem is one thing wrong with a workflow document.
type Problem struct {
	// File is the name given to Parse.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; Column counts characters. Both are 0 when the definition
	// was not read from a file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Node is the id of the node concerned; empty when the document as a whole is.
	Node string `json:"node,omitempty"`
	// Message says what is wrong and what to do.
	Message string `json:"message"`
}

// String is "file:line:column: node \"x\": message", leaving out what is not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		b.WriteByte(':')
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Node != "" {
		fmt.Fprintf(&b, "node %q: ", p.Node)
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is everything found wrong in one pass, sorted by position. It is the error type
// of Parse and Build; use errors.As to reach the single ones.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// err sorts the problems and returns them as an error, nil when there is none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	sort.SliceStable(ps, func(i, j int) bool {
		if ps[i].Line != ps[j].Line {
			return ps[i].Line < ps[j].Line
		}
		return ps[i].Column < ps[j].Column
	})
	if len(ps) > maxProblems {
		more := len(ps) - maxProblems
		last := Problem{File: ps[0].File, Message: fmt.Sprintf("and %d more problems", more)}
		ps = append(ps[:maxProblems:maxProblems], last)
	}
	return ps
}

// position is a place in a document; the zero value is "not known".
type position struct{ line, column int }

// closest returns a did-you-mean hint such as `; did you mean "timeout"?`, or "".
func closest(word string, candidates []string) string {
	best, bestDistance := "", 3
	if len(word) <= 3 {
		bestDistance = 2
	}
	for _, c := range candidates {
		if d := distance(word, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the edit distance of two short words, two letters swapped counting as one
// edit; limit when it is at least that.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var m [65][65]int
	for i := 0; i <= len(a); i++ {
		for j := 0; j <= len(b); j++ {
			if i == 0 || j == 0 {
				m[i][j] = i + j
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			m[i][j] = min(m[i-1][j]+1, m[i][j-1]+1, m[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				m[i][j] = min(m[i][j], m[i-2][j-2]+1)
			}
		}
	}
	return m[len(a)][len(b)]
}
