package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	maxBatchReports = 1024
	maxBatchBytes   = 256 << 10
)

// entry is a report on its way. done is called once, when the broker has stored it or a newer
// one of the same kind took its place.
type entry struct {
	rep  broker.Report
	done func()

	taken   bool // in a batch under way
	dropped bool
}

func (e *entry) size() int {
	return 96 + 5*len(e.rep.Numbers) + len(e.rep.Result) + len(e.rep.Context) + len(e.rep.Error.Message) + len(e.rep.Error.Stack)
}

func (e *entry) settle() {
	if e.done != nil {
		e.done()
	}
}

// reporter tells the owners of shards what happened. While one batch of a shard is being
// published everything else for it queues up and goes with the next: alone a report leaves
// at once, a thousand share a message. Nothing is given up: a batch is tried again until the
// broker takes it. The bound of what queues is room's business.
type reporter struct {
	ctx     context.Context // ends when the worker does, whatever is left
	publish func(ctx context.Context, shard uint8, b *broker.ReportBatch) (uint64, error)
	head    broker.ReportBatch // App, Worker, Incarnation
	log     *slog.Logger

	mu     sync.Mutex
	idle   sync.Cond // no shard has anything left
	active int
	shards [broker.Shards]struct {
		queue  []*entry
		flying bool
	}
}

func newReporter(ctx context.Context, l link, head broker.ReportBatch, log *slog.Logger) *reporter {
	r := &reporter{ctx: ctx, publish: l.PublishReports, head: head, log: log}
	r.idle.L = &r.mu
	return r
}

// add queues e and never blocks. If started, the report that the chunk got a slot, has not left
// yet, e says as much and started is dropped.
func (r *reporter) add(shard uint8, e, started *entry) {
	shard %= broker.Shards
	s := &r.shards[shard]
	r.mu.Lock()
	if started != nil && !started.taken {
		started.dropped = true
	}
	if k := e.rep.Kind; k == broker.ReportEmitted || k == broker.ReportCheckpoint {
		for _, old := range s.queue {
			if old.rep.Kind == k && !old.dropped && old.rep.ChunkKey == e.rep.ChunkKey && old.rep.Numbers[0] == e.rep.Numbers[0] {
				old.dropped = true
				e.done = both(old.done, e.done) // whoever waits for old is served by e, which is newer
			}
		}
	}
	s.queue = append(s.queue, e)
	fly := !s.flying
	if fly {
		s.flying = true
		r.active++
	}
	r.mu.Unlock()
	if fly {
		go r.fly(shard)
	}
}

func both(a, b func()) func() {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func() { a(); b() }
}

// fly publishes until nothing is left for the shard.
func (r *reporter) fly(shard uint8) {
	s := &r.shards[shard]
	for {
		r.settleDown(shard)
		r.mu.Lock()
		var took []*entry
		bytes, n := 0, 0
		for _, e := range s.queue {
			if !e.dropped {
				if size := e.size(); len(took) > 0 && (len(took) == maxBatchReports || bytes+size > maxBatchBytes) {
					break
				} else {
					bytes += size
				}
				e.taken = true
				took = append(took, e)
			}
			n++
		}
		s.queue = append(s.queue[:0], s.queue[n:]...)
		if len(took) == 0 {
			s.flying = false
			if r.active--; r.active == 0 {
				r.idle.Broadcast()
			}
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if r.send(shard, took) {
			for _, e := range took {
				e.settle()
			}
		}
	}
}

// settleDown yields until the queue stops growing: slots that the last batch released, or
// that are just finishing, go with this one.
func (r *reporter) settleDown(shard uint8) {
	last := -1
	for range 10 {
		r.mu.Lock()
		n := len(r.shards[shard].queue)
		r.mu.Unlock()
		if n == last {
			return
		}
		last = n
		runtime.Gosched()
	}
}

// send publishes until it is stored; false means that the worker ended first.
func (r *reporter) send(shard uint8, took []*entry) bool {
	b := r.head
	b.Reports = make([]broker.Report, len(took))
	for i, e := range took {
		b.Reports[i] = e.rep
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		_, err := r.publish(r.ctx, shard, &b)
		switch {
		case err == nil:
			return true
		case r.ctx.Err() != nil:
			return false
		case errors.Is(err, broker.ErrTooLarge) && len(took) > 1:
			half := len(took) / 2
			return r.send(shard, took[:half]) && r.send(shard, took[half:])
		case errors.Is(err, broker.ErrTooLarge) && len(b.Reports[0].Result) > 0:
			b.Reports[0] = overgrown(b.Reports[0])
			continue
		}
		if pause > time.Second {
			r.log.Warn("reports cannot be stored; they are kept and tried again", "shard", shard, "reports", len(took), "err", err)
		}
		sleep(r.ctx, pause)
	}
}

// overgrown turns a success whose result no message can hold into the failure it is.
func overgrown(rep broker.Report) broker.Report {
	text := fmt.Sprintf("the result has %d bytes, more than the broker takes in one message", len(rep.Result))
	rep.Result, rep.Context = nil, nil
	if rep.Kind == broker.ReportSucceeded {
		rep.Kind = broker.ReportFailed
		rep.Error = broker.TaskError{Kind: broker.ErrorPermanent, Message: text}
	}
	return rep
}

// drain waits until all reports are stored, or ctx ends.
func (r *reporter) drain(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.idle.Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.active > 0 && ctx.Err() == nil {
		r.idle.Wait()
	}
	return r.active == 0
}

// room bounds what is finished and not yet stored: who brings more waits, and so does the
// slot he came from.
type room struct {
	mu    sync.Mutex
	freed sync.Cond
	used  int
	limit int
}

func newRoom(limit int) *room {
	r := &room{limit: limit}
	r.freed.L = &r.mu
	return r
}

func (r *room) take(n int) {
	r.mu.Lock()
	r.used += n
	r.mu.Unlock()
}

func (r *room) give(n int) {
	r.mu.Lock()
	r.used -= n
	r.freed.Broadcast()
	r.mu.Unlock()
}

// wait blocks while more than the limit is in use, unless ctx ends.
func (r *room) wait(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used <= r.limit {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.freed.Broadcast()
	})
	defer stop()
	for r.used > r.limit && ctx.Err() == nil {
		r.freed.Wait()
	}
}
