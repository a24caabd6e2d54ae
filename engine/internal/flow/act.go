package flow

import (
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// act carries out what was decided. What follows from it at once, such as the end of a
// decision, is carried out too.
func (f *Flow) act(x *execution, actions []workflow.Action) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		switch a.Kind {
		case workflow.RunNode:
			actions = append(actions, f.run(x, a.Node)...)
		case workflow.SkipNode:
			f.moved(x, a.Node)
		case workflow.StopNode:
			f.sink.Stop(x.Row.Shard, x.row(a.Node).Instance, "its workflow ends")
		case workflow.CancelWaiting:
			for i := range x.rows {
				if s := x.p.State(i); s.Status == workflow.NodeCanceled && (x.rows[i] == nil || !x.rows[i].Status.Terminal()) {
					f.moved(x, i)
				}
			}
		case workflow.FinishWorkflow:
			f.end(x, a.Status, a.Error)
		}
	}
}

// run starts a node: a decision is evaluated, a job gets an instance.
func (f *Flow) run(x *execution, i int) []workflow.Action {
	n := x.Graph.Node(i)
	env := workflow.Env{Params: x.Row.Params, Nodes: x.results, Context: x.Row.Context, Trigger: x.trigger()}
	if n.Decision() {
		f.moved(x, i)
		choice, err := x.Graph.Decide(i, env)
		if err != nil {
			return f.finished(x, i, workflow.Outcome{Status: workflow.NodeFailed, Error: err.Error()})
		}
		x.rows[i].Result = []byte(choice)
		return f.finished(x, i, workflow.Outcome{Status: workflow.NodeSucceeded, Choice: choice})
	}
	params, err := x.Graph.Params(i, env)
	var jobSpec *workflow.Spec
	job := x.Jobs[n.ID]
	if job != nil {
		jobSpec = &job.Spec
	}
	if n.Job != "" && job == nil {
		err = fmt.Errorf("job %q is not in app %q: save it, or give the node a processor of its own", n.Job, x.App.Name)
	}
	if err != nil {
		f.moved(x, i)
		return f.finished(x, i, workflow.Outcome{Status: workflow.NodeFailed, Error: err.Error()})
	}
	spec := n.Resolve(jobSpec)
	spec.Params = nil
	if params == nil && jobSpec != nil {
		params = jobSpec.Params
	}
	node := Node{Spec: &spec, Instance: engine.Instance{
		ID: f.sink.NextID(), App: x.Row.App, Shard: x.Row.Shard, Workflow: x.Row.ID, Node: n.ID,
		Lane: spec.Lane, Pool: spec.Pool, Key: x.Row.Key, Params: params, DueAt: f.now, CreatedAt: f.now,
	}}
	if job != nil {
		node.Job, node.Instance.Job, node.Instance.JobVersion = job.Name, job.ID, job.Version
	}
	x.row(i).Instance = node.Instance.ID
	f.moved(x, i)
	f.sink.Admit(x.App, node)
	return nil
}

// trigger says what started the execution.
func (x *execution) trigger() json.RawMessage {
	b, err := json.Marshal(struct {
		Key       string `json:"key"`
		CreatedAt int64  `json:"created_at"`
		Instance  int64  `json:"workflow_instance,string"`
	}{x.Row.Key, x.Row.CreatedAt, x.Row.ID})
	if err != nil {
		panic("a string and two numbers do not encode: " + err.Error())
	}
	return b
}

func (f *Flow) finish(x *execution, i int, out workflow.Outcome) { f.act(x, f.finished(x, i, out)) }

// finished takes the end of a node into the progress and stores it.
func (f *Flow) finished(x *execution, i int, out workflow.Outcome) []workflow.Action {
	out.Error = engine.CutText(out.Error, engine.MaxError)
	if x.p.State(i).Status.Terminal() {
		return nil
	}
	actions, err := x.p.Finish(i, out)
	if err != nil {
		// The progress refuses what cannot be: the node fails with that as its reason, so
		// that the workflow ends rather than waits for ever.
		actions, err = x.p.Finish(i, workflow.Outcome{Status: workflow.NodeFailed, Error: err.Error()})
		if err != nil {
			f.fail(x, err)
			return nil
		}
	}
	f.moved(x, i)
	return actions
}

// row is the node's row, made if there is none.
func (x *execution) row(i int) *nodeRow {
	if x.rows[i] == nil {
		x.rows[i] = &nodeRow{fresh: true, Node: engine.Node{Workflow: x.Row.ID, Index: int32(i), Node: x.Graph.Node(i).ID, Attempt: 1}}
	}
	return x.rows[i]
}

// moved writes the node's state to its row.
func (f *Flow) moved(x *execution, i int) {
	r, s := x.row(i), x.p.State(i)
	r.Status, r.Reason, r.Choice, r.Error = engineStatus(s.Status), string(s.Reason), []byte(s.Choice), s.Error
	if s.Status.Terminal() && r.FinishedAt == 0 {
		r.FinishedAt = f.now
	}
	r.dirty = true
	x.touched = append(x.touched, i)
	f.sink.Moved(&x.Row, r.Node)
}

// flush puts the rows that moved into the shard's Change.
func (f *Flow) flush(x *execution) {
	c := f.sink.Pending(x.Row.Shard)
	if c == nil {
		return
	}
	for _, i := range x.touched {
		r := x.rows[i]
		if !r.dirty {
			continue
		}
		r.dirty = false
		put(&c.NewNodes, &c.Nodes, r.Node, r.fresh, sameNode)
		r.fresh = false
	}
	x.touched = x.touched[:0]
	if x.dirty || x.Fresh {
		f.store(x)
	}
}

// store puts the row of the workflow instance into the shard's Change.
func (f *Flow) store(x *execution) {
	if c := f.sink.Pending(x.Row.Shard); c != nil {
		put(&c.NewWorkflows, &c.Workflows, x.Row, x.Fresh, sameWorkflow)
		x.Fresh, x.dirty = false, false
	}
}

func sameNode(a, b *engine.Node) bool {
	return a.Workflow == b.Workflow && a.Index == b.Index && a.Attempt == b.Attempt
}
func sameWorkflow(a, b *engine.WorkflowInstance) bool { return a.ID == b.ID }

// put adds a row, or replaces it where the same Change already has it.
func put[T any](fresh, stored *[]T, row T, isFresh bool, same func(a, b *T) bool) {
	for _, rows := range []*[]T{fresh, stored} {
		for i := len(*rows) - 1; i >= max(0, len(*rows)-64); i-- {
			if same(&(*rows)[i], &row) {
				(*rows)[i] = row
				return
			}
		}
	}
	if isFresh {
		*fresh = append(*fresh, row)
	} else {
		*stored = append(*stored, row)
	}
}

// end makes the workflow instance final.
func (f *Flow) end(x *execution, status workflow.NodeStatus, text string) {
	to := engineStatus(status)
	if !engine.WorkflowMoves.Can(x.Row.Status, to) {
		return
	}
	x.Row.Status, x.Row.Reason, x.Row.FinishedAt = to, "", f.now
	x.Row.Error = engine.CutText(text, engine.MaxError)
	if to == engine.StatusSucceeded {
		x.Row.Result = x.result()
	}
	x.dirty = true
	delete(f.live, x.Row.ID)
	f.remember(x.Row.ID, x.Row.Shard)
	f.sink.Ended(x.Row)
}

// remember keeps in mind for a while that an instance is final.
func (f *Flow) remember(id int64, shard uint8) {
	if len(f.ended) >= endedMost {
		for old, e := range f.ended {
			if f.now-e.at > endedKept {
				delete(f.ended, old)
			}
		}
	}
	f.ended[id] = ending{shard, f.now}
}

const (
	endedMost = 4096
	endedKept = 60_000 // ms; a read takes less
)

// fail ends a workflow instance that cannot go on.
func (f *Flow) fail(x *execution, err error) {
	for i, r := range x.rows {
		if r != nil && r.Instance != 0 && !r.Status.Terminal() {
			f.sink.Stop(x.Row.Shard, x.rows[i].Instance, "its workflow cannot go on")
		}
	}
	if x.Row.Status == engine.StatusWaiting {
		x.Row.Status = engine.StatusRunning
		x.Row.StartedAt = f.now
	}
	f.end(x, workflow.NodeFailed, err.Error())
	f.flush(x)
}

// result is an object with the results of the nodes that nothing follows. Where they are
// too large together, their sizes stand in their place.
func (x *execution) result() []byte {
	leaves, sizes, total := map[string]json.RawMessage{}, map[string]int{}, 0
	for i, r := range x.rows {
		if r == nil || len(x.Graph.Children(i)) > 0 || r.Status != engine.StatusSucceeded {
			continue
		}
		v := json.RawMessage(r.Result)
		if len(v) == 0 {
			v = json.RawMessage("null")
		}
		leaves[r.Node.Node], sizes[r.Node.Node] = v, len(v)
		total += len(v) + len(r.Node.Node) + 8
	}
	var out any = leaves
	if total > engine.MaxResult {
		out = map[string]any{"too_large": sizes}
	}
	b, err := json.Marshal(out)
	if err != nil || len(b) > engine.MaxResult {
		return []byte(fmt.Sprintf(`{"too_large":%d}`, total))
	}
	return b
}

func nodeStatus(s engine.Status) workflow.NodeStatus {
	n, err := workflow.ParseNodeStatus(s.String())
	if err != nil {
		return 0 // Restore refuses it by name
	}
	return n
}

func engineStatus(s workflow.NodeStatus) engine.Status {
	e, err := engine.ParseStatus(s.String())
	if err != nil {
		panic("a node status has no word in engine: " + err.Error())
	}
	return e
}
