package engine

import "context"

// Store is the truth. Every implementation passes storagetest.Exercise. All methods are
// safe for concurrent use and return the errors of this package, wrapped.
type Store interface {
	Committer
	ShardStore
	ServerStore
	DefinitionStore
	HistoryStore
	ScheduleStore
	IdentityStore
	Close() error
}

// Committer stores Changes.
type Committer interface {
	// Commit stores the Changes in one transaction, begun by the fences of all shards
	// touched, in the order of their numbers. The slice of errors has one entry a Change: nil
	// when stored, ErrFenced when its shard has another owner (the others are stored),
	// ErrConflict when a new row exists already, ErrLimit when a permit is refused (that Change
	// alone is dropped). If err is not nil the outcome of all of them is unknown and the touched
	// shards must be reloaded; ErrUnavailable tells that the database is away.
	//
	// Changes are decided in their order, and within one what ended and what is given back
	// before what is taken and fired.
	Commit(ctx context.Context, changes []Change) ([]error, error)
}

// ShardState is what the owner of a shard keeps in memory, as stored.
type ShardState struct {
	Shard     Shard
	Instances []Instance         // dispatched and running
	Runs      []MapRun           // not closed, of those instances
	Tasks     []Task             // not succeeded, of those instances, and every share of a broadcast
	Workflows []WorkflowInstance // not final
	Nodes     []Node             // of those workflow instances, latest attempts
	Signals   []Signal           // kept for those workflow instances, by id
	Commands  []Command
	Permits   []Permit // held by instances of the shard, also by such that wait again or still
	// SparePermits are held by instances that are final or not there. There should be none: they
	// are to be given back, or their job would have less room for ever.
	SparePermits []Permit
}

// QueueHead is a queue in which something waits, and when its first instance is due.
type QueueHead struct {
	Queue Queue
	DueAt int64
}

// ShardStore is what owners read.
type ShardStore interface {
	// LoadShard reads the state of a shard whose epoch the caller holds; ErrFenced otherwise.
	LoadShard(ctx context.Context, shard uint8, owner int16, epoch int64) (*ShardState, error)
	// Waiting reads instances that wait in the queue, belong to one of the shards and are due
	// at or before due, in the order (due, id), after the given position.
	Waiting(ctx context.Context, q Queue, shards []uint8, due int64, after WaitingPos, limit int) ([]Instance, error)
	// QueueHeads lists the queues in which something waits, one index step a queue, all
	// shards together.
	QueueHeads(ctx context.Context) ([]QueueHead, error)
	// Commands reads the commands of the shards with an id above after, by id.
	Commands(ctx context.Context, shards []uint8, after int64, limit int) ([]Command, error)
	// NewWorkflows reads the workflow instances of the shards that wait and are due, by id. Of
	// those that are queued only the oldest of each version of a workflow are read, at the end,
	// so that however many wait for others of their own they do not hide what may begin.
	NewWorkflows(ctx context.Context, shards []uint8, due int64, limit int) ([]WorkflowInstance, error)
	// RunOf reads the map run of an instance.
	RunOf(ctx context.Context, instance int64, run int32) (*MapRun, error)
	// TasksOf reads task rows of an instance and run by number, from the given one on.
	TasksOf(ctx context.Context, instance int64, run int32, kind TaskKind, from int64, limit int) ([]Task, error)
}

// WaitingPos is a position in a queue: after this due time and id.
type WaitingPos struct {
	DueAt int64
	ID    int64
}

// ServerStore is how servers know each other and divide the shards.
type ServerStore interface {
	// Now is the database's clock, epoch ms.
	Now(ctx context.Context) (int64, error)
	// JoinServer takes a free or expired server number for ttl ms and returns the row.
	JoinServer(ctx context.Context, name string, token uint64, ttl int64) (*Server, error)
	// RenewServer moves the lease of number to now+ttl and returns the database's clock;
	// ErrFenced if the row is no longer the caller's. lastID is stored with it.
	RenewServer(ctx context.Context, number int16, token uint64, ttl, lastID int64) (now int64, err error)
	// LeaveServer ends the lease at once and gives the shards up.
	LeaveServer(ctx context.Context, number int16, token uint64) error
	// LiveServers lists servers whose lease has not ended, by number.
	LiveServers(ctx context.Context) ([]Server, error)
	// ShardOwners lists all shards.
	ShardOwners(ctx context.Context) ([]Shard, error)
	// ClaimShard makes number the owner if the shard has none, or one whose lease has
	// ended, or the caller already; the epoch grows by one. ErrConflict if a live server
	// owns it.
	ClaimShard(ctx context.Context, shard uint8, number int16, token uint64) (*Shard, error)
	// ReleaseShard gives one shard up, if it is held at that epoch.
	ReleaseShard(ctx context.Context, shard uint8, number int16, epoch int64) error
}

// ScheduleStore is what fires by itself. Saving a job or workflow makes its schedule, or, if
// the schedule or whether it is enabled has changed, begins it anew: AnchorAt, HandledAt and
// WakeAt become UpdatedAt (WakeAt 0 if it never fires by itself, is disabled or paused), NextAt
// 0, and a pause goes on; HandledAt never goes back. The version and MaxRunning follow with
// every save.
type ScheduleStore interface {
	// DueSchedules reads the schedules of the shards that wake at or before until, in the order
	// (WakeAt, Kind, ID), after the position.
	DueSchedules(ctx context.Context, shards []uint8, until int64, after SchedulePos, limit int) ([]Schedule, error)
	// Schedule is ErrNotFound if there is no such job or workflow.
	Schedule(ctx context.Context, kind DefKind, id int64) (*Schedule, error)
	// Schedules lists an app's schedules by (Kind, ID), after the position.
	Schedules(ctx context.Context, app int64, after SchedulePos, limit int) ([]Schedule, error)
	// PauseSchedule stops it from firing from at on, and from waking; one that is paused stays
	// as it is.
	PauseSchedule(ctx context.Context, kind DefKind, id, at int64) (*Schedule, error)
	// ResumeSchedule has it woken at once: what was due meanwhile is decided by the misfire
	// policy. One that is not paused stays as it is.
	ResumeSchedule(ctx context.Context, kind DefKind, id, at int64) (*Schedule, error)
	// Skips reads the rows of the ledger that touch [from, to], by their From, at most limit,
	// those with From above after.
	Skips(ctx context.Context, kind DefKind, id, from, to, after int64, limit int) ([]Skip, error)
	// Fired reads the fired runs of a job or workflow with a scheduled time in [from, to] and
	// an id above after, by id.
	Fired(ctx context.Context, kind DefKind, id, from, to, after int64, limit int) ([]Fired, error)
	// ByKey reads the instances of a job that have the business key, newest first; live ones
	// only, if asked.
	ByKey(ctx context.Context, job int64, key string, live bool, limit int) ([]Instance, error)
	// Durations are the running times, ms, of the newest runs of a job that succeeded, at most
	// limit of them; it looks at no more than four times as many rows.
	Durations(ctx context.Context, kind DefKind, id int64, limit int) ([]int64, error)
	// Permits lists the instances that hold a permit of the job.
	Permits(ctx context.Context, job int64, limit int) ([]Permit, error)

	SaveCalendar(ctx context.Context, c Calendar) (*Calendar, error)
	CalendarByName(ctx context.Context, app int64, name string) (*Calendar, error)
	Calendars(ctx context.Context, app int64, afterName string, limit int) ([]Calendar, error)

	// DeleteHistory deletes final instances and workflow instances, with all that hangs on
	// them, that have ids above after and below before, looking at no more than limit of each
	// in one short transaction. A workflow instance stays while one that it belongs to, or an
	// instance or nested one of it, is not final; its instances go with it or, above the limit,
	// after it. It returns the last id it looked at, 0 if it came to the end, and how many rows
	// of all kinds went.
	DeleteHistory(ctx context.Context, after, before int64, limit int) (last int64, rows int64, err error)
	// DeleteLedger deletes skips that ended, and dead letters that died, before the time, at
	// most limit rows. A skip that may still grow has not ended.
	DeleteLedger(ctx context.Context, before int64, limit int) (rows int64, err error)
}

// DefinitionStore keeps apps, workers, jobs and workflows. Saving returns the row with id
// and version set; ids are the caller's where the row's ID is set.
type DefinitionStore interface {
	// EnsureApp returns the app of that name, created with the given id if it is new.
	EnsureApp(ctx context.Context, a App) (*App, error)
	App(ctx context.Context, id int64) (*App, error)
	AppByName(ctx context.Context, name string) (*App, error)
	Apps(ctx context.Context) ([]App, error)

	SaveWorker(ctx context.Context, w Worker) error
	Workers(ctx context.Context, app int64) ([]Worker, error)
	SetMaintenance(ctx context.Context, app int64, worker string, on bool) error

	// SaveJob inserts (Version 0) or updates a job; an update whose Version is not the
	// stored one is ErrConflict. It returns the new version.
	SaveJob(ctx context.Context, j Job) (*Job, error)
	Job(ctx context.Context, id int64) (*Job, error)
	JobByName(ctx context.Context, app int64, name string) (*Job, error)
	JobVersion(ctx context.Context, id int64, version int32) (*Job, error)
	Jobs(ctx context.Context, app int64, afterName string, limit int) ([]Job, error)

	SaveWorkflow(ctx context.Context, w WorkflowDef) (*WorkflowDef, error)
	Workflow(ctx context.Context, id int64) (*WorkflowDef, error)
	WorkflowByName(ctx context.Context, app int64, name string) (*WorkflowDef, error)
	WorkflowVersion(ctx context.Context, id int64, version int32) (*WorkflowDef, error)
	Workflows(ctx context.Context, app int64, afterName string, limit int) ([]WorkflowDef, error)

	SaveContainer(ctx context.Context, c Container) error
	Containers(ctx context.Context, app int64) ([]Container, error)
}

// HistoryStore is what people and tests read.
type HistoryStore interface {
	Instance(ctx context.Context, id int64) (*Instance, error)
	// Instances lists a job's instances (0: every job's of the app), newest first, before
	// the given id (0: from the newest).
	Instances(ctx context.Context, app, job int64, before int64, limit int) ([]Instance, error)
	InstancesOfWorkflow(ctx context.Context, workflow int64) ([]Instance, error)
	Attempts(ctx context.Context, instance int64) ([]Attempt, error)
	WorkflowInstance(ctx context.Context, id int64) (*WorkflowInstance, error)
	WorkflowInstances(ctx context.Context, app, workflow int64, before int64, limit int) ([]WorkflowInstance, error)
	Nodes(ctx context.Context, workflowInstance int64) ([]Node, error)
	MapRuns(ctx context.Context, instance int64) ([]MapRun, error)
	DeadLetters(ctx context.Context, before int64, limit int) ([]DeadLetter, error)
	// CountInstances counts an app's instances by status; a scan, for tests and verify.
	CountInstances(ctx context.Context, app int64) (map[Status]int64, error)
	CommandPending(ctx context.Context, id int64) (bool, error)
}
