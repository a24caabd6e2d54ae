package processor

import (
	"context"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// link is what a Worker needs of the broker: *broker.Client, behind wire, or a fake.
type link interface {
	Register(ctx context.Context, b broker.Beat) (broker.Registration, error)
	Beat(b *broker.Beat) error
	Puller(app, set, lane, pool string, expiry time.Duration, deliver func(*delivery), ended func(n int)) (puller, error)
	OnDirected(app, worker string, h func(*broker.Chunk) broker.DirectedReply) (stop func(), err error)
	OnControl(app string, h func(broker.Control)) (stop func(), err error)
	PublishReports(ctx context.Context, shard uint8, b *broker.ReportBatch) (seq uint64, err error)
	Stage(app, set string, b *broker.StageBatch, done func(seq uint64, err error)) error
	StageUsed(ctx context.Context, app, set string, instance int64, run int32) (msgs uint64, err error)
	PublishResult(ctx context.Context, app, set string, b *broker.ResultBatch) (seq uint64, err error)
	ReadResults(ctx context.Context, app, set string, instance int64, run int32, ranges []broker.Range, each func(*broker.ResultBatch) error) error
	Ask(ctx context.Context, q *broker.AskRequest) (*broker.AskReply, error)
	PublishLog(ctx context.Context, app, set string, b *broker.LogBatch) (seq uint64, err error)
	Flush(ctx context.Context) error
	Close()
}

// answer is what can be said to the broker about a message.
type answer interface {
	Ack() error
	Nak(after time.Duration) error
	InProgress() error
}

// delivery is a broker.Delivery whose message may be a fake one.
type delivery struct {
	answer
	chunk     *broker.Chunk
	delivered int
	age       time.Duration
}

type puller interface {
	Want(n int) error
	Close()
}

// wire is a link over the real broker.
type wire struct{ *broker.Client }

func (w wire) Puller(app, set, lane, pool string, expiry time.Duration, deliver func(*delivery), ended func(int)) (puller, error) {
	p, err := w.Client.Puller(app, set, lane, pool, expiry, func(d *broker.Delivery) {
		deliver(&delivery{d, d.Chunk, d.Delivered, d.Age})
	}, ended)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func dial(ctx context.Context, o broker.Options) (link, error) {
	c, err := broker.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return wire{c}, nil
}
