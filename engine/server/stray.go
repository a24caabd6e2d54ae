package server

import (
	"context"
	"errors"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// strayBeats is how many beats in a row must list what the worker should not have: its last
// word about it may still be on its way.
const strayBeats = 3

// strayLooks bounds the rows that are read for one beat; the next ones see to the rest.
const strayLooks = 16

type workerName struct{ app, name string }

// strays are chunks that live workers list and should not have, with the beats that said so.
// A worker that was cut off and comes back is found here.
type strays map[workerName]map[broker.ChunkKey]int

// lookForStrays tells a worker to let go of what is no longer its own. It runs on the loop.
func (s *Server) lookForStrays(b *broker.Beat) {
	at := workerName{b.App, b.Worker}
	before := s.strays[at]
	delete(s.strays, at)
	if len(b.Held) == 0 {
		return
	}
	now := map[broker.ChunkKey]int{}
	looked := 0
	for _, k := range b.Held {
		claim := s.owner.Claim(k, track.Target{Worker: b.Worker, Incarnation: b.Incarnation})
		if claim == track.ClaimFine {
			continue
		}
		now[k] = before[k] + 1
		if now[k]%strayBeats != 0 {
			continue
		}
		if claim == track.ClaimStray {
			s.tell(b.App, broker.Control{Kind: broker.ControlDrop, Worker: b.Worker, Chunk: k})
		} else if looked++; looked <= strayLooks {
			s.background(func(ctx context.Context) { s.stopIfOver(ctx, b.App, k) })
		}
	}
	if len(now) > 0 {
		s.strays[at] = now
	}
}

// stopIfOver stops an attempt that is over, as the stored row has it.
func (s *Server) stopIfOver(ctx context.Context, app string, k broker.ChunkKey) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	in, err := s.cfg.Store.Instance(ctx, k.Instance)
	switch {
	case errors.Is(err, engine.ErrNotFound):
	case err != nil:
		return // a later beat asks again
	case in.Attempt > k.Attempt || in.Status.Terminal():
	default:
		return
	}
	s.tell(app, broker.Control{Kind: broker.ControlStop, Instance: k.Instance, Attempt: k.Attempt})
}

// tell sends an order; if it is lost, the beats bring it up again.
func (s *Server) tell(app string, c broker.Control) {
	if err := s.cfg.Broker.Order(app, c); err != nil {
		s.cfg.Log.Debug("an order did not go out", "app", app, "err", err)
	}
}

const (
	skewMost  = 5 * time.Second
	skewAgain = 10 * time.Minute
)

// checkSkew says when a worker's clock is wrong. It changes nothing: workers are judged by
// when they are heard.
func (s *Server) checkSkew(b *broker.Beat) {
	if b.SentAt == 0 {
		return
	}
	skew := time.Duration(b.SentAt-s.now()) * time.Millisecond
	at := workerName{b.App, b.Worker}
	if skew.Abs() < skewMost {
		delete(s.skewed, at)
		return
	}
	if time.Since(s.skewed[at]) > skewAgain {
		s.skewed[at] = time.Now()
		s.cfg.Log.Warn("the worker's clock is off; its log lines will carry wrong times", "app", b.App, "worker", b.Worker, "skew", skew)
	}
}
