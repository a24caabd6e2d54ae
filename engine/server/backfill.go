package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

const (
	backfillMost    = 10_000
	backfillDefault = 1_000
	backfillPage    = 500 // stored together
)

// Backfill fires a job, as it is now, for scheduled times that have passed.
type Backfill struct {
	App, Job string
	From, To int64 // epoch ms, both included; To at most now, 0 is now
	// Max refuses ranges with more fires; default 1 000, at most 10 000.
	Max    int
	DryRun bool
}

// Backfill makes an instance for each scheduled time in the range that has none, oldest first,
// and returns those times and how many had one. With DryRun it makes none. They run as calls
// do: overlap policies are for fires of now, MaxRunning holds, and with the key
// engine.KeyBackfill they can be canceled together.
func (s *Server) Backfill(ctx context.Context, b Backfill) (times []int64, existed int64, err error) {
	app, _, id, err := s.find(ctx, Definition{App: b.App, Job: b.Job})
	if err != nil {
		return nil, 0, err
	}
	if b.Max == 0 {
		b.Max = backfillDefault
	}
	now := s.wall()
	if b.To == 0 {
		b.To = now
	}
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
	if c.Type() == workflow.ScheduleNone || c.Type() == workflow.ScheduleDelay {
		return nil, 0, fmt.Errorf("job %q has no scheduled times that could be made up for (its schedule is %s): %w", b.Job, c.Type(), engine.ErrInvalid)
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
	times = []int64{}
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
	made := []int64{}
	for page := range slices.Chunk(times, backfillPage) {
		stored, there, err := s.backfillPage(ctx, job, page)
		made, existed = append(made, stored...), existed+there
		if err != nil {
			return made, existed, err
		}
	}
	if s.owned[engine.ShardOf(id)].Load() {
		s.lookSoon()
	}
	return made, existed, nil
}

// backfillPage stores the instances for some scheduled times, and tells which of the times had
// none, and how many had one.
func (s *Server) backfillPage(ctx context.Context, job *engine.Job, times []int64) (made []int64, existed int64, err error) {
	type result struct {
		at  int64
		err error
	}
	done := make(chan result, len(times))
	asked := 0
	for _, at := range times {
		in := engine.Instance{
			ID: s.cluster.NextID(), App: job.App, Shard: engine.ShardOf(job.ID), Job: job.ID, JobVersion: job.Version, Key: engine.KeyBackfill,
			Status: engine.StatusWaiting, Reason: engine.ReasonDue, Attempt: 1, Lane: lane(&job.Spec), Pool: pool(&job.Spec),
			FireAt: at, DueAt: s.wall(), CreatedAt: s.wall(),
		}
		if in.ID == 0 {
			err = fmt.Errorf("this server has no lease to make ids from: try again: %w", engine.ErrUnavailable)
			break
		}
		s.insert(in, func(err error) { done <- result{at, err} })
		asked++
	}
	for range asked {
		select {
		case r := <-done:
			switch {
			case r.err == nil:
				made = append(made, r.at)
			case errors.Is(r.err, engine.ErrConflict):
				existed++ // fired meanwhile
			case err == nil:
				err = fmt.Errorf("backfill: %w", r.err)
			}
		case <-ctx.Done():
			return made, existed, fmt.Errorf("backfill: how many more are stored is unknown; a second call finds out: %w", context.Cause(ctx))
		}
	}
	slices.Sort(made)
	return made, existed, err
}
