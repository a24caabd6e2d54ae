package broker

import "time"

// Bounds of what travels.
const (
	// MaxChunkTasks and MaxChunkBytes bound one chunk; one larger item travels alone.
	MaxChunkTasks = 1024
	MaxChunkBytes = 256 << 10
	// MaxStageItems and MaxStageBytes bound one stage batch; one larger item travels alone.
	MaxStageItems = 512
	MaxStageBytes = 256 << 10
	// MaxItemBytes bounds one item, value, params, or result of a task on the wire.
	MaxItemBytes = 512 << 10
	// MaxCheckpointBytes bounds one checkpoint.
	MaxCheckpointBytes = 64 << 10
	// MaxContextBytes bounds what one task adds to the context of its workflow instance.
	MaxContextBytes = 64 << 10
	// Shards is the number of shards, fixed for the life of an installation.
	Shards = 64
)

// Phase says which step of an instance a chunk runs.
type Phase uint8

// The phases.
const (
	PhaseRoot   Phase = iota + 1 // the root task, number 0
	PhaseSub                     // sub-tasks of a map run
	PhaseReduce                  // the reduce task
	PhasePre                     // PreProcess of a broadcast
	PhaseShare                   // one worker's share of a broadcast; the number is its index
	PhasePost                    // PostProcess of a broadcast
)

// ChunkKey names one chunk for ever. Chunk numbers grow within an instance, over all its
// attempts, and are never reused.
type ChunkKey struct {
	Instance int64
	Attempt  int32 // attempt of the instance, from 1
	Run      int32 // map run; 0 outside of one
	Chunk    int64
}

// Chunk is 1..MaxChunkTasks tasks of one instance in one message. A chunk takes one slot
// of its worker; its tasks run one after the other.
type Chunk struct {
	ChunkKey
	App         string
	Shard       uint8
	Epoch       int64 // epoch of the owner that published it
	Phase       Phase
	Collect     bool // values of sub-tasks are wanted (map_reduce)
	Atomic      bool // the mapper's items are fed only after its success
	Directed    bool // sent to one worker by request, not through a lane
	Mode        string
	Processor   string
	Job         string // job name, or empty
	JobID       int64
	Workflow    int64 // workflow instance, or 0
	Node        string
	Key         string // business key
	Params      []byte // JSON
	ScheduledAt int64  // epoch ms; when the fire was due
	CreatedAt   int64  // epoch ms; when the instance was created
	TaskTimeout time.Duration
	StageQuota  int64  // bytes the map run may hold in the stage
	Name        string // name given to task.Map, for PhaseSub
	ShardTotal  int32  // number of shares, for PhaseShare
	Tasks       []Task
}

// Task is one task of a chunk.
type Task struct {
	Number     int64 // root 0, sub-tasks from 1, shares by index
	Attempt    int32 // attempt of the task, from 1
	Item       []byte
	Checkpoint []byte // of an earlier attempt or run, or nil
}

// ReportKind is what a worker says happened.
type ReportKind uint8

// The kinds of report.
const (
	ReportStarted    ReportKind = iota + 1 // the chunk got a slot
	ReportSucceeded                        // Numbers succeeded
	ReportFailed                           // Numbers[0] failed with Error
	ReportRefused                          // the worker cannot run the chunk (unknown processor, mismatch)
	ReportReturned                         // Numbers were not started and are given back (drain, long chunk)
	ReportEmitted                          // mapper Numbers[0] has staged Emitted items so far
	ReportCheckpoint                       // Result is the checkpoint of Numbers[0]
)

// ErrorKind classes a failure.
type ErrorKind uint8

// The kinds of error.
const (
	ErrorFailed    ErrorKind = iota + 1 // the processor returned an error
	ErrorPermanent                      // processor.Cancel: no further attempt
	ErrorTimeout                        // task timeout
	ErrorPanic                          // the processor panicked; Stack is set
	ErrorInput                          // the item or params could not be decoded
	ErrorRoom                           // the stage had no room; costs no attempt
	ErrorStopped                        // the context was canceled by a stop
)

// TaskError is a failure as it travels. Message is cut to 16 KiB and Stack to 32 KiB with
// a mark, on a rune border.
type TaskError struct {
	Kind       ErrorKind
	Message    string
	Stack      string
	RetryAfter time.Duration // processor.RetryAfter; 0 leaves it to the policy
}

// Report is one thing a worker says about a chunk it holds.
type Report struct {
	ChunkKey
	Kind        ReportKind
	Phase       Phase
	Numbers     []int64 // ascending; empty means the whole chunk
	TaskAttempt int32
	Duration    time.Duration // monotonic; the sum over Numbers
	Result      []byte        // of root, reduce, pre, share, post; or the checkpoint
	ResultSeq   uint64        // sequence of the result message that holds the values of Numbers
	Emitted     int64         // items staged by the mapper Numbers[0]; -1: it did not map
	EmittedHash uint64        // running hash over them
	StageSeq    uint64        // sequence of the mapper's last stage message
	StageFirst  uint64        // sequence of the mapper's first stage message of this run of it
	Token       uint64        // names the run of the mapper, as in its stage batches
	Error       TaskError
	LogFrom     uint64 // first and last log message of the task, or 0
	LogTo       uint64
	Context     []byte // JSON object that a successful step adds to the context of its workflow instance
}

// ReportBatch is what one worker says to one shard in one message.
type ReportBatch struct {
	App         string
	Worker      string
	Incarnation uint64
	Reports     []Report
}

// StageBatch is a run of items emitted by one mapper.
type StageBatch struct {
	Instance int64
	Run      int32
	Mapper   int64  // number of the task that emits
	Token    uint64 // random for each run of the mapper
	First    int64  // index of Items[0] among all the mapper emits, from 0
	Hash     uint64 // running hash over the mapper's items up to and including this batch
	Name     string
	Items    [][]byte
}

// Staged is a StageBatch where it lies.
type Staged struct {
	Seq uint64
	StageBatch
}

// ResultBatch holds the values of Numbers, one each, or one fold over all of them.
type ResultBatch struct {
	Instance int64
	Run      int32
	Numbers  []int64
	Folded   bool
	Values   [][]byte
}

// Range is First..Last, both included.
type Range struct{ First, Last uint64 }

// ProcessorInfo is a registered processor in a beat.
type ProcessorInfo struct {
	Name string
	Caps Caps
}

// Caps says which optional steps a processor has.
type Caps uint8

// The capabilities.
const (
	CapMap Caps = 1 << iota // may emit sub-tasks
	CapReduce
	CapCombine
	CapPre
	CapPost
)

// Beat is what a worker says of itself, at registration and on every beat.
type Beat struct {
	App         string
	Worker      string
	Incarnation uint64
	Seq         uint64
	Version     string // of the user's program
	SDK         string
	Host        string
	PID         int
	SentAt      int64 // epoch ms of the worker's clock, only to report skew
	Pools       []string
	Labels      map[string]string
	Processors  []ProcessorInfo
	Slots       int
	Busy        int // slots taken
	Directed    int // directed tasks running beside or in the slots
	Draining    bool
	CPUs        float64
	FreeCPU     float64 // cores; -1 unknown
	FreeMemory  int64   // bytes; -1 unknown
	FreeDisk    int64   // bytes; -1 unknown
	Held        []ChunkKey
}

// Registration is the answer to a worker's registration. Error is set when it is refused.
type Registration struct {
	Error     string
	Retry     bool   // the refusal may pass (no server is ready yet)
	Set       string // stream set of the app; see Streams
	AckWait   time.Duration
	BeatEvery time.Duration
	// Now is the server's clock, epoch ms, to report skew.
	Now int64
}

// AskKind is what a worker asks the owner of a shard.
type AskKind uint8

// The questions.
const (
	AskRun     AskKind = iota + 1 // may I run this chunk?
	AskResults                    // which result messages does the reduce read? from From
	AskShares                     // results of the shares of a broadcast, from index From
)

// AskRequest is a question to the owner of Shard.
type AskRequest struct {
	Kind AskKind
	ChunkKey
	App         string
	Shard       uint8
	Worker      string
	Incarnation uint64
	From        uint64
}

// Verdict is the owner's answer to AskRun.
type Verdict uint8

// The verdicts.
const (
	VerdictYours Verdict = iota + 1 // run what is not in Done
	VerdictHeld                     // another live worker holds it: nak with 5 s
	VerdictDone                     // nothing left to run: ack
	VerdictRetry                    // the owner cannot say now: keep it in progress and ask again
)

// AskReply answers an AskRequest.
type AskReply struct {
	Verdict Verdict
	Done    []int64 // numbers of the chunk that are final
	// Results are the accepted result sequences, Next is where to ask on, 0 at the end.
	Results []Range
	Next    uint64
	Failed  int64 // failed sub-tasks or shares
	Total   int64 // accepted sub-tasks or shares
	Errors  []NumberedError
	Shares  []Share
}

// NumberedError is the error of one sub-task or share.
type NumberedError struct {
	Number  int64
	Message string
}

// Share is the outcome of one share of a broadcast.
type Share struct {
	Index  int64
	Worker string
	OK     bool
	Result []byte
	Error  string
}

// DirectedReply is a worker's answer to a chunk sent to it by request.
type DirectedReply uint8

// The answers.
const (
	DirectedAccepted DirectedReply = iota + 1 // it holds the chunk, now or already
	DirectedBusy                              // no slot; choose another or come again
	DirectedRefused                           // it cannot run it, drains, or was stopped
)

// ControlKind is an order to the workers of an app.
type ControlKind uint8

// The orders.
const (
	ControlStop  ControlKind = iota + 1 // stop Instance up to and including Attempt
	ControlDrain                        // the named worker drains
	ControlEpoch                        // shard Shard is now of epoch Epoch
	ControlDrop                         // the named worker lets Chunk go: another one has it, or it is finished
)

// Control is an order to the workers of an app.
type Control struct {
	Kind     ControlKind
	Instance int64
	Attempt  int32
	Worker   string
	Shard    uint8
	Epoch    int64
	Chunk    ChunkKey
}

// LogBatch is lines of one task's log.
type LogBatch struct {
	Instance int64
	Attempt  int32
	Number   int64
	Worker   string
	Lines    []LogLine
}

// LogLine is one line. Text is valid UTF-8 of at most 8 KiB, cut with a mark.
type LogLine struct {
	At    int64 // epoch ms, worker's clock
	Level int8  // slog level
	Text  string
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of event.
const (
	EventInstance EventKind = iota + 1 // an instance has moved
	EventProgress                      // a map run has moved on
	EventWorkflow                      // a workflow instance has moved
	EventNode                          // a node of one has moved
)

// Event is something that was committed, for live views. The newest of its object says it
// all.
type Event struct {
	Kind     EventKind
	Status   uint8 // engine.Status
	Workflow int64 // workflow instance, or 0
	Instance int64
	Job      int64
	Attempt  int32
	Node     string
	Reason   string
	Error    string
	Total    int64 // sub-tasks so far
	Done     int64
	Failed   int64
}

// EventBatch is what one engine process tells of one app.
type EventBatch struct {
	Source uint64 // the process; random at its start
	Seq    uint64 // grows by one from batch to batch of (process, app)
	Lost   bool   // there was more than is told: look at the rows
	Events []Event
}

// Interest says that an engine process wants to be told of an app's events.
type Interest struct {
	Source uint64
	App    int64 // its id
}
