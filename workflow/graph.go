package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dominikbraun/graph"
)

// Edge is one edge of a graph, between two nodes by index.
type Edge struct {
	From, To int
	// When is the choice of a decision that the edge is for; empty from every other node.
	When Choice
}

// Graph is a checked workflow: its nodes by index (their order in the definition), its edges,
// and its compiled expressions. It is immutable and safe for concurrent use.
type Graph struct {
	def       *Definition
	index     map[string]int
	parents   [][]Edge
	children  [][]Edge
	roots     []int
	order     []int
	decisions map[int]*program
	choices   map[int][]Choice  // of a decision: the values its edges are for
	templates []*template       // params
	lists     map[int]*template // for_each
	times     map[int]*template // until
	refs      [][]int           // nodes whose results the expressions of a node read
}

// Len is the number of nodes.
func (g *Graph) Len() int { return len(g.def.Nodes) }

// Edges is the number of edges.
func (g *Graph) Edges() int {
	n := 0
	for _, p := range g.parents {
		n += len(p)
	}
	return n
}

// Definition is what the graph was built from; it must not be changed.
func (g *Graph) Definition() *Definition { return g.def }

// Index finds a node by its id.
func (g *Graph) Index(id string) (int, bool) {
	i, ok := g.index[id]
	return i, ok
}

// Node is the node with index i; it must not be changed.
func (g *Graph) Node(i int) *Node { return &g.def.Nodes[i] }

// Parents are the incoming edges of node i in the order of its needs; read only.
func (g *Graph) Parents(i int) []Edge { return g.parents[i] }

// Children are the outgoing edges of node i, by the index of their targets; read only.
func (g *Graph) Children(i int) []Edge { return g.children[i] }

// Roots are the nodes without incoming edges, by index; read only.
func (g *Graph) Roots() []int { return g.roots }

// Order is a topological order of all nodes, the same for the same definition; read only.
func (g *Graph) Order() []int { return g.order }

// References are the nodes whose results the expressions of node i read: what Params and
// Decide need in Env.Nodes. All of them are upstream of i. Read only.
func (g *Graph) References(i int) []int { return g.refs[i] }

// Failure is the on_failure of node i after defaults.
func (g *Graph) Failure(i int) OnFailure { return g.def.Failure(i) }

// builder collects the problems of a Build.
type builder struct {
	*Graph
	problems Problems
}

func (b *builder) fail(node int, path, format string, args ...any) {
	at := b.def.at(node, path)
	b.problems = append(b.problems, Problem{
		File: b.def.file(), Line: at.line, Column: at.column, Node: clip(b.def.Nodes[node].ID), Message: fmt.Sprintf(format, args...),
	})
}

// Build checks the graph and the expressions of a definition and compiles them. Everything
// wrong is reported at once as Problems: unknown nodes, self and double edges, cycles (by
// their path), edges of decisions, expressions the guard refuses, and references to what is
// not declared or not upstream.
func Build(d *Definition) (*Graph, error) {
	if len(d.Nodes) == 0 || len(d.Nodes) > MaxNodes {
		return nil, Problems{{File: d.file(), Message: fmt.Sprintf("a workflow has 1 to %d nodes, this one has %d", MaxNodes, len(d.Nodes))}}
	}
	n := len(d.Nodes)
	b := &builder{Graph: &Graph{
		def: d, index: make(map[string]int, n), parents: make([][]Edge, n), children: make([][]Edge, n),
		decisions: map[int]*program{}, choices: map[int][]Choice{}, templates: make([]*template, n), refs: make([][]int, n),
		lists: map[int]*template{}, times: map[int]*template{},
	}}
	dag, edges := b.connect()
	if edges > MaxEdges {
		return nil, Problems{{File: d.file(), Message: fmt.Sprintf("the workflow has more than %d edges", MaxEdges)}}
	}
	b.decisionEdges()
	acyclic := b.sort()
	if !acyclic {
		b.cycles(dag)
	}
	b.compile(acyclic)
	if err := b.problems.err(); err != nil {
		return nil, err
	}
	return b.Graph, nil
}

// connect fills the graph library, which knows about double and unknown ends, and the edges
// by index. No PreventCycles: it is quadratic. The library knows node i as i+1: its search
// for components loses the vertex with the zero key.
func (b *builder) connect() (graph.Graph[int, int], int) {
	dag := graph.New(graph.IntHash, graph.Directed())
	for i, node := range b.def.Nodes {
		if first, ok := b.index[node.ID]; ok {
			b.fail(i, "", "the id is used twice, first by node %d", first)
			continue
		}
		b.index[node.ID] = i
	}
	for i := range b.def.Nodes {
		_ = dag.AddVertex(i + 1) // the indexes are distinct
	}
	ids := make([]string, 0, len(b.index))
	edges := 0
	for to, node := range b.def.Nodes {
		edges += len(node.Needs)
		if edges > MaxEdges {
			return dag, edges
		}
		for k, need := range node.Needs {
			path := "needs/" + strconv.Itoa(k)
			from, ok := b.index[need.Node]
			if !ok {
				if len(ids) == 0 && len(b.problems) < maxProblems {
					for id := range b.index {
						ids = append(ids, id)
					}
					slices.Sort(ids)
				}
				b.fail(to, path, "needs an unknown node %q%s", clip(need.Node), closest(need.Node, ids[:min(len(ids), maxProblems)]))
				continue
			}
			if from == to {
				b.fail(to, path, "needs itself: %s -> %s", node.ID, node.ID)
				continue
			}
			if err := dag.AddEdge(from+1, to+1); errors.Is(err, graph.ErrEdgeAlreadyExists) {
				b.fail(to, path, "there are two edges from %q", need.Node)
				continue
			} else if err != nil {
				b.fail(to, path, "the edge from %q: %v", need.Node, err)
				continue
			}
			e := Edge{From: from, To: to, When: need.When}
			b.parents[to] = append(b.parents[to], e)
			b.children[from] = append(b.children[from], e)
		}
		if len(node.Needs) == 0 {
			b.roots = append(b.roots, to)
		}
	}
	return dag, edges
}

// decisionEdges checks when: every edge of a decision has one, no other edge has, and the
// values of one decision are either bools, or strings and numbers.
func (b *builder) decisionEdges() {
	for to, node := range b.def.Nodes {
		for k, need := range node.Needs {
			from, ok := b.index[need.Node]
			if !ok {
				continue
			}
			path := "needs/" + strconv.Itoa(k)
			decision := b.def.Nodes[from].Decision()
			switch {
			case decision && need.When == "":
				b.fail(to, path, "%q is a decision; say for which choice with {node: %s, when: true}", need.Node, need.Node)
			case !decision && need.When != "":
				b.fail(to, path, "%q is not a decision; only edges of a decision have when", need.Node)
			case decision:
				chosen := b.choices[from]
				if len(chosen) > 0 && isBool(chosen[0]) != isBool(need.When) {
					b.fail(to, path, "when: %s does not go with when: %s of another edge of %q; use either bools, or strings and numbers",
						clip(string(need.When)), clip(string(chosen[0])), need.Node)
					continue
				}
				if !slices.Contains(chosen, need.When) {
					b.choices[from] = append(chosen, need.When)
				}
			}
		}
	}
}

// waysOut refuses a decision that nothing follows, and edges for values that its expression
// can never give.
func (b *builder) waysOut(i int, p *program) {
	choices := b.choices[i]
	if len(choices) == 0 {
		if len(b.children[i]) == 0 {
			b.fail(i, "", "the decision has no way out: no node needs it; add {node: %s, when: …} to the needs of one", b.def.Nodes[i].ID)
		}
		return
	}
	if p == nil || p.kind == "" {
		return
	}
	if p.kind == formOther {
		b.fail(i, "expr", "expression %q: gives null, a list or an object; a decision must give a bool, a string or a number", clip(strings.TrimSpace(p.source)))
		return
	}
	fits := func(c Choice) bool { return formOfChoice(c) == p.kind }
	some := p.kind != formBool && slices.ContainsFunc(choices, fits)
	for _, e := range b.children[i] {
		if e.When == "" || fits(e.When) || some && !isBool(e.When) {
			continue
		}
		for k, need := range b.def.Nodes[e.To].Needs {
			if need.Node == b.def.Nodes[i].ID {
				b.fail(e.To, "needs/"+strconv.Itoa(k), "when: %s can never be: the decision %q gives a %s", clip(string(need.When)), need.Node, p.kind)
			}
		}
	}
}

func isBool(c Choice) bool { return c == "true" || c == "false" }

// sort is Kahn's algorithm; it reports whether all nodes could be ordered.
func (b *builder) sort() bool {
	n := b.Len()
	open := make([]int, n)
	b.order = make([]int, 0, n)
	for i := range open {
		if open[i] = len(b.parents[i]); open[i] == 0 {
			b.order = append(b.order, i)
		}
	}
	for at := 0; at < len(b.order); at++ {
		for _, e := range b.children[b.order[at]] {
			if open[e.To]--; open[e.To] == 0 {
				b.order = append(b.order, e.To)
			}
		}
	}
	return len(b.order) == n
}

// maxPath bounds how many nodes of a cycle a message names.
const maxPath = 20

// cycles names one shortest cycle of every strongly connected component.
func (b *builder) cycles(dag graph.Graph[int, int]) {
	components, err := graph.StronglyConnectedComponents(dag)
	if err != nil {
		b.fail(0, "", "the workflow has a cycle: %v", err)
		return
	}
	named := 0
	for _, c := range components {
		if len(c) < 2 {
			continue
		}
		named++
		slices.Sort(c)
		for k := range c {
			c[k]-- // back to indexes
		}
		path := b.cycle(c)
		names := make([]string, 0, len(path))
		for _, i := range path {
			names = append(names, b.def.Nodes[i].ID)
		}
		if len(names) > maxPath {
			rest := fmt.Sprintf("… %d more …", len(names)-maxPath)
			names = append(append(names[:maxPath-1:maxPath-1], rest), names[len(names)-1])
		}
		b.fail(c[0], "", "the workflow has a cycle: %s", strings.Join(names, " -> "))
	}
	if named == 0 { // Invariant: nothing that could not be ordered is let through.
		b.fail(0, "", "the workflow has a cycle")
	}
}

// cycle is the shortest way from the first node of a component back to itself.
func (b *builder) cycle(component []int) []int {
	start := component[0]
	within := make(map[int]bool, len(component))
	for _, i := range component {
		within[i] = true
	}
	from := map[int]int{}
	queue := []int{start}
	for at := 0; at < len(queue); at++ {
		for _, e := range b.children[queue[at]] {
			if e.To == start {
				path := []int{start}
				for i := queue[at]; i != start; i = from[i] {
					path = append(path, i)
				}
				path = append(path, start)
				slices.Reverse(path)
				return path
			}
			if _, seen := from[e.To]; !seen && within[e.To] {
				from[e.To] = queue[at]
				queue = append(queue, e.To)
			}
		}
	}
	return []int{start}
}

// compile compiles every expression and checks what it refers to.
func (b *builder) compile(acyclic bool) {
	exprs := newExprCompiler()
	declared := make([]string, 0, len(b.def.Params))
	for name := range b.def.Params {
		declared = append(declared, name)
	}
	slices.Sort(declared)
	var far []reference
	for i := range b.def.Nodes {
		node := &b.def.Nodes[i]
		found := func(path string, p *program, err error) {
			if err != nil {
				b.fail(i, path, "%v", err)
				return
			}
			for _, name := range p.params {
				if _, ok := b.def.Params[name]; !ok {
					b.fail(i, path, "expression %q: the workflow declares no param %q%s", clip(strings.TrimSpace(p.source)), clip(name), closest(name, declared))
				}
			}
			far = b.references(far, i, path, p)
		}
		if node.Decision() {
			p, err := exprs.compile(node.Expr)
			found("expr", p, err)
			b.decisions[i] = p
			b.waysOut(i, p)
			continue
		}
		c := templateCompiler{exprs: exprs, found: found}
		template := func(path string, raw json.RawMessage) *template {
			t, err := c.compile(path, raw)
			if err != nil {
				b.fail(i, path, "%v", err)
			}
			return t
		}
		b.templates[i] = template("params", node.Spec.Params)
		b.values(i, template)
	}
	if acyclic {
		b.upstream(far)
	}
}

// reference is a use of the result of a node that is no direct parent.
type reference struct {
	user, used int
	path       string
	source     string
}

func (b *builder) references(far []reference, i int, path string, p *program) []reference {
	for _, id := range p.nodes {
		used, ok := b.index[id]
		if !ok {
			b.fail(i, path, "expression %q: there is no node %q%s", clip(strings.TrimSpace(p.source)), clip(id), b.dashed(id))
			continue
		}
		if !slices.Contains(b.refs[i], used) {
			b.refs[i] = append(b.refs[i], used)
		}
		if !slices.ContainsFunc(b.parents[i], func(e Edge) bool { return e.From == used }) {
			far = append(far, reference{i, used, path, p.source})
		}
	}
	return far
}

// dashed explains nodes.my-list.result, which subtracts.
func (b *builder) dashed(id string) string {
	for i := range b.def.Nodes {
		if other := b.def.Nodes[i].ID; strings.HasPrefix(other, id+"-") {
			return fmt.Sprintf("; a node with a dash is written nodes[%q].result", other)
		}
	}
	return ""
}

// upstream refuses references to nodes that need not be final before their user is decided.
// It walks the order once for every 64 referenced nodes.
func (b *builder) upstream(refs []reference) {
	for len(refs) > 0 {
		bits := map[int]uint64{}
		taken := 0
		for ; taken < len(refs); taken++ {
			if _, ok := bits[refs[taken].used]; !ok {
				if len(bits) == 64 {
					break
				}
				bits[refs[taken].used] = 1 << len(bits)
			}
		}
		above := make([]uint64, b.Len())
		for _, i := range b.order {
			for _, e := range b.parents[i] {
				above[i] |= above[e.From] | bits[e.From]
			}
		}
		for _, r := range refs[:taken] {
			if above[r.user]&bits[r.used] == 0 {
				b.fail(r.user, r.path, "expression %q: node %q is not upstream; add it to needs", clip(strings.TrimSpace(r.source)), b.def.Nodes[r.used].ID)
			}
		}
		refs = refs[taken:]
	}
}
