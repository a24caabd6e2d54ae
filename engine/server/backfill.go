package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/engine"
)

const (
	backfillMost    = 10_000
	backfillDefault = 1_000
)

// Backfill fires a job, as it is now, for scheduled times that have passed.
type Backfill struct {
	App, Job string
	From, To int64 // epoch ms, both included; To at most now
	// Max refuses ranges with more fires; default 1 000, at most 10 000.
	Max    int
	DryRun bool
}

// Backfill makes an instance for each scheduled time in the range that has none, oldest first,
// and returns those times and how many had one. With DryRun it makes none. They run as calls
// do: overlap policies are for fires of now, MaxRunning holds.
func (s *Server) Backfill(ctx context.Context, b Backfill) (times []int64, existed int64, err error) {
	app, _, id, err := s.find(ctx, Definition{App: b.App, Job: b.Job})
	if err != nil {
		return nil, 0, err
	}
	if b.Max == 0 {
		b.Max = backfillDefault
	}
	now := s.wall()
	switch {
	case b.Max < 0 || b.Max > backfillMost:
		return nil, 0, fmt.Errorf("max %d: 1 to %d: %w", b.Max, backfillMost, engine.ErrInvalid)
	case b.To > now:
		return nil, 0, fmt.Errorf("the range ends after now: what is to come fires by itself: %w", engine.ErrInvalid)
	case b.From > b.To:
		return nil, 0, fmt.Errorf("the range ends before it begins: %w", engine.ErrInvalid)
	}
	job, err := s.cfg.Store.Job(ctx, id)
	if err != nil {
		return nil, 0, fmt.Errorf("job %q: %w", b.Job, err)
	}
	if !job.Enabled {
		return nil, 0, fmt.Errorf("job %q is disabled: enable it first: %w", b.Job, engine.ErrConflict)
	}
	row, err := s.cfg.Store.Schedule(ctx, engine.KindJob, id)
	if err != nil {
		return nil, 0, fmt.Errorf("schedule of job %q: %w", b.Job, err)
	}
	c, err := s.compile(ctx, app.ID, job.Schedule)
	if err != nil {
		return nil, 0, fmt.Errorf("job %q: %w", b.Job, err)
	}
	due, total, _ := c.Due(b.From-1, b.To, row.AnchorAt, b.Max)
	if total > int64(b.Max) {
		return nil, 0, fmt.Errorf("%d fires lie in the range, at most %d may be backfilled: ask for a shorter range, or raise max: %w", total, b.Max, engine.ErrTooLarge)
	}
	fired, _, err := s.readLedger(ctx, engine.KindJob, id, b.From, b.To, verifyMost)
	if err != nil {
		return nil, 0, fmt.Errorf("ledger of job %q: %w", b.Job, err)
	}
	there := map[int64]bool{}
	for _, f := range fired {
		there[f.At] = true
	}
	for _, at := range due {
		if there[at] {
			existed++
		} else {
			times = append(times, at)
		}
	}
	if b.DryRun {
		return times, existed, nil
	}
	made := times[:0:0]
	for _, at := range times {
		in := engine.Instance{
			ID: s.cluster.NextID(), App: app.ID, Shard: engine.ShardOf(id), Job: id, JobVersion: job.Version,
			Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Lane: lane(&job.Spec), Pool: pool(&job.Spec),
			FireAt: at, DueAt: s.wall(), CreatedAt: s.wall(),
		}
		if in.ID == 0 {
			return made, existed, fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
		}
		done := make(chan error, 1)
		s.insert(in, func(err error) { done <- err })
		select {
		case err = <-done:
		case <-ctx.Done():
			return made, existed, fmt.Errorf("backfill: whether %d is stored is unknown; a second call finds out: %w", at, context.Cause(ctx))
		}
		switch {
		case err == nil:
			made = append(made, at)
		case errors.Is(err, engine.ErrConflict):
			existed++ // fired meanwhile
		default:
			return made, existed, fmt.Errorf("backfill: %w", err)
		}
	}
	if s.owned[engine.ShardOf(id)].Load() {
		s.lookSoon()
	}
	return made, existed, nil
}
