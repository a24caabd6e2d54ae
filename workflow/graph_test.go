package workflow

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mustBuild(t testing.TB, text string) *Graph {
	t.Helper()
	g, err := Build(mustParse(t, text))
	require.NoError(t, err)
	return g
}

func TestBuild(t *testing.T) {
	t.Parallel()
	g := mustBuild(t, fullDocument)
	require.Equal(t, 4, g.Len())
	require.Equal(t, 3, g.Edges())
	require.Equal(t, []int{0}, g.Roots())
	require.Equal(t, []int{0, 1, 2, 3}, g.Order())
	i, ok := g.Index("pick")
	require.True(t, ok)
	require.Equal(t, []Edge{{From: 1, To: 2, When: "true"}, {From: 1, To: 3, When: "false"}}, g.Children(i))
	require.Equal(t, []Edge{{From: 0, To: 1}}, g.Parents(i))
	require.Equal(t, []int{0}, g.References(i))
	require.Equal(t, "count", g.Node(2).ID)
}

// B01: the order of the nodes in the file has no meaning.
func TestBuild_B01_EveryFileOrder(t *testing.T) {
	t.Parallel()
	nodes := []string{
		"  - {id: a, processor: p}\n", "  - {id: b, processor: p, needs: [a]}\n",
		"  - {id: c, processor: p, needs: [a]}\n", "  - {id: d, processor: p, needs: [b, c]}\n",
	}
	count := 0
	permute(nodes, 0, func(order []string) {
		count++
		g := mustBuild(t, head+"nodes:\n"+strings.Join(order, ""))
		seen := map[string]int{}
		for at, i := range g.Order() {
			seen[g.Node(i).ID] = at
		}
		require.Less(t, seen["a"], seen["b"])
		require.Less(t, seen["a"], seen["c"])
		require.Equal(t, 3, seen["d"])
		require.Equal(t, "a", g.Node(g.Roots()[0]).ID)
	})
	require.Equal(t, 24, count)
}

func permute(s []string, k int, f func([]string)) {
	if k == len(s) {
		f(s)
		return
	}
	for i := k; i < len(s); i++ {
		s[k], s[i] = s[i], s[k]
		permute(s, k+1, f)
		s[k], s[i] = s[i], s[k]
	}
}

// B02: self edges and cycles are found everywhere and named by their path.
func TestBuild_Problems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes string
		want  []string
	}{
		"B02 self edge":          {"a: [a]", []string{`w.yaml:5:35: node "a": needs itself: a -> a`}},
		"B02 cycle":              {"a: [c]; b: [a]; c: [b]", []string{`w.yaml:5:10: node "a": the workflow has a cycle: a -> b -> c -> a`}},
		"B02 unreachable cycle":  {"r: []; a: [b]; b: [a]", []string{"a cycle: a -> b -> a"}},
		"B02 two cycles":         {"a: [b]; b: [a]; c: [d]; d: [c]", []string{"a cycle: a -> b -> a", "a cycle: c -> d -> c"}},
		"B02 shortest of a knot": {"a: [b, c]; b: [a]; c: [b]", []string{"a cycle: a -> b -> a"}},
		"unknown node":           {"list: []; b: [lsit]", []string{`w.yaml:6:35: node "b": needs an unknown node "lsit"; did you mean "list"?`}},
		"double edge":            {"a: []; b: [a, a]", []string{`w.yaml:6:38: node "b": there are two edges from "a"`}},
		"when on a job":          {"a: []; b: [{node: a, when: true}]", []string{`"a" is not a decision`}},
		"decision without when":  {"?a: 1 > 0; b: [a]", []string{`"a" is a decision; say for which choice`}},
		"mixed when":             {"?a: 1 > 0; b: [{node: a, when: true}]; c: [{node: a, when: big}]", []string{`when: "big" does not go with when: true`}},
		"several at once":        {"a: [x]; b: [y]; c: [c]", []string{`unknown node "x"`, `unknown node "y"`, "needs itself"}},
		"unknown in expr":        {"a: []; ?b: nodes.x.result > 1", []string{`there is no node "x"`}},
		"not upstream":           {"a: []; ?b: nodes.a.result > 1", []string{`node "a" is not upstream; add it to needs`}},
		"dash":                   {"my-list: []; ?b: nodes.my-list.result > 1", []string{`nodes["my-list"].result`}},
		"unknown param":          {"?b: params.x > 1", []string{`declares no param "x"`}},
		"unknown name":           {"?b: parms.x > 1", []string{`w.yaml:5:35: node "b": expression "parms.x > 1": unknown name "parms"; did you mean "params"?`}},
		"no way out":             {"a: []; ?b: 1 > 0", []string{`w.yaml:6:10: node "b": the decision has no way out: no node needs it`}},
		"when never":             {"?a: 1 > 0; b: [{node: a, when: big}]", []string{`w.yaml:6:35: node "b": when: "big" can never be: the decision "a" gives a bool`}},
		"gives no choice":        {"?a: \"[1]\"; b: [{node: a, when: true}]", []string{`when: true can never be: the decision "a" gives a string`}},
		"position":               {"?b: len(params) + foo", []string{`expression "len(params) + foo": unknown name "foo"`, "(at character 15)"}},
		"syntax":                 {"?b: 1 >", []string{`expression "1 >": unexpected token EOF`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Build(mustParse(t, quick(c.nodes)))
			require.Error(t, err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := Build(mustParse(t, head+"nodes:\n  - {id: a, processor: p, disabled: true, needs: [b]}\n  - {id: b, processor: p, needs: [a]}\n"))
	require.ErrorContains(t, err, "a -> b -> a", "B02: a cycle through a disabled node")
	_, err = Build(mustParse(t, head+"nodes:\n  - id: a\n    processor: p\n    params:\n      x: [1, \"${ nope }\"]\n      y: \"${ open\"\n"))
	require.ErrorContains(t, err, `w.yaml:8:14: node "a": expression "nope": unknown name "nope"`)
	require.ErrorContains(t, err, `w.yaml:9:10: node "a": a ${ is not closed`)
}

// quick writes a document from "a: [b]; ?c: expr": nodes with needs, and decisions.
func quick(nodes string) string {
	var b strings.Builder
	b.WriteString(head + "nodes:\n")
	for _, n := range strings.Split(nodes, "; ") {
		id, rest, _ := strings.Cut(n, ": ")
		if d, ok := strings.CutPrefix(id, "?"); ok {
			fmt.Fprintf(&b, "  - {id: %s, type: decision, expr: %q}\n", d, rest)
			continue
		}
		fmt.Fprintf(&b, "  - {id: %s, processor: p, needs: %s}\n", id, rest)
	}
	return b.String()
}

func TestBuild_Bounds(t *testing.T) {
	t.Parallel()
	d := &Definition{Kind: KindWorkflow, Name: "w", App: "a", Nodes: make([]Node, MaxNodes+1)}
	_, err := Build(d)
	require.ErrorContains(t, err, "1 to 20000 nodes")
	d = &Definition{Nodes: make([]Node, 500)}
	for i := range d.Nodes {
		d.Nodes[i].ID = fmt.Sprint("n", i)
		for j := range i {
			d.Nodes[i].Needs = append(d.Nodes[i].Needs, Need{Node: fmt.Sprint("n", j)})
		}
	}
	_, err = Build(d)
	require.ErrorContains(t, err, "more than 100000 edges")
	_, err = Build(&Definition{})
	require.Error(t, err)
}

// B20: a chain as deep as a workflow may be, and a cycle as long as one.
func TestBuild_B20_Deep(t *testing.T) {
	t.Parallel()
	d := largeDefinition(MaxNodes, 1)
	g, err := Build(d)
	require.NoError(t, err)
	require.Len(t, g.Order(), MaxNodes)
	d = largeDefinition(MaxNodes, 1)
	d.Nodes[0].Needs = []Need{{Node: d.Nodes[MaxNodes-1].ID}}
	_, err = Build(d)
	require.ErrorContains(t, err, "… 19981 more …")
}

// largeDefinition has n nodes in random file order, each with up to k parents before it.
func largeDefinition(n, k int) *Definition {
	r := rand.New(rand.NewPCG(1, 2))
	d := &Definition{Kind: KindWorkflow, Name: "w", App: "a", Nodes: make([]Node, n)}
	for i := range d.Nodes {
		node := Node{ID: fmt.Sprint("n", i), Spec: Spec{Processor: "p"}}
		seen := map[int]bool{}
		for range min(k, i) {
			j := i - 1
			if k > 1 {
				j = r.IntN(i)
			}
			if !seen[j] {
				node.Needs = append(node.Needs, Need{Node: fmt.Sprint("n", j)})
			}
			seen[j] = true
		}
		d.Nodes[i] = node
	}
	return d
}

func BenchmarkBuild10kNodes(b *testing.B) {
	d := largeDefinition(10_000, 3)
	for b.Loop() {
		_, err := Build(d)
		require.NoError(b, err)
	}
}

func BenchmarkParseAndBuild10kNodesWithExpressions(b *testing.B) {
	var y strings.Builder
	y.WriteString(head + "params: {root: x}\nnodes:\n")
	for i, n := range largeDefinition(10_000, 3).Nodes {
		fmt.Fprintf(&y, "  - id: %s\n    processor: work\n    needs: [", n.ID)
		for _, need := range n.Needs {
			y.WriteString(need.Node + ", ")
		}
		expr := fmt.Sprintf("params.root + %q", n.ID)
		if i > 0 {
			expr = fmt.Sprintf("nodes.%s.result.count + %d > 3 ? params.root : null", n.Needs[0].Node, i)
		}
		fmt.Fprintf(&y, "]\n    params: {root: '${ %s }', n: 3}\n", expr)
	}
	data := []byte(y.String())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		d, err := Parse("w.yaml", data)
		require.NoError(b, err)
		_, err = Build(d)
		require.NoError(b, err)
	}
}

func BenchmarkParse10kNodesJSON(b *testing.B) {
	data, err := json.Marshal(largeDefinition(10_000, 3))
	require.NoError(b, err)
	for b.Loop() {
		_, err := Parse("stored", data)
		require.NoError(b, err)
	}
}

// References over many nodes cost one walk for every 64 of them, not one for each.
func TestBuild_FarReferences(t *testing.T) {
	t.Parallel()
	d := largeDefinition(5_000, 1)
	for i := 200; i < len(d.Nodes); i++ {
		d.Nodes[i].Spec.Params = json.RawMessage(fmt.Sprintf(`"${ nodes.n%d.result }"`, i-150))
	}
	start := time.Now()
	g, err := Build(d)
	require.NoError(t, err)
	require.Equal(t, []int{50}, g.References(200))
	t.Logf("5000 nodes with far references: %v", time.Since(start))
	d.Nodes[300].Spec.Params = json.RawMessage(`"${ nodes.n301.result }"`)
	_, err = Build(d)
	require.ErrorContains(t, err, `node "n301" is not upstream`)
}

// B20: the largest workflow that the bounds allow is read back from its stored form.
func TestParse_B20_Largest(t *testing.T) {
	t.Parallel()
	d := largeDefinition(MaxNodes, 5)
	for i := range d.Nodes {
		d.Nodes[i].Title = "step"
		d.Nodes[i].Spec.Params = json.RawMessage(`{"date":"${ trigger.at }","list":[1,2,3]}`)
	}
	data, err := json.Marshal(d)
	require.NoError(t, err)
	back, err := Parse("stored", data)
	require.NoError(t, err)
	g, err := Build(back)
	require.NoError(t, err)
	require.Greater(t, g.Edges(), 95_000)
}
