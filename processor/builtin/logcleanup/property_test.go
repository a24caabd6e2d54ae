//go:build linux

package logcleanup

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// entry is a file or link of a random tree.
type entry struct {
	path     string
	age      time.Duration
	size     int
	link     bool
	dangling bool
}

// Patterns, and what they mean in plain words.
var includes = map[string]func(p string) bool{
	"**/*.log": func(p string) bool { return strings.HasSuffix(p, ".log") },
	"*.log":    func(p string) bool { return strings.HasSuffix(p, ".log") && !strings.Contains(p, "/") },
	"a/**":     func(p string) bool { return strings.HasPrefix(p, "a/") },
	"**/x*":    func(p string) bool { return strings.HasPrefix(path.Base(p), "x") },
	"**/a/*.1": func(p string) bool { return strings.HasSuffix(p, ".1") && path.Base(path.Dir(p)) == "a" },
}

var excludes = map[string]func(p string) bool{
	"x1.log": func(p string) bool { return path.Base(p) == "x1.log" },
	"b":      func(p string) bool { return slices.Contains(strings.Split(p, "/"), "b") },
	"a/b":    func(p string) bool { return p == "a/b" || strings.HasPrefix(p, "a/b/") },
	"*.1":    func(p string) bool { return strings.HasSuffix(p, ".1") },
}

func drawTree(t *rapid.T) []entry {
	var out []entry
	taken := map[string]bool{}
	for range rapid.IntRange(0, 25).Draw(t, "entries") {
		folders := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "folders")
		name := rapid.SampledFrom([]string{"x1.log", "x2.log", "y.log", "y.log.1", "-z.log", "z\n.log", "\xff.log"}).Draw(t, "name")
		e := entry{
			path: path.Join(append(folders, name)...),
			age:  time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * day,
			size: rapid.SampledFrom([]int{0, 100, 5000}).Draw(t, "size"),
			link: rapid.IntRange(0, 5).Draw(t, "link") == 0,
		}
		e.dangling = e.link && rapid.Bool().Draw(t, "dangling")
		if !taken[e.path] {
			taken[e.path] = true
			out = append(out, e)
		}
	}
	return out
}

// oracle says which paths go, by the definition: filters joined by "and", oldest first.
func oracle(tree []entry, params map[string]any) []string {
	chosen := func(e entry) bool {
		if ex, ok := params["exclude"]; ok && slices.ContainsFunc(ex.([]string), func(x string) bool { return excludes[x](e.path) }) {
			return false
		}
		return slices.ContainsFunc(params["include"].([]string), func(x string) bool { return includes[x](e.path) })
	}
	byAge := func(a, b entry) int {
		if a.age != b.age {
			return int((b.age - a.age) / day)
		}
		return strings.Compare(a.path, b.path)
	}
	tree = slices.Clone(tree)
	slices.SortFunc(tree, byAge)
	newest := map[string]bool{}
	if n, ok := params["keep_newest"]; ok {
		left := map[string]int{}
		for _, e := range slices.Backward(tree) {
			group := ""
			if params["keep_newest_per"] == PerFolder {
				group = path.Dir(e.path)
			}
			if !e.link && chosen(e) && left[group] < n.(int) {
				left[group]++
				newest[e.path] = true
			}
		}
	}
	out := []string{}
	for _, e := range tree {
		age, _ := params["older_than"].(string)
		days := 0
		_, _ = fmt.Sscanf(age, "%dd", &days)
		size := e.size
		if e.link {
			size = len("/nowhere")
			if !e.dangling {
				size = len("/etc")
			}
		}
		switch {
		case !chosen(e), newest[e.path]:
		case e.age < time.Duration(days)*day, age == "" && e.age < time.Minute:
		case params["larger_than"] != nil && size <= 1000:
		case e.link && (!e.dangling || params["links"] != LinksRemoveDangling):
		case params["max_files"] != nil && len(out) >= params["max_files"].(int):
		default:
			out = append(out, e.path)
		}
	}
	return out
}

// The set of what is cleaned equals that of the oracle, in any batch size; a dry run says the same
// and changes nothing.
func TestCleansExactlyWhatTheFiltersSay(t *testing.T) {
	t.Parallel()
	base := newPlace(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		p := &place{t: t, base: base.base, root: filepath.Join(base.root, fmt.Sprint(n)), now: base.now}
		p.cleaner = newCleaner(Config{Roots: []string{base.root}, Now: func() time.Time { return p.now }})
		p.cleaner.batch = rapid.SampledFrom([]int{1, 2, 5, 1000}).Draw(rt, "batch")
		p.cleaner.sys.open = func() (map[fileID]struct{}, int, error) { return nil, 0, nil }
		require.NoError(rt, os.Mkdir(p.root, 0o755))
		defer os.RemoveAll(p.root)
		tree := drawTree(rt)
		want := []string{}
		for _, e := range tree {
			switch {
			case e.dangling:
				p.link("/nowhere", e.path, e.age)
			case e.link:
				p.link("/etc", e.path, e.age)
			default:
				p.file(e.path, e.age, e.size)
			}
			want = append(want, e.path)
		}
		params := map[string]any{
			"include":    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"**/*.log", "*.log", "a/**", "**/x*", "**/a/*.1"}), 1, 2, rapid.ID).Draw(rt, "include"),
			"older_than": fmt.Sprintf("%dd", rapid.IntRange(1, 20).Draw(rt, "older_than")),
		}
		some := func(key string, v any) {
			if rapid.Bool().Draw(rt, "with "+key) {
				params[key] = v
			}
		}
		some("exclude", rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x1.log", "b", "a/b", "*.1"}), 1, 2, rapid.ID).Draw(rt, "exclude"))
		some("larger_than", "1000")
		some("links", LinksRemoveDangling)
		some("max_files", rapid.IntRange(1, 5).Draw(rt, "max_files"))
		if some("keep_newest", rapid.IntRange(1, 4).Draw(rt, "keep_newest")); params["keep_newest"] != nil {
			some("keep_newest_per", PerFolder)
			some("older_than", nil) // then only what was written just now is young
		}
		gone := oracle(tree, params)
		want = slices.DeleteFunc(want, func(path string) bool { return slices.Contains(gone, path) })
		slices.Sort(want)

		dry := p.run(with(params, "dry_run", true))
		require.Len(rt, p.entries(), len(tree))
		rep := p.run(params)
		require.Equal(rt, want, p.entries(), "%v", params)
		require.EqualValues(rt, len(gone), rep.Files+rep.Links)
		require.Zero(rt, rep.Errors)
		require.Equal(rt, []int64{rep.Files, rep.Links, rep.Bytes, rep.Seen}, []int64{dry.Files, dry.Links, dry.Bytes, dry.Seen})
		kept := int64(0)
		for _, k := range rep.Kept {
			kept += k
		}
		if params["exclude"] == nil { // a folder kept whole counts once
			require.EqualValues(rt, len(tree)-len(gone), kept, "everything that stays has a reason: %v", rep.Kept)
		}
	})
}

func with(params map[string]any, key string, v any) map[string]any {
	out := map[string]any{key: v}
	for k, v := range params {
		out[k] = v
	}
	return out
}

// entries is left without the folders.
func (p *place) entries() []string {
	return slices.DeleteFunc(p.left(), func(path string) bool { return strings.HasSuffix(path, "/") })
}
