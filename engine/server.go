package engine

// Server is an engine process. Its row is the lease of all its shards.
type Server struct {
	Number    int16 // 1..1023, leased with the row; part of every id it makes
	Name      string
	Token     uint64 // random at each start; only the row's holder renews it
	Until     int64  // epoch ms by the database's clock
	StartedAt int64
	LastID    int64 // highest id it has promised not to go below
}

// Shard is the unit of ownership among servers.
type Shard struct {
	Shard    uint8
	Owner    int16 // server number, or 0
	Epoch    int64 // grows with every change of owner
	Cursor   uint64
	CommitNo int64
}

// CommandKind is what a command asks of the owner.
type CommandKind string

// The commands.
const (
	CommandStop         CommandKind = "stop"          // an instance
	CommandRetry        CommandKind = "retry"         // a final instance: a further attempt
	CommandRetryFailed  CommandKind = "retry_failed"  // only the failed sub-tasks of a final map instance
	CommandStopWorkflow CommandKind = "stop_workflow" // a workflow instance
	CommandReplace      CommandKind = "replace"       // an instance or workflow instance: end the other runs of its job or workflow

	CommandSignal         CommandKind = "signal"          // a workflow instance: a signal or an approval
	CommandPauseWorkflow  CommandKind = "pause_workflow"  // a workflow instance: start no further node
	CommandResumeWorkflow CommandKind = "resume_workflow" // a paused workflow instance
	CommandRetryWorkflow  CommandKind = "retry_workflow"  // a final workflow instance: a further attempt
)

// Command is an order that waits for the owner of its shard.
type Command struct {
	ID        int64
	Shard     uint8
	Kind      CommandKind
	Target    int64  // instance or workflow instance
	Request   string // unique; the same request twice is one command
	Payload   []byte
	CreatedAt int64
}
