package track

import (
	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// Effect is something to do after the Change it came with is committed.
type Effect interface{ effect() }

type (
	// Publish puts a chunk into its lane. If that fails, or would start more than a second
	// after the commit, Unpublished is handed back instead.
	Publish struct {
		Set, Lane, Pool string
		Chunk           *broker.Chunk
	}
	// Direct sends a chunk to one worker; Directed comes back.
	Direct struct {
		Worker string
		Chunk  *broker.Chunk
		Ask    uint64 // handed back as it is
	}
	// Order speaks to the workers of an app.
	Order struct {
		App     string
		Control broker.Control
	}
	// Answer answers a question.
	Answer struct {
		Reply func(*broker.AskReply)
		With  *broker.AskReply
	}
	// Wake calls a caller back.
	Wake struct {
		Done func(error)
		Err  error
	}
	// Final tells that an instance is final.
	Final struct {
		App      string
		Instance engine.Instance
		Total    int64 // sub-tasks
		Failed   int64
	}
	// Fetch reads what waits in a queue; Fetched comes back.
	Fetch struct {
		Queue  engine.Queue
		Shards []uint8
		Due    int64
		After  engine.WaitingPos
		Limit  int
	}
	// Peek asks for Heads soon.
	Peek struct{}
	// ReadStage reads on in the stage of a run; Staged comes back.
	ReadStage struct {
		App, Set string
		Instance int64
		Run      int32
		From     uint64
		Max      int
		Ask      uint64 // handed back as it is
	}
	// Reread reads one stage message again; Restaged comes back.
	Reread struct {
		App, Set string
		Instance int64
		Run      int32
		Seq      uint64
	}
	// List finds out which chunks of the instances are in the task stream; Listed comes back.
	// It waits for all publishes begun before it.
	List struct {
		App       *App
		Instances []int64
		Runs      []int64 // those of them that have a map run: their chunks are listed one by one
		Shards    []uint8
		Ask       uint64 // handed back as it is
	}
	// Purge removes what is left of an instance in the broker, again until nothing is left.
	Purge struct {
		App, Set string
		Instance int64
		Tasks    bool  // the lane's messages too
		Run      int32 // stage and results of this run; 0: none; -1: all
	}
	// Load reads an instance for a command; Command comes back with Loaded set.
	Load struct {
		ID      int64
		Command engine.Command
		Ask     uint64 // handed back as it is
	}
	// LoadLate reads an instance whose result came late; LateLoaded comes back, if it is of
	// that app and shard.
	LoadLate struct {
		ID      int64
		App     string
		Shard   uint8
		Attempt int32
		Result  []byte
	}
	// Progress tells how far a map run is, for live views.
	Progress struct {
		App      string
		Instance int64
		Workflow int64
		Node     string
		Status   engine.Status
		Total    int64
		Done     int64
		Failed   int64
		Mapped   bool // no mapper is unfinished: Total will not grow
	}
)

func (Publish) effect()   {}
func (Direct) effect()    {}
func (Order) effect()     {}
func (Answer) effect()    {}
func (Wake) effect()      {}
func (Final) effect()     {}
func (Fetch) effect()     {}
func (Peek) effect()      {}
func (ReadStage) effect() {}
func (Reread) effect()    {}
func (List) effect()      {}
func (Purge) effect()     {}
func (Load) effect()      {}
func (LoadLate) effect()  {}
func (Progress) effect()  {}
