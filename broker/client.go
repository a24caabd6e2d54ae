package broker

import (
	"context"
	"errors"
	"time"
)

// Errors of this package. Driver errors become one of these, wrapped, at this border.
var (
	ErrNoRoom       = errors.New("the stream has no room")        // stage, results, reports or tasks are full
	ErrUnavailable  = errors.New("the broker is not reachable")   // disconnected, no responders, timeout
	ErrNotFound     = errors.New("not found in the broker")       // stream, message or consumer
	ErrTooLarge     = errors.New("too large for one message")     // over the server's max payload
	ErrUndecodable  = errors.New("message cannot be decoded")     // unknown version or damaged
	ErrNoResponders = errors.New("nobody answers on the subject") // no such worker or no server
)

// Options says where the broker is and how to reach it.
type Options struct {
	URL       string // nats://host:port, comma separated for a cluster
	Name      string // shown in the broker's connection list
	User      string
	Password  string
	Token     string
	CredsFile string
	// OnDown and OnUp tell of the connection; called from one goroutine, in order.
	OnDown func()
	OnUp   func()
}

// Client is a worker's end: one connection that dials out only. Safe for concurrent use.
type Client struct{}

// Dial connects and keeps the connection up: it returns once connected or when ctx ends,
// and reconnects for ever afterwards.
func Dial(ctx context.Context, o Options) (*Client, error) { panic("unwritten") }

// Register introduces the worker to the engine. It retries while no server answers, until ctx ends.
func (c *Client) Register(ctx context.Context, b Beat) (Registration, error) { panic("unwritten") }

// Beat sends one beat, without waiting.
func (c *Client) Beat(b *Beat) error { panic("unwritten") }

// Delivery is one chunk as delivered from a lane.
type Delivery struct {
	Chunk     *Chunk
	Lane      string
	Delivered int           // 1 at first
	Age       time.Duration // since it was stored, by the broker's clock at delivery
	// (unexported message)
}

// Ack, Nak and InProgress speak to the broker without waiting for it.
func (d *Delivery) Ack() error                    { panic("unwritten") }
func (d *Delivery) Nak(after time.Duration) error { panic("unwritten") }
func (d *Delivery) InProgress() error             { panic("unwritten") }

// Puller pulls from the durable of one lane and pool.
type Puller struct{}

// Puller opens the pull side of (lane, pool). deliver is called for each message, from one
// goroutine; ended is called when a pull request ended (expired, connection lost) with n
// messages unfilled, so that the worker may ask again. A message that cannot be decoded is
// reported as a refusal to nobody: it is terminated, counted and logged once.
func (c *Client) Puller(app, set, lane, pool string, expiry time.Duration, deliver func(*Delivery), ended func(n int)) (*Puller, error) {
	panic("unwritten")
}

// Want asks for n more messages. Requests add up; each expires by itself.
func (p *Puller) Want(n int) error { panic("unwritten") }

// Close ends the puller; open requests are abandoned.
func (p *Puller) Close() { panic("unwritten") }

// OnDirected answers chunks sent to this worker by request.
func (c *Client) OnDirected(app, worker string, h func(*Chunk) DirectedReply) (stop func(), err error) {
	panic("unwritten")
}

// OnControl hears the orders to the workers of the app.
func (c *Client) OnControl(app string, h func(Control)) (stop func(), err error) { panic("unwritten") }

// PublishReports stores one batch in the reports stream and returns when it is stored.
func (c *Client) PublishReports(ctx context.Context, shard uint8, b *ReportBatch) (seq uint64, err error) {
	panic("unwritten")
}

// Stage stores one batch; done is called with its sequence when it is stored, or with the
// error (ErrNoRoom when the stream or the run's quota is full).
func (c *Client) Stage(app, set string, b *StageBatch, done func(seq uint64, err error)) error {
	panic("unwritten")
}

// StageUsed is the number of messages and of bytes the run holds in the stage.
func (c *Client) StageUsed(ctx context.Context, app, set string, instance int64, run int32) (msgs uint64, err error) {
	panic("unwritten")
}

// PublishResult stores values and returns the sequence.
func (c *Client) PublishResult(ctx context.Context, app, set string, b *ResultBatch) (seq uint64, err error) {
	panic("unwritten")
}

// ReadResults calls each for every result message of the run whose sequence is in ranges
// (ascending), in order, in constant memory. A listed sequence that is missing is an
// error (ErrNotFound).
func (c *Client) ReadResults(ctx context.Context, app, set string, instance int64, run int32, ranges []Range, each func(*ResultBatch) error) error {
	panic("unwritten")
}

// Ask puts one question to the owner of the shard; ErrNoResponders or ErrUnavailable when
// nobody answered before ctx ended.
func (c *Client) Ask(ctx context.Context, q *AskRequest) (*AskReply, error) { panic("unwritten") }

// PublishLog stores lines and returns the sequence.
func (c *Client) PublishLog(ctx context.Context, app, set string, b *LogBatch) (seq uint64, err error) {
	panic("unwritten")
}

// Connected tells whether the connection is up.
func (c *Client) Connected() bool { panic("unwritten") }

// Flush waits until the broker has seen all that was sent.
func (c *Client) Flush(ctx context.Context) error { panic("unwritten") }

// Close drains and closes.
func (c *Client) Close() { panic("unwritten") }
