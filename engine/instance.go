package engine

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/fanjet/fanjet/workflow"
)

// Shards is the number of shards, fixed at first start.
const Shards = 64

// ShardOf is the shard of a root: of an instance by its job, of a workflow instance by its
// workflow. Everything a root creates inherits its shard.
func ShardOf(id int64) uint8 {
	x := uint64(id) * 0x9E3779B97F4A7C15
	return uint8(x >> 58)
}

// Instance is one firing of a Job, or one run of a job node.
type Instance struct {
	ID         int64
	App        int64
	Shard      uint8
	Job        int64 // 0: the spec is inline in the workflow's node
	JobVersion int32
	Workflow   int64  // workflow instance, or 0
	Node       string // of it
	Status     Status
	Reason     Reason
	Attempt    int32 // from 1
	Run        int32 // map run in use; 0: none
	Lane       workflow.Lane
	Pool       string
	Key        string // business key
	Params     []byte // JSON; nil means the spec's
	Items      []byte // JSON list: the root task emits its elements as sub-tasks; nil: the processor maps
	FireAt     int64  // epoch ms of the schedule's fire; 0 if called
	DueAt      int64  // epoch ms; not before
	CreatedAt  int64
	StartedAt  int64 // first start of the current attempt; 0 before
	FinishedAt int64 // 0 unless final
	Result     []byte
	Error      string
	Worker     string // the last one that held the root task
	LogFrom    uint64
	LogTo      uint64
	// Late is the result of a run that succeeded after the instance was final. It is shown
	// and changes nothing.
	Late []byte
	// Context is the JSON object that its last step adds to the context of its workflow
	// instance. It is not stored: it goes into the row of that in the Change that makes this
	// one final.
	Context []byte
}

// KeyBackfill is the business key of instances that were made for scheduled times that had
// passed.
const KeyBackfill = "backfill"

// Fired tells whether its schedule fired it and so counts it as under way. Fires have no key;
// one that was backfilled is not waited for.
func (i *Instance) Fired() bool { return i.FireAt != 0 && i.Key == "" }

// Queue is where an instance waits: the hash of app, lane and pool, 22 bits.
type Queue int64

// QueueOf is the queue of app, lane and pool. Two triples may share one; whoever reads a
// queue looks at the rows.
func QueueOf(app int64, lane workflow.Lane, pool string) Queue {
	h := fnv.New32a()
	var b [8]byte
	for i := range b {
		b[i] = byte(app >> (8 * i))
	}
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(lane))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(pool))
	s := h.Sum32()
	return Queue((s ^ s>>22) & (1<<22 - 1))
}

const feedEpoch = 1577836800000 // 2020-01-01, so that 41 bits last to 2089

// FeedKey orders what waits in a queue by when it is due. It is stored only while an
// instance waits, so that a final write touches no index.
func FeedKey(q Queue, dueAt int64) int64 {
	due := min(max(dueAt, feedEpoch), feedEpoch+1<<41-1) - feedEpoch // bounded first: a difference could overflow
	return int64(q)<<41 | due
}

// SplitFeedKey takes a key apart.
func SplitFeedKey(k int64) (Queue, int64) {
	return Queue(k >> 41), k&(1<<41-1) + feedEpoch
}

// Attempt is one try of an instance after the first, which has no row.
type Attempt struct {
	Instance   int64
	Attempt    int32
	Status     Status // of the attempt before this one, as it ended
	Error      string // of it
	Worker     string // of it
	StartedAt  int64  // of it
	FinishedAt int64  // of it
}

// RetryDelay is the pause before the given further attempt (1 is the first one after a
// failure). The jitter is drawn from seed, not from dice, so that a decision made again is
// the same.
func RetryDelay(r workflow.Retry, further int32, seed int64) time.Duration {
	delay := time.Duration(r.Delay)
	if delay <= 0 {
		delay = time.Second
	}
	limit := time.Duration(r.MaxDelay)
	if limit <= 0 {
		limit = 5 * time.Minute
	}
	factor := r.Backoff
	if factor < 1 {
		factor = 2
	}
	d := float64(delay) * math.Pow(factor, float64(max(further-1, 0)))
	d = min(d, float64(limit))
	jitter := 0.1
	if r.Jitter != nil {
		jitter = min(max(*r.Jitter, 0), 1)
	}
	x := (uint64(seed) + uint64(further)*0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9
	unit := float64(x>>11) / (1 << 53)
	return time.Duration(d * (1 - jitter*unit))
}
