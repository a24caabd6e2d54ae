package engine

// Change is what one decision, or several of one shard, want stored: all of it or nothing.
// Rows under New are inserted, the others are updated by key with all their mutable
// columns; the owner has them loaded, so an update never guesses.
type Change struct {
	// Fenced says that the Change is an owner's: it is stored only while Owner owns Shard at
	// Epoch. An unfenced Change only inserts.
	Fenced bool
	Shard  uint8
	Owner  int16
	Epoch  int64
	// Cursor is the last report taken into account; 0 leaves the shard's cursor alone. It
	// never moves the cursor back unless ResetCursor is set.
	Cursor      uint64
	ResetCursor bool

	NewInstances []Instance
	Instances    []Instance
	NewAttempts  []Attempt

	NewRuns []MapRun
	Runs    []MapRun

	NewTasks  []Task
	Tasks     []Task
	GoneTasks []TaskKey

	NewWorkflows []WorkflowInstance
	Workflows    []WorkflowInstance
	NewNodes     []Node
	Nodes        []Node

	NewSignals  []Signal
	GoneSignals []int64

	NewCommands  []Command
	GoneCommands []int64
	DeadLetters  []DeadLetter

	// Firings move schedules on and make what they fire; only in a fenced Change.
	Firings []Firing
	// Ended counts runs that this Change makes final, each once.
	Ended []Ended
	// Permits are taken, all or none: if one is refused the Change is dropped with ErrLimit.
	// One that its instance has already is no second one.
	Permits []Permit
	// GonePermits are given back, before any is taken.
	GonePermits []Permit
}

// Rows is how many rows the Change writes, the fence not counted.
func (c *Change) Rows() int {
	firings := 0
	for i := range c.Firings {
		firings += 1 + len(c.Firings[i].Runs) + len(c.Firings[i].Skips)
	}
	return len(c.NewInstances) + len(c.Instances) + len(c.NewAttempts) + len(c.NewRuns) + len(c.Runs) +
		len(c.NewTasks) + len(c.Tasks) + len(c.GoneTasks) + len(c.NewWorkflows) + len(c.Workflows) +
		len(c.NewNodes) + len(c.Nodes) + len(c.NewSignals) + len(c.GoneSignals) + len(c.NewCommands) + len(c.GoneCommands) + len(c.DeadLetters) +
		firings + len(c.Ended) + len(c.Permits) + len(c.GonePermits)
}

// Empty tells whether the Change would store nothing.
func (c *Change) Empty() bool { return c.Rows() == 0 && c.Cursor == 0 && !c.ResetCursor }
