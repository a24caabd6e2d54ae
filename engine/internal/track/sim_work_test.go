package track_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

// job is one instance of the world and what must become of it.
type job struct {
	kind   string
	in     engine.Instance
	row    engine.Instance // as stored last
	known  bool            // its insertion is committed
	items  []string        // of the root mapper
	sum    int64           // of all that must be reduced
	leaves int64           // numbers that the run must come to
	broken int64           // those of them that fail for good
	fails  int             // how often a standalone fails before it succeeds
	want   engine.Status
	stop   bool // somebody stops it
	begun  map[string]int
	died   map[string]int   // runs that died with their worker
	done   map[string]int   // executions that succeeded
	told   map[string]int64 // when a success was first reported
	ledger
	// maxState is the largest stored state of its map run.
	maxState int
}

func (w *world) row(in engine.Instance) track.Row {
	row := track.Row{Instance: in, App: w.app, Spec: w.specs[in.Job], Job: fmt.Sprintf("job%d", in.Job)}
	if j := w.work[in.ID]; j != nil {
		row.Checkpoint = j.kept[in.Attempt-1]
	}
	return row
}

func (w *world) maxLost() int32 {
	if w.faults.poison {
		return 3
	}
	return 1 << 20
}

func (w *world) shardRow(shard uint8) engine.Shard {
	rows, err := w.db.ShardOwners(context.Background())
	if err != nil {
		w.fail("shards: %v", err)
	}
	for _, r := range rows {
		if r.Shard == shard {
			return r
		}
	}
	return engine.Shard{}
}

func (w *world) spec(s workflow.Spec) int64 {
	id := int64(len(w.specs) + 1)
	w.specs[id] = &s
	w.epochs[engine.ShardOf(id)] = 0
	return id
}

// makeWork plans the instances and when they are asked for.
func (w *world) makeWork() {
	retry := workflow.Retry{Max: 3, Delay: workflow.Duration(200 * time.Millisecond)}
	plain := w.spec(workflow.Spec{Processor: "plain", Retry: retry})
	directed := w.spec(workflow.Spec{Processor: "plain", Retry: retry, Routing: workflow.RoutingRandom})
	limited := w.spec(workflow.Spec{Processor: "plain", Retry: retry, Concurrency: 2})
	reduce := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.MapReduce, TaskRetry: retry})
	atomic := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.MapReduce, TaskRetry: retry, Emit: workflow.EmitAtomic, Retry: retry})
	mapping := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.Map, TaskRetry: retry, MaxFailed: workflow.Budget{Percent: 50}})
	routed := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.MapReduce, TaskRetry: retry, Routing: workflow.RoutingRandom})
	lenient := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.MapReduce, TaskRetry: retry, MaxFailed: workflow.Budget{Percent: 40}})
	slow := w.spec(workflow.Spec{Processor: "tree", Mode: workflow.Map, TaskRetry: retry, Rate: 40, Concurrency: 6})
	var wide []int64
	for _, rule := range []string{"any", "50%", "all"} {
		wide = append(wide, w.spec(workflow.Spec{Processor: "share", Mode: workflow.Broadcast, TaskRetry: retry, Rule: rule, Waves: []int{30, 100}}))
	}
	overdue := w.spec(workflow.Spec{Processor: "plain", Timeout: workflow.Duration(800 * time.Millisecond)})
	hang := w.spec(workflow.Spec{Processor: "plain", TaskTimeout: workflow.Duration(time.Second)})
	endless := w.spec(workflow.Spec{Processor: "plain"})
	stepwise := w.spec(workflow.Spec{Processor: "plain", Retry: retry})
	for range w.rng.IntN(3) {
		w.add(overdue, "overdue").want = engine.StatusTimedOut
	}
	if w.chance(0.6) { // more at once than may run
		at := w.between(0, 15_000)
		for range 3 + w.rng.IntN(10) {
			j := w.plan(limited, "burst")
			w.after(at+w.between(0, 20), func() { w.trigger(j) })
		}
	}
	if w.chance(0.5) {
		w.add(hang, "hang").want = engine.StatusTimedOut
	}
	if w.chance(0.5) {
		j := w.add(endless, "endless") // until it is stopped
		j.want, j.stop = engine.StatusStopped, true
	}
	for range w.rng.IntN(4) {
		w.add(stepwise, "steps").fails = w.rng.IntN(3)
	}
	for range w.rng.IntN(3) {
		j := w.add(plain, "delayed")
		j.delay = w.between(1000, 30_000)
		if w.chance(0.5) { // stopped long before it is due
			j.delay, j.stop, j.want = 1_000_000, true, engine.StatusCanceled
		}
	}
	for range 6 + w.rng.IntN(30) {
		j := w.add(plain, "plain")
		switch w.rng.IntN(12) {
		case 0:
			j.in.Job, j.kind = directed, "directed"
		case 1:
			j.in.Job, j.kind = limited, "limited"
		}
		switch w.rng.IntN(8) {
		case 0:
			j.fails = 1 + w.rng.IntN(3)
		case 1:
			j.fails, j.want = 99, engine.StatusFailed
		case 2:
			j.stop = true
		}
	}
	if w.faults.poison {
		j := w.add(plain, "poison")
		j.want = engine.StatusFailed
	}
	for range 1 + w.rng.IntN(3) {
		j := w.add([]int64{reduce, atomic, atomic, mapping, lenient, lenient, slow, routed, routed}[w.rng.IntN(9)], "tree")
		w.tree(j)
		if j.broken > w.allowed(j) {
			j.want = engine.StatusFailed
		}
		j.stop = w.chance(0.1)
	}
	for range w.rng.IntN(3) {
		w.add(wide[w.rng.IntN(3)], "share").fails = w.rng.IntN(3)
	}
}

// tree plans the items of a map. Leaves are "v:<value>:<failures>" and "x", which fails for
// good; "m:<n>:<value>:<failures>" emits n leaves, and half of them before each failure;
// "d:<n>:<value>" emits n mappers of two leaves each.
func (w *world) tree(j *job) {
	atomic, slow := w.specs[j.in.Job].Emit == workflow.EmitAtomic, w.specs[j.in.Job].Rate > 0
	most := []int{10, 120, 700}[w.rng.IntN(3)]
	if slow {
		most = min(most, 100)
	}
	for range w.rng.IntN(most) {
		v := w.between(1, 1000)
		switch w.rng.IntN(24) {
		case 0:
			n, fails := w.rng.IntN(15), max(w.rng.IntN(5)-2, 0)
			if atomic {
				fails = 0
			}
			j.items = append(j.items, fmt.Sprintf("m:%d:%d:%d", n, v, fails))
			j.sum += int64(n) * v
			j.leaves += int64(n) + 1
		case 1, 2:
			j.items = append(j.items, fmt.Sprintf("v:%d:%d", v, 1+w.rng.IntN(3)))
			j.sum += v
			j.leaves++
		case 3:
			n := 1 + w.rng.IntN(4)
			j.items = append(j.items, fmt.Sprintf("d:%d:%d", n, v))
			j.sum += 2 * int64(n) * v
			j.leaves += 3*int64(n) + 1
		case 4:
			if w.specs[j.in.Job].MaxFailed.Percent > 0 {
				j.items = append(j.items, "x")
				j.broken++
				j.leaves++
			}
		default:
			j.items = append(j.items, fmt.Sprintf("v:%d:0", v))
			j.sum += v
			j.leaves++
		}
	}
}

func (w *world) allowed(j *job) int64 {
	return int64(w.specs[j.in.Job].MaxFailed.Percent / 100 * float64(j.leaves))
}

// add plans an instance that is asked for some time.
func (w *world) add(jobID int64, kind string) *job {
	j := w.plan(jobID, kind)
	w.after(w.between(0, 20_000), func() { w.trigger(j) })
	return j
}

func (w *world) plan(jobID int64, kind string) *job {
	w.nextID++
	j := &job{kind: kind, want: engine.StatusSucceeded, ledger: newLedger(), begun: map[string]int{}, died: map[string]int{}, done: map[string]int{}, told: map[string]int64{}}
	id := w.nextID
	w.work[id] = j
	j.in = engine.Instance{
		ID: id, App: w.app.ID, Job: jobID, JobVersion: 1, Status: engine.StatusWaiting, Reason: engine.ReasonDue,
		Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny,
	}
	return j
}

// trigger asks for the instance as a caller of the API does, again until it is known.
func (w *world) trigger(j *job) {
	if j.known {
		w.mayStop(j)
		return
	}
	w.after(3000, func() { w.trigger(j) })
	in := j.in
	in.Shard = engine.ShardOf(in.Job)
	in.CreatedAt, in.DueAt = w.now, w.now+j.delay
	if _, err := w.db.Instance(context.Background(), in.ID); err == nil {
		j.known = true
		if _, ok := w.known[in.ID]; !ok {
			w.known[in.ID] = engine.StatusWaiting
		}
		w.mayStop(j)
		return
	}
	for _, s := range w.servers {
		if s.alive && !s.nap.on && s.owner.Owns(in.Shard) && w.chance(0.7) {
			s.handle(track.Triggered{Row: w.row(in), Done: func(err error) {
				if err == nil {
					w.mayStop(j)
				}
			}})
			return
		}
	}
	if w.chance(0.5) {
		errs, err := w.db.Commit(context.Background(), []engine.Change{{NewInstances: []engine.Instance{in}}})
		if err == nil && errs[0] == nil {
			w.stored(&engine.Change{NewInstances: []engine.Instance{in}})
			w.mayStop(j)
		}
	}
}

// mayStop has the instance stopped some time later, if that is planned.
func (w *world) mayStop(j *job) {
	if !j.stop {
		return
	}
	j.stop, j.stopped = false, true
	w.after(w.rng.Int64N(2)*w.between(0, 4000), func() {
		w.nextID++
		c := engine.Command{ID: w.nextID, Shard: engine.ShardOf(j.in.Job), Kind: engine.CommandStop, Target: j.in.ID, Request: strconv.FormatInt(w.nextID, 10), CreatedAt: w.now}
		errs, err := w.db.Commit(context.Background(), []engine.Change{{NewCommands: []engine.Command{c}}})
		if err != nil || errs[0] != nil {
			w.fail("command: %v %v", err, errs)
		}
	})
}

func (w *world) processors(x *simWorker) []broker.ProcessorInfo {
	out := []broker.ProcessorInfo{
		{Name: "plain"}, {Name: "tree", Caps: broker.CapMap | broker.CapReduce}, {Name: "share", Caps: broker.CapPre | broker.CapPost},
	}
	if x.name == "worker1" && w.faults.refusal && !w.calm { // it lacks one, then another
		if lacks := (w.now / 4000) % 3; lacks < 2 {
			out = slices.Delete(out, int(lacks), int(lacks)+1)
		}
	}
	return out
}

func (w *world) runs(x *simWorker, c *broker.Chunk) bool {
	return slices.ContainsFunc(w.processors(x), func(p broker.ProcessorInfo) bool { return p.Name == c.Processor })
}

func runKey(c *broker.Chunk, n int64) string {
	return fmt.Sprintf("%d/%d/%d", c.Attempt, c.Phase, n)
}

// current tells whether the run still is of the attempt that counts, as stored.
func (w *world) current(r *simRun) bool {
	j := w.work[r.c.Instance]
	return j.row.Attempt == r.c.Attempt && !w.known[r.c.Instance].Terminal() && !r.stopped
}

// whole tells whether a report without numbers may be sent for the chunk.
func (w *world) whole(r *simRun) bool { return r.next == len(r.c.Tasks) && w.chance(0.8) }

func (w *world) began(x *simWorker, r *simRun, t *broker.Task) {
	j := w.work[r.c.Instance]
	k := runKey(r.c, t.Number)
	j.begun[k]++
	w.mayBegin(x, r, t)
	if at, ok := j.told[k]; ok && r.skip != nil && at < r.putAt && !w.faults.lossy {
		w.fail("instance %d: task %s was given to %s after its success had been reported", r.c.Instance, k, x.name)
	}
	if w.harmed == 0 && j.done[k] > 0 && r.c.Phase != broker.PhaseReduce {
		w.fail("instance %d: task %s ran again after it had succeeded, and nothing had gone wrong", r.c.Instance, k)
	}
	if w.harmed == 0 && j.begun[k] > int(t.Attempt) && !strings.HasPrefix(string(t.Item), "m") {
		w.fail("instance %d: task %s ran %d times for attempt %d, and nothing had gone wrong", r.c.Instance, k, j.begun[k], t.Attempt)
	}
}

// reported notes successes that the reports stream holds.
func (w *world) reported(rep *broker.Report) {
	j := w.work[rep.Instance]
	if rep.Kind != broker.ReportSucceeded || j == nil || rep.Phase == broker.PhaseSub && w.specs[j.in.Job].Mode == workflow.MapReduce {
		return // values may be refused
	}
	for _, n := range rep.Numbers {
		k := fmt.Sprintf("%d/%d/%d", rep.Attempt, rep.Phase, n)
		if _, ok := j.told[k]; !ok {
			j.told[k] = w.now
		}
	}
}

func (w *world) died(r *simRun) {
	for _, t := range r.c.Tasks {
		w.work[r.c.Instance].died[runKey(r.c, t.Number)]++
	}
}

func (w *world) executed(r *simRun, t *broker.Task) {
	w.work[r.c.Instance].done[runKey(r.c, t.Number)]++
}

// checkEnd compares what is stored with what had to become of it.
func (w *world) checkEnd() {
	ctx := context.Background()
	for _, id := range sorted(w.work) {
		j := w.work[id]
		in, err := w.db.Instance(ctx, id)
		if err != nil {
			w.fail("instance %d: %v", id, err)
			return
		}
		j.forgiven = j.forgiven || j.cutAt > 0 && w.tookOver(engine.ShardOf(j.in.Job), j.cutAt-3000)
		deaths := 0
		for _, n := range j.died {
			deaths = max(deaths, n)
		}
		// A worker that has finished a directed chunk runs it no more, even if its report is lost.
		beside := w.faults.poison && strings.Contains(in.Error, "the worker died 3 times") && (deaths >= 3 || j.lossy)
		beside = beside || w.faults.poison && deaths >= 3 && strings.Contains(in.Error, "a sub-task that emitted further ones has failed")
		aStop := in.Status == engine.StatusStopped || in.Status == engine.StatusCanceled
		switch {
		case in.Status != w.known[id]:
			w.fail("instance %d is %s, the last commit said %s", id, in.Status, w.known[id])
		case in.Status == engine.StatusFailed && (beside || j.spoiled || j.forgiven && strings.Contains(in.Error, cutOff)):
		case j.stopped && aStop && (j.want != engine.StatusCanceled || in.Status == engine.StatusCanceled):
		case j.kind == "share" && in.Status == engine.StatusFailed:
			if w.lost == 0 && !j.lossy {
				w.fail("broadcast %d failed, though no worker was lost: %s", id, in.Error)
			}
		case j.kind == "overdue" && w.harmed > 0 && in.Status == engine.StatusSucceeded:
		case in.Status != j.want:
			w.fail("instance %d (%s) is %s, want %s: %s", id, j.kind, in.Status, j.want, in.Error)
		case j.kind == "tree" && j.want == engine.StatusSucceeded:
			r := w.counts[id]
			spared := r.Failed > j.broken && w.faults.poison && deaths >= 3 || j.spoiled || j.forgiven // within its budget
			if !spared && (r.Total != j.leaves || r.Succeeded != j.leaves-j.broken || r.Failed != j.broken) || !r.Closed {
				w.fail("run of %d: %s, want %d, of which %d fail", id, short(r), j.leaves, j.broken)
			}
			if !spared && w.specs[in.Job].Mode == workflow.MapReduce && string(in.Result) != strconv.FormatInt(j.sum, 10) {
				w.fail("instance %d reduced to %s, want %d", id, in.Result, j.sum)
			}
		}
	}
}
