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
	leaves int64
	fails  int // how often a standalone fails before it succeeds
	want   engine.Status
	stop   bool // somebody stops it
	begun  map[string]int
	died   map[string]int   // runs that died with their worker
	done   map[string]int   // executions that succeeded
	told   map[string]int64 // when a success was first reported
	// maxState is the largest stored state of its map run.
	maxState int
}

func (w *world) row(in engine.Instance) track.Row {
	return track.Row{Instance: in, App: w.app, Spec: w.specs[in.Job], Job: fmt.Sprintf("job%d", in.Job)}
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
	wide := w.spec(workflow.Spec{Processor: "share", Mode: workflow.Broadcast, TaskRetry: retry, Rule: "any", Waves: []int{30, 100}})
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
		j := w.add([]int64{reduce, reduce, atomic, mapping}[w.rng.IntN(4)], "tree")
		w.tree(j)
		j.stop = w.chance(0.1)
	}
	for range w.rng.IntN(3) {
		w.add(wide, "share")
	}
}

// tree plans the items of a map: leaves are "v:<value>:<failures>", inner ones "m:<n>:<value>".
func (w *world) tree(j *job) {
	for range w.rng.IntN([]int{10, 120, 700}[w.rng.IntN(3)]) {
		v := w.between(1, 1000)
		switch w.rng.IntN(20) {
		case 0:
			n := w.rng.IntN(15)
			j.items = append(j.items, fmt.Sprintf("m:%d:%d", n, v))
			j.sum += int64(n) * v
			j.leaves += int64(n) + 1
		case 1:
			j.items = append(j.items, fmt.Sprintf("v:%d:%d", v, 1+w.rng.IntN(3)))
			j.sum += v
			j.leaves++
		default:
			j.items = append(j.items, fmt.Sprintf("v:%d:0", v))
			j.sum += v
			j.leaves++
		}
	}
}

func (w *world) add(jobID int64, kind string) *job {
	w.nextID++
	j := &job{kind: kind, want: engine.StatusSucceeded, begun: map[string]int{}, died: map[string]int{}, done: map[string]int{}, told: map[string]int64{}}
	id := w.nextID
	w.work[id] = j
	j.in = engine.Instance{
		ID: id, App: w.app.ID, Job: jobID, JobVersion: 1, Status: engine.StatusWaiting, Reason: engine.ReasonDue,
		Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny,
	}
	w.after(w.between(0, 20_000), func() { w.trigger(j) })
	return j
}

// trigger asks for the instance as a caller of the API does, again until it is known.
func (w *world) trigger(j *job) {
	if j.known {
		return
	}
	w.after(3000, func() { w.trigger(j) })
	in := j.in
	in.Shard = engine.ShardOf(in.Job)
	in.CreatedAt, in.DueAt = w.now, w.now
	if _, err := w.db.Instance(context.Background(), in.ID); err == nil {
		j.known = true
		if _, ok := w.known[in.ID]; !ok {
			w.known[in.ID] = engine.StatusWaiting
		}
		w.mayStop(j)
		return
	}
	for _, s := range w.servers {
		if s.alive && s.frozenUntil <= w.now && s.owner.Owns(in.Shard) && w.chance(0.7) {
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
	j.stop = false
	j.want = engine.StatusStopped
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
	out := []broker.ProcessorInfo{{Name: "plain"}, {Name: "tree", Caps: broker.CapMap | broker.CapReduce}}
	if x.name != "worker1" || !w.faults.refusal || w.calm {
		out = append(out, broker.ProcessorInfo{Name: "share", Caps: broker.CapPre | broker.CapPost})
	} else {
		out = out[1:] // a worker of another version
		out = append(out, broker.ProcessorInfo{Name: "share", Caps: broker.CapPre | broker.CapPost})
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

// execute is the user's code.
func (w *world) execute(x *simWorker, r *simRun, t *broker.Task) {
	j := w.work[r.c.Instance]
	boom := broker.TaskError{Kind: broker.ErrorFailed, Message: "as planned"}
	switch {
	case j.kind == "poison":
		w.harmed++
		x.kill()
	case r.c.Phase == broker.PhaseReduce:
		x.reduce(r, t, 0, 0, 0, map[int64]bool{})
	case r.c.Phase == broker.PhaseSub:
		kind, rest, _ := strings.Cut(string(t.Item), ":")
		a, b, _ := strings.Cut(rest, ":")
		first, _ := strconv.ParseInt(a, 10, 64)
		second, _ := strconv.ParseInt(b, 10, 64)
		switch {
		case kind == "m":
			items := slices.Repeat([]string{fmt.Sprintf("v:%d:0", second)}, int(first))
			x.emit(r, t, items, w.rng.Uint64(), 0, []byte("0"))
		case int64(t.Attempt) <= second:
			x.fail(r, t, boom, -1, 0)
		default:
			x.succeed(r, t, []byte(a))
		}
	case j.kind == "tree":
		x.emit(r, t, j.items, w.rng.Uint64(), 0, nil)
	case int(r.c.Attempt) <= j.fails && j.kind != "share":
		x.fail(r, t, boom, -1, 0)
	default:
		x.succeed(r, t, []byte(`"ok"`))
	}
}

// emit stages items in batches, and then succeeds as a task that has mapped.
func (x *simWorker) emit(r *simRun, t *broker.Task, items []string, token uint64, from int, value []byte) {
	if x.held[r.c.ChunkKey] != r {
		return
	}
	if from == len(items) || r.stopped {
		x.w.executed(r, t)
		rep := x.report(r, broker.ReportSucceeded)
		rep.Numbers, rep.TaskAttempt, rep.Emitted, rep.Token, rep.Duration = []int64{t.Number}, t.Attempt, int64(len(items)), token, 2e6
		if r.c.Phase == broker.PhaseSub {
			x.handOver(r)
			x.deliver(r, rep, rep.Numbers, [][]byte{value})
		} else {
			x.send(r, rep)
		}
		x.step(r)
		return
	}
	n := min(1+x.w.rng.IntN(20), len(items)-from)
	b := &broker.StageBatch{Instance: r.c.Instance, Run: r.c.Run, Mapper: t.Number, Token: token, First: int64(from)}
	for _, it := range items[from : from+n] {
		b.Items = append(b.Items, []byte(it))
	}
	if _, err := x.w.broker.addStage(b); err != nil {
		x.later(x.w.between(20, 200), func() { x.emit(r, t, items, token, from, value) })
		return
	}
	if x.w.faults.broker && !x.w.calm && x.w.chance(0.05) { // stored, but nobody knew
		x.later(x.w.between(1, 20), func() { x.emit(r, t, items, token, from, value) })
		return
	}
	if !r.c.Atomic {
		rep := x.report(r, broker.ReportEmitted)
		rep.Numbers, rep.TaskAttempt, rep.Emitted, rep.Token = []int64{t.Number}, t.Attempt, int64(from+n), token
		x.tell(outgoing{r.c.Shard, rep, nil})
	}
	x.later(x.w.between(0, 5), func() { x.emit(r, t, items, token, from+n, value) })
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
		deaths := 0
		for _, n := range j.died {
			deaths = max(deaths, n)
		}
		beside := w.faults.poison && strings.Contains(in.Error, "the worker died 3 times") && deaths >= 3
		switch {
		case in.Status != w.known[id]:
			w.fail("instance %d is %s, the last commit said %s", id, in.Status, w.known[id])
		case j.want == engine.StatusStopped && in.Status.Terminal():
		case in.Status == engine.StatusFailed && beside:
		case j.kind == "share":
			if in.Status != engine.StatusSucceeded && w.harmed == 0 {
				w.fail("broadcast %d is %s: %s", id, in.Status, in.Error)
			}
		case in.Status != j.want:
			w.fail("instance %d (%s) is %s, want %s: %s", id, j.kind, in.Status, j.want, in.Error)
		case j.kind == "tree":
			r := w.counts[id]
			spared := r.Failed > 0 && w.faults.poison && deaths >= 3 // within its budget
			if !spared && (r.Total != j.leaves || r.Succeeded != j.leaves || r.Failed != 0) || !r.Closed {
				w.fail("run of %d: %s, want %d", id, short(r), j.leaves)
			}
			if w.specs[in.Job].Mode == workflow.MapReduce && string(in.Result) != strconv.FormatInt(j.sum, 10) {
				w.fail("instance %d reduced to %s, want %d", id, in.Result, j.sum)
			}
		}
	}
}
