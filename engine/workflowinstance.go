package engine

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
	DueAt      int64
	CreatedAt  int64
	StartedAt  int64
	FinishedAt int64
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
	Choice     []byte
	Result     []byte
	Error      string
	StartedAt  int64
	FinishedAt int64
}
