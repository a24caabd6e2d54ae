package storage

import (
	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type workflowInstanceRow struct {
	bun.BaseModel `bun:"table:workflow_instances"`

	ID         int64  `bun:"id,pk"`
	App        int64  `bun:"app_id"`
	Shard      int16  `bun:"shard"`
	Workflow   int64  `bun:"workflow_id"`
	Version    int32  `bun:"version"`
	Status     int16  `bun:"status"`
	Reason     string `bun:"reason"`
	Attempt    int32  `bun:"attempt"`
	Key        string `bun:"business_key"`
	Params     []byte `bun:"params"`
	Context    []byte `bun:"context"`
	Result     []byte `bun:"result"`
	Error      string `bun:"error"`
	DueAt      int64  `bun:"due_at"`
	CreatedAt  int64  `bun:"created_at"`
	StartedAt  int64  `bun:"started_at"`
	FinishedAt int64  `bun:"finished_at"`
	Parent     int64  `bun:"parent_id"`
	ParentNode string `bun:"parent_node"`
	Depth      int32  `bun:"depth"`
	WaitKey    *int64 `bun:"wait_key"`
	ActiveKey  *int16 `bun:"active_key"`
	FireAt     int64  `bun:"fire_at"`
	FireKey    []byte `bun:"fire_key"`
	KeyHash    *int64 `bun:"key_hash"`
}

var workflowInstanceFixed = []string{"app_id", "shard", "workflow_id", "version", "business_key", "params", "created_at", "parent_id", "parent_node", "depth", "fire_at", "fire_key", "key_hash"}

func checkWorkflowInstance(d *door, w *engine.WorkflowInstance) {
	d.text("key", w.Key, engine.MaxKey)
	d.bytes("params", w.Params, engine.MaxParams)
	d.bytes("context", w.Context, engine.MaxContext)
	d.text("parent node", w.ParentNode, engine.MaxNodeID)
}

func newWorkflowInstanceRow(w *engine.WorkflowInstance) workflowInstanceRow {
	r := workflowInstanceRow{
		ID: w.ID, App: w.App, Shard: int16(w.Shard), Workflow: w.Workflow, Version: w.Version, Status: int16(w.Status),
		Reason: engine.CutText(string(w.Reason), engine.MaxText), Attempt: w.Attempt, Key: w.Key, Params: w.Params, Context: w.Context,
		Result: cutValue(w.Result, engine.MaxResult), Error: engine.CutText(w.Error, engine.MaxError),
		DueAt: w.DueAt, CreatedAt: w.CreatedAt, StartedAt: w.StartedAt, FinishedAt: w.FinishedAt,
		Parent: w.Parent, ParentNode: w.ParentNode, Depth: w.Depth,
		FireAt: w.FireAt, FireKey: fireKey(w.FireAt, w.Workflow), KeyHash: keyHash(w.Workflow, w.Key),
	}
	if w.Status == engine.StatusWaiting {
		due := w.DueAt
		r.WaitKey = &due
	}
	if !w.Status.Terminal() {
		shard := int16(w.Shard)
		r.ActiveKey = &shard
	}
	return r
}

func (r *workflowInstanceRow) noun() engine.WorkflowInstance {
	return engine.WorkflowInstance{
		ID: r.ID, App: r.App, Shard: uint8(r.Shard), Workflow: r.Workflow, Version: r.Version, Status: engine.Status(r.Status),
		Reason: engine.Reason(r.Reason), Attempt: r.Attempt, Key: r.Key, Params: r.Params, Context: r.Context, Result: r.Result,
		Error: r.Error, DueAt: r.DueAt, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Parent: r.Parent, ParentNode: r.ParentNode, Depth: r.Depth, FireAt: r.FireAt,
	}
}

type nodeRow struct {
	bun.BaseModel `bun:"table:nodes"`

	Workflow   int64  `bun:"workflow_id,pk"`
	Node       string `bun:"node,pk"`
	Attempt    int32  `bun:"attempt,pk"`
	Index      int32  `bun:"node_index"`
	Status     int16  `bun:"status"`
	Reason     string `bun:"reason"`
	Instance   int64  `bun:"instance_id"`
	Child      int64  `bun:"child_id"`
	DueAt      int64  `bun:"due_at"`
	Choice     []byte `bun:"choice"`
	Result     []byte `bun:"result"`
	Error      string `bun:"error"`
	StartedAt  int64  `bun:"started_at"`
	FinishedAt int64  `bun:"finished_at"`
}

func checkNode(d *door, n *engine.Node) {
	d.text("node", n.Node, engine.MaxNodeID)
	d.bytes("choice", n.Choice, engine.MaxResult)
}

func newNodeRow(n *engine.Node) nodeRow {
	return nodeRow{
		Workflow: n.Workflow, Node: n.Node, Attempt: n.Attempt, Index: n.Index, Status: int16(n.Status),
		Reason: engine.CutText(n.Reason, engine.MaxText), Instance: n.Instance, Child: n.Child, DueAt: n.DueAt, Choice: n.Choice, Result: cutValue(n.Result, engine.MaxResult),
		Error: engine.CutText(n.Error, engine.MaxError), StartedAt: n.StartedAt, FinishedAt: n.FinishedAt,
	}
}

func (r *nodeRow) noun() engine.Node {
	return engine.Node{
		Workflow: r.Workflow, Index: r.Index, Node: r.Node, Attempt: r.Attempt, Status: engine.Status(r.Status), Reason: r.Reason,
		Instance: r.Instance, Child: r.Child, DueAt: r.DueAt, Choice: r.Choice, Result: r.Result, Error: r.Error, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}

type signalRow struct {
	bun.BaseModel `bun:"table:signals"`

	ID       int64  `bun:"id,pk"`
	Workflow int64  `bun:"workflow_id"`
	Name     string `bun:"name"`
	Approval int16  `bun:"approval"`
	Payload  []byte `bun:"payload"`
	At       int64  `bun:"came_at"`
}

func checkSignal(d *door, s *engine.Signal) {
	d.text("signal", s.Name, engine.MaxNodeID)
	d.bytes("payload", s.Payload, engine.MaxParams)
}

func newSignalRow(s *engine.Signal) signalRow {
	return signalRow{ID: s.ID, Workflow: s.Workflow, Name: s.Name, Approval: bit(s.Approval), Payload: s.Payload, At: s.At}
}

func (r *signalRow) noun() engine.Signal {
	return engine.Signal{ID: r.ID, Workflow: r.Workflow, Name: r.Name, Approval: r.Approval == 1, Payload: r.Payload, At: r.At}
}
