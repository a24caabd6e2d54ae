package engine_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrow is a line of the table of arrows.
type arrow struct {
	pkg string
	may []string
}

// arrows says what the files of a package that programs link may import of this module. The
// first line whose pattern fits decides; "/..." stands for the package and all below it.
var arrows = []arrow{
	{"workflow", nil},
	{"engine", []string{"workflow"}},
	{"engine/schedule", []string{"workflow", "engine"}},
	{"engine/access", []string{"engine"}},
	{"engine/api", nil},
	{"engine/httpapi", []string{"engine", "engine/access", "engine/api", "engine/schedule", "engine/server", "workflow"}},
	{"engine/server", []string{"engine", "engine/access", "engine/api", "engine/schedule", "engine/internal/...", "workflow", "broker"}},
	{"engine/internal/...", []string{"engine", "engine/schedule", "workflow", "broker"}},
	{"broker", nil},
	{"broker/embedded", []string{"broker"}},
	{"storage", []string{"engine", "workflow"}},
	{"processor", []string{"broker"}},
	{"processor/builtin/...", []string{"processor", "processor/builtin/internal/...", "broker"}},
	{"ui", nil},
	{"cmd/fanjet/importer", []string{"workflow", "engine/schedule"}},
	{"cmd/...", []string{"cmd/fanjet/importer", "workflow", "engine", "engine/access", "engine/api", "engine/httpapi", "engine/schedule", "engine/server", "broker", "broker/embedded", "storage", "processor", "processor/builtin/...", "ui"}},
	{"examples/10-embedded", []string{"workflow", "engine/server", "broker", "broker/embedded", "storage", "processor"}}, // a whole system, as cmd is
	{"examples/11-schedules", []string{"workflow", "engine/server", "broker", "broker/embedded", "storage", "processor"}},
	{"examples/...", []string{"processor", "processor/builtin/...", "engine/api"}},
}

// outside says which packages may import something heavy, or of the system, from outside.
var outside = []struct {
	path string // and everything below it
	may  []string
}{
	{"github.com/nats-io/nats-server", []string{"broker/embedded"}},
	{"github.com/nats-io/nats.go", []string{"broker", "broker/embedded"}},
	{"database/sql", []string{"storage", "processor/builtin/sql"}},
	{"github.com/uptrace/bun", []string{"storage"}},
	{"github.com/go-sql-driver/mysql", []string{"storage", "processor/builtin/sql"}},
	{"modernc.org/sqlite", []string{"storage", "processor/builtin/sql"}},
	{"github.com/dominikbraun/graph", []string{"workflow"}},
	{"github.com/expr-lang/expr", []string{"workflow"}},
	{"go.yaml.in/yaml", []string{"workflow"}},
	{"golang.org/x/crypto", []string{"engine/access"}},
	{"net/http", []string{"engine/api", "engine/httpapi", "engine/server", "ui", "cmd/...", "processor/builtin/http", "engine/internal/alarm"}},
	{"testing", nil},
	{"github.com/stretchr/testify", nil},
	{"pgregory.net/rapid", nil},
	{"unsafe", nil},
}

func fits(pattern, pkg string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == below || strings.HasPrefix(pkg, below+"/")
	}
	return pkg == pattern
}

func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	used := map[int]bool{}
	for _, s := range allSources(t) {
		if !s.production() {
			continue
		}
		line := slices.IndexFunc(arrows, func(a arrow) bool { return fits(a.pkg, s.pkg) })
		if line < 0 {
			wrong.when(true, "%s: package %s has no line in the table of arrows; decide what it may import", s.path, s.pkg)
			continue
		}
		used[line] = true
		for _, imp := range s.imports {
			own, ok := strings.CutPrefix(imp, module)
			if !ok {
				continue
			}
			wrong.when(!slices.ContainsFunc(arrows[line].may, func(p string) bool { return fits(p, own) }),
				"%s imports %s; %s may import only %v of this module", s.path, own, arrows[line].pkg, arrows[line].may)
		}
		if s.pkg == "engine/api" {
			for _, imp := range s.imports {
				wrong.when(strings.Contains(strings.Split(imp, "/")[0], "."), "%s imports %s; engine/api is of the standard library only", s.path, imp)
			}
		}
	}
	require.Greater(t, len(used), 8, "the table is for another tree")
}

func TestWhatIsHeavyHasOneHome(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	for _, s := range allSources(t) {
		if !s.production() {
			continue
		}
		for _, imp := range s.imports {
			for _, o := range outside {
				if imp != o.path && !strings.HasPrefix(imp, o.path+"/") {
					continue
				}
				wrong.when(!slices.ContainsFunc(o.may, func(p string) bool { return fits(p, s.pkg) }),
					"%s imports %s, which only %v may", s.path, imp, o.may)
			}
		}
	}
}

// Packages that are there for tests may lean on testify and on the parts they set up, but
// what programs link never leans on them; and nothing but a test meets two halves of the
// engine.
func TestTestPackagesStayInTests(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	for _, s := range allSources(t) {
		for _, imp := range s.imports {
			own, ok := strings.CutPrefix(imp, module)
			if !ok {
				continue
			}
			inside := strings.HasPrefix(own, s.pkg+"/") // a part of the program itself
			wrong.when(!inside && (strings.HasPrefix(own, "cmd/") || strings.HasPrefix(own, "examples/")), "%s imports the program %s", s.path, own)
			if strings.HasSuffix(own, "test") {
				wrong.when(s.production(), "%s imports %s, which is for tests", s.path, own)
			}
		}
	}
}

// clocks are the names of package time that ask or wait for a clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// The core takes now and ids as arguments: no clock, no dice, no wires.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	var wrong findings
	defer wrong.report(t)
	pure := []string{"workflow", "engine", "engine/schedule", "engine/access"}
	// These are the owner's decisions: handed the time, and simulated with it. Their wires
	// are interfaces of their own.
	timeless := []string{"engine/internal/track", "engine/internal/flow", "engine/internal/dispatch"}
	wires := []string{"net", "os", "log", "database/sql", "syscall"}
	checked := 0
	for _, s := range allSources(t) {
		isPure := slices.Contains(pure, s.pkg)
		if s.test || !isPure && !slices.Contains(timeless, s.pkg) {
			continue
		}
		checked++
		for _, imp := range s.imports {
			wrong.when(slices.Contains([]string{"math/rand", "math/rand/v2", "crypto/rand"}, imp),
				"%s imports %s: a decision made again must be the same; take what is random as an argument", s.path, imp)
			for _, wire := range wires {
				wrong.when(isPure && fits(wire+"/...", imp), "%s imports %s: a pure package has no wires", s.path, imp)
			}
		}
		s.uses(func(n ast.Node, path, name string) {
			if path == "time" {
				wrong.when(slices.Contains(clocks, name), "%s: time.%s: take the time as an argument", at(n), name)
			}
		})
	}
	require.Greater(t, checked, 20)
}
