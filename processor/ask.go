package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	askTimeout = 2 * time.Second
	// heldPause is when a message comes back that another live worker runs.
	heldPause = 5 * time.Second
)

func (r *run) question(kind broker.AskKind, from uint64) *broker.AskRequest {
	return &broker.AskRequest{
		Kind: kind, ChunkKey: r.c.ChunkKey, App: r.w.cfg.App, Shard: r.c.Shard,
		Worker: r.w.cfg.Name, Incarnation: r.w.incarnation, From: from,
	}
}

// ask puts q until there is an answer that decides, or ctx ends.
func (w *Worker) ask(ctx context.Context, q *broker.AskRequest) (*broker.AskReply, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		w.count.asked.Add(1)
		once, cancel := context.WithTimeout(ctx, askTimeout)
		reply, err := w.link.Ask(once, q)
		cancel()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && reply.Verdict != broker.VerdictRetry {
			return reply, nil
		}
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// mayRun asks the owner and does as it says. The keeper holds the message meanwhile: without
// an answer nothing runs.
func (r *run) mayRun() {
	reply, err := r.w.ask(r.ctx, r.question(broker.AskRun, 0))
	switch {
	case errors.Is(err, ErrStopped):
		r.decline(func(m answer) error { return m.Ack() })
	case err != nil:
		r.decline(func(m answer) error { return m.Nak(0) })
	case reply.Verdict == broker.VerdictHeld:
		r.decline(func(m answer) error { return m.Nak(heldPause) })
	case reply.Verdict == broker.VerdictDone:
		r.decline(func(m answer) error { return m.Ack() })
	default:
		r.mu.Lock()
		r.skip = make(map[int64]struct{}, len(reply.Done))
		for _, n := range reply.Done {
			r.skip[n] = struct{}{}
		}
		r.mu.Unlock()
		r.start()
	}
}

// decline lets go of a chunk that never started.
func (r *run) decline(say func(answer) error) {
	r.mu.Lock()
	r.executed, r.settled = true, true
	msg := r.msg
	r.mu.Unlock()
	r.w.forget(r, false)
	if msg != nil {
		r.w.tell(say(msg))
	}
	r.cancel(errEnded)
	if r.slot {
		r.w.slots.free(r.lane)
	}
}

// asked is the source of a reduce and of a PostProcess: the owner says what counts.
type asked struct{ r *run }

func (a asked) page(ctx context.Context, kind broker.AskKind, from uint64) (*broker.AskReply, error) {
	return a.r.w.ask(ctx, a.r.question(kind, from))
}

func (a asked) read(ctx context.Context, ranges []broker.Range, each func(*broker.ResultBatch) error) error {
	if len(ranges) == 0 {
		return nil
	}
	c := a.r.c
	if err := a.r.w.link.ReadResults(ctx, c.App, a.r.w.set(), c.Instance, c.Run, ranges, each); err != nil {
		return fmt.Errorf("run %d of instance %d: %w", c.Run, c.Instance, err)
	}
	return nil
}
