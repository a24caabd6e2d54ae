package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// Bounds of expressions.
const (
	// MaxExpr is the largest expression, in bytes.
	MaxExpr = 2 << 10
	// maxExprNodes bounds the parts of one expression.
	maxExprNodes = 200
	// maxExprs bounds the different expressions of one workflow.
	maxExprs = 50_000
)

// ExprError is an expression that could not be evaluated, or gave what its place cannot take.
type ExprError struct {
	// Expr is the source of the expression.
	Expr string
	// Message says what happened, with the types of the values.
	Message string
	// At is the character of Expr at which it went wrong, from 1; 0 if that is not known.
	At int
}

// Error shows the expression, what happened, and where in it.
func (e *ExprError) Error() string {
	s := fmt.Sprintf("expression %q: %s", clip(strings.TrimSpace(e.Expr)), e.Message)
	if e.At > 0 {
		s += fmt.Sprintf(" (at character %d)", e.At)
	}
	return s
}

// Env is what expressions of a run see, all of it JSON. An empty value is null. Each value
// is at most MaxValue bytes and nests at most 100 deep; only what an expression names is read.
type Env struct {
	// Params is the object that BindParams gave.
	Params json.RawMessage
	// Nodes holds the results of finished nodes by node id; a node without one has null.
	Nodes map[string]json.RawMessage
	// Context is the context of the run.
	Context json.RawMessage
	// Trigger says what started the run.
	Trigger json.RawMessage
}

// scope decodes the values of an Env as evaluations ask for them, and bounds their sum.
type scope struct {
	env   Env
	read  int
	names map[string]any
	nodes map[string]any
}

func newScope(env Env) *scope {
	return &scope{env: env, names: map[string]any{}, nodes: map[string]any{}}
}

func (s *scope) decode(name string, raw json.RawMessage) (any, error) {
	if s.read += len(raw); s.read > maxValues {
		return nil, fmt.Errorf("the values it reads have more than %d bytes in all", maxValues)
	}
	v, err := decodeValue(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// values is the environment of one program: the names and nodes it refers to, no others.
func (s *scope) values(p *program) (map[string]any, error) {
	for _, name := range p.names {
		if _, ok := s.names[name]; ok {
			continue
		}
		raw := s.env.Params
		switch name {
		case "context":
			raw = s.env.Context
		case "trigger":
			raw = s.env.Trigger
		}
		v, err := s.decode(name, raw)
		if err != nil {
			return nil, err
		}
		s.names[name] = v
	}
	for _, id := range p.nodes {
		if _, ok := s.nodes[id]; ok {
			continue
		}
		v, err := s.decode("the result of node "+id, s.env.Nodes[id])
		if err != nil {
			return nil, err
		}
		s.nodes[id] = v
	}
	return map[string]any{
		"params": s.names["params"], "context": s.names["context"], "trigger": s.names["trigger"], "nodes": s.nodes,
	}, nil
}

// program is a compiled expression. It is immutable and safe for concurrent use.
type program struct {
	source string
	code   *vm.Program
	names  []string // of params, context and trigger: those it reads
	nodes  []string // ids whose results it reads
	params []string // params it names
	kind   string   // of what it gives, as far as its form tells: bool, string, number, other, or empty
}

// run evaluates the program. Its work and its memory are bounded by the guard: no loops, no
// recursion, at most maxExprNodes operations, each linear in values that are bounded.
func (p *program) run(s *scope) (any, error) {
	env, err := s.values(p)
	if err != nil {
		return nil, &ExprError{Expr: p.source, Message: err.Error()}
	}
	v, err := vm.Run(p.code, env)
	if err != nil {
		return nil, &ExprError{Expr: p.source, Message: exprMessage(err)}
	}
	return v, nil
}

// exprMessage is the bare message of an error of the expression library.
func exprMessage(err error) string {
	var fe *file.Error
	if errors.As(err, &fe) {
		return fe.Message
	}
	return err.Error()
}

// placedError is a refusal of the guard and where it stands.
type placedError struct {
	from int
	err  error
}

func (e *placedError) Error() string { return e.err.Error() }
func (e *placedError) Unwrap() error { return e.err }

// exprAt is the character at which an expression that does not compile went wrong, counted
// without leading space, as messages show it; 0 if that is not known.
func exprAt(source string, err error) int {
	var at int
	var fe *file.Error
	var pe *placedError
	switch {
	case errors.As(err, &pe):
		at = pe.from
	case errors.As(err, &fe):
		at = fe.From
	default:
		return 0
	}
	return max(at-(len(source)-len(strings.TrimLeft(source, " \t\r\n"))), 0) + 1
}

// exprCompiler compiles the expressions of one workflow; equal sources share a program. It
// is not safe for concurrent use.
type exprCompiler struct {
	config   *conf.Config
	programs map[string]*program
	failed   map[string]error
}

func newExprCompiler() *exprCompiler {
	config := conf.CreateNew()
	config.Optimize = false
	config.MaxNodes = maxExprNodes
	for name := range config.Builtins {
		config.Disabled[name] = true
	}
	config.Builtins = conf.FunctionsTable{}
	anything := reflect.TypeFor[any]()
	for name, op := range operations {
		config.Functions[name] = &builtin.Function{
			Name: name,
			Func: op,
			// Arguments are checked where they are used, on values: their types are not
			// known before.
			Validate: func([]reflect.Type) (reflect.Type, error) { return anything, nil },
		}
	}
	config.WithEnv(map[string]any{"params": any(nil), "nodes": map[string]any{}, "context": any(nil), "trigger": any(nil)})
	return &exprCompiler{config: config, programs: map[string]*program{}, failed: map[string]error{}}
}

// compile parses, guards and compiles one expression.
func (c *exprCompiler) compile(source string) (*program, error) {
	if p, ok := c.programs[source]; ok {
		return p, nil
	}
	if err, ok := c.failed[source]; ok {
		return nil, err
	}
	if len(c.programs)+len(c.failed) >= maxExprs {
		return nil, &ExprError{Expr: source, Message: fmt.Sprintf("the workflow has more than %d different expressions", maxExprs)}
	}
	p, err := c.compileNew(source)
	if err != nil {
		err = &ExprError{Expr: source, Message: exprMessage(err), At: exprAt(source, err)}
		c.failed[source] = err
		return nil, err
	}
	c.programs[source] = p
	return p, nil
}

func (c *exprCompiler) compileNew(source string) (p *program, err error) {
	// The library reads hostile input here; its panic must be a refused expression.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("cannot be compiled: %v", r)
		}
	}()
	if len(source) > MaxExpr {
		return nil, fmt.Errorf("has %d bytes, the limit is %d", len(source), MaxExpr)
	}
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("is empty")
	}
	tree, err := parser.ParseWithConfig(source, c.config)
	if err != nil {
		return nil, err
	}
	p = &program{source: source, kind: formOf(tree.Node)}
	g := guard{program: p}
	if tree.Node, err = g.node(tree.Node); err != nil {
		return nil, err
	}
	if _, err = checker.Check(tree, c.config); err != nil {
		return nil, err
	}
	if p.code, err = compiler.Compile(tree, c.config); err != nil {
		return nil, err
	}
	return p, nil
}

// guard lets only known harmless forms through and puts our own checked operations in the
// place of the library's: those overflow silently, take a missing key for null, and build
// strings without bound.
type guard struct{ program *program }

func call(name string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args}
}

// node checks and rewrites one node of the tree. What it does not know it refuses.
func (g *guard) node(n ast.Node) (ast.Node, error) {
	out, err := g.rewrite(n)
	if pe := (*placedError)(nil); err != nil && !errors.As(err, &pe) {
		err = &placedError{n.Location().From, err}
	}
	return out, err
}

func (g *guard) rewrite(n ast.Node) (ast.Node, error) {
	switch n := n.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		return n, nil
	case *ast.IdentifierNode:
		return g.identifier(n)
	case *ast.ChainNode:
		return g.node(n.Node)
	case *ast.MemberNode:
		return g.member(n)
	case *ast.UnaryNode:
		return g.unary(n)
	case *ast.BinaryNode:
		return g.binary(n)
	case *ast.ConditionalNode:
		parts, err := g.all(n.Cond, n.Exp1, n.Exp2)
		if err != nil {
			return nil, err
		}
		return &ast.ConditionalNode{Ternary: true, Cond: call("_bool", parts[0]), Exp1: parts[1], Exp2: parts[2]}, nil
	case *ast.ArrayNode:
		items, err := g.all(n.Nodes...)
		return &ast.ArrayNode{Nodes: items}, err
	case *ast.MapNode:
		return g.object(n)
	case *ast.CallNode:
		callee, ok := n.Callee.(*ast.IdentifierNode)
		if !ok {
			return nil, errors.New("methods cannot be called")
		}
		return g.function(callee.Value, n.Arguments)
	case *ast.BuiltinNode:
		return g.function(n.Name, nil)
	case *ast.SliceNode:
		return nil, errors.New("slices are not allowed")
	case *ast.VariableDeclaratorNode, *ast.SequenceNode:
		return nil, errors.New("variables and sequences (let, ;) are not allowed")
	}
	return nil, fmt.Errorf("%s is not allowed", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", n), "*ast."), "Node"))
}

func (g *guard) all(nodes ...ast.Node) ([]ast.Node, error) {
	out := make([]ast.Node, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = g.node(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (g *guard) identifier(n *ast.IdentifierNode) (ast.Node, error) {
	switch n.Value {
	case "params", "context", "trigger":
		g.program.names = add(g.program.names, n.Value)
		return n, nil
	case "null": // the library writes nil, JSON and our messages write null
		return &ast.NilNode{}, nil
	case "nodes":
		return nil, errors.New(`nodes must be followed by a node and its result, as in nodes.list.result or nodes["my-list"].result`)
	}
	return nil, fmt.Errorf("unknown name %q%s; an expression knows params, nodes, context and trigger", clip(n.Value),
		closest(n.Value, []string{"params", "nodes", "context", "trigger"}))
}

func add(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

func (g *guard) member(n *ast.MemberNode) (ast.Node, error) {
	if inner := unchain(n.Node); isMember(inner) {
		m := inner.(*ast.MemberNode)
		if root, ok := m.Node.(*ast.IdentifierNode); ok && root.Value == "nodes" {
			id, constant := m.Property.(*ast.StringNode)
			field, named := n.Property.(*ast.StringNode)
			if !constant || !named || field.Value != "result" {
				return nil, errors.New(`of a node there is only its result, as in nodes.list.result`)
			}
			g.program.nodes = add(g.program.nodes, id.Value)
			return &ast.MemberNode{Node: root, Property: &ast.StringNode{Value: id.Value}}, nil
		}
	}
	if root, ok := n.Node.(*ast.IdentifierNode); ok && root.Value == "params" {
		if name, ok := n.Property.(*ast.StringNode); ok && !n.Optional {
			g.program.params = add(g.program.params, name.Value)
		}
	}
	parts, err := g.all(n.Node, n.Property)
	if err != nil {
		return nil, err
	}
	if n.Optional {
		return call("get", parts...), nil
	}
	return call("_member", parts...), nil
}

func isMember(n ast.Node) bool {
	_, ok := n.(*ast.MemberNode)
	return ok
}

func unchain(n ast.Node) ast.Node {
	if c, ok := n.(*ast.ChainNode); ok {
		return c.Node
	}
	return n
}

func (g *guard) unary(n *ast.UnaryNode) (ast.Node, error) {
	x, err := g.node(n.Node)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "!", "not":
		return &ast.UnaryNode{Operator: "not", Node: call("_bool", x)}, nil
	case "-":
		return call("_subtract", &ast.IntegerNode{Value: 0}, x), nil
	}
	return nil, fmt.Errorf("the operator %s is not allowed", n.Operator)
}

// operators are the binary operators and the operation that stands for each.
var operators = map[string]string{
	"==": "_equal", "!=": "_unequal", "<": "_less", "<=": "_lessOrEqual", ">": "_greater", ">=": "_greaterOrEqual",
	"+": "_add", "-": "_subtract", "*": "_multiply", "/": "_divide", "%": "_remainder",
	"in": "_in", "contains": "_contains", "startsWith": "hasPrefix", "endsWith": "hasSuffix",
}

func (g *guard) binary(n *ast.BinaryNode) (ast.Node, error) {
	parts, err := g.all(n.Left, n.Right)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "&&", "and", "||", "or":
		return &ast.BinaryNode{Operator: n.Operator, Left: call("_bool", parts[0]), Right: call("_bool", parts[1])}, nil
	case "??":
		return &ast.BinaryNode{Operator: n.Operator, Left: parts[0], Right: parts[1]}, nil
	}
	if name, ok := operators[n.Operator]; ok {
		return call(name, parts...), nil
	}
	if n.Operator == "matches" {
		return nil, errors.New("matches is not allowed; use contains, startsWith or endsWith")
	}
	return nil, fmt.Errorf("the operator %s is not allowed", n.Operator)
}

func (g *guard) object(n *ast.MapNode) (ast.Node, error) {
	pairs := make([]ast.Node, len(n.Pairs))
	for i, p := range n.Pairs {
		pair, ok := p.(*ast.PairNode)
		if !ok {
			return nil, errors.New("an object literal is not well formed")
		}
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			return nil, errors.New("the keys of an object literal must be plain text")
		}
		value, err := g.node(pair.Value)
		if err != nil {
			return nil, err
		}
		pairs[i] = &ast.PairNode{Key: key, Value: value}
	}
	return &ast.MapNode{Pairs: pairs}, nil
}

func (g *guard) function(name string, args []ast.Node) (ast.Node, error) {
	count, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("the function %s is not allowed%s; there are %s", clip(name), closest(name, functionNames), strings.Join(functionNames, ", "))
	}
	if len(args) < count.min || len(args) > count.max {
		return nil, fmt.Errorf("the function %s does not take %d arguments", name, len(args))
	}
	parts, err := g.all(args...)
	if err != nil {
		return nil, err
	}
	return call(name, parts...), nil
}
