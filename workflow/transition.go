package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table is a transition table: the only legal moves of a status. The zero Table allows
// nothing. A Table is immutable after NewTable and safe for concurrent use.
type Table[S interface {
	cmp.Ordered
	fmt.Stringer
}] struct {
	noun  string
	moves map[S][]S
	all   []S
}

// NewTable builds the table of a noun from the moves that are legal: from each key to each
// of its values. A status without an entry, or with an empty one, is final.
func NewTable[S interface {
	cmp.Ordered
	fmt.Stringer
}](noun string, moves map[S][]S) Table[S] {
	t := Table[S]{noun: noun, moves: map[S][]S{}}
	seen := map[S]bool{}
	for from, tos := range moves {
		seen[from] = true
		for _, to := range tos {
			seen[to] = true
		}
		t.moves[from] = slices.Sorted(slices.Values(tos))
	}
	for s := range seen {
		t.all = append(t.all, s)
	}
	slices.Sort(t.all)
	return t
}

// Statuses are all statuses of the table, in their order.
func (t Table[S]) Statuses() []S { return slices.Clone(t.all) }

// Terminal tells whether nothing leads on from s.
func (t Table[S]) Terminal(s S) bool { return len(t.moves[s]) == 0 }

// Can tells whether the move is legal. Staying is not a move.
func (t Table[S]) Can(from, to S) bool { return slices.Contains(t.moves[from], to) }

// Check is nil for a legal move and a *TransitionError otherwise.
func (t Table[S]) Check(from, to S) error {
	if t.Can(from, to) {
		return nil
	}
	return &TransitionError{Noun: t.noun, From: from.String(), To: to.String()}
}

// Mermaid draws the table as a state diagram, the same text for the same table.
func (t Table[S]) Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, from := range t.all {
		for _, to := range t.moves[from] {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
	}
	for _, s := range t.all {
		if t.Terminal(s) {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}

// TransitionError is a move that its table does not hold.
type TransitionError struct{ Noun, From, To string }

// Error names the noun and the move.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s cannot move from %s to %s", e.Noun, e.From, e.To)
}
