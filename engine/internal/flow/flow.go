package flow

import (
	"encoding/json"
	"fmt"
	"slices"

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
	// Nodes are the rows of nodes that have moved; only on take-over.
	Nodes []engine.Node
	// Fresh says that the row is not stored yet.
	Fresh bool
	// Err says that the instance cannot be run (its definition is gone or broken).
	Err error
}

// Flow keeps the workflow instances of the owned shards. It is not safe for concurrent use.
type Flow struct {
	sink Sink
	live map[int64]*execution
	now  int64
	next int64 // earliest deadline, 0 none
	// ended are instances that became final lately: a row read before that still waits.
	ended map[int64]ending
}

type ending struct {
	shard uint8
	at    int64
}

type execution struct {
	Execution
	p       *workflow.Progress
	rows    []*nodeRow // by index; nil while the node waits
	results map[string]json.RawMessage
	wanted  map[int]bool // nodes whose result a later node reads
	kept    int
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
	return &Flow{sink: sink, live: map[int64]*execution{}, ended: map[int64]ending{}}
}

// Active is the number of workflow instances in memory.
func (f *Flow) Active() int { return len(f.live) }

// Begin starts a new workflow instance of an owned shard, or goes on with a stored one.
// One that is there already is left alone.
func (f *Flow) Begin(now int64, e Execution) {
	f.now = max(f.now, now)
	_, ended := f.ended[e.Row.ID]
	if f.live[e.Row.ID] != nil || ended || e.Row.Status.Terminal() || f.sink.Pending(e.Row.Shard) == nil {
		return
	}
	x := &execution{Execution: e, results: map[string]json.RawMessage{}, wanted: map[int]bool{}}
	if e.Err != nil {
		x.Row.Status, x.Row.Error, x.Row.FinishedAt = engine.StatusFailed, engine.CutText(e.Err.Error(), engine.MaxError), f.now
		f.store(x)
		f.sink.Ended(x.Row)
		return
	}
	x.rows = make([]*nodeRow, e.Graph.Len())
	for i := range e.Graph.Len() {
		for _, r := range e.Graph.References(i) {
			x.wanted[r] = true
		}
	}
	f.live[x.Row.ID] = x
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
	if d := x.Graph.Definition().Timeout.Milliseconds(); d > 0 {
		f.deadline(x.Row.StartedAt + d)
	}
	f.act(x, x.p.Start())
	if status, text, final := x.p.Final(); final && !x.Row.Status.Terminal() {
		f.end(x, status, text)
	}
	f.flush(x)
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
		i, ok := x.Graph.Index(n.Node)
		if !ok {
			return nil, fmt.Errorf("node %q is not in version %d of the workflow", n.Node, x.Row.Version)
		}
		if old := x.rows[i]; old != nil && old.Attempt > n.Attempt {
			continue
		}
		x.rows[i] = &nodeRow{Node: n}
		states[i] = workflow.NodeState{
			Status: nodeStatus(n.Status), Reason: workflow.NodeReason(n.Reason), Choice: workflow.Choice(n.Choice), Error: n.Error,
		}
		x.keep(i, n.Result)
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
	for id, x := range f.live {
		if x.Row.Shard == shard {
			delete(f.live, id)
		}
	}
	// What was decided last may not be stored: the shard's rows tell when it comes back.
	for id, e := range f.ended {
		if e.shard == shard {
			delete(f.ended, id)
		}
	}
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
	out := workflow.Outcome{Error: in.Error}
	switch in.Status {
	case engine.StatusSucceeded:
		out.Status = workflow.NodeSucceeded
		if !x.keep(i, in.Result) {
			out = workflow.Outcome{Status: workflow.NodeFailed, Error: fmt.Sprintf(
				"its result of %d bytes is over what is kept for later nodes: %d bytes in all", len(in.Result), maxKept)}
		}
	case engine.StatusTimedOut:
		out.Status = workflow.NodeTimedOut
	case engine.StatusStopped:
		out.Status = workflow.NodeStopped
	case engine.StatusCanceled, engine.StatusSkipped:
		out.Status = workflow.NodeCanceled
	default:
		out.Status = workflow.NodeFailed
	}
	row := x.rows[i]
	row.Result, row.StartedAt = in.Result, in.StartedAt
	f.finish(x, i, out)
	f.flush(x)
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

// Stop stops a workflow instance; false if it is not in memory.
func (f *Flow) Stop(now int64, id int64, why string) bool {
	f.now = max(f.now, now)
	x := f.live[id]
	if x == nil {
		return false
	}
	x.Row.Reason, x.Row.Error, x.dirty = reasonStopping, engine.CutText(why, engine.MaxError), true
	f.act(x, x.p.Stop(why))
	f.flush(x)
	return true
}

// NextWake is when Tick must be called, 0 if never.
func (f *Flow) NextWake() int64 { return f.next }

func (f *Flow) deadline(at int64) {
	if f.next == 0 || at < f.next {
		f.next = at
	}
}

// Tick ends workflow instances that are over their timeout.
func (f *Flow) Tick(now int64) {
	f.now = max(f.now, now)
	if f.next == 0 || f.now < f.next {
		return
	}
	f.next = 0
	ids := make([]int64, 0, len(f.live))
	for id := range f.live {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		x := f.live[id]
		d := x.Graph.Definition().Timeout.Milliseconds()
		switch {
		case d <= 0 || x.Row.Reason == reasonTimingOut || x.Row.Reason == reasonStopping:
		case f.now < x.Row.StartedAt+d:
			f.deadline(x.Row.StartedAt + d)
		default:
			x.Row.Reason, x.dirty = reasonTimingOut, true
			f.act(x, x.p.TimeOut())
			f.flush(x)
		}
	}
}
