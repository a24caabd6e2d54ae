package broker

import (
	"context"
	"time"
)

// Config is the engine's end.
type Config struct {
	Options
	// AckWait of the task durables; default 8 s.
	AckWait time.Duration
	// Replicas of streams; default 1.
	Replicas int
	// TaskBytes, StageBytes, ResultBytes, LogBytes bound each stream of an app; ReportBytes
	// the one reports stream. Defaults 256 MiB, 1 GiB, 1 GiB, 1 GiB, 1 GiB.
	TaskBytes, StageBytes, ResultBytes, LogBytes, ReportBytes int64
	// LogAge bounds the log streams; default 7 days.
	LogAge time.Duration
}

// Broker is the engine's end of the broker. Safe for concurrent use. Publishing and
// consuming use TCP connections of their own where that is faster (see the reference).
type Broker struct{}

// Connect connects, as Dial does.
func Connect(ctx context.Context, c Config) (*Broker, error) { panic("unwritten") }

// EnsureReports creates the reports stream; idempotent.
func (b *Broker) EnsureReports(ctx context.Context) error { panic("unwritten") }

// EnsureApp creates the streams of the app's set and the durables of every lane for each
// pool; idempotent and cheap when nothing is missing.
func (b *Broker) EnsureApp(ctx context.Context, app, set string, pools []string) error {
	panic("unwritten")
}

// PublishChunk stores a chunk in its lane; done is called once, with nil when it is stored.
// Nothing is buffered while the connection is down: the error comes at once.
func (b *Broker) PublishChunk(set, lane, pool string, c *Chunk, done func(error)) { panic("unwritten") }

// SendDirected sends a chunk to one worker and returns its answer. ErrNoResponders: the
// worker is not there.
func (b *Broker) SendDirected(ctx context.Context, worker string, c *Chunk) (DirectedReply, error) {
	panic("unwritten")
}

// Order sends a control message to all workers of the app, without waiting.
func (b *Broker) Order(app string, c Control) error { panic("unwritten") }

// ReportHandler gets one message of the reports stream. batch is nil and err set when it
// cannot be decoded; raw is the message.
type ReportHandler func(shard uint8, seq uint64, batch *ReportBatch, raw []byte, err error)

// Reports reads the reports of the given shards, each from after its cursor, in stream
// order, from one goroutine, until ctx ends or stop is called. It survives reconnects
// without loss; a message at or below its shard's cursor is not handed out.
func (b *Broker) Reports(ctx context.Context, cursors map[uint8]uint64, h ReportHandler) (stop func(), err error) {
	panic("unwritten")
}

// LastReport is the sequence of the newest report of the shard, 0 if there is none.
func (b *Broker) LastReport(ctx context.Context, shard uint8) (uint64, error) { panic("unwritten") }

// ReportsEnd is the last sequence the reports stream ever gave.
func (b *Broker) ReportsEnd(ctx context.Context) (uint64, error) { panic("unwritten") }

// PurgeReports removes the reports of the shard up to and including seq.
func (b *Broker) PurgeReports(ctx context.Context, shard uint8, seq uint64) error { panic("unwritten") }

// ReadStage reads up to max messages of the run from sequence from on, in order. Fewer
// than max means that there are no more for now.
func (b *Broker) ReadStage(ctx context.Context, app, set string, instance int64, run int32, from uint64, max int) ([]Staged, error) {
	panic("unwritten")
}

// ReadStaged reads the one stage message with that sequence; ErrNotFound if it is gone.
func (b *Broker) ReadStaged(ctx context.Context, set string, app string, seq uint64) (*Staged, error) {
	panic("unwritten")
}

// TaskCounts is how many chunks each instance of the app has in the task stream
// (published and not acked), over all lanes and pools.
func (b *Broker) TaskCounts(ctx context.Context, app, set string) (map[int64]int, error) {
	panic("unwritten")
}

// TaskList lists the chunks of one instance in the task stream, until their number equals
// what the stream's leader counts.
func (b *Broker) TaskList(ctx context.Context, app, set string, instance int64) ([]ChunkKey, error) {
	panic("unwritten")
}

// PurgeTasks removes the chunks of an instance; it returns how many are left to purge (0 when done).
func (b *Broker) PurgeTasks(ctx context.Context, app, set string, instance int64) error {
	panic("unwritten")
}

// PurgeRun removes the stage and the results of a map run, in slices of at most 64 MiB.
// Run 0 means all runs of the instance.
func (b *Broker) PurgeRun(ctx context.Context, app, set string, instance int64, run int32) error {
	panic("unwritten")
}

// RunCounts is how many stage, result and task messages the instance still has.
func (b *Broker) RunCounts(ctx context.Context, app, set string, instance int64) (stage, results, tasks uint64, err error) {
	panic("unwritten")
}

// OnAsk answers the questions to one shard. h is called from one goroutine and answers
// later, from any goroutine, by calling reply once.
func (b *Broker) OnAsk(shard uint8, h func(q *AskRequest, reply func(*AskReply))) (stop func(), err error) {
	panic("unwritten")
}

// OnRegister answers registrations; queue group, so that one server answers each.
func (b *Broker) OnRegister(h func(bt *Beat, reply func(*Registration))) (stop func(), err error) {
	panic("unwritten")
}

// OnBeat hears all beats of all apps.
func (b *Broker) OnBeat(h func(*Beat)) (stop func(), err error) { panic("unwritten") }

// Nudge tells the owner of the shard that rows wait for it; OnNudge hears it. Losing one
// costs a sweep.
func (b *Broker) Nudge(shard uint8) error                              { panic("unwritten") }
func (b *Broker) OnNudge(h func(shard uint8)) (stop func(), err error) { panic("unwritten") }

// ReadLogs calls each for the log batches of an instance with sequence in from..to (to 0:
// up to the end), in order.
func (b *Broker) ReadLogs(ctx context.Context, app, set string, instance int64, from, to uint64, each func(seq uint64, l *LogBatch) error) error {
	panic("unwritten")
}

// PublishEvent tells live views; lost when nobody listens.
func (b *Broker) PublishEvent(app string, subject string, payload []byte) error { panic("unwritten") }

// Connected tells whether the connection is up.
func (b *Broker) Connected() bool { panic("unwritten") }

// Close drains and closes.
func (b *Broker) Close() { panic("unwritten") }
