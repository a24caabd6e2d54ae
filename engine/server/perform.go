package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/engine/internal/track"
)

const (
	inlinePublishes = 64
	// staleAfter is how long after its commit a publish may still begin: an owner that was
	// frozen must not speak of what another one has moved on since.
	staleAfter = time.Second
)

var errStale = errors.New("the commit is too long ago, or the shard is not this server's any more")

// mayTell tells whether what was decided for a shard at that epoch may still be said. A
// server that was frozen wakes up with the answer to its commit in hand and takes it for
// new: only the lease tells that others have had the time to decide anew.
func (s *Server) mayTell(shard uint8, epoch int64, committed time.Time) bool {
	held, ok := s.cluster.Owns(shard)
	return ok && held.Epoch == epoch && s.cluster.Deciding() && time.Since(committed) <= staleAfter
}

// perform carries effects out, on the committer's goroutine: callers are woken first, a few
// messages published at once, the rest left to the publisher.
func (s *Server) perform(effects []track.Effect, r commit.Result) {
	for _, e := range effects {
		if w, ok := e.(track.Wake); ok && w.Done != nil {
			err := w.Err
			if err == nil {
				err = r.Err
			}
			w.Done(err)
		}
	}
	if r.Err != nil {
		r.CommittedAt = time.Now() // a barrier at the end: reads and answers only
	}
	inline := 0
	for _, e := range effects {
		switch e := e.(type) {
		case track.Wake:
		case track.Publish:
			if inline++; inline <= inlinePublishes {
				s.publish(e, r.CommittedAt)
			} else {
				s.publishLater(later{e, r.CommittedAt})
			}
		case track.Answer:
			if !s.cluster.Deciding() {
				e.With = &broker.AskReply{Verdict: broker.VerdictRetry}
			}
			e.Reply(e.With)
		case track.Direct:
			if c := e.Chunk; !s.mayTell(c.Shard, c.Epoch, r.CommittedAt) {
				s.inbox.put(item{event: track.Directed{Shard: c.Shard, Key: c.ChunkKey, Worker: e.Worker, Ask: e.Ask, Err: errStale}}, false)
				continue
			}
			s.background(func(ctx context.Context) { s.fetchFor(ctx, e) })
		case track.Order:
			if err := s.cfg.Broker.Order(e.App, e.Control); err != nil {
				s.cfg.Log.Warn("an order did not go out; beats will show what still runs", "app", e.App, "instance", e.Control.Instance, "err", err)
			}
			s.orders.add(e)
		case track.Final:
			s.final(e)
		case track.Purge:
			s.purges.add(e, s.now())
		default:
			s.background(func(ctx context.Context) { s.fetchFor(ctx, e) })
		}
	}
}

type later struct {
	publish track.Publish
	at      time.Time
}

// publishLater leaves a publish to the publisher; when that is full, everybody waits. A
// server that is stopping publishes nothing more: the next owner finds what is missing.
func (s *Server) publishLater(l later) {
	s.published.begin() // a listing waits for what is still in the channel
	select {
	case s.publisher <- l:
	case <-s.ctx.Done():
		s.published.end()
	}
}

// publishing is the publisher goroutine.
func (s *Server) publishing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-s.publisher:
			s.publish(l.publish, l.at)
			s.published.end()
		}
	}
}

func (s *Server) publish(e track.Publish, committed time.Time) {
	key, shard := e.Chunk.ChunkKey, e.Chunk.Shard
	if !s.mayTell(shard, e.Chunk.Epoch, committed) {
		s.inbox.put(item{event: track.Unpublished{Shard: shard, Key: key, Err: errStale}}, false)
		return
	}
	s.published.begin()
	s.cfg.Broker.PublishChunk(e.Set, e.Lane, e.Pool, e.Chunk, func(err error) {
		s.published.end()
		if err != nil {
			s.inbox.put(item{event: track.Unpublished{Shard: shard, Key: key, Err: err}}, false)
		}
	})
}

// background runs f beside the loop; it ends with the server.
func (s *Server) background(f func(ctx context.Context)) {
	if s.ctx.Err() == nil {
		s.work.Go(func() { f(s.ctx) })
	}
}

const (
	readTimeout = 10 * time.Second
	// listTimeout bounds a listing, which asks for the chunks of each instance of an app.
	listTimeout = time.Minute
)

// fetchFor carries out an effect that reads or waits, and brings the answer back.
func (s *Server) fetchFor(ctx context.Context, e track.Effect) {
	life := ctx
	ctx, cancel := context.WithTimeout(life, readTimeout)
	defer cancel()
	answer := func(ev track.Event) { s.inbox.put(item{event: ev}, false) }
	b := s.cfg.Broker
	switch e := e.(type) {
	case track.Direct:
		reply, err := b.SendDirected(ctx, e.Worker, e.Chunk)
		answer(track.Directed{Shard: e.Chunk.Shard, Key: e.Chunk.ChunkKey, Worker: e.Worker, Ask: e.Ask, Reply: reply, Err: err})
	case track.Fetch:
		rows, err := s.cfg.Store.Waiting(ctx, e.Queue, e.Shards, e.Due, e.After, e.Limit)
		answer(track.Fetched{Queue: e.Queue, Rows: s.resolveAll(ctx, rows), Due: e.Due, Limit: e.Limit, Err: err})
	case track.Peek:
		if heads, err := s.cfg.Store.QueueHeads(ctx); err == nil {
			answer(track.Heads{Heads: heads})
		} // else the sweep looks
	case track.ReadStage:
		msgs, err := b.ReadStage(ctx, e.App, e.Set, e.Instance, e.Run, e.From, e.Max)
		answer(track.Staged{Instance: e.Instance, Run: e.Run, From: e.From, Max: e.Max, Ask: e.Ask, Messages: msgs, Err: err})
	case track.Reread:
		msg, err := b.ReadStaged(ctx, e.Set, e.App, e.Seq)
		if errors.Is(err, broker.ErrNotFound) {
			msg, err = nil, nil
		}
		answer(track.Restaged{Instance: e.Instance, Run: e.Run, Seq: e.Seq, Message: msg, Err: err})
	case track.List:
		long, stop := context.WithTimeout(life, listTimeout)
		defer stop()
		answer(s.list(long, e))
	case track.Load:
		row, err := s.loadRow(ctx, e.ID)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			if e.Command.ID == 0 { // a workflow's own: it is stored nowhere
				pause(life, retryPause)
				answer(track.Command{Command: e.Command})
			}
			return // a stored one is still there and is read again
		}
		answer(track.Command{Command: e.Command, Loaded: true, Row: row, Ask: e.Ask})
	case track.LoadLate:
		row, err := s.loadRow(ctx, e.ID)
		if err == nil && row.Instance.Attempt == e.Attempt && row.Instance.Shard == e.Shard && row.App != nil && row.App.Name == e.App {
			answer(track.LateLoaded{Row: row, Result: e.Result})
		}
	default:
		s.cfg.Log.Error("an effect without a performer", "effect", e)
	}
}

// loadRow reads one instance with what it refers to.
func (s *Server) loadRow(ctx context.Context, id int64) (*track.Row, error) {
	in, err := s.cfg.Store.Instance(ctx, id)
	if err != nil {
		return nil, err
	}
	row := s.resolve(ctx, *in)
	return &row, nil
}

// poolsIn are the pools of the app's live workers.
func (s *Server) poolsIn(app string) []string {
	pools := []string{broker.PoolAny}
	for _, w := range s.fleet.Workers(app) {
		for _, p := range w.Beat.Pools {
			if !slices.Contains(pools, p) {
				pools = append(pools, p)
			}
		}
	}
	return pools
}

// list finds out which chunks of the instances are in the task stream, and how far the
// reports go after that.
func (s *Server) list(ctx context.Context, e track.List) track.Listed {
	out := track.Listed{App: e.App.ID, Ask: e.Ask, Instances: e.Instances, Present: map[int64][]int64{}, After: map[uint8]uint64{}}
	s.published.wait(ctx)
	b := s.cfg.Broker
	// Streams that somebody removed are made again here, or nothing could be sent for ever.
	if err := b.EnsureApp(ctx, e.App.Name, e.App.Set, s.poolsIn(e.App.Name)); err != nil {
		s.cfg.Log.Warn("the streams of an app are not as they should be", "app", e.App.Name, "err", err)
	}
	counts, err := b.TaskCounts(ctx, e.App.Name, e.App.Set)
	if err != nil {
		out.Err = err
		return out
	}
	for _, id := range e.Instances {
		if counts[id] == 0 {
			continue
		}
		keys, err := b.TaskList(ctx, e.App.Name, e.App.Set, id)
		if err != nil {
			out.Err = err
			return out
		}
		for _, k := range keys {
			out.Present[id] = append(out.Present[id], k.Chunk)
		}
	}
	for _, shard := range e.Shards {
		if out.After[shard], err = b.LastReport(ctx, shard); err != nil {
			out.Err = err
			return out
		}
	}
	return out
}
