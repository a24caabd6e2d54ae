package engine_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/fanjet/fanjet/"

// source is one Go file of the module, whatever its build constraints.
type source struct {
	path    string // from the module's root, with slashes
	pkg     string // its directory
	test    bool   // a _test.go file
	lines   int
	syntax  *ast.File
	imports []string
}

// inTestPackage tells whether the package is there for tests alone, as net/http/httptest is.
func (s source) inTestPackage() bool { return strings.HasSuffix(path.Base(s.pkg), "test") }

// production tells whether programs link the file.
func (s source) production() bool { return !s.test && !s.inTestPackage() }

var positions = token.NewFileSet()

// at is where a node stands, for a message.
func at(n ast.Node) string {
	p := positions.Position(n.Pos())
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// sources parses all Go files of the module once. They are read as files and not through
// the go command, so that a cached test result ends when one of them changes.
var sources = sync.OnceValues(func() ([]source, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	var all []source
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch base := d.Name(); {
			case name != root && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules"):
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), lines: bytes.Count(text, []byte("\n"))}
		s.pkg = path.Dir(s.path)
		if s.syntax, err = parser.ParseFile(positions, s.path, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		for _, spec := range s.syntax.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		all = append(all, s)
		return nil
	})
	return all, err
})

func allSources(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	require.NoError(t, err)
	require.Greater(t, len(all), 100, "the walk has not found the module")
	return all
}

// texts calls each with every string literal of the file.
func (s source) texts(each func(lit *ast.BasicLit, text string)) {
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			// Neither a path nor a struct's tag is a text. A func literal's fields hold no code.
			_, spec := n.(*ast.ImportSpec)
			return !spec && n.(*ast.Field).Tag == nil
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if text, err := strconv.Unquote(n.Value); err == nil {
					each(n, text)
				}
			}
		}
		return true
	})
}

// uses calls each with every selector on an imported package: its path and the name.
func (s source) uses(each func(n ast.Node, path, name string)) {
	byName := map[string]string{}
	for i, spec := range s.syntax.Imports {
		p := s.imports[i]
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = p
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && byName[x.Name] != "" {
				each(sel, byName[x.Name], sel.Sel.Name)
			}
		}
		return true
	})
}

// findings are all that is wrong, so that one run of a test shows it all.
type findings []string

func (f *findings) when(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

func (f *findings) report(t *testing.T) {
	t.Helper()
	for _, finding := range *f {
		t.Error(finding)
	}
}
