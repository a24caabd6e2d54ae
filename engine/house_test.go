package engine_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// One home each: SQL in storage, subjects in broker/subject.go.
func TestOneHomeEach(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	sql := regexp.MustCompile(`^\s*(SELECT\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|CREATE\s+(TABLE|INDEX|UNIQUE)|ALTER\s+TABLE|DROP\s+(TABLE|INDEX)|PRAGMA\s)`)
	subject := regexp.MustCompile(`^(task|stage|result|report|log|beat|ctl|worker|ask|register|event)\.(%|\*|>|$)`)
	for _, s := range allSources(t) {
		if !s.production() {
			continue
		}
		s.texts(func(lit *ast.BasicLit, text string) {
			if s.pkg != "storage" && s.pkg != "processor/builtin/sql" {
				wrong.when(sql.MatchString(text), "%s: %q: SQL is in storage alone", at(lit), text)
			}
			if s.path != "broker/subject.go" {
				wrong.when(subject.MatchString(text), "%s: %q: subjects are in broker/subject.go alone", at(lit), text)
			}
		})
	}
}

func TestFilesAreSmallAndNamedAfterANoun(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	for _, s := range allSources(t) {
		wall := 600
		if !s.production() {
			wall = 900
		}
		wrong.when(s.lines > wall, "%s: %d lines, at most %d: take a noun out into a file of its own", s.path, s.lines, wall)
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
		for _, word := range []string{"util", "utils", "common", "helper", "helpers", "types", "models", "manager", "misc"} {
			wrong.when(word == base, "%s: name the file after the noun in it", s.path)
			wrong.when(word == path.Base(s.pkg), "%s: name the package after what it owns", s.path)
		}
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	open := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, s := range allSources(t) {
		for _, group := range s.syntax.Comments {
			wrong.when(open.MatchString(group.Text()), "%s: do it, or write an issue", at(group))
		}
	}
}

// Tests wait for the event, never for the clock; and the tests that may be skipped are those
// that need a database server or a Python, whose absence is an error where the environment
// has CI.
func TestTestsRunAndDoNotSleep(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	mayskip := map[string]bool{"storage/storagetest/mariadb.go": true, "storage/storagetest/mariadb_other.go": true, "processor/builtin/exec/exec_test.go": true}
	for _, s := range allSources(t) {
		for _, imp := range s.imports {
			wrong.when(imp == "github.com/stretchr/testify/assert", "%s: require, so that a test ends at what is wrong", s.path)
		}
		if s.production() {
			continue
		}
		s.uses(func(n ast.Node, path, name string) {
			wrong.when(path == "time" && name == "Sleep", "%s: wait for the event, not for the clock", at(n))
		})
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && !mayskip[s.path] {
					wrong.when(slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name), "%s: a test that cannot run must fail", at(call))
				}
			}
			return true
		})
	}
}

// Every exported name has a sentence of its own, or stands in a group that has one.
func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	packages := map[string]bool{}
	for _, s := range allSources(t) {
		if s.test {
			continue
		}
		packages[s.pkg] = packages[s.pkg] || s.syntax.Doc != nil
		if s.syntax.Name.Name == "main" {
			continue
		}
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && receiverIsExported(d) {
					wrong.when(d.Doc == nil, "%s: func %s has no doc comment", at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				if d.Tok != token.IMPORT {
					wrong.undocumented(d)
				}
			}
		}
	}
	for pkg, documented := range packages {
		wrong.when(!documented, "package %s has no doc comment", pkg)
	}
}

func (f *findings) undocumented(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				f.when(d.Doc == nil && spec.Doc == nil, "%s: type %s has no doc comment", at(spec), spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					f.when(d.Doc == nil && spec.Doc == nil && spec.Comment == nil, "%s: %s has no doc comment", at(spec), name.Name)
				}
			}
		}
	}
}

func receiverIsExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}
