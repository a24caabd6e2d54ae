package flow

import (
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// maxKept bounds the results of one workflow instance that are kept for later nodes, bytes.
const maxKept = 16 << 20

// Node is the job of a node, as its instance is to run.
type Node struct {
	Instance engine.Instance
	Spec     *workflow.Spec
	Job      string
	Err      error // it cannot be run, and why
}

// Sink is where decisions go. It is called on the goroutine that calls Flow.
type Sink interface {
	// Pending is the Change that the shard's next commit stores; nil if it is not owned.
	Pending(shard uint8) *engine.Change
	// Admit makes the instance of a job node.
	Admit(app *engine.App, n Node)
	// Stop stops an instance, wherever it is.
	Stop(shard uint8, instance int64, why string)
	// Child has a nested workflow instance of a node read once the shard's Change is stored,
	// and Begin called with it and its nodes, be it waiting, running or final. row is set when
	// that Change makes it.
	Child(w *engine.WorkflowInstance, node string, child int64, row *engine.WorkflowInstance)
	// Room tells that a run of a limited workflow has ended, or one that waited has begun: the
	// next of those that wait are to be read.
	Room()
	// NextID is a fresh id.
	NextID() int64
	// Moved tells live views, after the commit, that a node has moved.
	Moved(w *engine.WorkflowInstance, n engine.Node)
	// Ended tells, after the commit, that the workflow instance has begun or is final.
	Ended(w engine.WorkflowInstance)
}

// Execution is a workflow instance with what its row refers to.
type Execution struct {
	Row   engine.WorkflowInstance
	App   *engine.App
	Graph *workflow.Graph
	// Jobs are the registered jobs that nodes name, by node id.
	Jobs map[string]*engine.Job
	// Nested are the workflows that nodes nest, by name.
	Nested map[string]*Nested
	// Nodes are the rows of nodes that have moved, and Signals what is kept for later ones;
	// only of an instance that was stored before.
	Nodes   []engine.Node
	Signals []engine.Signal
	// Fresh says that the row is not stored yet.
	Fresh bool
	// Err says that the instance cannot be run (its definition is gone or broken).
	Err error
}

// Nested is a workflow that a node runs, at the version that it runs.
type Nested struct {
	Workflow   int64
	Version    int32
	Definition *workflow.Definition
}

// Flow keeps the workflow instances of the owned shards. It is not safe for concurrent use.
type Flow struct {
	sink   Sink
	live   map[int64]*execution
	roots  map[int64]int // of these, not nested, by workflow
	past   past
	timers timers
	now    int64
}

type execution struct {
	Execution
	p       *workflow.Progress
	rows    []*nodeRow // by index; nil while the node waits
	results map[string]json.RawMessage
	wanted  map[int]bool // nodes whose result a later node reads
	kept    int
	signals []engine.Signal // that came before their nodes, by id
	timers  map[int]*timer  // by node; ofWorkflow for that of the whole
	dirty   bool
	touched []int
}

type nodeRow struct {
	engine.Node
	fresh bool
	dirty bool
}

// New makes a Flow without instances.
func New(sink Sink) *Flow {
	return &Flow{sink: sink, live: map[int64]*execution{}, roots: map[int64]int{}, past: past{ended: map[int64]ending{}}}
}

// Active is the number of workflow instances in memory.
func (f *Flow) Active() int { return len(f.live) }

// Begin starts a new workflow instance of an owned shard, or goes on with a stored one.
// One that is there already, or whose row is older than what is known of it, is left alone.
// A nested one begins only while its node waits for it.
func (f *Flow) Begin(now int64, e Execution) {
	f.now = max(f.now, now)
	if f.live[e.Row.ID] != nil || f.sink.Pending(e.Row.Shard) == nil || f.past.stale(&e.Row) {
		return
	}
	if e.Row.Parent != 0 && !f.beginNested(&e) || e.Row.Status.Terminal() {
		return
	}
	if f.full(&e) {
		f.queue(&e)
		return
	}
	if e.Row.Reason == engine.ReasonQueued {
		f.sink.Room() // perhaps for the next one, too
	}
	x := newExecution(e)
	if e.Err != nil {
		x.Row.Status, x.Row.Error, x.Row.FinishedAt = engine.StatusFailed, engine.CutText(e.Err.Error(), engine.MaxError), f.now
		f.past.add(&x.Row)
		f.store(x)
		f.over(x)
		return
	}
	f.add(x)
	var err error
	if x.p, err = x.restore(); err != nil {
		f.fail(x, err)
		return
	}
	if x.Row.Status == engine.StatusWaiting {
		x.Row.Status, x.Row.Reason, x.Row.StartedAt = engine.StatusRunning, "", f.now
		x.dirty = true
		f.sink.Ended(x.Row)
	}
	if parent := f.live[x.Row.Parent]; parent != nil && parent.Row.Status == engine.StatusPaused {
		f.pause(x)
	}
	if x.Row.Status == engine.StatusPaused {
		x.p.Pause()
	}
	f.goOn(x)
}

// goOn sets the timers and starts what can start.
func (f *Flow) goOn(x *execution) {
	f.watch(x)
	for i, r := range x.rows {
		if r == nil || !x.p.State(i).Status.Active() {
			continue
		}
		if r.DueAt != 0 {
			f.timer(x, i, r.DueAt)
		}
		if r.Child != 0 {
			f.sink.Child(&x.Row, r.Node.Node, r.Child, nil)
		}
	}
	f.act(x, x.p.Start())
	if status, text, final := x.p.Final(); final && !x.Row.Status.Terminal() {
		f.end(x, status, text)
	}
	f.flush(x)
}

func newExecution(e Execution) *execution {
	x := &execution{
		Execution: e, results: map[string]json.RawMessage{}, wanted: map[int]bool{}, timers: map[int]*timer{}, signals: e.Signals,
	}
	if e.Err == nil {
		x.rows = make([]*nodeRow, e.Graph.Len())
		for i := range e.Graph.Len() {
			for _, r := range e.Graph.References(i) {
				x.wanted[r] = true
			}
		}
	}
	return x
}

// takeRow takes in the stored row of a node, unless one of a later attempt is there.
func (x *execution) takeRow(n engine.Node) (i int, newest bool, err error) {
	i, ok := x.Graph.Index(n.Node)
	if !ok {
		return 0, false, fmt.Errorf("node %q is not in version %d of the workflow", n.Node, x.Row.Version)
	}
	if old := x.rows[i]; old != nil && old.Attempt > n.Attempt {
		return i, false, nil
	}
	x.rows[i] = &nodeRow{Node: n}
	return i, true, nil
}

// restore rebuilds the progress from the rows.
func (x *execution) restore() (*workflow.Progress, error) {
	if len(x.Nodes) == 0 {
		return workflow.NewProgress(x.Graph), nil
	}
	states := make([]workflow.NodeState, x.Graph.Len())
	for i := range states {
		states[i].Status = workflow.NodeWaiting
	}
	for _, n := range x.Nodes {
		i, newest, err := x.takeRow(n)
		if err != nil {
			return nil, err
		}
		if !newest {
			continue
		}
		states[i] = workflow.NodeState{
			Status: nodeStatus(n.Status), Reason: workflow.NodeReason(n.Reason), Choice: workflow.Choice(n.Choice), Error: n.Error,
		}
		if n.Status == engine.StatusSucceeded {
			x.keep(i, n.Result)
		}
	}
	var ending workflow.Ending
	switch x.Row.Reason {
	case reasonStopping:
		ending = workflow.Ending{Status: workflow.NodeStopped, Reason: x.Row.Error}
	case reasonTimingOut:
		ending = workflow.Ending{Status: workflow.NodeTimedOut}
	default: // it is not ending
	}
	return workflow.Restore(x.Graph, states, ending)
}

// Reasons of a running workflow instance that is ending.
const (
	reasonStopping  engine.Reason = "stopping"
	reasonTimingOut engine.Reason = "timing_out"
)

// Lost forgets the workflow instances of a shard.
func (f *Flow) Lost(shard uint8) {
	for _, x := range f.live {
		if x.Row.Shard == shard {
			f.untime(x)
			f.remove(x)
		}
	}
	f.past.forget(shard)
}

// Started takes in that the instance of a node was started by a worker.
func (f *Flow) Started(now int64, in *engine.Instance) {
	f.now = max(f.now, now)
	x, i := f.find(in)
	if x == nil || x.p.State(i).Status.Terminal() || x.p.Running(i) != nil {
		return
	}
	x.rows[i].StartedAt = in.StartedAt
	f.moved(x, i)
	f.flush(x)
}

// Final takes the result of the instance of a node back. A second word about the same
// instance, or one about an instance that is no longer the node's, changes nothing.
func (f *Flow) Final(now int64, in *engine.Instance) {
	f.now = max(f.now, now)
	x, i := f.find(in)
	if x == nil {
		return
	}
	x.rows[i].StartedAt = in.StartedAt
	if in.Status == engine.StatusSucceeded && len(in.Context) > 0 {
		context, err := x.Graph.Definition().MergeContext(x.Row.Context, in.Context)
		if err != nil {
			x.rows[i].Result = in.Result
			f.act(x, f.finished(x, i, workflow.Outcome{Status: workflow.NodeFailed, Error: err.Error()}))
			f.flush(x)
			return
		}
		x.Row.Context, x.dirty = context, true
	}
	f.act(x, f.ended(x, i, in.Status, in.Result, in.Error))
	f.flush(x)
}

// ended takes in how what ran for a node has ended.
func (f *Flow) ended(x *execution, i int, status engine.Status, result []byte, text string) []workflow.Action {
	out := workflow.Outcome{Error: text}
	switch status {
	case engine.StatusSucceeded:
		return f.succeeded(x, i, result)
	case engine.StatusTimedOut:
		out.Status = workflow.NodeTimedOut
	case engine.StatusStopped:
		out.Status = workflow.NodeStopped
	case engine.StatusCanceled, engine.StatusSkipped:
		out.Status = workflow.NodeCanceled
	default:
		out.Status = workflow.NodeFailed
	}
	x.rows[i].Result = result
	return f.finished(x, i, out)
}

// succeeded ends a node with its result, which must have room among those kept.
func (f *Flow) succeeded(x *execution, i int, result []byte) []workflow.Action {
	x.rows[i].Result = result
	out := workflow.Outcome{Status: workflow.NodeSucceeded}
	if !x.keep(i, result) {
		out = workflow.Outcome{Status: workflow.NodeFailed, Error: fmt.Sprintf(
			"its result of %d bytes is over what is kept for later nodes: %d bytes in all", len(result), maxKept)}
	}
	return f.finished(x, i, out)
}

func (f *Flow) find(in *engine.Instance) (*execution, int) {
	x := f.live[in.Workflow]
	if x == nil {
		return nil, 0
	}
	i, ok := x.Graph.Index(in.Node)
	if !ok || x.rows[i] == nil || x.rows[i].Instance != in.ID {
		return nil, 0
	}
	return x, i
}

// keep holds a result for later nodes; false if there is no room for it.
func (x *execution) keep(i int, result []byte) bool {
	if !x.wanted[i] || len(result) == 0 {
		return true
	}
	if x.kept += len(result); x.kept > maxKept {
		return false
	}
	x.results[x.Graph.Node(i).ID] = json.RawMessage(result)
	return true
}
