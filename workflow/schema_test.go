package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// The schemas are made from the types: their fields, and the comments on them.
func TestSchema(t *testing.T) {
	t.Parallel()
	b := &schemaBuilder{t: t, defs: map[string]any{}, comments: fieldComments(t)}
	root := b.object(reflect.TypeFor[workflowDocument](), "kind", "name", "app", "nodes")
	root["title"] = "Fanjet workflow"
	b.write("schema.json", root)
}

func TestSchema_Documents(t *testing.T) {
	t.Parallel()
	b := &schemaBuilder{t: t, defs: map[string]any{}, comments: fieldComments(t)}
	b.defs[KindApp] = b.object(reflect.TypeFor[AppDefinition](), "kind", "name")
	b.defs[KindCalendar] = b.object(reflect.TypeFor[CalendarDefinition](), "kind", "name", "app")
	b.defs[KindJob] = b.object(reflect.TypeFor[JobDefinition](), "kind", "name", "app", "processor")
	b.defs[KindWorkflow] = b.object(reflect.TypeFor[workflowDocument](), "kind", "name", "app", "nodes")
	var rules []any
	for _, kind := range documentKinds {
		is := map[string]any{"properties": map[string]any{"kind": map[string]any{"const": kind}}, "required": []string{"kind"}}
		rules = append(rules, map[string]any{"if": is, "then": map[string]any{"$ref": "#/$defs/" + kind}})
	}
	b.write("documents.json", map[string]any{
		"title": "Fanjet document", "type": "object", "required": []string{"kind"},
		"properties": map[string]any{"kind": map[string]any{"enum": documentKinds}}, "allOf": rules,
	})
}

// write holds the committed file to the schema.
func (b *schemaBuilder) write(name string, root map[string]any) {
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$defs"] = b.defs
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(b.t, enc.Encode(root))
	if *update {
		require.NoError(b.t, os.WriteFile(name, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(b.t, err)
	require.Equal(b.t, string(want), out.String(), "run: go test ./workflow -run Schema -update")
}

type schemaBuilder struct {
	t        *testing.T
	defs     map[string]any
	comments map[string]string // "Spec.Pool" → text
}

// fieldComments reads the comments on the fields of the types of this package.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			text := ""
			for _, field := range s.Fields.List {
				if field.Doc != nil {
					text = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
				for _, name := range field.Names {
					out[spec.Name.Name+"."+name.Name] = text
				}
			}
			return true
		})
	}
	return out
}

// wordsOf are the words a text may be.
var wordsOf = map[reflect.Type][]string{
	reflect.TypeFor[NodeType](): words(nodeTypes...), reflect.TypeFor[Mode](): words(Standalone, Broadcast, Map, MapReduce),
	reflect.TypeFor[Lane]():         words(LaneHigh, LaneNormal, LaneBulk),
	reflect.TypeFor[Routing]():      words(RoutingLane, RoutingRandom, RoutingRoundRobin, RoutingHash, RoutingLeast, RoutingDesignated),
	reflect.TypeFor[ScheduleType](): words(ScheduleCron, ScheduleRate, ScheduleDelay, ScheduleDaily, ScheduleOnce, ScheduleNone),
	reflect.TypeFor[Misfire]():      words(MisfireOnce, MisfireSkip, MisfireAll),
	reflect.TypeFor[Overlap]():      words(OverlapSkip, OverlapAllow, OverlapQueue, OverlapReplace, OverlapFail),
	reflect.TypeFor[Gap]():          words(GapAfter, GapSkip), reflect.TypeFor[Repeat](): words(RepeatFirst, RepeatBoth),
	reflect.TypeFor[Emit]():      words(EmitStream, EmitAtomic),
	reflect.TypeFor[Join]():      words(JoinAllSuccess, JoinNoneFailed, JoinOneSuccess, JoinAllDone),
	reflect.TypeFor[OnFailure](): words(FailureFail, FailureContinue, FailureSkip), reflect.TypeFor[ParamType](): words(paramTypes...),
}

func words[T ~string](all ...T) []string {
	out := make([]string, len(all))
	for i, w := range all {
		out[i] = string(w)
	}
	return out
}

const durationPattern = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`

func (b *schemaBuilder) schema(t reflect.Type) map[string]any {
	if all, ok := wordsOf[t]; ok {
		return map[string]any{"enum": all}
	}
	switch t {
	case typeDuration:
		return map[string]any{"type": "string", "pattern": durationPattern}
	case typeRaw:
		return map[string]any{}
	case typeChoice:
		return map[string]any{"type": []string{"boolean", "string", "number"}}
	case typeNeed:
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, b.object(t, "node")}}
	case typeDay:
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, b.object(t, "date")}}
	case typeParam: // a plain value is a default
		return map[string]any{"anyOf": []any{b.object(t), map[string]any{"not": map[string]any{"type": "object"}}}}
	case reflect.TypeFor[Node]():
		b.node()
		return map[string]any{"$ref": "#/$defs/node"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.schema(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": b.schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": b.schema(t.Elem())}
	case reflect.Struct:
		name := strings.ToLower(t.Name())
		if b.defs[name] == nil {
			b.defs[name] = b.object(t)
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	default:
		b.t.Fatalf("a field of type %v has no schema", t)
		return nil
	}
}

// documentKind are the kinds of the types of documents.
var documentKind = map[reflect.Type]string{
	reflect.TypeFor[workflowDocument](): KindWorkflow, reflect.TypeFor[AppDefinition](): KindApp,
	reflect.TypeFor[CalendarDefinition](): KindCalendar, reflect.TypeFor[JobDefinition](): KindJob,
}

func (b *schemaBuilder) object(t reflect.Type, required ...string) map[string]any {
	properties := map[string]any{}
	for name, index := range fieldsOf(t).index {
		f := t.FieldByIndex(index)
		s := b.schema(f.Type)
		owner := t
		for _, i := range index[:len(index)-1] {
			owner = owner.Field(i).Type
		}
		for _, o := range []string{owner.Name(), "Node"} {
			if text := b.comments[o+"."+f.Name]; text != "" && s["description"] == nil {
				s["description"] = text
			}
		}
		properties[name] = s
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	for name, pattern := range map[string]string{"kind": "", "name": namePattern.String(), "app": namePattern.String(), "id": namePattern.String()} {
		switch p, ok := properties[name].(map[string]any); {
		case ok && name == "kind":
			p["const"] = documentKind[t]
		case ok && (name != "name" || documentKind[t] != ""): // the name of a holiday is free

			p["pattern"] = pattern
		}
	}
	return out
}

// node is every field that some type of node has, and for each type those that it has not.
func (b *schemaBuilder) node() {
	if b.defs["node"] != nil {
		return
	}
	b.defs["node"] = true
	node := b.object(reflect.TypeFor[nodeWire](), "id")
	spec := fieldsOf(reflect.TypeFor[Spec]()).names
	var rules []any
	for _, kind := range nodeTypes {
		own := append(slices.Clone(ownFields), typeFields[kind]...)
		if kind == TypeJob {
			own = append(append(own, "job"), spec...)
		}
		has := map[string]any{}
		for name := range node["properties"].(map[string]any) {
			if !slices.Contains(own, name) {
				has[name] = false
			}
		}
		is := map[string]any{"properties": map[string]any{"type": map[string]any{"const": string(kind)}}}
		if kind != TypeJob {
			is["required"] = []string{"type"}
		}
		rules = append(rules, map[string]any{"if": is, "then": map[string]any{"properties": has}})
	}
	node["allOf"] = rules
	b.defs["node"] = node
}

// What Parse takes the schema takes, and of the broken documents it finds those that are so
// by their form.
func TestSchema_AgreesWithParse(t *testing.T) {
	t.Parallel()
	var root map[string]any
	require.NoError(t, json.Unmarshal(Schema(), &root))
	check := func(doc string) error {
		var v any
		require.NoError(t, yaml.Unmarshal([]byte(doc), &v))
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &v))
		return conforms(root, root, v, "")
	}
	good := []string{fullDocument}
	for _, pattern := range []string{"../examples/*/workflow.yaml", "../cmd/fanjet/demo.yaml", "../cmd/fanjet/testdata/good.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			data, err := os.ReadFile(f)
			require.NoError(t, err)
			good = append(good, string(data))
		}
	}
	for _, doc := range good {
		require.NoError(t, check(doc), doc)
	}
	for file, want := range map[string]string{
		"unknown_fields": ": is not allowed", "types": ": is ", "decision": "/nodes/0/", "signals": "/nodes/0/", "nested": "/nodes/", "head": "has no app",
		"jobs": "/nodes/", "waits": "/nodes/", "for_each": "/nodes/", "when": "/nodes/",
	} {
		data, err := os.ReadFile("testdata/broken/" + file + ".yaml")
		require.NoError(t, err)
		require.ErrorContains(t, check(string(data)), want, file)
	}
}

// conforms checks a value against the part of JSON Schema that the schema uses.
func conforms(root, s map[string]any, v any, at string) error {
	if ref, ok := s["$ref"].(string); ok {
		return conforms(root, root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), v, at)
	}
	if c, ok := s["const"]; ok && !reflect.DeepEqual(c, v) {
		return fmt.Errorf("%s: is not %v", at, c)
	}
	if all, ok := s["enum"].([]any); ok && !slices.Contains(all, v) {
		return fmt.Errorf("%s: is none of %v", at, all)
	}
	if err := hasType(s["type"], v, at); err != nil {
		return err
	}
	if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v.(string)) {
		return fmt.Errorf("%s: does not match %s", at, p)
	}
	if not, ok := s["not"].(map[string]any); ok && conforms(root, not, v, at) == nil {
		return fmt.Errorf("%s: is what it must not be", at)
	}
	if any, ok := s["anyOf"].([]any); ok && !slices.ContainsFunc(any, func(one interface{}) bool {
		return conforms(root, one.(map[string]interface{}), v, at) == nil
	}) {
		return fmt.Errorf("%s: is none of the kinds it may be", at)
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, one := range all {
			rule := one.(map[string]any)
			if conforms(root, rule["if"].(map[string]any), v, at) != nil {
				continue
			}
			if err := conforms(root, rule["then"].(map[string]any), v, at); err != nil {
				return err
			}
		}
	}
	switch v := v.(type) {
	case []any:
		if items, ok := s["items"].(map[string]any); ok {
			for i, item := range v {
				if err := conforms(root, items, item, fmt.Sprint(at, "/", i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		return hasFields(root, s, v, at)
	}
	return nil
}

func hasFields(root, s map[string]any, v map[string]any, at string) error {
	for _, name := range asList(s["required"]) {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%s: has no %s", at, name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		field := v[name]
		switch p, ok := properties[name]; {
		case ok && p == false, !ok && s["additionalProperties"] == false:
			return fmt.Errorf("%s/%s: is not allowed", at, name)
		case ok:
			if err := conforms(root, p.(map[string]any), field, at+"/"+name); err != nil {
				return err
			}
		default:
			if more, ok := s["additionalProperties"].(map[string]any); ok {
				if err := conforms(root, more, field, at+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func hasType(want any, v any, at string) error {
	if want == nil {
		return nil
	}
	types := asList(want)
	if one, ok := want.(string); ok {
		types = []any{one}
	}
	is := map[string]bool{}
	switch v := v.(type) {
	case string:
		is["string"] = true
	case bool:
		is["boolean"] = true
	case float64:
		is["number"], is["integer"] = true, v == math.Trunc(v)
	case []any:
		is["array"] = true
	case map[string]any:
		is["object"] = true
	}
	for _, t := range types {
		if is[t.(string)] {
			return nil
		}
	}
	return fmt.Errorf("%s: is %v, not %v", at, v, want)
}
