package workflow

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// workflowDocument is a Definition as files have it, with edges beside needs.
type workflowDocument struct {
	Definition
	Edges []edge `json:"edges"`
	at    map[string]*yaml.Node
}

func (d *workflowDocument) locate(at map[string]*yaml.Node) { d.at = at }

// edge is an edge written at the top level of a document.
type edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	When Choice `json:"when"`
}

// placed is a node and where its fields stood.
type placed struct {
	nodeWire
	at map[string]*yaml.Node
}

func (p *placed) locate(at map[string]*yaml.Node) { p.at = at }

// Parse reads a workflow document, YAML or JSON; file is the name used in errors. Everything
// wrong with the document itself is reported at once as Problems; Build checks the graph
// and the expressions. A document is at most MaxDocument bytes. Fields:
//
//	kind: Workflow
//	name, app                 required; [a-z0-9][a-z0-9_-]{0,62}
//	title                     free text
//	params                    name: default, or name: {type:, default:, required:}
//	timeout                   such as 10m
//	on_failure                fail (default), continue or skip
//	context_limit             bytes
//	max_running               how many runs may be under way; default any
//	schedule                  when it fires by itself: the fields of Schedule
//	nodes                     list of nodes
//	edges                     list of {from:, to:, when:}, the same as needs
//
// Of every node: id; type; title; needs (ids, or {node:, when:}); join; on_failure; disabled.
// Of a node by its type:
//
//	job (default)    job, or processor with every field of Spec; params; retry; timeout;
//	                 for_each: a list or one ${ } that gives one
//	decision         expr
//	wait             for: a duration, or until: RFC 3339 text, epoch ms, or ${ }
//	signal           signal: its name (default the id); expires; default: what counts as
//	                 the payload when it expires
//	approval         as signal, and roles
//	workflow         workflow: its name; params; timeout
func Parse(file string, data []byte) (*Definition, error) {
	root, p := readTree(file, data)
	if p != nil {
		return nil, Problems{*p}
	}
	d := &decoder{file: file}
	def := d.workflow(root)
	if err := d.problems.err(); err != nil {
		return nil, err
	}
	return def, nil
}

// workflow reads a workflow; what it returns holds only if there are no problems.
func (d *decoder) workflow(root *yaml.Node) *Definition {
	if root.Kind != yaml.MappingNode {
		d.fail(root, "a workflow is a mapping that starts with \"kind: Workflow\", not %s", what(root))
		return nil
	}
	var doc workflowDocument
	nodes := splitNodes(root)
	d.mapping(reflect.ValueOf(&doc).Elem(), root, root, "the workflow")
	def := &doc.Definition
	def.marks = &marks{file: d.file, at: make(map[mark]position)}
	d.header(&doc, root)
	d.nodes(def, nodes, root)
	d.edges(&doc)
	return def
}

// splitNodes takes the list of nodes out of the tree: they are decoded one by one, so that
// every problem can name its node.
func splitNodes(root *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "nodes" {
			nodes := root.Content[i+1]
			root.Content[i+1] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
			return nodes
		}
	}
	return nil
}

// or is the place of a field, or of the thing it is missing from.
func or(n, fallback *yaml.Node) *yaml.Node {
	if n != nil {
		return n
	}
	return fallback
}

func (d *decoder) header(doc *workflowDocument, root *yaml.Node) {
	place := func(field string) *yaml.Node { return or(doc.at[field], root) }
	if doc.Kind != KindWorkflow {
		d.fail(place("kind"), "kind must be %s, it is %q", KindWorkflow, clip(doc.Kind))
	}
	d.name(place("name"), "name", doc.Name)
	d.appName(place("app"), &doc.App)
	d.title(place("title"), doc.Title)
	if doc.MaxRunning < 0 {
		d.fail(place("max_running"), "max_running must not be negative")
	}
	oneOf(d, place("on_failure"), "on_failure", doc.OnFailure, FailureFail, FailureContinue, FailureSkip)
	if doc.ContextLimit < 0 || doc.ContextLimit > MaxContextLimit {
		d.fail(place("context_limit"), "context_limit must be 1 to %d bytes", MaxContextLimit)
	}
	params := place("params")
	if len(doc.Params) > 1000 {
		d.fail(params, "there are %d params, the limit is 1000", len(doc.Params))
	}
	for params.Kind == yaml.AliasNode {
		params = params.Alias
	}
	for i := 0; i+1 < len(params.Content) && params != root; i += 2 {
		key := params.Content[i]
		if p, ok := doc.Params[key.Value]; ok {
			d.checkParam(key, params.Content[i+1], p)
		}
	}
}

func (d *decoder) checkParam(key, value *yaml.Node, p Param) {
	if !paramPattern.MatchString(key.Value) {
		d.fail(key, "the param name %q must be letters, digits and _, and start with no digit", clip(key.Value))
	}
	if p.Type != ParamAny && !slices.Contains(paramTypes, p.Type) {
		d.fail(value, "param %q: the type must be one of %s, not %q", clip(key.Value), list(paramTypes), clip(string(p.Type)))
		return
	}
	if p.Required && p.Default != nil {
		d.fail(value, "param %q: a required param has no default", clip(key.Value))
	}
	if p.Default != nil {
		if err := checkParamValue(p.Type, p.Default); err != nil {
			d.fail(value, "param %q: the default %v", clip(key.Value), err)
		}
	}
}

func (d *decoder) name(at *yaml.Node, field, value string) {
	switch {
	case value == "":
		d.fail(at, "%s is missing", field)
	case !namePattern.MatchString(value):
		d.fail(at, "%s %q must be 1 to 63 of a-z, 0-9, _ and -, and start with a letter or a digit", field, clip(value))
	}
}

func (d *decoder) title(at *yaml.Node, title string) {
	if n := utf8.RuneCountInString(title); n > 255 {
		d.fail(at, "title has %d characters, the limit is 255", n)
	}
}

func oneOf[T ~string](d *decoder, at *yaml.Node, field string, value T, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		d.fail(at, "%s must be one of %s, not %q%s", field, list(allowed), clip(string(value)), closest(string(value), names))
	}
}

func list[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ", ")
}

func (d *decoder) nodes(def *Definition, seq, root *yaml.Node) {
	if seq == nil || isNull(seq) {
		d.fail(root, "nodes is missing; a workflow has at least one node")
		return
	}
	list := d.enter(seq)
	defer d.leave(seq)
	switch {
	case list == nil:
		return
	case list.Kind != yaml.SequenceNode:
		d.fail(seq, "nodes must be a list, not %s", what(list))
		return
	case len(list.Content) == 0:
		d.fail(seq, "nodes is empty; a workflow has at least one node")
		return
	case len(list.Content) > MaxNodes:
		d.fail(seq, "there are %d nodes, the limit is %d", len(list.Content), MaxNodes)
		return
	}
	def.Nodes = make([]Node, 0, len(list.Content))
	lines := make(map[string]int, len(list.Content))
	for i, n := range list.Content {
		if d.dead {
			return
		}
		d.node = ""
		at := n
		if n = d.enter(n); n == nil {
			d.leave(at)
			continue
		}
		var w placed
		for k := 0; k+1 < len(n.Content); k += 2 { // the id first, to name the node in problems
			if n.Kind == yaml.MappingNode && n.Content[k].Value == "id" && tagOf(n.Content[k+1]) == "!!str" {
				d.node = n.Content[k+1].Value
			}
		}
		if len(d.node) > 63 {
			d.node = clip(d.node)
		}
		d.mapping(reflect.ValueOf(&w).Elem(), n, at, "the node")
		d.leave(at)
		idAt := or(w.at["id"], n)
		if line, ok := lines[w.ID]; ok && w.ID != "" {
			d.fail(idAt, "the id %q is used twice, first on line %d", clip(w.ID), line)
		}
		lines[w.ID] = idAt.Line
		if n.Kind == yaml.MappingNode {
			d.checkNode(&w, n)
		}
		def.Nodes = append(def.Nodes, w.node())
		d.mark(def.marks, i, &w, idAt)
	}
	d.node = ""
}

func (d *decoder) checkNode(w *placed, n *yaml.Node) {
	place := func(field string) *yaml.Node { return or(w.at[field], n) }
	if _, present := w.at["id"]; !present || w.ID != "" || isNull(w.at["id"]) {
		d.name(place("id"), "id", w.ID)
	}
	d.title(place("title"), w.Title)
	oneOf(d, place("join"), "join", w.Join, JoinAllSuccess, JoinNoneFailed, JoinOneSuccess, JoinAllDone)
	oneOf(d, place("on_failure"), "on_failure", w.OnFailure, FailureFail, FailureContinue, FailureSkip)
	d.checkType(w, place)
}

// mark keeps the places that Build may have to point at.
func (d *decoder) mark(m *marks, i int, w *placed, id *yaml.Node) {
	m.at[mark{i, ""}] = position{id.Line, id.Column}
	if e := w.at["expr"]; e != nil {
		m.at[mark{i, "expr"}] = position{e.Line, e.Column}
	}
	if s := w.at["needs"]; s != nil {
		for s.Kind == yaml.AliasNode {
			s = s.Alias
		}
		for k, need := range s.Content {
			m.at[mark{i, "needs/" + strconv.Itoa(k)}] = position{need.Line, need.Column}
		}
	}
	for _, field := range []string{"params", "for_each", "until"} {
		if p := w.at[field]; p != nil && !d.dead {
			m.at[mark{i, field}] = position{p.Line, p.Column}
			markTemplates(m, i, p, field, 0)
		}
	}
}

// markTemplates keeps the place of every text with an expression in it. Texts reached
// through an alias are marked where they stand; depth ends a cycle of aliases.
func markTemplates(m *marks, i int, n *yaml.Node, path string, depth int) {
	if depth > maxDepth || len(m.at) > 4*maxAliased {
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		markTemplates(m, i, n.Alias, path, depth+1)
	case yaml.SequenceNode:
		for k, item := range n.Content {
			if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, "${") {
				markTemplates(m, i, item, path+"/"+strconv.Itoa(k), depth+1)
			}
		}
	case yaml.MappingNode:
		for k := 0; k+1 < len(n.Content); k += 2 {
			if v := n.Content[k+1]; v.Kind != yaml.ScalarNode || strings.Contains(v.Value, "${") {
				markTemplates(m, i, v, path+"/"+n.Content[k].Value, depth+1)
			}
		}
	case yaml.ScalarNode:
		if strings.Contains(n.Value, "${") {
			m.at[mark{i, path}] = position{n.Line, n.Column}
		}
	}
}

// edges adds the edges of the top level to the needs of their targets.
func (d *decoder) edges(doc *workflowDocument) {
	if len(doc.Edges) == 0 || d.dead {
		return
	}
	def := &doc.Definition
	index := make(map[string]int, len(def.Nodes))
	for i, n := range def.Nodes {
		index[n.ID] = i
	}
	seq := doc.at["edges"]
	for seq.Kind == yaml.AliasNode {
		seq = seq.Alias
	}
	for k, e := range doc.Edges {
		at := seq.Content[k]
		to, ok := index[e.To]
		switch {
		case e.From == "" || e.To == "":
			d.fail(at, "an edge needs from and to")
		case !ok:
			d.fail(at, "the edge from %q goes to an unknown node %q", clip(e.From), clip(e.To))
		default:
			def.marks.at[mark{to, fmt.Sprintf("needs/%d", len(def.Nodes[to].Needs))}] = position{at.Line, at.Column}
			def.Nodes[to].Needs = append(def.Nodes[to].Needs, Need{Node: e.From, When: e.When})
		}
	}
}
