package workflow

import "fmt"

// NodeStatus is where a node of a workflow instance stands.
type NodeStatus uint8

// The statuses of a node. The value 4 is left out: it is the engine's paused, which only a
// whole workflow instance can be, so that the numbers of both mean the same.
const (
	// NodeWaiting: not decided; an incoming edge is open, or the workflow is paused.
	NodeWaiting NodeStatus = 1
	// NodeDispatched: decided to run, and handed to the engine.
	NodeDispatched NodeStatus = 2
	// NodeRunning: a worker has started it.
	NodeRunning NodeStatus = 3
	// NodeSucceeded: final.
	NodeSucceeded NodeStatus = 5
	// NodeFailed: final.
	NodeFailed NodeStatus = 6
	// NodeTimedOut: final.
	NodeTimedOut NodeStatus = 7
	// NodeStopped: final; it was stopped after it was dispatched.
	NodeStopped NodeStatus = 8
	// NodeCanceled: final; it was called off before a worker had it.
	NodeCanceled NodeStatus = 9
	// NodeSkipped: final; it was decided not to run. The Reason says why.
	NodeSkipped NodeStatus = 10
)

var nodeWords = [...]string{
	NodeWaiting: "waiting", NodeDispatched: "dispatched", NodeRunning: "running", NodeSucceeded: "succeeded",
	NodeFailed: "failed", NodeTimedOut: "timed_out", NodeStopped: "stopped", NodeCanceled: "canceled", NodeSkipped: "skipped",
}

// String is the word for the status in JSON, logs and the console.
func (s NodeStatus) String() string {
	if int(s) < len(nodeWords) && nodeWords[s] != "" {
		return nodeWords[s]
	}
	return fmt.Sprintf("node status(%d)", uint8(s))
}

// ParseNodeStatus reads the word back.
func ParseNodeStatus(word string) (NodeStatus, error) {
	for s, w := range nodeWords {
		if w == word && w != "" {
			return NodeStatus(s), nil
		}
	}
	return 0, fmt.Errorf("node status %q is unknown", clip(word))
}

// MarshalText writes the word.
func (s NodeStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word.
func (s *NodeStatus) UnmarshalText(b []byte) (err error) {
	*s, err = ParseNodeStatus(string(b))
	return err
}

// Terminal tells whether the status is final.
func (s NodeStatus) Terminal() bool { return s >= NodeSucceeded }

// Active tells whether the engine has the node in hand.
func (s NodeStatus) Active() bool { return s == NodeDispatched || s == NodeRunning }

// NodeMoves is the transition table of a node. A result may overtake the word that the node
// started, so a dispatched node may end at once.
var NodeMoves = NewTable("node", map[NodeStatus][]NodeStatus{
	NodeWaiting:    {NodeDispatched, NodeCanceled, NodeSkipped},
	NodeDispatched: {NodeRunning, NodeSucceeded, NodeFailed, NodeTimedOut, NodeStopped, NodeCanceled},
	NodeRunning:    {NodeSucceeded, NodeFailed, NodeTimedOut, NodeStopped, NodeCanceled},
	NodeSucceeded:  {}, NodeFailed: {}, NodeTimedOut: {}, NodeStopped: {}, NodeCanceled: {}, NodeSkipped: {},
})

// NodeReason says why a node ended without running to its own end.
type NodeReason string

// The reasons.
const (
	// ReasonDisabled: the definition disables it.
	ReasonDisabled NodeReason = "disabled"
	// ReasonNotTaken: every path into it was not taken.
	ReasonNotTaken NodeReason = "not_taken"
	// ReasonUpstreamFailed: something it depends on failed.
	ReasonUpstreamFailed NodeReason = "upstream_failed"
	// ReasonEnding: the workflow was ending: it failed, was stopped, or timed out.
	ReasonEnding NodeReason = "ending"
)

// NodeState is all that must be stored of a node to restore a Progress.
type NodeState struct {
	Status NodeStatus
	Reason NodeReason
	// Choice is what a decision gave.
	Choice Choice
	// Error is why the node failed, for people.
	Error string
}

// Ending says that a workflow is on its way to a final status that its nodes alone do not
// show: it was stopped, or timed out, and waits for its running nodes to end. The zero
// value is not ending. Store it with the nodes while it is set.
type Ending struct {
	// Status is NodeFailed, NodeStopped or NodeTimedOut.
	Status NodeStatus
	// Reason is for people, such as who stopped it.
	Reason string
}

// Outcome is how a node ended.
type Outcome struct {
	// Status is NodeSucceeded, NodeFailed, NodeTimedOut, NodeStopped or NodeCanceled.
	Status NodeStatus
	// Choice is what a decision gave, from Graph.Decide; required of a succeeded decision.
	Choice Choice
	// Error is why it did not succeed, for people.
	Error string
}

// ActionKind is what the engine shall do.
type ActionKind uint8

// The kinds of actions. Their changes to node states have already been applied to the
// Progress; what is left to do is to store them and then to act.
const (
	// RunNode: start the node. A decision is evaluated with Graph.Decide and finished with
	// the choice; a job gets an instance. The node is dispatched.
	RunNode ActionKind = iota + 1
	// SkipNode: the node was skipped, for Action.Reason.
	SkipNode
	// StopNode: stop the instance of the node, and Finish the node when it has ended.
	StopNode
	// CancelWaiting: every node that was waiting is canceled, with ReasonEnding. There is
	// one such action for all of them, because there may be thousands.
	CancelWaiting
	// FinishWorkflow: no node is active; the workflow is final with Action.Status.
	FinishWorkflow
)

// Action is one decision.
type Action struct {
	Kind ActionKind
	// Node is the index of the node; -1 for CancelWaiting and FinishWorkflow.
	Node int
	// Reason says why a node is skipped.
	Reason NodeReason
	// Status of FinishWorkflow: NodeSucceeded, NodeFailed, NodeStopped or NodeTimedOut.
	Status NodeStatus
	// Error of FinishWorkflow names what failed; empty when it succeeded.
	Error string
}
