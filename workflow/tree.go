package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds of a document.
const (
	// MaxDocument is the largest document Parse reads, in bytes.
	MaxDocument = 8 << 20
	// maxDepth is how deep values may nest, in documents and in data.
	maxDepth = 100
	// maxMarks bounds the punctuation of a document, and by it the nodes of its tree (about
	// 170 bytes each), before a parser allocates any.
	maxMarks = 3 << 19
)

// readTree reads one document; see readTrees.
func readTree(file string, data []byte) (*yaml.Node, *Problem) {
	roots, p := readTrees(file, data, false)
	if p != nil {
		return nil, p
	}
	return roots[0], nil
}

// readTrees reads a document, YAML or JSON, or many of them, into one kind of tree that knows
// the position of everything. There is at least one tree, or a problem.
func readTrees(file string, data []byte, many bool) ([]*yaml.Node, *Problem) {
	problem := func(line, column int, format string, args ...any) *Problem {
		return &Problem{File: file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
	}
	if len(data) > MaxDocument {
		return nil, problem(0, 0, "the document has %d bytes, the limit is %d (8 MiB)", len(data), MaxDocument)
	}
	if !utf8.Valid(data) {
		line, column := lineOfInvalid(data)
		return nil, problem(line, column, "the document is not UTF-8 text")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	marks := 0
	for i, c := range data {
		switch c {
		case ',', ':', '[', '{', '\n', '?':
			marks++
		case '-': // an item of a list; not the dash of a name
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\n') {
				marks++
			}
		}
	}
	if marks > maxMarks {
		return nil, problem(0, 0, "the document has too many values; split it")
	}
	if looksLikeJSON(file, data, many) {
		return readJSON(file, data, many)
	}
	return readYAML(data, many, problem)
}

// looksLikeJSON tells by the name of the file, or its text, that it is JSON.
func looksLikeJSON(file string, data []byte, many bool) bool {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != '{' && (!many || trimmed[0] != '[') {
		return false
	}
	switch strings.ToLower(path.Ext(file)) {
	case ".json", ".jsonl", ".ndjson":
		return true
	}
	if !many {
		return json.Valid(data)
	}
	for values := json.NewDecoder(bytes.NewReader(data)); ; {
		var one json.RawMessage
		if err := values.Decode(&one); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func readYAML(data []byte, many bool, problem func(line, column int, format string, args ...any) *Problem) (roots []*yaml.Node, p *Problem) {
	// The parser is a library that reads hostile input; its panic must be a refused
	// document, not a dead server.
	defer func() {
		if r := recover(); r != nil {
			roots, p = nil, problem(0, 0, "the document cannot be read: %v", r)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV4Defaults(),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth), loaderlimits.AliasNone())))
	if err != nil {
		return nil, problem(0, 0, "the document cannot be read: %v", err)
	}
	for n := 0; ; n++ {
		var doc yaml.Node
		err := loader.Load(&doc)
		switch {
		case errors.Is(err, io.EOF):
			return roots, emptyProblem(roots, many, problem)
		case err != nil:
			return nil, yamlProblem(err, problem)
		case n > 0 && !many:
			if len(roots) == 0 {
				return nil, emptyProblem(roots, many, problem)
			}
			return nil, problem(doc.Line, doc.Column, "there are several documents in one file; a file holds one workflow")
		}
		root := &doc
		if root.Kind == yaml.DocumentNode {
			if len(root.Content) == 0 {
				continue
			}
			root = root.Content[0]
		}
		// Nothing between two --- is no document.
		if root.Kind != yaml.ScalarNode || root.ShortTag() != "!!null" {
			roots = append(roots, root)
		}
	}
}

// emptyProblem is nil if there is a document.
func emptyProblem(roots []*yaml.Node, many bool, problem func(line, column int, format string, args ...any) *Problem) *Problem {
	switch {
	case len(roots) > 0:
		return nil
	case many:
		return problem(1, 1, "the file is empty; a document starts with its kind, as in \"kind: Job\"")
	}
	return problem(1, 1, "the document is empty; a workflow starts with \"kind: Workflow\"")
}

func yamlProblem(err error, problem func(line, column int, format string, args ...any) *Problem) *Problem {
	var le *yaml.LoadError
	if errors.As(err, &le) {
		line, column := le.Mark.Line, le.Mark.Column
		if line == 0 {
			line, column = le.ContextMark.Line, le.ContextMark.Column
		}
		if le.ContextMsg != "" {
			return problem(line, column, "not valid YAML: %s %s", le.ContextMsg, le.Message)
		}
		return problem(line, column, "not valid YAML: %s", le.Message)
	}
	return problem(0, 0, "not valid YAML: %v", err)
}

func lineOfInvalid(data []byte) (line, column int) {
	line, column = 1, 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		data = data[n:]
	}
	return line, column
}

// jsonReader builds the tree of a JSON document. YAML is not quite a superset of JSON (its
// escapes know no surrogate pairs), and the database holds definitions as JSON.
type jsonReader struct {
	file string
	data []byte
	at   int
	line int
	// start is the offset of the first byte of the line; seen and column cache how many
	// characters stand before an offset of it.
	start, seen, column int
}

func readJSON(file string, data []byte, many bool) ([]*yaml.Node, *Problem) {
	r := &jsonReader{file: file, data: data, line: 1}
	var roots []*yaml.Node
	for {
		root, p := r.value(0)
		if p != nil {
			return nil, p
		}
		roots = append(roots, root)
		switch r.space(); {
		case r.at >= len(r.data):
			return roots, nil
		case !many:
			return nil, r.problem("there is more after the end of the JSON value; a file holds one workflow")
		}
	}
}

func (r *jsonReader) position() position {
	if r.seen < r.start {
		r.seen, r.column = r.start, 0
	}
	r.column += utf8.RuneCount(r.data[r.seen:r.at])
	r.seen = r.at
	return position{r.line, r.column + 1}
}

func (r *jsonReader) problem(format string, args ...any) *Problem {
	p := r.position()
	return &Problem{File: r.file, Line: p.line, Column: p.column, Message: "not valid JSON: " + fmt.Sprintf(format, args...)}
}

func (r *jsonReader) space() {
	for ; r.at < len(r.data); r.at++ {
		switch r.data[r.at] {
		case '\n':
			r.line, r.start = r.line+1, r.at+1
		case ' ', '\t', '\r':
		default:
			return
		}
	}
}

func (r *jsonReader) value(depth int) (*yaml.Node, *Problem) {
	r.space()
	if depth > maxDepth {
		return nil, r.problem("values nest deeper than %d", maxDepth)
	}
	if r.at >= len(r.data) {
		return nil, r.problem("the document ends in the middle of a value")
	}
	p := r.position()
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line, Column: p.column}
	switch c := r.data[r.at]; {
	case c == '{' || c == '[':
		return n, r.collection(n, c, depth)
	case c == '"':
		s, problem := r.text()
		n.Tag, n.Value, n.Style = "!!str", s, yaml.DoubleQuotedStyle
		return n, problem
	}
	end := r.at
	for end < len(r.data) && !strings.ContainsRune(" \t\r\n,]}:\"[{", rune(r.data[end])) {
		end++
	}
	word := string(r.data[r.at:end])
	n.Value = word
	switch {
	case word == "true" || word == "false":
		n.Tag = "!!bool"
	case word == "null":
		n.Tag = "!!null"
	case isNumber(word) && strings.ContainsAny(word, ".eE"):
		n.Tag = "!!float"
	case isNumber(word):
		n.Tag = "!!int"
	default:
		if len(word) > 40 {
			word = word[:40]
		}
		return nil, r.problem("unexpected %q", word)
	}
	r.at = end
	return n, nil
}

func (r *jsonReader) collection(n *yaml.Node, open byte, depth int) *Problem {
	n.Kind, n.Tag, n.Style = yaml.MappingNode, "!!map", yaml.FlowStyle
	closing := byte('}')
	if open == '[' {
		n.Kind, n.Tag, closing = yaml.SequenceNode, "!!seq", ']'
	}
	r.at++
	for first := true; ; first = false {
		r.space()
		if r.at < len(r.data) && r.data[r.at] == closing && first {
			r.at++
			return nil
		}
		if open == '{' {
			if r.at >= len(r.data) || r.data[r.at] != '"' {
				return r.problem("expected a field name in quotes")
			}
			key, p := r.value(depth + 1)
			if p != nil {
				return p
			}
			n.Content = append(n.Content, key)
			if r.space(); r.at >= len(r.data) || r.data[r.at] != ':' {
				return r.problem("expected : after the field name %q", key.Value)
			}
			r.at++
		}
		item, p := r.value(depth + 1)
		if p != nil {
			return p
		}
		n.Content = append(n.Content, item)
		r.space()
		switch {
		case r.at >= len(r.data):
			return r.problem("the document ends inside an object or a list")
		case r.data[r.at] == ',':
			r.at++
		case r.data[r.at] == closing:
			r.at++
			return nil
		default:
			return r.problem("expected , or %c", closing)
		}
	}
}

func (r *jsonReader) text() (string, *Problem) {
	end := r.at + 1
	for end < len(r.data) && r.data[end] != '"' && r.data[end] != '\n' {
		if r.data[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(r.data) || r.data[end] == '\n' {
		return "", r.problem("a string is not closed")
	}
	var s string
	if err := json.Unmarshal(r.data[r.at:end+1], &s); err != nil {
		return "", r.problem("a string has a bad escape or a control character")
	}
	r.at = end + 1
	return s, nil
}

// isNumber reports whether s is a number in the one spelling that YAML and JSON agree on.
func isNumber(s string) bool {
	if s == "" || (s[0] != '-' && (s[0] < '0' || s[0] > '9')) {
		return false
	}
	return json.Valid([]byte(s))
}
