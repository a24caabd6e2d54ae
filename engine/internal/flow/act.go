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
			actions = append(actions, f.stopNode(x, a.Node)...)
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

// run starts a node.
func (f *Flow) run(x *execution, i int) []workflow.Action {
	n := x.Graph.Node(i)
	env := workflow.Env{Params: x.Row.Params, Nodes: x.results, Context: x.Row.Context, Trigger: x.trigger()}
	switch n.Kind() {
	case workflow.TypeDecision:
		return f.decide(x, i, env)
	case workflow.TypeWait:
		return f.wait(x, i, env)
	case workflow.TypeSignal, workflow.TypeApproval:
		return f.await(x, i)
	case workflow.TypeWorkflow:
		return f.nest(x, i, env)
	default:
		return f.job(x, i, env)
	}
}

// decide evaluates a decision.
func (f *Flow) decide(x *execution, i int, env workflow.Env) []workflow.Action {
	f.moved(x, i)
	choice, err := x.Graph.Decide(i, env)
	if err != nil {
		return f.failed(x, i, err)
	}
	x.rows[i].Result = []byte(choice)
	x.keep(i, []byte(choice)) // it is small: at most an expression's text
	return f.finished(x, i, workflow.Outcome{Status: workflow.NodeSucceeded, Choice: choice})
}

// job gives a job node its instance.
func (f *Flow) job(x *execution, i int, env workflow.Env) []workflow.Action {
	n := x.Graph.Node(i)
	params, err := x.Graph.Params(i, env)
	var jobSpec *workflow.Spec
	job := x.Jobs[n.ID]
	if job != nil {
		jobSpec = &job.Spec
	}
	spec := n.Resolve(jobSpec)
	var items json.RawMessage
	switch {
	case err != nil:
	case n.Job != "" && job == nil:
		err = fmt.Errorf("job %q is not in app %q: save it, or give the node a processor of its own", n.Job, x.App.Name)
	case n.ForEach == nil:
	case spec.Mode == workflow.Broadcast:
		err = fmt.Errorf("job %q is a broadcast; for_each runs over a list as a map", n.Job)
	default:
		items, err = x.Graph.Items(i, env)
	}
	if err != nil {
		return f.failed(x, i, err)
	}
	spec.Params = nil
	if params == nil && jobSpec != nil {
		params = jobSpec.Params
	}
	node := Node{Spec: &spec, Instance: engine.Instance{
		ID: f.sink.NextID(), App: x.Row.App, Shard: x.Row.Shard, Workflow: x.Row.ID, Node: n.ID,
		Lane: spec.Lane, Pool: spec.Pool, Key: x.Row.Key, Params: params, Items: items, DueAt: f.now, CreatedAt: f.now,
	}}
	if job != nil {
		node.Job, node.Instance.Job, node.Instance.JobVersion = job.Name, job.ID, job.Version
	}
	x.row(i).Instance = node.Instance.ID
	f.moved(x, i)
	f.sink.Admit(x.App, node)
	return nil
}

// failed ends a node that cannot run, or did not do what it should.
func (f *Flow) failed(x *execution, i int, err error) []workflow.Action {
	f.moved(x, i)
	return f.finished(x, i, workflow.Outcome{Status: workflow.NodeFailed, Error: err.Error()})
}

// start notes that a node that no worker runs has begun.
func (f *Flow) start(x *execution, i int) {
	if err := x.p.Running(i); err != nil {
		panic("a node that was just decided does not run: " + err.Error())
	}
	x.row(i).StartedAt = f.now
	f.moved(x, i)
}

// stopNode stops what a node runs or waits for.
func (f *Flow) stopNode(x *execution, i int) []workflow.Action {
	r := x.row(i)
	switch {
	case r.Child != 0:
		if child := f.live[r.Child]; child != nil {
			f.stop(child, "the workflow it is nested in ends")
		}
		return nil // else it is stopped when it has been read
	case r.Instance != 0:
		f.sink.Stop(x.Row.Shard, r.Instance, "its workflow ends")
		return nil
	default:
		return f.finished(x, i, workflow.Outcome{Status: workflow.NodeStopped})
	}
}

// trigger says what started the execution.
func (x *execution) trigger() json.RawMessage {
	b, err := json.Marshal(struct {
		Key       string `json:"key"`
		CreatedAt int64  `json:"created_at"`
		Instance  int64  `json:"workflow_instance,string"`
		Scheduled int64  `json:"scheduled_at,omitempty"` // epoch ms; of what its schedule fired
	}{x.Row.Key, x.Row.CreatedAt, x.Row.ID, x.Row.FireAt})
	if err != nil {
		panic("a string and numbers do not encode: " + err.Error())
	}
	return b
}

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
	f.drop(x, i)
	return actions
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
	f.untime(x)
	f.remove(x)
	f.past.add(&x.Row)
	if c := f.sink.Pending(x.Row.Shard); c != nil {
		for _, s := range x.signals {
			c.GoneSignals = append(c.GoneSignals, s.ID)
		}
	}
	x.signals = nil
	f.over(x)
}

// over tells that a workflow instance is final: live views, and the node it is nested in.
func (f *Flow) over(x *execution) {
	if c := f.sink.Pending(x.Row.Shard); c != nil {
		c.Ended = append(c.Ended, engine.Ended{
			Kind: engine.KindWorkflow, ID: x.Row.Workflow, Run: x.Row.ID, Status: x.Row.Status,
			// A further attempt of a fired run is not one that its schedule waits for.
			Fired: x.Row.FireAt != 0 && x.Row.Attempt == 1, StartAt: x.Row.StartedAt, EndAt: x.Row.FinishedAt,
		})
	}
	f.sink.Ended(x.Row)
	f.flush(x)
	f.tellParent(&x.Row)
}

// fail ends a workflow instance that cannot go on.
func (f *Flow) fail(x *execution, err error) {
	for _, r := range x.rows {
		if r == nil || r.Status.Terminal() {
			continue
		}
		if child := f.live[r.Child]; child != nil {
			f.stop(child, "the workflow it is nested in cannot go on")
		}
		if r.Instance != 0 {
			f.sink.Stop(x.Row.Shard, r.Instance, "its workflow cannot go on")
		}
	}
	if x.Row.Status == engine.StatusWaiting {
		x.Row.Status = engine.StatusRunning
		x.Row.StartedAt = f.now
	}
	f.end(x, workflow.NodeFailed, err.Error())
	f.flush(x)
}
