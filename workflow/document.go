package workflow

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Document is one document of a file. The pointer that goes with Kind is set, the others are
// nil.
type Document struct {
	// Kind is KindApp, KindCalendar, KindJob or KindWorkflow.
	Kind string
	// App is the app it belongs to, or is; Name is unique in it for each kind.
	App  string
	Name string
	// File is the name given to ParseAll, Line and Column are where the document begins.
	File         string
	Line, Column int

	AppDefinition *AppDefinition
	Calendar      *CalendarDefinition
	Job           *JobDefinition
	Workflow      *Definition

	root *yaml.Node
}

var documentKinds = []string{KindApp, KindCalendar, KindJob, KindWorkflow}

// ParseAll reads a file of documents of any kind: YAML, where --- separates them, or JSON, as
// a list or one after another. file is the name used in errors. A file is at most MaxDocument
// bytes.
//
// Everything wrong is reported at once as Problems. What it does not check: the graph of a
// workflow (Build), and what schedules and calendars mean (package schedule);
// Document.Problem says where in the file their fields are.
//
// Each kind has the fields of its type: AppDefinition, CalendarDefinition, JobDefinition; those
// of a workflow are with Parse.
func ParseAll(file string, data []byte) ([]Document, error) { return ParseAllFor("", file, data) }

// ParseAllFor is ParseAll, with an app for documents that name none.
func ParseAllFor(app, file string, data []byte) ([]Document, error) {
	roots, p := readTrees(file, data, true)
	if p != nil {
		return nil, Problems{*p}
	}
	d := &decoder{file: file, app: app}
	var docs []Document
	lines := map[[3]string]int{}
	add := func(root *yaml.Node) {
		doc, ok := d.document(root)
		if !ok {
			return
		}
		key := [3]string{doc.Kind, doc.App, doc.Name}
		if line, twice := lines[key]; twice && doc.Name != "" {
			d.problems = append(d.problems, doc.Problem("name", "%s %q is in the file twice, first on line %d", doc.Kind, clip(doc.Name), line))
		}
		lines[key] = doc.Line
		docs = append(docs, doc)
	}
	for _, root := range roots {
		if root.Kind != yaml.SequenceNode {
			add(root)
			continue
		}
		for _, item := range root.Content {
			add(item)
		}
	}
	if len(docs) == 0 && len(d.problems) == 0 {
		d.problems = append(d.problems, *emptyProblem(nil, true, func(line, column int, format string, args ...any) *Problem {
			return &Problem{File: file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
		}))
	}
	if err := d.problems.err(); err != nil {
		return nil, err
	}
	return docs, nil
}

// document reads one document; it is false if there is none to speak of.
func (d *decoder) document(root *yaml.Node) (Document, bool) {
	defer d.leave(root)
	n := d.enter(root)
	if n == nil {
		return Document{}, false
	}
	if n.Kind != yaml.MappingNode {
		d.fail(root, "a document is a mapping that starts with its kind, as in \"kind: Job\", not %s", what(n))
		return Document{}, false
	}
	doc := Document{File: d.file, Line: root.Line, Column: root.Column, root: n}
	at := placesIn(n)["kind"]
	switch {
	case at == nil:
		d.fail(root, "kind is missing; write kind: and one of %s", strings.Join(documentKinds, ", "))
		return doc, false
	case tagOf(at) == "!!str":
		doc.Kind = at.Value
	}
	switch doc.Kind {
	case KindApp:
		doc.AppDefinition = d.appDefinition(n)
		doc.App, doc.Name = doc.AppDefinition.Name, doc.AppDefinition.Name
	case KindCalendar:
		doc.Calendar = d.calendar(n)
		doc.App, doc.Name = doc.Calendar.App, doc.Calendar.Name
	case KindJob:
		doc.Job = d.job(n)
		doc.App, doc.Name = doc.Job.App, doc.Job.Name
	case KindWorkflow:
		doc.Workflow = d.workflow(n)
		doc.App, doc.Name = doc.Workflow.App, doc.Workflow.Name
	default:
		d.fail(at, "kind must be one of %s, it is %s%s", strings.Join(documentKinds, ", "), what(at), closest(at.Value, documentKinds))
		return doc, false
	}
	return doc, true
}

// fill decodes a document into v and tells where its fields stand; the document itself stands
// for those that are missing.
func (d *decoder) fill(v any, n *yaml.Node, name string) func(field string) *yaml.Node {
	d.mapping(reflect.ValueOf(v).Elem(), n, n, name)
	places := placesIn(n)
	return func(field string) *yaml.Node { return or(places[field], n) }
}

// placesIn are the values of a mapping by their keys.
func placesIn(n *yaml.Node) map[string]*yaml.Node {
	places := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, twice := places[n.Content[i].Value]; !twice {
			places[n.Content[i].Value] = n.Content[i+1]
		}
	}
	return places
}

// appName checks the name of an app, and gives it to a document without one.
func (d *decoder) appName(at *yaml.Node, app *string) {
	if *app == "" {
		*app = d.app
	}
	d.name(at, "app", *app)
}

// Problem is something wrong with a field of the document, written as a path such as
// schedule.cron or off[2].date. It stands where the field does, or what it is missing from.
func (d *Document) Problem(field, format string, args ...any) Problem {
	p := Problem{File: d.File, Line: d.Line, Column: d.Column, Message: fmt.Sprintf(format, args...)}
	n := d.root
	for _, step := range strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		for n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil {
			break
		}
		switch n.Kind {
		case yaml.MappingNode:
			n = placesIn(n)[step]
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(n.Content) {
				return p
			}
			n = n.Content[i]
		default:
			return p
		}
		if n != nil {
			p.Line, p.Column = n.Line, n.Column
		}
	}
	return p
}
