package workflow

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testEnv is what the expressions of these tests see.
var testEnv = Env{
	Params: json.RawMessage(`{"n":3,"f":2.5,"s":"héllo","t":true,"no":null,"big":9007199254740993,"max":9223372036854775807,
		"huge":18446744073709551616,"wide":1e400,"list":[1,2,3],"obj":{"a":{"b":1},"x-y":2}}`),
	Nodes:   map[string]json.RawMessage{"a": json.RawMessage(`{"count":10,"name":"$(rm -rf \"x\")\n"}`), "b-c": json.RawMessage(`7`)},
	Context: json.RawMessage(`{"k":"v"}`),
	Trigger: json.RawMessage(`{"kind":"cron"}`),
}

func evaluate(source string) (string, error) {
	c := newExprCompiler()
	p, err := c.compile(source)
	if err != nil {
		return "", err
	}
	v, err := p.run(newScope(testEnv))
	if err != nil {
		return "", err
	}
	raw, err := encodeValue(v, MaxParams)
	return string(raw), err
}

func TestExpr(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"params.n > 2":                       "true",
		"params.n + 1":                       "4",
		"params.n == 3.0":                    "true",
		"params.big":                         "9007199254740993",
		"params.big + 1":                     "9007199254740994",
		"params.big == 9007199254740992.0":   "false",
		"params.max > 9223372036854775807.0": "false",
		"params.huge":                        "18446744073709551616",
		"params.huge == params.huge":         "true",
		"params.huge == 1":                   "false",
		"params.wide":                        "1e400",
		"-params.n":                          "-3",
		"7 / 2":                              "3.5",
		"6 / 2":                              "3",
		"7 % 4":                              "3",
		"-7 % -1":                            "0",
		`params.s + "!"`:                     `"héllo!"`,
		"len(params.s)":                      "5",
		`indexOf(params.s, "l")`:             "2",
		"upper(params.s)":                    `"HÉLLO"`,
		`params.s contains "ll"`:             "true",
		`params.s startsWith "h" and not (1 > 2)`: "true",
		`params.s not contains "ll"`:              "false",
		"2 in params.list":                        "true",
		`"a" in params.obj`:                       "true",
		"params.list[-1]":                         "3",
		"params.obj.a.b":                          "1",
		`params.obj["x-y"]`:                       "2",
		"params.obj?.nope ?? 5":                   "5",
		`get(params.obj, "nope") == nil`:          "true",
		"params.no == nil":                        "true",
		"params.no?.x?.y":                         "null",
		"keys(params.obj)":                        `["a","x-y"]`,
		"[1, {a: params.n}]":                      `[1,{"a":3}]`,
		"params.list == [1, 2, 3]":                "true",
		"params.t ? 1 : 2":                        "1",
		"params.t || nope()":                      "error: the function nope is not allowed",
		"params.t || params.missing":              "true",
		"nodes.a.result.count > 3":                "true",
		`nodes["b-c"].result + 1`:                 "8",
		"nodes.none.result == nil":                "true",
		"context.k + trigger.kind":                `"vcron"`,
		"min(3, 1.5, 2)":                          "1.5",
		"max(params.max, 1)":                      "9223372036854775807",
		`int("42") + int(3.9)`:                    "45",
		`float("1.5")`:                            "1.5",
		"string(params.n)":                        `"3"`,
		"abs(-4)":                                 "4",
		"params.s | upper()":                      `"HÉLLO"`,
		"1 / 0":                                   "error: division by zero",
		"1.0 / 0.0":                               "error: division by zero",
		"1 % 0":                                   "error: division by zero",
		"params.max + 1":                          "error: beyond 64 bits",
		"0 - params.max - 2":                      "error: beyond 64 bits",
		"params.max * 2":                          "error: beyond 64 bits",
		"1e308 * 10":                              "error: beyond the range",
		"params.huge + 1":                         "error: cannot add number too large to calculate with and int",
		"params.huge > 1":                         "error: cannot be ordered",
		"99999999999999999999 > 1":                "error: ",
		"params.missing":                          `error: there is no key "missing"`,
		"params.obj.a.c":                          `error: there is no key "c"`,
		"params.no.x":                             `error: null has no member "x"`,
		"nodes.none.result.count":                 `error: null has no member "count"`,
		"params.list[3]":                          "error: index 3 is outside a list of 3",
		"params.n.x":                              `error: a value of type int has no member "x"`,
		`params.n == "3"`:                         "error: int and string cannot be compared",
		`params.n > "3"`:                          "error: int and string cannot be ordered",
		`params.n + "3"`:                          "error: cannot add int and string",
		"params.no + 1":                           "error: cannot add null and int",
		"!params.n":                               "error: a bool is needed here, not a value of type int",
		"params.s && true":                        "error: a bool is needed here, not a value of type string",
		"params.no ? 1 : 2":                       "error: a bool is needed here, not a value of type null",
		"len(nil)":                                "error: len needs a string, a list or an object, not null",
		`int("x")`:                                `error: "x" is not a whole number`,
		"":                                        "error: is empty",
		"nodes.a":                                 "error: nodes must be followed by",
		"nodes[params.s].result":                  "error: of a node there is only its result",
		"nodes.a.status":                          "error: of a node there is only its result",
		"$env":                                    "error: unknown name",
		`$env["params"]`:                          "error: unknown name",
		"_add(1, 2)":                              "error: the function _add is not allowed",
		"params.s.String()":                       "error: methods cannot be called",
		"now()":                                   "error: the function now is not allowed",
	} {
		got, err := evaluate(source)
		if text, bad := strings.CutPrefix(want, "error: "); bad {
			require.ErrorContains(t, err, text, source)
			var ee *ExprError
			require.ErrorAs(t, err, &ee, source)
			require.Equal(t, source, ee.Expr)
			continue
		}
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// E04: forms that end or hang a process with the plain library are refused before they run.
func TestExpr_E04_Hostile(t *testing.T) {
	t.Parallel()
	sources := []string{
		`repeat(repeat("a",900000),900000)`,
		`reduce(1..30, #acc + #acc, "aaaaaaaaaa")`,
		`let b="aaaaaaaa"+"a"; let c=b+b; c+c`,
		"let a=1..1000; all(a,{all(a,{all(a,{all(a,{true})})})})",
		"1..1000000000", "sort(params.list)", "count(params.list, true)", "map(params.list, # * 2)", "filter(params.list, # > 1)",
		"2 ** 1000000", "2 ^ 1000000", `params.s matches "(a*)*b"`, `params.s matches params.s`, "flatten(params.list)", "mean(params.list)",
		"params.list[1:2]", "1; 2", `date("2020-01-01")`, `toJSON(params)`, `fromJSON("{}")`, "b\"bytes\"", "params.list.map(# + 1)",
		"+params.n", "{params.s: 1}", "{(params.s): 1}", "sum(params.list)", "groupBy(params.list, #)", "ceil(1.5)", "#", ".x",
		strings.Repeat("(", 100_000), strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + ".x.y[", strings.Repeat("a", 1<<20),
		strings.Repeat("!", 2000) + "true", strings.Repeat("1+", 900) + "1", strings.Repeat("[", 500) + strings.Repeat("]", 500), "\x00", "\xff", "`",
	}
	for _, s := range sources {
		var err error
		_, err = evaluate(s)
		require.Error(t, err, clip(s))
		require.Less(t, len(err.Error()), 1000, "an error shows only the start of a long source")
	}
}

// What the guard lets through is bounded in memory by its operations.
func TestExpr_E04_Bounded(t *testing.T) {
	env := testEnv
	env.Params = json.RawMessage(`{"s":"` + strings.Repeat("x", 200_000) + `"}`)
	run := func(source string, env Env) error {
		p, err := newExprCompiler().compile(source)
		require.NoError(t, err)
		v, err := p.run(newScope(env))
		if err == nil {
			_, err = encodeValue(v, MaxParams)
		}
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.ErrorContains(t, run("params.s + params.s", env), "the limit is")
	require.ErrorContains(t, run("["+strings.TrimSuffix(strings.Repeat("params.s,", 60), ",")+"]", env), "result has more than")
	require.ErrorContains(t, run("string([params.s, params.s])", env), "more than")

	env.Context = json.RawMessage(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))
	require.ErrorContains(t, run("context == 1", env), "nests deeper than 100")
	env.Context = json.RawMessage(`"` + strings.Repeat("x", MaxValue) + `"`)
	require.ErrorContains(t, run("context == 1", env), "can read at most")
	env.Context = json.RawMessage(`{`)
	require.ErrorContains(t, run("context == 1", env), "context: value is not JSON")

	many := map[string]json.RawMessage{}
	var sum []string
	for i := range 20 {
		id := fmt.Sprint("n", i)
		many[id] = json.RawMessage(`[` + strings.TrimSuffix(strings.Repeat("[],", 300_000), ",") + `]`)
		sum = append(sum, "nodes."+id+".result")
	}
	require.ErrorContains(t, run("["+strings.Join(sum, ",")+"]", Env{Nodes: many}), "in all")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
}

func decision(t *testing.T, expr string, whens ...string) *Graph {
	t.Helper()
	doc := head + "params: {n: 3, s: \"false\", zero: 0, none: null, list: [], big: 9223372036854775807, f: 3.5, t: true}\nnodes:\n  - {id: d, type: decision, expr: " + fmt.Sprintf("%q", expr) + "}\n"
	for i, w := range whens {
		doc += fmt.Sprintf("  - {id: n%d, processor: p, needs: [{node: d, when: %s}]}\n", i, w)
	}
	return mustBuild(t, doc)
}

// B28: only a bool decides a decision with bools; everything else fails with the expression
// and the type shown, and there is no choice.
func TestDecide_B28(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"params.n > 2":               "true",
		"params.n > 5":               "false",
		"params.s":                   `error: expression "params.s": gave "false" of type string: a decision must give true or false`,
		"params.zero":                `gave 0 of type int`,
		"params.none":                `of type null`,
		"params.list":                `of type list`,
		"params.n == params.s":       "int and string cannot be compared",
		"params.big + 1 > 0":         "beyond 64 bits",
		"params.n / params.zero > 1": "division by zero",
		"context.missing == 1":       `there is no key "missing"`,
		"params.list[0] == 1":        "outside a list of 0",
	} {
		g := decision(t, expr, "true", "false")
		params, err := g.Definition().BindParams(nil)
		require.NoError(t, err)
		c, err := g.Decide(0, Env{Params: params, Context: json.RawMessage("{}")})
		if want == "true" || want == "false" {
			require.NoError(t, err)
			require.Equal(t, Choice(want), c)
			continue
		}
		require.ErrorContains(t, err, strings.TrimPrefix(want, "error: "))
		require.ErrorContains(t, err, fmt.Sprintf("%q", expr))
		require.Empty(t, c)
	}
}

func TestDecide_Values(t *testing.T) {
	t.Parallel()
	env := Env{Params: json.RawMessage(`{"n":3,"s":"big","f":3.5,"t":true}`)}
	for expr, want := range map[string]string{
		"params.n": "3", "params.s": `"big"`, "params.f": "3.5", "6 / 2.0": "3",
		"params.n + 1": "error: no edge is for it", "params.t": "error: no edge is for it", "string(params.n)": "error: no edge is for it",
	} {
		g := decision(t, expr, "3", "big", "3.5", "3")
		c, err := g.Decide(0, env)
		if text, bad := strings.CutPrefix(want, "error: "); bad {
			require.ErrorContains(t, err, text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, Choice(want), c)
	}
	g := decision(t, "true", "true")
	_, err := g.Decide(1, env)
	require.ErrorContains(t, err, `node "n0" is not a decision`)
}

func TestParams(t *testing.T) {
	t.Parallel()
	g := mustBuild(t, head+`params: {n: 3, s: x, big: 0, obj: {type: object, default: {}}, none: null}
nodes:
  - {id: a, processor: p}
  - id: b
    processor: p
    needs: [a]
    params:
      exact: "${ params.big }"
      obj: "${ params.obj }"
      none: "${ params.none }"
      mixed: "n=${ params.n } s=${params.s} o=${ params.obj } t=${ true }"
      literal: "$${ not } $5 {} $"
      brace: "${ {a: '}'} }"
      nested: [1, {deep: "${ nodes.a.result.count }"}, 12345678901234567890, 1.50]
      raw: "${ nodes.a.result.name }"
  - {id: c, processor: p, params: [1, 2]}
  - {id: d, processor: p, needs: [a], params: "${ params }"}
  - {id: e, processor: p, params: "x${ params.none }"}
`)
	env := Env{
		Params: json.RawMessage(`{"n":3,"s":"x","big":9007199254740993,"obj":{"z":[1],"<":2},"none":null}`),
		Nodes:  testEnv.Nodes,
	}
	got, err := g.Params(1, env)
	require.NoError(t, err)
	require.Equal(t, `{"brace":{"a":"}"},"exact":9007199254740993,"literal":"${ not } $5 {} $",`+
		`"mixed":"n=3 s=x o={\"\\u003c\":2,\"z\":[1]} t=true","nested":[1,{"deep":10},12345678901234567890,1.50],`+
		`"none":null,"obj":{"\u003c":2,"z":[1]},"raw":"$(rm -rf \"x\")\n"}`, string(got))

	got, err = g.Params(0, env)
	require.NoError(t, err)
	require.Nil(t, got, "a node without params leaves those of its job")
	got, err = g.Params(2, env)
	require.NoError(t, err)
	require.Equal(t, "[1,2]", string(got))
	got, err = g.Params(3, env)
	require.NoError(t, err)
	require.JSONEq(t, string(env.Params), string(got))
	_, err = g.Params(4, env)
	require.ErrorContains(t, err, `params of node "e": expression "params.none": null cannot be put into a text`)
	env.Nodes = nil
	_, err = g.Params(1, env)
	require.ErrorContains(t, err, `expression "nodes.a.result.count": null has no member "count"`)
	env.Params = json.RawMessage(`{"x":"` + strings.Repeat("é", MaxParams/2) + `"}`)
	_, err = g.Params(3, env)
	require.ErrorContains(t, err, "more than 262144 bytes", "bytes are counted, not characters")
}

// A Graph is read by many goroutines at once.
func TestGraph_Concurrent(t *testing.T) {
	t.Parallel()
	g := mustBuild(t, fullDocument)
	env := Env{Params: json.RawMessage(`{"root":"/x"}`), Nodes: map[string]json.RawMessage{"list": json.RawMessage(`{"count":4}`)}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c, err := g.Decide(1, env)
				if err != nil || c != "true" {
					t.Errorf("decide: %s %v", c, err)
				}
				if _, err := g.Params(0, env); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzGuard(f *testing.F) {
	for _, s := range []string{"params.n > 2 && nodes.a.result.count in [1,2]", "reduce(1..30, #acc + #acc, \"a\")", "{a: params?.x ?? -1}.a", "params.s | upper() == 'X'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		defer watch(source)()
		p, err := newExprCompiler().compile(source)
		if err != nil {
			return
		}
		v, err := p.run(newScope(testEnv))
		if err != nil {
			return
		}
		if _, err := encodeValue(v, MaxParams); err != nil {
			require.ErrorContains(t, err, "result has")
		}
	})
}

// watch crashes a fuzz worker that hangs, so that its input is kept.
func watch(input string) (stop func() bool) {
	return time.AfterFunc(10*time.Second, func() { panic(fmt.Sprintf("hangs: %q", input)) }).Stop
}
