package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// A Change that the store refuses for what is in it (an impossible or oversized row) would
// be decided again from the same report for ever, and its shard with everything else in it
// would stand. So the shard goes on one instance at a time, and an instance whose rows are
// refused three times is set aside: it is not in memory any more, what is said about it
// changes nothing, and a dead letter tells of it.
const (
	poisonTries = 3
	poisonPause = 100 * time.Millisecond
	asideMost   = 1000
)

// poison is what is known of refusals in one shard. It belongs to the loop.
type poison struct {
	cursor   uint64 // committed when the last refusal came
	instance int64  // whose rows were refused last, 0 unknown
	tries    int
	single   bool // a Change for each instance of a report
	letters  []engine.DeadLetter
}

// refused takes note of a refusal. It returns how long to wait before the shard is loaded
// again, and the instance that is to be set aside, if any.
func (p *poison) refused(why error, committed uint64, instance int64) (wait time.Duration, aside int64) {
	if !errors.Is(why, engine.ErrInvalid) && !errors.Is(why, engine.ErrTooLarge) && !errors.Is(why, engine.ErrConflict) {
		return 0, 0
	}
	if p.instance != instance || p.tries >= poisonTries {
		p.instance, p.tries = instance, 0
	}
	p.tries++
	p.single, p.cursor = true, committed
	if instance != 0 && p.tries >= poisonTries {
		return 0, instance
	}
	return min(time.Duration(p.tries)*poisonPause, 5*time.Second), 0
}

// passed ends the caution once the shard has stored what came after the refusal.
func (p *poison) passed(committed uint64) {
	if committed > p.cursor {
		p.tries, p.instance, p.single = 0, 0, false
	}
}

// setAside takes an instance out for good; it comes back with the next start of a server.
func (s *Server) setAside(shard uint8, id int64, why error) {
	s.cfg.Log.Error("an instance is set aside until the next start: what becomes of it cannot be stored", "instance", id, "shard", shard, "err", why)
	if len(s.aside) >= asideMost {
		clear(s.aside)
	}
	s.aside[id] = true
	p := &s.poison[shard]
	p.letters = append(p.letters, engine.DeadLetter{
		Shard: shard, Subject: "instance", Payload: fmt.Append(nil, id), At: s.now(),
		Reason: engine.CutText("the store refuses what becomes of it: "+why.Error(), engine.MaxText),
	})
}

// takeReport hands a report to the owner; in a shard that had a Change refused, the reports
// of each instance alone, and the cursor after all of them.
func (s *Server) takeReport(now int64, ev track.Reported) {
	p := &s.poison[ev.Shard]
	if !p.single || ev.Batch == nil {
		s.owner.Handle(now, ev)
		return
	}
	for _, part := range byInstance(ev.Batch) {
		s.owner.Handle(now, track.Reported{Shard: ev.Shard, Seq: ev.Seq, Batch: part, Part: true})
		s.settle()
		s.submit(s.owner.Take())
	}
	whole := *ev.Batch
	whole.Reports = nil
	s.owner.Handle(now, track.Reported{Shard: ev.Shard, Seq: ev.Seq, Batch: &whole})
	p.passed(s.cursors[ev.Shard].Load())
}

// byInstance divides a batch, each part in the order of the batch.
func byInstance(b *broker.ReportBatch) []*broker.ReportBatch {
	at := map[int64]*broker.ReportBatch{}
	var parts []*broker.ReportBatch
	for i := range b.Reports {
		part := at[b.Reports[i].Instance]
		if part == nil {
			part = &broker.ReportBatch{App: b.App, Worker: b.Worker, Incarnation: b.Incarnation}
			at[b.Reports[i].Instance] = part
			parts = append(parts, part)
		}
		part.Reports = append(part.Reports, b.Reports[i])
	}
	return parts
}

// soleInstance is the instance that all rows of a Change are about, 0 if there are several.
func soleInstance(c *engine.Change) (id int64) {
	several := false
	about := func(i int64) {
		several = several || id != 0 && id != i
		id = i
	}
	for _, rows := range [][]engine.Instance{c.NewInstances, c.Instances} {
		for i := range rows {
			about(rows[i].ID)
		}
	}
	for _, rows := range [][]engine.MapRun{c.NewRuns, c.Runs} {
		for i := range rows {
			about(rows[i].Instance)
		}
	}
	for _, rows := range [][]engine.Task{c.NewTasks, c.Tasks} {
		for i := range rows {
			about(rows[i].Instance)
		}
	}
	if several {
		return 0
	}
	return id
}
