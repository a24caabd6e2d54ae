package engine

import (
	"hash/fnv"

	"github.com/fanjet/fanjet/workflow"
)

// DefKind tells what a schedule fires.
type DefKind int16

// The kinds.
const (
	KindJob      DefKind = 1
	KindWorkflow DefKind = 2
)

// String is the word for the kind.
func (k DefKind) String() string {
	switch k {
	case KindJob:
		return "job"
	case KindWorkflow:
		return "workflow"
	default:
		return "unknown"
	}
}

// Schedule is how a job or workflow stands: when it fires next, what of it is under way, and
// how its runs have ended. Each job and workflow has one, made with it, whether it fires by
// itself or not. Times are epoch ms.
type Schedule struct {
	Kind    DefKind
	ID      int64 // of the job or workflow
	App     int64
	Shard   uint8
	Version int32 // of the definition
	Enabled bool
	Spec    workflow.Schedule
	// MaxRunning bounds the runs under way; 0 is no bound.
	MaxRunning int32
	// AnchorAt is where fixed_rate counts from: when the schedule was saved as it is.
	AnchorAt int64
	// HandledAt is the last scheduled time about which something was decided; what lies
	// behind it is over.
	HandledAt int64
	// NextAt is the scheduled time of the next fire, 0 if none is known. WakeAt is when to
	// look at the schedule again: NextAt and its jitter, or at once after it was saved; 0 is
	// never, until its run has ended or it is saved.
	NextAt int64
	WakeAt int64
	// PausedAt is when it was paused, ResumedAt when it went on; both are 0 once the fires
	// between are decided.
	PausedAt  int64
	ResumedAt int64
	// SkipFrom and SkipReason name the ledger row that grows with the next fire that does not
	// run for the same reason; 0 after one that ran.
	SkipFrom   int64
	SkipReason SkipReason

	// Open is how many fired runs are not final.
	Open int32
	// Runs are all that ended: by call, by fire, or as a workflow's node.
	Runs      int64
	Succeeded int64
	Failed    int64 // or timed out
	// Of the last run that ended.
	LastID     int64
	LastStatus Status // 0: none has ended
	LastStart  int64
	LastEnd    int64
}

// Paused tells whether it fires nothing until it is resumed.
func (s *Schedule) Paused() bool { return s.PausedAt != 0 && s.ResumedAt == 0 }

// SchedulePos is a position in the order of what wakes next.
type SchedulePos struct {
	WakeAt int64
	Kind   DefKind
	ID     int64
}

// SkipReason says why a fire did not run.
type SkipReason string

// The reasons.
const (
	SkipOverlap    SkipReason = "overlap"    // as many as may were under way
	SkipQueueFull  SkipReason = "queue_full" // and as many as may waited for them
	SkipMisfire    SkipReason = "misfire"    // it was noticed too late
	SkipCalendar   SkipReason = "calendar"   // a calendar excludes the day
	SkipPaused     SkipReason = "paused"
	SkipDisabled   SkipReason = "disabled"
	SkipDependency SkipReason = "dependency" // a job that it follows did not succeed
	SkipRemoved    SkipReason = "removed"    // what it would run cannot be read any more
)

// Skip is a row of the ledger: consecutive fires that did not run, for one reason. What ran is
// in the ledger by its instance, which has its scheduled time.
type Skip struct {
	Kind   DefKind
	ID     int64 // of the job or workflow
	From   int64 // first scheduled time
	To     int64 // last one
	Count  int64
	Reason SkipReason
	At     int64 // when the last of it was decided
}

// Fired is a run in the ledger.
type Fired struct {
	At       int64 // scheduled time
	Instance int64 // or workflow instance
	FiredAt  int64 // when its row was made; the lateness is FiredAt-At
	Status   Status
}

// Firing is what an owner wants done about the due fires of one schedule. The store locks the
// schedule's row, looks whether it still is as the owner knew it, admits each run by the
// overlap policy, and moves the schedule on, all in the transaction of its Change.
type Firing struct {
	Kind DefKind
	ID   int64
	// Version and HandledAt must be those of the row, and it must be enabled and not paused;
	// else nothing is done (Moved).
	Version   int32
	HandledAt int64

	Runs  []FiringRun // oldest first
	Skips []Skip      // what does not run whatever is under way
	Until int64       // the new HandledAt
	// NextAt and WakeAt are the new ones.
	NextAt, WakeAt int64
	// Delay is the pause of fixed_delay, ms. If a run was admitted NextAt and WakeAt become 0,
	// and the end of the run sets them.
	Delay int64

	Overlap    workflow.Overlap
	MaxRunning int32 // 0: no bound
	QueueMax   int32

	// Done is filled in by the store; it counts only if the Change was stored.
	Done *FiringDone
}

// FiringRun is one fire that may run: one of the two is set, with its FireAt.
type FiringRun struct {
	Instance *Instance
	Workflow *WorkflowInstance
	// Stop is the command, complete, that ends what is under way if this run replaces it.
	Stop *Command
}

// FiringDone is what became of a Firing.
type FiringDone struct {
	Moved    bool    // the schedule was saved, paused or fired by someone else meanwhile
	Admitted []int64 // instances that were made, to run at once or queued
	Skipped  int64   // for overlap or a full queue
	Failed   int64   // made as failed instances
	Replaced int64   // of Admitted, those that end others
	Schedule Schedule
}

// Ended tells the schedule of a job or workflow that a run of it is final.
type Ended struct {
	Kind    DefKind
	ID      int64 // of the job or workflow
	Run     int64 // instance or workflow instance
	Status  Status
	Fired   bool // by the schedule
	StartAt int64
	EndAt   int64
}

// Permit lets one instance of a job with MaxRunning be under way. It is held from before the
// first dispatch until the instance is final, and counted over all shards.
type Permit struct {
	Job      int64
	Instance int64
	Max      int32
}

// Calendar is a business calendar of an app, as stored.
type Calendar struct {
	ID        int64
	App       int64
	Name      string // unique in the app
	Body      []byte // JSON of schedule.Calendar
	Version   int32
	UpdatedAt int64
}

// KeyHash is what instances with a business key are found by: the hash of job or workflow and
// key. Whoever looks compares the keys too.
func KeyHash(of int64, key string) int64 {
	h := fnv.New64a()
	var b [8]byte
	for i := range b {
		b[i] = byte(of >> (8 * i))
	}
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(key))
	return int64(h.Sum64() >> 1)
}
