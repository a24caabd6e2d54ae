package workflow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

// maxAliased bounds how many values may be reached through YAML aliases.
const maxAliased = 100_000

// decoder fills Go values from a tree, strictly: it refuses what it does not know and never
// turns a value of one type into another. It collects problems and goes on.
type decoder struct {
	file     string
	app      string // of documents that name none
	node     string
	problems Problems
	aliases  int // open aliases around the current value
	aliased  int
	dead     bool // a bomb was found: nothing more is visited
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	p := Problem{File: d.file, Node: d.node, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	d.problems = append(d.problems, p)
}

// enter follows an alias and counts; it returns nil when the value must not be visited.
// leave must be called with the same n.
func (d *decoder) enter(n *yaml.Node) *yaml.Node {
	at := n
	for n.Kind == yaml.AliasNode {
		d.aliases++
		n = n.Alias
	}
	if d.aliases > 0 {
		d.aliased++
	}
	if d.aliased > maxAliased || d.aliases > maxDepth {
		if !d.dead {
			d.fail(at, "aliases expand to too many values")
		}
		d.dead = true
	}
	if d.dead {
		return nil
	}
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		d.fail(at, "the tag %s is not supported", n.Tag)
		return nil
	}
	return n
}

func (d *decoder) leave(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		d.aliases--
	}
}

// what names the type of a value for messages.
func what(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	case "!!bool":
		return "the bool " + clip(n.Value)
	case "!!null":
		return "empty"
	}
	return "the text " + strconv.Quote(clip(n.Value))
}

func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
}

// tagOf is the type of a scalar. A date is text here.
func tagOf(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	t := n.ShortTag()
	if t == "!!timestamp" {
		return "!!str"
	}
	return t
}

func isNull(n *yaml.Node) bool { return tagOf(n) == "!!null" }

// located is implemented by values that want to know where their fields stood.
type located interface {
	locate(at map[string]*yaml.Node)
}

var (
	typeDuration = reflect.TypeFor[Duration]()
	typeRaw      = reflect.TypeFor[json.RawMessage]()
	typeChoice   = reflect.TypeFor[Choice]()
	typeNeed     = reflect.TypeFor[Need]()
	typeParam    = reflect.TypeFor[Param]()
	typeDay      = reflect.TypeFor[CalendarDay]()
	typeBudget   = reflect.TypeFor[Budget]()
)

// decode fills v from n; name is how messages call the value. An empty value leaves v alone.
func (d *decoder) decode(v reflect.Value, n *yaml.Node, name string) {
	at := n
	if n = d.enter(n); n != nil {
		d.decodeHere(v, n, at, name)
	}
	d.leave(at)
}

func (d *decoder) decodeHere(v reflect.Value, n, at *yaml.Node, name string) {
	switch v.Type() {
	case typeRaw:
		if !isNull(n) {
			v.SetBytes(d.raw(n))
		}
		return
	case typeChoice:
		v.SetString(string(d.choice(n, at, name)))
		return
	case typeParam:
		v.Set(reflect.ValueOf(d.param(n, name)))
		return
	case typeDay:
		if tagOf(n) == "!!str" {
			v.Field(0).SetString(n.Value)
			return
		}
		if n.Kind != yaml.MappingNode {
			d.fail(at, "%s must be a date such as 2026-12-25, or {date:, until:, name:}, not %s", name, what(n))
			return
		}
	case typeNeed:
		if tagOf(n) == "!!str" {
			v.Field(0).SetString(n.Value)
			return
		}
		if n.Kind != yaml.MappingNode {
			d.fail(at, "%s must be the id of a node, or {node: id, when: value}, not %s", name, what(n))
			return
		}
	}
	if isNull(n) {
		return
	}
	switch v.Type() {
	case typeDuration:
		d.duration(v, n, at, name)
		return
	case typeBudget:
		if n.Kind != yaml.MappingNode {
			d.fail(at, "%s must be {count: N} or {percent: P}, not %s", name, what(n))
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.decodeHere(p.Elem(), n, at, name)
		v.Set(p)
	case reflect.Struct:
		d.mapping(v, n, at, name)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(at, "%s must be a list, not %s", name, what(n))
			return
		}
		s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			d.decode(s.Index(i), item, name+"["+strconv.Itoa(i)+"]")
		}
		v.Set(s)
	case reflect.Map:
		d.table(v, n, at, name)
	default:
		d.scalar(v, n, at, name)
	}
}

func (d *decoder) scalar(v reflect.Value, n, at *yaml.Node, name string) {
	tag := tagOf(n)
	switch v.Kind() {
	case reflect.String:
		switch {
		case tag == "!!str":
			v.SetString(n.Value)
		case n.Kind == yaml.ScalarNode:
			d.fail(at, "%s must be text, not %s; write it in quotes: %q", name, what(n), clip(n.Value))
		default:
			d.fail(at, "%s must be text, not %s", name, what(n))
		}
	case reflect.Bool:
		if tag != "!!bool" || (n.Value != "true" && n.Value != "false") {
			d.fail(at, "%s must be true or false, not %s", name, what(n))
			return
		}
		v.SetBool(n.Value == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if tag != "!!int" || err != nil || !isNumber(n.Value) {
			d.fail(at, "%s must be a whole number, not %s", name, what(n))
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if (tag != "!!int" && tag != "!!float") || err != nil || !isNumber(n.Value) {
			d.fail(at, "%s must be a number, not %s", name, what(n))
			return
		}
		v.SetFloat(f)
	}
}

func (d *decoder) duration(v reflect.Value, n, at *yaml.Node, name string) {
	if tagOf(n) != "!!str" {
		d.fail(at, "%s must be a duration such as 30s or 1h30m, not %s", name, what(n))
		return
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil {
		d.fail(at, "%s must be a duration such as 30s or 1h30m, not %s", name, what(n))
		return
	}
	if t < 0 {
		d.fail(at, "%s must not be negative, it is %s", name, n.Value)
		return
	}
	v.SetInt(int64(t))
}

func (d *decoder) choice(n, at *yaml.Node, name string) Choice {
	switch tag := tagOf(n); {
	case tag == "!!bool" && (n.Value == "true" || n.Value == "false"):
		return Choice(n.Value)
	case tag == "!!str":
		return quoteChoice(n.Value)
	case (tag == "!!int" || tag == "!!float") && isNumber(n.Value):
		if v, err := decodeValue([]byte(n.Value)); err == nil {
			if c, err := choiceOf(v); err == nil {
				return c
			}
		}
	}
	d.fail(at, "%s must be true, false, a text or a number, not %s", name, what(n))
	return ""
}

// param reads the short form (a default) or the long one.
func (d *decoder) param(n *yaml.Node, name string) Param {
	if n.Kind == yaml.MappingNode {
		type long Param // without the special case of Param
		var p long
		d.mapping(reflect.ValueOf(&p).Elem(), n, n, name)
		return Param(p)
	}
	if isNull(n) {
		return Param{}
	}
	p := Param{Default: d.raw(n)}
	if v, err := decodeValue(p.Default); err == nil {
		p.Type = typeOfParam(v)
	}
	return p
}

// pairs calls f for every field of a mapping and refuses what is no plain, single key.
func (d *decoder) pairs(n *yaml.Node, name string, f func(key, value *yaml.Node)) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.dead; i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			d.fail(key, "merge keys (<<) are not supported; write the fields out")
			continue
		case tagOf(key) != "!!str":
			d.fail(key, "a key of %s must be text, not %s; write it in quotes", name, what(key))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.fail(key, "%q appears twice in %s, first on line %d", clip(key.Value), name, line)
			continue
		}
		seen[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
}

func (d *decoder) table(v reflect.Value, n, at *yaml.Node, name string) {
	if n.Kind != yaml.MappingNode {
		d.fail(at, "%s must be a mapping, not %s", name, what(n))
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	d.pairs(n, name, func(key, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(item, value, name+"."+clip(key.Value))
		m.SetMapIndex(reflect.ValueOf(key.Value), item)
	})
	v.Set(m)
}

func (d *decoder) mapping(v reflect.Value, n, at *yaml.Node, name string) {
	if n.Kind != yaml.MappingNode {
		d.fail(at, "%s must be a mapping, not %s", name, what(n))
		return
	}
	fields := fieldsOf(v.Type())
	var places map[string]*yaml.Node
	l, wants := v.Addr().Interface().(located)
	if wants {
		places = make(map[string]*yaml.Node, len(n.Content)/2)
	}
	d.pairs(n, name, func(key, value *yaml.Node) {
		index, ok := fields.index[key.Value]
		if !ok {
			d.fail(key, "unknown field %q in %s%s", clip(key.Value), name, closest(key.Value, fields.names))
			return
		}
		if wants {
			places[key.Value] = value
		}
		d.decode(v.FieldByIndex(index), value, key.Value)
	})
	if wants {
		l.locate(places)
	}
}

// fieldTable is the fields of a struct by their name in documents.
type fieldTable struct {
	index map[string][]int
	names []string
}

var fieldTables sync.Map // reflect.Type -> *fieldTable

func fieldsOf(t reflect.Type) *fieldTable {
	if f, ok := fieldTables.Load(t); ok {
		return f.(*fieldTable)
	}
	f := &fieldTable{index: map[string][]int{}}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		if old, ok := f.index[name]; !ok || len(old) > len(field.Index) {
			f.index[name] = field.Index
		}
	}
	for name := range f.index {
		f.names = append(f.names, name)
	}
	sort.Strings(f.names)
	fieldTables.Store(t, f)
	return f
}

// raw is the value as JSON.
func (d *decoder) raw(n *yaml.Node) json.RawMessage {
	return d.appendJSON(nil, n, 0)
}

func (d *decoder) appendJSON(b []byte, n *yaml.Node, depth int) []byte {
	at := n
	defer d.leave(at)
	if n = d.enter(n); n == nil {
		return append(b, "null"...)
	}
	if depth > maxDepth {
		d.fail(at, "values nest deeper than %d", maxDepth)
		d.dead = true
		return append(b, "null"...)
	}
	switch n.Kind {
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = d.appendJSON(b, item, depth+1)
		}
		return append(b, ']')
	case yaml.MappingNode:
		b = append(b, '{')
		first := true
		d.pairs(n, "the value", func(key, value *yaml.Node) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendText(b, key.Value), ':')
			b = d.appendJSON(b, value, depth+1)
		})
		return append(b, '}')
	}
	switch tagOf(n) {
	case "!!null":
		return append(b, "null"...)
	case "!!bool":
		if n.Value == "true" || n.Value == "false" {
			return append(b, n.Value...)
		}
	case "!!int", "!!float":
		if isNumber(n.Value) {
			return append(b, n.Value...)
		}
	default:
		return appendText(b, n.Value)
	}
	d.fail(at, "%s is ambiguous; write a plain number, or quote it if it is text: %q", clip(n.Value), clip(n.Value))
	return append(b, "null"...)
}

func appendText(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil { // a string always encodes
		return append(b, `""`...)
	}
	return append(b, q...)
}
