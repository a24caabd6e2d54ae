package track

import (
	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// App is what the owner needs to know of an app.
type App struct {
	ID   int64
	Name string
	Set  string
}

// Row is an instance with what its row refers to.
type Row struct {
	Instance engine.Instance
	App      *App
	Spec     *workflow.Spec
	Job      string // name, or empty
	// Checkpoint of the attempt before, of an instance that waits for a further one: the
	// row (ID, Attempt-1, TaskRoot, 0) of the tasks has it.
	Checkpoint []byte
	// Err says that the row cannot be run (its spec is gone or broken).
	Err error
}

// Event is something that happened. Events are handled one at a time.
type Event interface{ event() }

type (
	// Gained says that the shard is owned at this epoch and its state is loaded.
	Gained struct {
		State  *engine.ShardState
		Rows   []Row // State.Instances, resolved
		Gen    uint32
		Number int16
	}
	// Lost says that the shard is no longer owned, or its memory ran ahead of a lost commit.
	Lost struct{ Shard uint8 }
	// Triggered says that a new instance was asked for by a caller of this server.
	Triggered struct {
		Row Row
		// Done is called after the commit with nil, or with the error.
		Done func(error)
	}
	// Reported is one message of the reports stream. Batch is nil if it was undecodable.
	Reported struct {
		Shard uint8
		Seq   uint64
		Batch *broker.ReportBatch
		// Part says that the rest of the message follows: the cursor stays.
		Part bool
		Raw  []byte
		Err  error
	}
	// CursorReset says that the reports stream ends before the shard's cursor (it was lost or
	// restored); the shard goes on from the stream's end.
	CursorReset struct {
		Shard uint8
		End   uint64
	}
	// Asked is a question, to be answered when the reports up to After are taken in.
	Asked struct {
		Request *broker.AskRequest
		After   uint64
		Reply   func(*broker.AskReply)
	}
	// Fetched answers Fetch.
	Fetched struct {
		Queue engine.Queue
		Rows  []Row
		Due   int64
		Limit int
		Err   error
	}
	// Heads lists the queues in which something waits.
	Heads struct{ Heads []engine.QueueHead }
	// Staged answers ReadStage.
	Staged struct {
		Instance int64
		Run      int32
		From     uint64
		Max      int
		Ask      uint64 // of the ReadStage it answers
		Messages []broker.Staged
		Err      error
	}
	// Restaged answers Reread: the message, or nil if it is gone.
	Restaged struct {
		Instance int64
		Run      int32
		Seq      uint64
		Message  *broker.Staged
		Err      error
	}
	// Unpublished says that the chunk did not reach its lane, or that nobody knows.
	Unpublished struct {
		Shard uint8
		Key   broker.ChunkKey
		Err   error
	}
	// Listed answers List.
	Listed struct {
		App       int64
		Ask       uint64 // of the List it answers
		Instances []int64
		// Present has the chunk numbers in the task stream of each instance that has any.
		Present map[int64][]int64
		// After has the last report of each shard, read after the listing.
		After map[uint8]uint64
		Err   error
	}
	// Directed answers Direct.
	Directed struct {
		Shard  uint8
		Key    broker.ChunkKey
		Worker string
		Ask    uint64 // of the Direct it answers
		Reply  broker.DirectedReply
		Err    error
	}
	// WorkerNews says that the fleet has changed (joined, left, other processors, more slots).
	WorkerNews struct{ App string }
	// WorkerDead says that an incarnation is dead or was replaced by another.
	WorkerDead struct {
		App         string
		Worker      string
		Incarnation uint64
	}
	// BrokerUp says that the connection is back; everything may have been lost on the way.
	BrokerUp struct{}
	// Command is a command of an owned shard. Row is set when it was loaded (Load).
	Command struct {
		Command engine.Command
		Loaded  bool
		Ask     uint64 // of the Load it answers; 0 if that is not known
		Row     *Row
	}
	// LateLoaded answers LoadLate.
	LateLoaded struct {
		Row    *Row
		Result []byte
	}
	// Permitted answers a question for a permit.
	Permitted struct {
		Shard   uint8
		Permit  engine.Permit
		Granted bool
	}
	// Stepped says that the clock was put forward by By ms; nobody has worked longer for it.
	Stepped struct{ By int64 }
	// Tick says that time has passed.
	Tick struct{}
)

func (Gained) event()      {}
func (Lost) event()        {}
func (Triggered) event()   {}
func (Reported) event()    {}
func (CursorReset) event() {}
func (Asked) event()       {}
func (Fetched) event()     {}
func (Heads) event()       {}
func (Staged) event()      {}
func (Restaged) event()    {}
func (Unpublished) event() {}
func (Listed) event()      {}
func (Directed) event()    {}
func (WorkerNews) event()  {}
func (WorkerDead) event()  {}
func (BrokerUp) event()    {}
func (Command) event()     {}
func (LateLoaded) event()  {}
func (Permitted) event()   {}
func (Stepped) event()     {}
func (Tick) event()        {}
