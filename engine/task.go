package engine

// TaskKind is the step of an instance that a task row belongs to.
type TaskKind uint8

// The kinds, in the order of broker.Phase.
const (
	TaskRoot TaskKind = iota + 1
	TaskSub
	TaskReduce
	TaskPre
	TaskShare
	TaskPost
)

// TaskKey names a task row.
type TaskKey struct {
	Instance int64
	Run      int32 // map run; for a broadcast the attempt
	Kind     TaskKind
	Number   int64
}

// Task is a task that needs a row of its own: a share of a broadcast, a sub-task that
// waits for its next attempt or failed for good, and any task that left a checkpoint.
type Task struct {
	TaskKey
	Status      TaskStatus
	Attempt     int32 // from 1
	Lost        int32 // runs of it that died
	Worker      string
	Incarnation uint64
	NextTryAt   int64 // epoch ms, while waiting
	StageSeq    uint64
	StageOff    int32
	Error       string
	Result      []byte
	Checkpoint  []byte
	StartedAt   int64
	FinishedAt  int64
}

// MapRun is the row of a map run. The blobs are the run's own encoding; SQL never looks
// inside.
type MapRun struct {
	Instance  int64
	Run       int32
	Closed    bool
	Total     int64 // accepted so far, the root not counted
	Succeeded int64
	Failed    int64
	State     []byte // position, chunk table, mappers, bitmaps
	UpdatedAt int64
}

// DeadLetter is a message that could not be decoded or decided.
type DeadLetter struct {
	ID      int64
	Shard   uint8
	Subject string
	Seq     uint64
	Payload []byte // cut to 64 KiB
	Reason  string
	At      int64
}
