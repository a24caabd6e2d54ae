package engine

import "fmt"

// WorkflowInstance is one execution of a workflow.
type WorkflowInstance struct {
	ID         int64
	App        int64
	Shard      uint8
	Workflow   int64
	Version    int32
	Status     Status
	Reason     Reason
	Attempt    int32
	Key        string
	Params     []byte // JSON object, bound
	Context    []byte // JSON object
	Result     []byte
	Error      string
	FireAt     int64 // epoch ms of the schedule's fire; 0 if called
	DueAt      int64
	CreatedAt  int64
	StartedAt  int64
	FinishedAt int64
	// Parent is the workflow instance that this one is nested in, 0 for none; ParentNode is the
	// node of it that waits for this one. Depth is how many are above.
	Parent     int64
	ParentNode string
	Depth      int32
}

// Retry begins a further attempt of a workflow instance that is final without success. It is
// the one way back from a final status, and only with a higher attempt number: the store
// holds to that too. ErrConflict if there is none.
func (w *WorkflowInstance) Retry(now int64) error {
	switch w.Status {
	case StatusFailed, StatusTimedOut, StatusStopped, StatusCanceled:
	default:
		return fmt.Errorf("workflow instance %d is %s: only one that failed, timed out, was stopped or canceled can be retried: %w", w.ID, w.Status, ErrConflict)
	}
	w.Attempt++
	w.Status, w.Reason, w.Error, w.Result = StatusRunning, "", "", nil
	w.StartedAt, w.FinishedAt = now, 0
	return nil
}

// Signal is a signal that came before the node that waits for it; it is kept until then, or
// until its workflow instance is final.
type Signal struct {
	ID       int64
	Workflow int64 // workflow instance
	Name     string
	// Approval says that it decides an approval node; else it is for a signal node.
	Approval bool
	Payload  []byte // JSON
	At       int64
}

// Node is the state of one node of a workflow instance. Unique by (workflow instance,
// node, attempt).
type Node struct {
	Workflow   int64 // workflow instance
	Index      int32 // of the node in its graph
	Node       string
	Attempt    int32
	Status     Status
	Reason     string
	Instance   int64 // that runs it, or 0
	Child      int64 // workflow instance that runs it, or 0
	DueAt      int64 // when a wait ends, or a signal is no longer waited for; 0: never
	Choice     []byte
	Result     []byte
	Error      string
	StartedAt  int64
	FinishedAt int64
}
