//go:build unix

package killtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clocks are the files of the engine that read the machine's clock, and why none of them is
// about the time of the day: the database's clock leads. A server's now is what the database
// said at its last renewal, and the monotonic clock since.
var clocks = map[string]string{
	"internal/cluster/cluster.go":  "how long ago the lease was renewed, by the monotonic clock and beside it by how far the wall clock has moved: either may stand still while a machine sleeps",
	"internal/commit/committer.go": "when a commit ended, so that what follows from it is not published too late",
	"server/server.go":             "ms since the server's start",
	"server/perform.go":            "how long ago a commit ended",
	"server/control.go":            "how long ago a job was read",
	"server/pending.go":            "how long ago an order was sent",
	"server/stray.go":              "how long ago a warning was written",
	"server/retain.go":             "how long a deletion took",
}

// border serves callers: it may tell them the time, and end their sessions by it. It decides
// nothing about work.
const border = "httpapi/"

// wall are what makes a number or a text of a time: the monotonic clock is left out of it.
var wall = map[string]bool{
	"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "Round": true, "Truncate": true, "UTC": true, "Local": true, "In": true,
	"Format": true, "AppendFormat": true, "String": true, "MarshalJSON": true, "MarshalText": true, "MarshalBinary": true, "GobEncode": true,
	"Date": true, "Clock": true, "Year": true, "YearDay": true, "Month": true, "Day": true, "Hour": true, "Minute": true, "Second": true, "Nanosecond": true, "Weekday": true, "Zone": true,
}

// TestNoWallClock shows that clocks of servers that disagree change nothing, as far as reading
// can show it: whoever reads the machine's clock in the engine is in the list above, and makes
// nothing of it that leaves the process. TestManyServers shows it with clocks that disagree.
func TestNoWallClock(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..") // engine
	seen := map[string]bool{}
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, path, nil, 0)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if strings.HasPrefix(name, border) {
			return nil
		}
		for _, decl := range file.Decls {
			if !readsClock(decl) {
				continue
			}
			seen[name] = true
			if clocks[name] == "" {
				t.Errorf("%s reads the machine's clock: take the server's now, or say in the list why it is not the time of the day", positions.Position(decl.Pos()))
			}
			if name == "internal/cluster/cluster.go" {
				continue // its two clocks are told apart on purpose, and only differences come out
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if sel, ok := call.Fun.(*ast.SelectorExpr); ok && wall[sel.Sel.Name] {
						t.Errorf("%s: .%s beside a reading of the clock", positions.Position(call.Pos()), sel.Sel.Name)
					}
				}
				return true
			})
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 50, "the engine was not found")
	for name := range clocks {
		if !seen[name] {
			t.Errorf("%s does not read the clock any more: take it from the list", name)
		}
	}
}

// readsClock tells whether anything in it asks the machine for the time.
func readsClock(d ast.Decl) (yes bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			pkg, ok := sel.X.(*ast.Ident)
			yes = yes || ok && pkg.Name == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Since" || sel.Sel.Name == "Until")
		}
		return !yes
	})
	return yes
}
