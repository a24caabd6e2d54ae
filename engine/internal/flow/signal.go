package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// maxSignals bounds the signals kept for one workflow instance.
const maxSignals = 1000

// Verdict is the payload of a signal that decides an approval node, and the node's result.
type Verdict struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"`
	Comment  string `json:"comment,omitempty"`
}

// Signal gives a signal to the node that waits for it, or keeps it for the first that will;
// false if its workflow instance is not in memory.
func (f *Flow) Signal(now int64, s engine.Signal) bool {
	f.now = max(f.now, now)
	x := f.live[s.Workflow]
	if x == nil {
		return false
	}
	for i := range x.rows {
		if n := x.Graph.Node(i); x.p.State(i).Status.Active() && takes(n, &s) {
			f.act(x, f.given(x, i, &s))
			f.flush(x)
			return true
		}
	}
	c := f.sink.Pending(x.Row.Shard)
	if c == nil {
		return true // the shard went; its next owner reads the command
	}
	if len(x.signals) >= maxSignals {
		c.DeadLetters = append(c.DeadLetters, engine.DeadLetter{
			ID: f.sink.NextID(), Shard: x.Row.Shard, Subject: "signal." + s.Name, Payload: s.Payload, At: f.now,
			Reason: fmt.Sprintf("%d signals are kept for workflow instance %d already", len(x.signals), x.Row.ID),
		})
		return true
	}
	x.signals = append(x.signals, s)
	c.NewSignals = append(c.NewSignals, s)
	return true
}

// takes tells whether the node waits for this signal.
func takes(n *workflow.Node, s *engine.Signal) bool {
	want := workflow.TypeSignal
	if s.Approval {
		want = workflow.TypeApproval
	}
	return n.Type == want && n.SignalName() == s.Name
}

// await begins to wait for a signal; one that came early is taken at once.
func (f *Flow) await(x *execution, i int) []workflow.Action {
	n := x.Graph.Node(i)
	if n.Expires > 0 {
		x.row(i).DueAt = f.now + n.Expires.Milliseconds()
	}
	f.start(x, i)
	k := slices.IndexFunc(x.signals, func(s engine.Signal) bool { return takes(n, &s) })
	if k >= 0 {
		s := x.signals[k]
		x.signals = slices.Delete(x.signals, k, k+1)
		if c := f.sink.Pending(x.Row.Shard); c != nil {
			c.GoneSignals = append(c.GoneSignals, s.ID)
		}
		return f.given(x, i, &s)
	}
	if n.Expires > 0 {
		f.timer(x, i, x.rows[i].DueAt)
	}
	return nil
}

// given ends a node with its signal.
func (f *Flow) given(x *execution, i int, s *engine.Signal) []workflow.Action {
	if !s.Approval {
		return f.succeeded(x, i, s.Payload)
	}
	var v Verdict
	if err := json.Unmarshal(s.Payload, &v); err != nil {
		return f.failed(x, i, fmt.Errorf("the approval cannot be read: %w", err))
	}
	if v.Approved {
		return f.succeeded(x, i, s.Payload)
	}
	text := "rejected"
	if v.By != "" {
		text += " by " + v.By
	}
	if v.Comment != "" {
		text += ": " + v.Comment
	}
	x.rows[i].Result = s.Payload
	return f.finished(x, i, workflow.Outcome{Status: workflow.NodeFailed, Error: text})
}

// expired ends a node whose signal has not come in time.
func (f *Flow) expired(x *execution, i int, n *workflow.Node) []workflow.Action {
	if n.Default != nil {
		return f.succeeded(x, i, n.Default)
	}
	what := fmt.Sprintf("signal %q", n.SignalName())
	if n.Kind() == workflow.TypeApproval {
		what = "approval"
	}
	return f.finished(x, i, workflow.Outcome{Status: workflow.NodeTimedOut, Error: fmt.Sprintf("no %s came within %v", what, time.Duration(n.Expires))})
}
