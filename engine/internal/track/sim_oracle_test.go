package track_test

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// oracle is what the world knows beside, to judge what happens.
type oracle struct {
	gained    map[uint8][]int64 // when somebody took the shard over
	waits     map[broker.ChunkKey]*simWorker
	overtakes int
	lost      int // workers that died or may have passed for dead
	examined  int64
	fed       map[int64][]int64 // when the numbers of a run with a rate were fed
	fedNumber map[string]bool
}

func newOracle() oracle {
	return oracle{gained: map[uint8][]int64{}, waits: map[broker.ChunkKey]*simWorker{}, fed: map[int64][]int64{}, fedNumber: map[string]bool{}}
}

// ledger is what the world knows of one instance, to judge what happens to it.
type ledger struct {
	stopped  bool
	delay    int64             // ms until it is due
	excused  map[string]int    // by task: how often it may run once more
	valued   map[string]bool   // by task: a value of it was reported
	runs     map[string]int    // by task and its attempt: how often it began
	lossy    bool              // reports of it were lost: anything may be repeated
	spoiled  bool              // items or values of it were lost
	cutAt    int64             // since when a run of it is cut off
	forgiven bool              // its failure may have counted: there was a new owner
	kept     map[int32][]byte  // the checkpoint as stored, by attempt
	best     map[int32]int     // what it was last, even if it is gone
	steps    map[int32]int     // how far it came, by attempt
	sharedBy map[string]string // who has the share
}

func newLedger() ledger {
	return ledger{
		excused: map[string]int{}, valued: map[string]bool{}, best: map[int32]int{}, runs: map[string]int{}, kept: map[int32][]byte{}, steps: map[int32]int{}, sharedBy: map[string]string{},
	}
}

// excuse notes that the tasks of a run may be run once more, because of something that the
// owner cannot know or help.
func (w *world) excuse(r *simRun, why string) {
	for _, t := range r.c.Tasks {
		w.work[r.c.Instance].excused[runKey(r.c, t.Number)]++
	}
	w.about(r.c.Instance, "%s: %s", keyOf(r.c.ChunkKey), why)
}

func (w *world) reportsLost(b *broker.ReportBatch) {
	for _, r := range b.Reports {
		if j := w.work[r.Instance]; j != nil {
			j.lossy = true
		}
	}
}

// valuesTold notes results that are reported: one that overlaps with another is refused,
// and what only it has runs once more.
func (w *world) valuesTold(r *broker.Report) {
	j := w.work[r.Instance]
	if j == nil || r.Kind != broker.ReportSucceeded || r.ResultSeq == 0 || w.broker.results[r.ResultSeq] == nil {
		return
	}
	ns := w.broker.results[r.ResultSeq].Numbers
	key := func(n int64) string { return fmt.Sprintf("%d/%d/%d", r.Attempt, r.Phase, n) }
	again := slices.ContainsFunc(ns, func(n int64) bool { return j.valued[key(n)] })
	for _, n := range ns {
		j.valued[key(n)] = true
		if again {
			j.excused[key(n)]++
		}
	}
}

// mayBegin judges the beginning of a task: once for each of its attempts, unless there is
// an excuse.
func (w *world) mayBegin(x *simWorker, r *simRun, t *broker.Task) {
	j := w.work[r.c.Instance]
	k := runKey(r.c, t.Number)
	once := fmt.Sprintf("%s/%d", k, t.Attempt)
	w.about(r.c.Instance, "%s begins %s in %s, directed %v", x.name, once, keyOf(r.c.ChunkKey), r.c.Directed)
	if j.runs[once]++; j.runs[once] > 1+j.excused[k] && !j.lossy {
		w.fail("instance %d: %s runs task %s the %d. time without a reason", r.c.Instance, x.name, once, j.runs[once])
	}
	if r.c.Phase == broker.PhaseShare {
		// Its next incarnation may get it, if the owner could not know that this one had it.
		if who, ok := j.sharedBy[k]; ok && who != x.name {
			w.fail("instance %d: share %s moved from %s to %s", r.c.Instance, k, who, x.name)
		}
		j.sharedBy[k] = x.name
	}
	if limit := w.specs[j.in.Job].Concurrency; limit > 0 && r.c.Mode != string(workflow.Map) {
		at := 0
		for _, y := range w.workers {
			for _, o := range y.held {
				if y.alive && o.c.JobID == r.c.JobID && o.next > 0 && !o.over && w.current(o) && w.work[o.c.Instance].excused[runKey(o.c, 0)] == 0 {
					at++
				}
			}
		}
		if at > limit {
			w.fail("%d runs of job %d at once, %d may", at, r.c.JobID, limit)
		}
	}
}

// published judges what is put into a lane.
func (w *world) published(c *broker.Chunk, err error) {
	w.handed(c)
	if c.Epoch < w.epochs[c.Shard] {
		w.excuse(&simRun{c: c}, "an earlier owner sent it late")
	}
	rate := int64(w.specs[c.JobID].Rate)
	if rate == 0 || c.Phase != broker.PhaseSub {
		return
	}
	for _, t := range c.Tasks {
		k := fmt.Sprintf("%d/%s", c.Instance, runKey(c, t.Number))
		if w.fedNumber[k] {
			continue
		}
		w.fedNumber[k] = true
		times := slices.DeleteFunc(w.fed[c.Instance], func(at int64) bool { return at < w.now-1000 })
		w.fed[c.Instance] = append(times, w.now)
	}
	anew := int64(1)
	for _, at := range w.gained[c.Shard] {
		if at > w.now-3000 {
			anew++
		}
	}
	if n := int64(len(w.fed[c.Instance])); n > 4*rate*anew { // what a slow commit holds up comes at once
		w.fail("instance %d: %d tasks were fed within a second, its rate is %d", c.Instance, n, rate)
	}
}

// decided judges what the owner is about to send: nothing that was final when it was asked
// last.
func (w *world) decided(s *simServer, b track.Batch) {
	for i := range b.Changes {
		for _, e := range b.Changes[i].Effects {
			var c *broker.Chunk
			switch e := e.(type) {
			case track.Publish:
				c = e.Chunk
			case track.Direct:
				c = e.Chunk
			default:
				continue
			}
			final := s.finals[c.Instance]
			for _, t := range c.Tasks {
				if c.Phase == broker.PhaseSub && final != nil && final.Contains(uint32(t.Number)) && w.work[c.Instance].row.Attempt == c.Attempt {
					w.fail("instance %d: %s sends number %d, which is final", c.Instance, s.name, t.Number)
				}
			}
		}
	}
	s.finals = s.owner.Finals()
}

// handed judges a chunk that is about to reach a worker.
func (w *world) handed(c *broker.Chunk) {
	j := w.work[c.Instance]
	if j == nil {
		return
	}
	if c.Phase == broker.PhaseRoot && c.Attempt > 1 {
		if before, now := j.best[c.Attempt-1], count(c.Tasks[0].Checkpoint); now < before {
			w.fail("instance %d: attempt %d begins at checkpoint %d, the one before was kept at %d", c.Instance, c.Attempt, now, before)
		}
	}
}

func count(checkpoint []byte) int {
	n, _ := strconv.Atoi(string(checkpoint))
	return n
}

func (w *world) storedTasks(c *engine.Change) {
	for _, rows := range [][]engine.Task{c.NewTasks, c.Tasks} {
		for _, t := range rows {
			if j := w.work[t.Instance]; j != nil && t.Kind == engine.TaskRoot && len(t.Checkpoint) > 0 {
				j.kept[t.Run], j.best[t.Run] = t.Checkpoint, count(t.Checkpoint)
			}
		}
	}
	for _, k := range c.GoneTasks {
		if j := w.work[k.Instance]; j != nil && k.Kind == engine.TaskRoot {
			delete(j.kept, k.Run)
		}
	}
}

// attempted judges an instance as it is being stored.
func (j *job) attempted(*engine.Instance) {}

// examine walks the owner's memory now and then.
func (w *world) examine(s *simServer, ev track.Event) {
	switch ev.(type) {
	case track.Tick:
		return
	case track.Gained, track.Listed, track.CursorReset, track.Lost:
	default:
		if w.examined++; w.examined%7 != 0 {
			return
		}
	}
	if err := s.owner.Check(); err != nil {
		w.fail("%s after %T: %v", s.name, ev, err)
	}
	if _, ok := ev.(track.Reported); !ok {
		return
	}
	for _, a := range s.owner.Accounts() {
		j := w.work[a.Instance]
		shard := engine.ShardOf(j.in.Job)
		if !a.Values || j.spoiled || s.epochs[shard] != w.epochs[shard] || w.known[a.Instance].Terminal() {
			continue
		}
		have := make([]int, a.Next)
		n := 0
		for _, seq := range a.Accepted {
			b := w.broker.results[seq]
			if b == nil {
				w.fail("instance %d: accepted result %d is not there", a.Instance, seq)
				return
			}
			for _, k := range b.Numbers {
				have[k]++
				n++
				if have[k] > 1 {
					w.fail("instance %d: %s accepted %d values of number %d", a.Instance, s.name, have[k], k)
				}
			}
		}
		for _, k := range a.Finished {
			if have[k] != 1 {
				w.fail("instance %d: %s has number %d finished and %d values of it", a.Instance, s.name, k, have[k])
			}
		}
		if n != len(a.Finished) {
			w.fail("instance %d: %s has %d finished and %d values", a.Instance, s.name, len(a.Finished), n)
		}
	}
}
