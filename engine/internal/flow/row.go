package flow

import (
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// row is the node's row, made if there is none.
func (x *execution) row(i int) *nodeRow {
	if x.rows[i] == nil {
		x.rows[i] = &nodeRow{fresh: true, Node: engine.Node{Workflow: x.Row.ID, Index: int32(i), Node: x.Graph.Node(i).ID, Attempt: x.Row.Attempt}}
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
