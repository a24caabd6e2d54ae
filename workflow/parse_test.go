package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// head is the part of a document before its nodes.
const head = "kind: Workflow\nname: w\napp: demo\n"

const fullDocument = `kind: Workflow
name: report
app: demo
title: "Täglicher Bericht 📈"
params:
  root: {type: string, required: true}
  limit: 10
  ratio: 0.5
  tags: [a, b]
  opts: {type: object, default: {deep: {n: 9007199254740993}}}
  free: null
timeout: 10m
on_failure: continue
context_limit: 1024
nodes:
  - id: list
    processor: list-files
    mode: standalone
    params: {root: "${ params.root }", n: 3, html: "<b>&", u: "\u00e9😀"}
    labels: {zone: "1"}
    min_cpu: 0.5
    retry: {max: 3, delay: 1s, jitter: 0}
    timeout: 1m
    max_failed: {percent: 5}
    waves: []
  - id: pick
    type: decision
    expr: nodes.list.result.count > 3
    needs: [list]
  - id: count
    job: nightly-count
    retry: {max: 0}
    needs: [{node: pick, when: true}]
    join: none_failed
    on_failure: skip
  - id: none
    processor: p
    disabled: true
edges:
  - {from: pick, to: none, when: false}
`

func mustParse(t testing.TB, text string) *Definition {
	t.Helper()
	d, err := Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	return d
}

func TestParse(t *testing.T) {
	t.Parallel()
	d := mustParse(t, fullDocument)
	require.Equal(t, "Täglicher Bericht 📈", d.Title)
	require.Equal(t, Param{Type: ParamString, Required: true}, d.Params["root"])
	require.Equal(t, Param{Type: ParamInt, Default: json.RawMessage("10")}, d.Params["limit"])
	require.JSONEq(t, `{"root":"${ params.root }","n":3,"html":"<b>&","u":"é😀"}`, string(d.Nodes[0].Spec.Params))
	require.Equal(t, Duration(time.Minute), *d.Nodes[0].Timeout)
	require.Equal(t, []Need{{Node: "pick", When: "true"}}, d.Nodes[2].Needs)
	require.Equal(t, []Need{{Node: "pick", When: "false"}}, d.Nodes[3].Needs, "top-level edges become needs")
	require.Equal(t, FailureSkip, d.Failure(2))
	require.Equal(t, FailureContinue, d.Failure(0))

	job := Spec{Processor: "count", Params: json.RawMessage(`{"a":1}`), Retry: Retry{Max: 7}, Timeout: 5}
	require.Equal(t, Spec{Processor: "count", Params: json.RawMessage(`{"a":1}`), Timeout: 5}, d.Nodes[2].Resolve(&job),
		"a retry of 0 on the node replaces the job's")
}

// The database holds the JSON form: it must read back to the same definition.
func TestParse_RoundTrip(t *testing.T) {
	t.Parallel()
	d := mustParse(t, fullDocument)
	for range 2 {
		b, err := json.Marshal(d)
		require.NoError(t, err)
		back, err := Parse("stored", b)
		require.NoError(t, err, "%s", b)
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again))
		d.marks, back.marks = nil, nil
		// An empty list and no list are the same document.
		d.Nodes[0].Spec.Waves = nil
		require.Equal(t, d, back)
		d = back
	}
}

func TestParse_JSON(t *testing.T) {
	t.Parallel()
	d, err := Parse("w.json", []byte("{\"kind\":\"Workflow\",\n\t\"name\":\"w\",\"app\":\"a\",\"title\":\"\\ud83d\\ude00\\/\",\"nodes\":[{\"id\":\"a\",\"processor\":\"p\"}]}"))
	require.NoError(t, err)
	require.Equal(t, "😀/", d.Title)
	_, err = Parse("w.json", []byte("{\"kind\":\"Workflow\",\n \"é\" 1}"))
	require.EqualError(t, err, `w.json:2:6: not valid JSON: expected : after the field name "é"`)
	for _, bad := range []string{`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":[`, `{"a":"x`, `{"a":01}`, `{"a":nul}`, `{"a":"\q"}`, `{} {}`} {
		_, err = Parse("w.json", []byte(bad))
		require.ErrorContains(t, err, "not valid JSON", bad)
	}
}

func TestParse_Problems(t *testing.T) {
	t.Parallel()
	node := func(fields string) string { return head + "nodes:\n  - {id: a, processor: p, " + fields + "}\n" }
	for name, c := range map[string]struct {
		doc  string
		want []string
	}{
		"empty":             {"", []string{"w.yaml:1:1: the document is empty"}},
		"only a comment":    {"# nothing\n", []string{"w.yaml:1:1: the document is empty"}},
		"null":              {"~\n", []string{"the document is empty"}},
		"a list":            {"- a\n", []string{"w.yaml:1:1: a workflow is a mapping"}},
		"two documents":     {head + "nodes: [{id: a, processor: p}]\n---\nkind: Workflow\n", []string{"several documents"}},
		"not utf-8":         {head + "title: \xff\n", []string{"w.yaml:4:8: the document is not UTF-8"}},
		"bad syntax":        {head + "nodes: [\n", []string{"w.yaml:5:1: not valid YAML"}},
		"no nodes":          {head, []string{"nodes is missing"}},
		"empty nodes":       {head + "nodes: []\n", []string{"w.yaml:4:8: nodes is empty"}},
		"nodes no list":     {head + "nodes: 3\n", []string{"nodes must be a list, not the number 3"}},
		"missing head":      {"nodes: [{id: a, processor: p}]\n", []string{"kind must be Workflow", "name is missing", "app is missing"}},
		"unknown field":     {head + "timeuot: 1s\nnodes: [{id: a, processor: p}]\n", []string{`w.yaml:4:1: unknown field "timeuot" in the workflow; did you mean "timeout"?`}},
		"unknown in node":   {node("proccessor: x"), []string{`w.yaml:5:27: node "a": unknown field "proccessor" in the node; did you mean "processor"?`}},
		"unknown in retry":  {node("retry: {maxx: 1}"), []string{`unknown field "maxx" in retry; did you mean "max"?`}},
		"duplicate key":     {node("timeout: 1s, timeout: 2s"), []string{`"timeout" appears twice in the node, first on line 5`}},
		"duplicate id":      {head + "nodes:\n  - {id: a, processor: p}\n  - {id: a, processor: p}\n", []string{`w.yaml:6:10: node "a": the id "a" is used twice, first on line 5`}},
		"leading zero id":   {head + "nodes: [{id: 012, processor: p}]\n", []string{`id must be text, not the number 012; write it in quotes: "012"`}},
		"bool id":           {head + "nodes: [{id: true, processor: p}]\n", []string{`id must be text, not the bool true`}},
		"upper case id":     {head + "nodes: [{id: A, processor: p}]\n", []string{`id "A" must be 1 to 63 of a-z`}},
		"no id":             {head + "nodes: [{processor: p}]\n", []string{`w.yaml:4:9: id is missing`}},
		"ambiguous number":  {node("params: {a: 012, b: 0x1F, c: 1_000, d: .5, e: .nan}"), []string{"012 is ambiguous", "0x1F is ambiguous", ".nan is ambiguous"}},
		"number key":        {node("params: {1: a}"), []string{"a key of the value must be text, not the number 1"}},
		"bad duration":      {node("timeout: 10 minutes"), []string{`w.yaml:5:36: node "a": timeout must be a duration such as 30s or 1h30m, not the text "10 minutes"`}},
		"number duration":   {node("timeout: 10"), []string{`timeout must be a duration such as 30s or 1h30m, not the number 10`}},
		"negative duration": {node("timeout: -1s"), []string{`timeout must not be negative`}},
		"wrong types":       {node("max_workers: many, min_cpu: x, disabled: yes, labels: [a], waves: 3"), []string{"max_workers must be a whole number", "min_cpu must be a number", "disabled must be true or false", "labels must be a mapping", "waves must be a list"}},
		"fraction":          {node("max_workers: 1.5"), []string{"max_workers must be a whole number, not the number 1.5"}},
		"bad words":         {node("mode: mapreduce, lane: hi, routing: x, join: all, on_failure: stop"), []string{"mode must be one of standalone", "lane must be one of", "routing must be one of", "join must be one of", "on_failure must be one of"}},
		"bad retry":         {node("retry: {max: 101}"), []string{"retry max must be 0 to 100, it is 101"}},
		"job and processor": {node("job: j"), []string{"either job or processor, not both"}},
		"neither":           {head + "nodes: [{id: a}]\n", []string{"needs a job (registered) or a processor (inline)"}},
		"spec over a job":   {head + "nodes: [{id: a, job: j, lane: high}]\n", []string{`lane belongs to the job "j"`}},
		"expr on a job":     {node("expr: 'true'"), []string{"expr belongs to a decision"}},
		"decision":          {head + "nodes: [{id: a, type: decision, processor: p, disabled: true}]\n", []string{"a decision needs an expr", "a decision cannot be disabled", "a decision has no processor"}},
		"nested nameless":   {head + "nodes: [{id: a, type: workflow, retry: {max: 1}}]\n", []string{"workflow is missing", "a nested workflow has no retry; retry the nodes inside of it"}},
		"wait nothing":      {head + "nodes: [{id: a, type: wait}]\n", []string{"a wait node needs for: a duration, or until: a time"}},
		"wait both":         {head + "nodes: [{id: a, type: wait, for: 1s, until: 5}]\n", []string{"either for or until, not both"}},
		"wait zero":         {head + "nodes: [{id: a, type: wait, for: 0s}]\n", []string{"for must be more than 0 and at most 10 years, it is 0s"}},
		"wait processor":    {head + "nodes: [{id: a, type: wait, for: 1s, processor: p}]\n", []string{"a wait node has no processor"}},
		"signal timeout":    {head + "nodes: [{id: a, type: signal, timeout: 1s}]\n", []string{"a signal node has no timeout; use expires"}},
		"signal default":    {head + "nodes: [{id: a, type: signal, default: 1}]\n", []string{"default needs expires"}},
		"signal roles":      {head + "nodes: [{id: a, type: signal, roles: [x]}]\n", []string{"a signal node has no roles"}},
		"approval role":     {head + "nodes: [{id: a, type: approval, roles: ['']}]\n", []string{"a role has 1 to 255 bytes"}},
		"wait on a job":     {node("for: 1s"), []string{"for belongs to a wait node; set type: wait"}},
		"signal on a job":   {node("signal: x, expires: 1s, roles: [a]"), []string{"signal belongs to a signal node", "expires belongs to a signal node", "roles belongs to an approval node"}},
		"nested on a job":   {node("workflow: x"), []string{"workflow belongs to a nested workflow; set type: workflow"}},
		"for_each broad":    {node("for_each: [1], mode: broadcast"), []string{"the mode is map or map_reduce, not broadcast"}},
		"for_each empty":    {node("for_each: "), []string{"for_each must be a list, or one ${ } that gives a list, not empty"}},
		"unknown type":      {head + "nodes: [{id: a, type: jbo}]\n", []string{`type must be one of job, decision, wait, signal, approval, workflow, not "jbo"; did you mean "job"?`}},
		"null when":         {node("needs: [{node: b, when: null}]"), []string{"when must be true, false, a text or a number, not empty"}},
		"need no id":        {node("needs: [3]"), []string{"needs[0] must be the id of a node"}},
		"edge to nowhere":   {node("title: x") + "edges:\n  - {from: a, to: b}\n", []string{`w.yaml:7:5: the edge from "a" goes to an unknown node "b"`}},
		"merge key":         {"x: &x {kind: Workflow}\n<<: *x\n", []string{"merge keys"}},
		"custom tag":        {node("params: !!binary aGk="), []string{"the tag !!binary is not supported"}},
		"param default":     {head + "params: {n: {type: int, default: x}}\nnodes: [{id: a, processor: p}]\n", []string{`param "n": the default must be of type int, not string`}},
		"param type":        {head + "params: {n: {type: integer}}\nnodes: [{id: a, processor: p}]\n", []string{`param "n": the type must be one of`}},
		"param name":        {head + "params: {a-b: 1}\nnodes: [{id: a, processor: p}]\n", []string{`the param name "a-b"`}},
		"required default":  {head + "params: {n: {required: true, default: 1}}\nnodes: [{id: a, processor: p}]\n", []string{"a required param has no default"}},
		"long title":        {head + "title: " + strings.Repeat("é", 256) + "\nnodes: [{id: a, processor: p}]\n", []string{"title has 256 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := Parse("w.yaml", []byte(c.doc))
			require.Nil(t, d)
			var ps Problems
			require.ErrorAs(t, err, &ps)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			for i := 1; i < len(ps); i++ {
				require.LessOrEqual(t, ps[i-1].Line, ps[i].Line)
			}
		})
	}
}

// Hostile documents: each is refused at once, and nothing panics.
func TestParse_Hostile(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for name, c := range map[string]struct{ doc, want string }{
		"100 MB":        {strings.Repeat("x", 100<<20), "the limit is"},
		"8 MiB of [":    {strings.Repeat("[", MaxDocument), "too many values"},
		"1 MiB of [":    {strings.Repeat("[", 1<<20), "not valid YAML"},
		"json depth":    {`{"a":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "}", ""},
		"block depth":   {strings.Repeat("- ", 100_000) + "x", "not valid YAML"},
		"alias bomb":    {head + "nodes: [{id: a, processor: p, params: *b}]\n", "not valid YAML"},
		"real bomb":     {head + "params:\n  p: {default: &b " + flowBomb() + "}\nnodes: [{id: a, processor: p, params: *b}]\n", "aliases expand to too many values"},
		"unknown bomb":  {bomb, "unknown field"},
		"self alias":    {head + "nodes: [{id: a, processor: p, params: &x [*x]}]\n", ""},
		"NUL":           {head + "title: \"a\x00b\"\n", ""},
		"wide":          {"kind: [" + strings.Repeat("a,", 1_000_000) + "]\n", "kind must be text"},
		"many problems": {head + "nodes:\n" + strings.Repeat("  - {x: 1}\n", 15_000), "and 44900 more problems"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Parse("w.yaml", []byte(c.doc))
			require.Nil(t, d)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 100_000)
		})
	}
}

// flowBomb is a flow list that expands to a billion values.
func flowBomb() string {
	s := "[&b0 [x,x,x,x,x,x,x,x,x,x]"
	for i := 1; i < 9; i++ {
		s += fmt.Sprintf(", &b%d [%s]", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*b%d,", i-1), 10), ","))
	}
	return s + "]"
}

func TestBindParams(t *testing.T) {
	t.Parallel()
	d := mustParse(t, fullDocument)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	got, err := d.BindParams(map[string]json.RawMessage{"root": raw(`"/x"`), "ratio": raw("1")})
	require.NoError(t, err)
	require.Equal(t, `{"free":null,"limit":10,"opts":{"deep":{"n":9007199254740993}},"ratio":1,"root":"/x","tags":["a","b"]}`, string(got))

	_, err = d.BindParams(map[string]json.RawMessage{"limit": raw("1.5"), "tags": raw(`"a"`), "rot": raw("1"), "opts": raw("{")})
	for _, want := range []string{
		`param "root" is required`, `param "limit" must be of type int, not number`, `param "tags" must be of type list, not string`,
		`workflow "report" has no param "rot"; did you mean "root"?`, `param "opts" value is not JSON`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = d.BindParams(map[string]json.RawMessage{"root": raw(`"` + strings.Repeat("x", MaxParams) + `"`)})
	require.ErrorContains(t, err, "the limit is")
}

func TestSpec_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, Spec{Processor: "p"}.Validate())
	require.NoError(t, Spec{Processor: "p"}.WithDefaults().Validate())
	require.NoError(t, Spec{Processor: "p", Mode: Broadcast, Rule: "80%", Waves: []int{10, 50, 100}}.WithDefaults().Validate())
	err := Spec{
		Rule: "x", Waves: []int{50, 10}, Designated: []string{"w"}, MaxWorkers: -1, Concurrency: -1, MinCPU: -1, Rate: -1, MinMemory: -1,
		Timeout: -1, Retry: Retry{Max: -1}, TaskRetry: Retry{Backoff: 0.5}, MaxFailed: Budget{Count: 1, Percent: 1}, Params: json.RawMessage("{"),
	}.Validate()
	for _, want := range []string{
		"processor is missing", "rule must be", "waves needs mode", "designated needs", "max_workers", "concurrency", "min_cpu", "rate must",
		"min_memory", "timeout must", "retry max", "task_retry backoff", "either a count or a percent", "params is not valid JSON",
	} {
		require.ErrorContains(t, err, want)
	}
	r := Retry{Max: 1}.WithDefaults()
	require.Equal(t, []any{Duration(time.Second), 2.0, Duration(5 * time.Minute), 0.1}, []any{r.Delay, r.Backoff, r.MaxDelay, *r.Jitter})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullDocument))
	f.Add([]byte(`{"kind":"Workflow","name":"w","app":"a","nodes":[{"id":"a","processor":"p"}]}`))
	f.Add([]byte(head + "nodes: [{id: a, processor: p, params: &x [*x]}]\n"))
	f.Add([]byte(head + "params: &p\n  a: 1\nnodes: *p\nedges: *p\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer watch(string(data))()
		d, err := Parse("f", data)
		if err != nil {
			return
		}
		b, err := json.Marshal(d)
		require.NoError(t, err)
		back, err := Parse("f.json", b)
		require.NoError(t, err, "%s", b)
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again))
		_, _ = Build(d) // whatever it says, it does not panic
	})
}
