package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// What the decided edges of a node have brought so far.
const (
	sawLive   uint8 = 1 << iota // an edge is live
	sawFailed                   // an edge is dead by a failure
)

// Progress is the state of one workflow instance over its graph. It decides which node moves
// next, deterministically, and at a cost of the degree of the node that ended; only the end
// of the whole workflow looks at every node. It is not safe for concurrent use.
type Progress struct {
	g      *Graph
	states []NodeState
	open   []int32 // incoming edges whose source is not final
	seen   []uint8

	waiting, active int
	broken          int // nodes that fail the workflow
	ending          Ending
	paused          bool
	verdict         NodeStatus // 0 until final
	text            string
	queue           []int // nodes that became final and have yet to decide their edges
}

// NewProgress is a workflow instance of which no node has started. Call Start.
func NewProgress(g *Graph) *Progress {
	p := &Progress{g: g, states: make([]NodeState, g.Len()), open: make([]int32, g.Len()), seen: make([]uint8, g.Len()), waiting: g.Len()}
	for i := range p.states {
		p.states[i].Status = NodeWaiting
		p.open[i] = int32(len(g.parents[i]))
	}
	return p
}

// Restore rebuilds a Progress from what was stored: the state of every node by index, and
// the ending if there was one. It goes on exactly as the original would. Call Start then:
// it decides whatever the stored states left undecided, which is nothing when every change
// was stored as a whole. It fails when the states do not fit the graph.
func Restore(g *Graph, states []NodeState, ending Ending) (*Progress, error) {
	if len(states) != g.Len() {
		return nil, fmt.Errorf("restore workflow %q: %d node states for %d nodes", g.def.Name, len(states), g.Len())
	}
	p := NewProgress(g)
	p.ending = ending
	copy(p.states, states)
	for _, i := range g.order { // sources first: a disabled node passes on what it has seen
		s := states[i]
		if !slices.Contains(NodeMoves.Statuses(), s.Status) {
			return nil, fmt.Errorf("restore workflow %q: node %q has no status", g.def.Name, g.def.Nodes[i].ID)
		}
		if s.Status == NodeWaiting {
			continue
		}
		p.waiting--
		if s.Status.Active() {
			p.active++
			continue
		}
		if p.breaks(i) {
			p.broken++
			if g.Failure(i) == FailureFail && p.ending.Status == 0 {
				p.ending = Ending{Status: NodeFailed}
			}
		}
		p.passOn(i)
	}
	if p.waiting == 0 && p.active == 0 {
		p.conclude()
	}
	return p, nil
}

// States is a copy of the states of all nodes, to store and Restore.
func (p *Progress) States() []NodeState { return slices.Clone(p.states) }

// State is the state of node i.
func (p *Progress) State(i int) NodeState { return p.states[i] }

// Ending is how the workflow is ending, zero while it is not.
func (p *Progress) Ending() Ending { return p.ending }

// Active is the number of nodes that are dispatched or running.
func (p *Progress) Active() int { return p.active }

// Waiting is the number of nodes that are not decided.
func (p *Progress) Waiting() int { return p.waiting }

// Final is the final status of the workflow and its error text; false while it has none.
func (p *Progress) Final() (NodeStatus, string, bool) { return p.verdict, p.text, p.verdict != 0 }

// Start decides every node whose incoming edges are all decided: the roots of a new
// workflow. It may be called again, as after Restore, and then decides only what is left.
func (p *Progress) Start() []Action {
	if p.verdict != 0 {
		return nil
	}
	var actions []Action
	if p.ending.Status != 0 {
		return p.finish(p.cancelWaiting(nil))
	}
	for i := range p.states {
		if p.states[i].Status == NodeWaiting && p.open[i] == 0 {
			actions = p.settle(p.decide(i, actions))
		}
	}
	return p.finish(actions)
}

// Pause lets no further node start; what runs goes on. It lasts until Resume and is not
// part of the states: pause a restored Progress again before Start.
func (p *Progress) Pause() { p.paused = true }

// Resume ends a pause and starts what became ready in it.
func (p *Progress) Resume() []Action {
	p.paused = false
	return p.Start()
}

// Running notes that a worker has started node i. It is a no-op on a node that runs or is
// final, and a *TransitionError on one that was never dispatched.
func (p *Progress) Running(i int) error {
	if s := p.states[i].Status; s == NodeRunning || s.Terminal() {
		return nil
	}
	if err := NodeMoves.Check(p.states[i].Status, NodeRunning); err != nil {
		return p.wrap(i, err)
	}
	p.states[i].Status = NodeRunning
	return nil
}

func (p *Progress) wrap(i int, err error) error {
	return fmt.Errorf("node %q: %w", p.g.def.Nodes[i].ID, err)
}

// Finish takes the end of node i into account and returns what follows from it. A second
// end of a node that is final changes nothing and has no actions. An error changes nothing:
// the node is unknown or was never dispatched, the outcome is no end, or a decision
// succeeded without a choice that it can take.
func (p *Progress) Finish(i int, o Outcome) ([]Action, error) {
	if i < 0 || i >= len(p.states) {
		return nil, fmt.Errorf("workflow %q has no node with index %d", p.g.def.Name, i)
	}
	if p.states[i].Status.Terminal() {
		return nil, nil
	}
	if err := NodeMoves.Check(p.states[i].Status, o.Status); err != nil || !o.Status.Terminal() {
		if err == nil {
			err = fmt.Errorf("%s is no end", o.Status)
		}
		return nil, p.wrap(i, err)
	}
	next := NodeState{Status: o.Status, Error: o.Error}
	if o.Status == NodeSucceeded && p.g.def.Nodes[i].Decision() {
		if err := p.g.accepts(i, o.Choice); err != nil {
			return nil, p.wrap(i, fmt.Errorf("choice %q: %w", clip(string(o.Choice)), err))
		}
		next.Choice = o.Choice
	}
	if p.ending.Status != 0 && (o.Status == NodeStopped || o.Status == NodeCanceled) {
		next.Reason = ReasonEnding
	}
	p.states[i] = next
	p.active--
	if p.breaks(i) {
		p.broken++
		if p.ending.Status == 0 && p.g.Failure(i) == FailureFail {
			return p.end(Ending{Status: NodeFailed}), nil
		}
	}
	p.queue = append(p.queue, i)
	return p.finish(p.settle(nil)), nil
}

// Stop ends the workflow: running nodes are stopped, waiting ones canceled, and the workflow
// is stopped when none is active. It is a no-op on one that is final or already ending.
func (p *Progress) Stop(reason string) []Action { return p.end(Ending{NodeStopped, reason}) }

// TimeOut is Stop for a workflow that ran over its timeout.
func (p *Progress) TimeOut() []Action { return p.end(Ending{Status: NodeTimedOut}) }

func (p *Progress) end(e Ending) []Action {
	if p.verdict != 0 || p.ending.Status != 0 {
		return nil
	}
	p.ending = e
	var actions []Action
	if p.active > 0 {
		for i := range p.states {
			if p.states[i].Status.Active() {
				actions = append(actions, Action{Kind: StopNode, Node: i})
			}
		}
	}
	return p.finish(p.cancelWaiting(actions))
}

func (p *Progress) cancelWaiting(actions []Action) []Action {
	if p.waiting == 0 {
		return actions
	}
	for i := range p.states {
		if p.states[i].Status == NodeWaiting {
			p.states[i] = NodeState{Status: NodeCanceled, Reason: ReasonEnding}
		}
	}
	p.waiting = 0
	return append(actions, Action{Kind: CancelWaiting, Node: -1})
}

// breaks tells whether the end of node i fails the workflow.
func (p *Progress) breaks(i int) bool {
	s := p.states[i]
	switch s.Status {
	case NodeFailed, NodeTimedOut, NodeStopped, NodeCanceled:
		return s.Reason != ReasonEnding && p.g.Failure(i) != FailureSkip
	default:
		return false
	}
}

// settle decides the edges of every node that became final, and what follows from them.
func (p *Progress) settle(actions []Action) []Action {
	for at := 0; at < len(p.queue); at++ {
		i := p.queue[at]
		p.passOn(i)
		if p.ending.Status != 0 {
			continue
		}
		for _, e := range p.g.children[i] {
			if p.open[e.To] == 0 && p.states[e.To].Status == NodeWaiting {
				actions = p.decide(e.To, actions)
			}
		}
	}
	p.queue = p.queue[:0]
	return actions
}

// passOn decides the outgoing edges of node i, which is final.
func (p *Progress) passOn(i int) {
	for _, e := range p.g.children[i] {
		p.open[e.To]--
		p.seen[e.To] |= p.brings(e)
	}
}

// brings is what an edge is whose source is final: live, dead by a failure, or (0) dead by a
// path not taken. A disabled node passes on all that its own edges brought.
func (p *Progress) brings(e Edge) uint8 {
	s := p.states[e.From]
	switch {
	case s.Reason == ReasonDisabled && len(p.g.parents[e.From]) > 0:
		return p.seen[e.From]
	case s.Reason == ReasonDisabled:
		return sawLive
	case s.Status == NodeSkipped && s.Reason == ReasonUpstreamFailed:
		return sawFailed
	case s.Status == NodeSkipped:
		return 0
	case s.Status != NodeSucceeded && p.g.Failure(e.From) != FailureSkip:
		return sawFailed
	case s.Choice != e.When: // also of a decision that failed and counts as done: it chose nothing
		return 0
	}
	return sawLive
}

// decide moves node i, none of whose incoming edges is open.
func (p *Progress) decide(i int, actions []Action) []Action {
	n := &p.g.def.Nodes[i]
	reason := ReasonDisabled
	if !n.Disabled {
		reason = p.skips(i, n.Join)
	}
	if reason != "" {
		p.states[i] = NodeState{Status: NodeSkipped, Reason: reason}
		p.waiting--
		p.queue = append(p.queue, i)
		return append(actions, Action{Kind: SkipNode, Node: i, Reason: reason})
	}
	if p.paused {
		return actions
	}
	p.states[i].Status = NodeDispatched
	p.waiting--
	p.active++
	return append(actions, Action{Kind: RunNode, Node: i})
}

// skips is why a node with this join does not run, empty when it runs.
func (p *Progress) skips(i int, join Join) NodeReason {
	live, failed := p.seen[i]&sawLive != 0, p.seen[i]&sawFailed != 0
	if len(p.g.parents[i]) == 0 || join == JoinAllDone {
		return ""
	}
	if join == JoinOneSuccess && live {
		return ""
	}
	if failed {
		return ReasonUpstreamFailed
	}
	if live || join == JoinNoneFailed {
		return ""
	}
	return ReasonNotTaken
}

// finish adds the end of the workflow when nothing is left to wait for.
func (p *Progress) finish(actions []Action) []Action {
	if p.verdict != 0 || p.active > 0 || p.waiting > 0 {
		return actions
	}
	p.conclude()
	return append(actions, Action{Kind: FinishWorkflow, Node: -1, Status: p.verdict, Error: p.text})
}

// maxNamed bounds how many failed nodes the error of a workflow names.
const maxNamed = 3

func (p *Progress) conclude() {
	p.verdict = NodeSucceeded
	if p.broken > 0 {
		p.verdict = NodeFailed
	}
	if p.ending.Status != 0 {
		p.verdict = p.ending.Status
	}
	var causes []string
	switch p.verdict {
	case NodeStopped:
		causes = append(causes, strings.TrimSuffix("stopped: "+p.ending.Reason, ": "))
	case NodeTimedOut:
		causes = append(causes, "the workflow ran over its timeout")
	default: // its nodes are the causes
	}
	named := 0
	for i := 0; i < len(p.states) && p.broken > 0 && named < min(p.broken, maxNamed); i++ {
		if p.breaks(i) {
			named++
			causes = append(causes, strings.TrimSuffix(fmt.Sprintf("node %q %s: %s", p.g.def.Nodes[i].ID,
				strings.ReplaceAll(p.states[i].Status.String(), "_", " "), p.states[i].Error), ": "))
		}
	}
	if more := p.broken - named; more > 0 {
		causes = append(causes, fmt.Sprintf("and %d more", more))
	}
	p.text = strings.Join(causes, "; ")
}
