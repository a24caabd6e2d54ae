package workflow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Bounds of a workflow.
const (
	// MaxNodes and MaxEdges bound the graph of one workflow.
	MaxNodes = 20_000
	MaxEdges = 100_000
	// DefaultContextLimit is the bound of the context of a workflow instance in bytes.
	DefaultContextLimit = 64 << 10
	// MaxContextLimit is the largest bound a definition may ask for.
	MaxContextLimit = 1 << 20
	// MaxParams is the largest params value of a node or a run, encoded, in bytes.
	MaxParams = 256 << 10
)

// KindWorkflow is the kind of every workflow document.
const KindWorkflow = "Workflow"

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	paramPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
)

// Definition is a workflow as its author wrote it, checked by Parse. It is stored as JSON;
// Parse reads that JSON back to an equal Definition. It must not be changed after Build.
type Definition struct {
	// Kind is always KindWorkflow.
	Kind string `json:"kind"`
	// Name identifies the workflow in its app: [a-z0-9][a-z0-9_-]{0,62}.
	Name string `json:"name"`
	// App is the app whose workers run it; same form as Name.
	App string `json:"app"`
	// Title is free text for people, at most 255 characters.
	Title string `json:"title,omitempty"`
	// Params are the params a run may be given, by name.
	Params map[string]Param `json:"params,omitempty"`
	// Timeout bounds one run of the workflow; 0 is no bound.
	Timeout Duration `json:"timeout,omitempty"`
	// OnFailure is what its nodes do that say nothing themselves; FailureFail if empty.
	OnFailure OnFailure `json:"on_failure,omitempty"`
	// ContextLimit bounds the context of a run, encoded, in bytes; DefaultContextLimit if 0.
	ContextLimit int64 `json:"context_limit,omitempty"`
	// MaxRunning bounds the runs of the workflow under way; 0 is no bound. What is over it
	// waits, and a fire does what its overlap policy says.
	MaxRunning int `json:"max_running,omitempty"`
	// Schedule says when it fires by itself.
	Schedule Schedule `json:"schedule,omitzero"`
	// Nodes are the steps. Their order has no meaning.
	Nodes []Node `json:"nodes"`

	marks *marks
}

// marks remembers where things stand in the document a Definition was read from.
type marks struct {
	file string
	at   map[mark]position
}

// mark names one place of a node: its id (""), "needs/2", "expr", or "params/a/0".
type mark struct {
	node int
	path string
}

func (d *Definition) file() string {
	if d.marks == nil {
		return ""
	}
	return d.marks.file
}

func (d *Definition) at(node int, path string) position {
	if d.marks == nil {
		return position{}
	}
	if p, ok := d.marks.at[mark{node, path}]; ok {
		return p
	}
	return d.marks.at[mark{node, ""}]
}

// Failure is the on_failure of node i after defaults.
func (d *Definition) Failure(i int) OnFailure {
	for _, f := range []OnFailure{d.Nodes[i].OnFailure, d.OnFailure} {
		if f != "" {
			return f
		}
	}
	return FailureFail
}

// ContextBound is ContextLimit after defaults, in bytes.
func (d *Definition) ContextBound() int64 {
	if d.ContextLimit > 0 {
		return d.ContextLimit
	}
	return DefaultContextLimit
}

// NodeType is what a node is.
type NodeType string

// The node types.
const (
	// TypeJob runs a registered job or an inline processor. It is the default.
	TypeJob NodeType = "job"
	// TypeDecision evaluates an expression and chooses among its outgoing edges.
	TypeDecision NodeType = "decision"
	// TypeWait waits for a time, or until one.
	TypeWait NodeType = "wait"
	// TypeSignal waits for a named signal; its payload is the node's result.
	TypeSignal NodeType = "signal"
	// TypeApproval waits for a person of one of its roles to approve or reject.
	TypeApproval NodeType = "approval"
	// TypeWorkflow runs another workflow of the same app; its result is the node's result.
	TypeWorkflow NodeType = "workflow"
)

var nodeTypes = []NodeType{TypeJob, TypeDecision, TypeWait, TypeSignal, TypeApproval, TypeWorkflow}

// MaxDepth is how many levels of workflows may be nested in one another, the outermost one
// counted.
const MaxDepth = 16

// Join decides what a node needs of its incoming edges. Every join waits until no incoming
// edge is open. An edge is live when its source succeeded (or failed with FailureSkip) and,
// from a decision, was chosen; it is dead by a path not taken, or dead by a failure.
type Join string

// The joins.
const (
	// JoinAllSuccess (default) runs when at least one edge is live and none is dead by a failure.
	JoinAllSuccess Join = "all_success"
	// JoinNoneFailed runs when no edge is dead by a failure, even if every path into it was
	// not taken.
	JoinNoneFailed Join = "none_failed"
	// JoinOneSuccess runs when at least one edge is live, whatever the others are.
	JoinOneSuccess Join = "one_success"
	// JoinAllDone runs always.
	JoinAllDone Join = "all_done"
)

// OnFailure is what the end of a node without success does to the workflow.
type OnFailure string

// The failure policies.
const (
	// FailureFail (default) stops running nodes, cancels waiting ones and fails the workflow.
	FailureFail OnFailure = "fail"
	// FailureContinue lets other branches go on; what depends on the node is skipped and the
	// workflow ends failed.
	FailureContinue OnFailure = "continue"
	// FailureSkip counts the node as done with the result null.
	FailureSkip OnFailure = "skip"
)

// Node is one step of a workflow.
type Node struct {
	// ID names the node in its workflow: [a-z0-9][a-z0-9_-]{0,62}.
	ID string
	// Type is TypeJob if empty.
	Type NodeType
	// Title is free text for people, at most 255 characters.
	Title string
	// Job names a registered job of the app. A job node has either Job or Spec.Processor.
	Job string
	// Spec is the inline job. With Job set it holds only Params, which replace the job's
	// when given. Its Retry and Timeout are unused; see Resolve.
	Spec Spec
	// Retry and Timeout replace those of the job when they are not nil.
	Retry   *Retry
	Timeout *Duration
	// Expr is the expression of a decision, at most 2 KiB.
	Expr string
	// ForEach makes a job node a Map run over a list: a list, or one ${ } that gives one. The
	// processor is called once for each item.
	ForEach json.RawMessage
	// For is how long a wait node waits; Until (RFC 3339 text or epoch milliseconds, or a text
	// with ${ } that gives one) is when it ends instead.
	For   Duration
	Until json.RawMessage
	// Signal is the name of the signal that a signal or approval node waits for; its ID if empty.
	Signal string
	// Expires is how long it waits for it; 0 is for ever. Then it fails, or succeeds with
	// Default if that is not nil.
	Expires Duration
	Default json.RawMessage
	// Roles are who may approve; empty is anybody.
	Roles []string
	// Workflow is the workflow that a nested workflow node runs.
	Workflow string
	// Needs are the incoming edges.
	Needs []Need
	// Join is JoinAllSuccess if empty.
	Join Join
	// OnFailure is that of the workflow if empty.
	OnFailure OnFailure
	// Disabled nodes do not run; they pass the edges of their parents through.
	Disabled bool
}

// Decision reports whether the node is a decision.
func (n *Node) Decision() bool { return n.Type == TypeDecision }

// Kind is the type of the node after defaults.
func (n *Node) Kind() NodeType {
	if n.Type == "" {
		return TypeJob
	}
	return n.Type
}

// SignalName is the name of the signal that a signal or approval node waits for.
func (n *Node) SignalName() string {
	if n.Signal == "" {
		return n.ID
	}
	return n.Signal
}

// MayApprove tells whether somebody who has these roles may decide an approval node.
func (n *Node) MayApprove(roles []string) bool {
	return len(n.Roles) == 0 || slices.ContainsFunc(n.Roles, func(r string) bool { return slices.Contains(roles, r) })
}

// Resolve is the Spec the node runs with: the inline one, or a copy of the registered job's,
// with the params, retry and timeout of the node in place of the job's. Params are still
// the template of the node; Graph.Params evaluates it. With ForEach a standalone job becomes
// a map. job may be nil for an inline node.
func (n *Node) Resolve(job *Spec) Spec {
	s := n.Spec
	if n.Job != "" && job != nil {
		s = *job
		if n.Spec.Params != nil {
			s.Params = n.Spec.Params
		}
	}
	if n.Retry != nil {
		s.Retry = *n.Retry
	}
	if n.Timeout != nil {
		s.Timeout = *n.Timeout
	}
	if n.ForEach != nil && (s.Mode == "" || s.Mode == Standalone) {
		s.Mode = Map
	}
	return s
}

// Need is an incoming edge: the node it comes from and, from a decision, the choice it is for.
type Need struct {
	Node string `json:"node"`
	When Choice `json:"when,omitempty"`
}

// Choice is what a decision gave, or what an edge is taken for: the canonical JSON of a
// bool, a string or a number, such as `true`, `"big"` or `3`. Empty is none.
type Choice string

// MarshalJSON writes the JSON value itself; an empty Choice is null.
func (c Choice) MarshalJSON() ([]byte, error) {
	if c == "" {
		return []byte("null"), nil
	}
	return []byte(c), nil
}

// UnmarshalJSON reads a bool, a string or a number.
func (c *Choice) UnmarshalJSON(b []byte) error {
	v, err := decodeValue(b)
	if err != nil {
		return err
	}
	if v == nil {
		*c = ""
		return nil
	}
	*c, err = choiceOf(v)
	return err
}

// ParamType is the type of a declared param.
type ParamType string

// The param types; ParamAny accepts every JSON value.
const (
	ParamAny    ParamType = ""
	ParamString ParamType = "string"
	ParamInt    ParamType = "int"
	ParamNumber ParamType = "number"
	ParamBool   ParamType = "bool"
	ParamList   ParamType = "list"
	ParamObject ParamType = "object"
)

var paramTypes = []ParamType{ParamString, ParamInt, ParamNumber, ParamBool, ParamList, ParamObject}

// Param declares one param of a workflow. In a document a plain value declares a param with
// that default and its type; a mapping is the long form {type:, default:, required:}.
type Param struct {
	Type     ParamType       `json:"type,omitempty"`
	Required bool            `json:"required,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
}

// nodeWire is the shape of a node in documents: the fields of Spec stand beside its own.
type nodeWire struct {
	ID    string   `json:"id"`
	Type  NodeType `json:"type,omitempty"`
	Title string   `json:"title,omitempty"`
	Job   string   `json:"job,omitempty"`
	// Processor, Retry and Timeout hide those of Spec.
	Processor string    `json:"processor,omitempty"`
	Expr      string    `json:"expr,omitempty"`
	Needs     []Need    `json:"needs,omitempty"`
	Join      Join      `json:"join,omitempty"`
	OnFailure OnFailure `json:"on_failure,omitempty"`
	Disabled  bool      `json:"disabled,omitempty"`
	Retry     *Retry    `json:"retry,omitempty"`
	Timeout   *Duration `json:"timeout,omitempty"`
	// What nodes of one type have.
	ForEach  json.RawMessage `json:"for_each,omitempty"`
	For      Duration        `json:"for,omitempty"`
	Until    json.RawMessage `json:"until,omitempty"`
	Signal   string          `json:"signal,omitempty"`
	Expires  Duration        `json:"expires,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
	Roles    []string        `json:"roles,omitempty"`
	Workflow string          `json:"workflow,omitempty"`
	Spec
}

// MarshalJSON writes the node as documents have it.
func (n Node) MarshalJSON() ([]byte, error) {
	w := nodeWire{
		ID: n.ID, Type: n.Type, Title: n.Title, Job: n.Job, Processor: n.Spec.Processor, Expr: n.Expr, Needs: n.Needs,
		Join: n.Join, OnFailure: n.OnFailure, Disabled: n.Disabled, Retry: n.Retry, Timeout: n.Timeout, Spec: n.Spec,
		ForEach: n.ForEach, For: n.For, Until: n.Until, Signal: n.Signal, Expires: n.Expires, Default: n.Default, Roles: n.Roles, Workflow: n.Workflow,
	}
	return json.Marshal(w)
}

// UnmarshalJSON is refused: a definition is read by Parse only, which checks it.
func (n *Node) UnmarshalJSON([]byte) error {
	return fmt.Errorf("read a workflow definition with workflow.Parse")
}

func (w *nodeWire) node() Node {
	s := w.Spec
	s.Processor = w.Processor
	return Node{
		ID: w.ID, Type: w.Type, Title: w.Title, Job: w.Job, Spec: s, Retry: w.Retry, Timeout: w.Timeout, Expr: w.Expr,
		Needs: w.Needs, Join: w.Join, OnFailure: w.OnFailure, Disabled: w.Disabled,
		ForEach: w.ForEach, For: w.For, Until: w.Until, Signal: w.Signal, Expires: w.Expires, Default: w.Default, Roles: w.Roles, Workflow: w.Workflow,
	}
}
