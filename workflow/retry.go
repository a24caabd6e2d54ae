package workflow

import "fmt"

// RetryStates says from which states a further attempt of a workflow that is final goes on, and
// which nodes are decided anew. What succeeded is never run again, nor is what a decision
// did not take, nor a failure that was passed over (FailureSkip). What failed, timed out, was
// stopped or canceled goes back to waiting, and so does what was skipped because of it. A
// node behind one that waits again, which has run already (by JoinOneSuccess, JoinNoneFailed
// or JoinAllDone), stays as it is.
//
// It fails when the states do not fit the graph, are not all final, or leave nothing to do.
func RetryStates(g *Graph, states []NodeState) (next []NodeState, again []int, err error) {
	if len(states) != g.Len() {
		return nil, nil, fmt.Errorf("retry workflow %q: %d node states for %d nodes", g.def.Name, len(states), g.Len())
	}
	next = make([]NodeState, len(states))
	copy(next, states)
	for _, i := range g.order { // sources first: a disabled node follows its parents
		s := states[i]
		if !s.Status.Terminal() {
			return nil, nil, fmt.Errorf("retry workflow %q: node %q is %s; a workflow is retried when it is final", g.def.Name, g.def.Nodes[i].ID, s.Status)
		}
		if g.retries(i, s, next) {
			next[i] = NodeState{Status: NodeWaiting}
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return nil, nil, fmt.Errorf("retry workflow %q: every node has succeeded or was passed over; there is nothing to retry", g.def.Name)
	}
	return next, again, nil
}

// retries tells whether node i is decided anew, its parents being so already.
func (g *Graph) retries(i int, s NodeState, next []NodeState) bool {
	switch s.Status {
	case NodeFailed, NodeTimedOut, NodeStopped, NodeCanceled:
		return s.Reason == ReasonEnding || g.Failure(i) != FailureSkip
	case NodeSkipped:
		if s.Reason != ReasonDisabled {
			return s.Reason == ReasonUpstreamFailed
		}
		for _, e := range g.parents[i] {
			if next[e.From].Status == NodeWaiting {
				return true
			}
		}
	default: // it succeeded
	}
	return false
}
