package track_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fanjet/fanjet/broker"
)

const cutOff = "it was cut off"

// takes is how long the task takes, ms, if the instance is of a kind of its own.
func (w *world) takes(r *simRun, ms int64) int64 {
	switch w.work[r.c.Instance].kind {
	case "overdue":
		return w.between(3000, 6000)
	case "burst":
		return w.between(50, 500)
	}
	return ms
}

// execute is the user's code.
func (w *world) execute(x *simWorker, r *simRun, t *broker.Task) {
	j := w.work[r.c.Instance]
	boom := broker.TaskError{Kind: broker.ErrorFailed, Message: "as planned"}
	switch {
	case r.cut && r.c.Phase != broker.PhaseReduce:
		// Somebody else has it, so that must not count. A new owner may not know yet; and if
		// that other one may have passed for dead since, this one has it again.
		r.cut = false
		if r.cutBy.goneAt >= r.cutAt {
			j.forgiven = true
		}
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorPermanent, Message: cutOff}, -1, 0)
	case j.kind == "poison":
		w.harmed++
		x.kill()
	case j.kind == "hang" || j.kind == "endless":
		x.hang(r, t)
	case j.kind == "steps":
		x.stepwise(r, t, count(t.Checkpoint))
	case r.c.Phase == broker.PhaseReduce:
		x.reduce(r, t, 0, 0, 0, map[int64]bool{})
	case r.c.Phase == broker.PhaseSub:
		w.executeSub(x, r, t)
	case j.kind == "tree":
		items := j.items
		if r.c.Atomic { // it need not be repeatable
			items = slices.Clone(items)
			w.rng.Shuffle(len(items), func(a, b int) { items[a], items[b] = items[b], items[a] })
		}
		x.emit(&emission{r: r, t: t, items: items, token: w.rng.Uint64()}, 0)
	case j.kind == "share":
		if r.c.Phase == broker.PhaseShare && int(t.Attempt) <= j.fails {
			x.fail(r, t, boom, -1, 0)
			return
		}
		x.succeed(r, t, []byte(`"ok"`))
	case int(r.c.Attempt) <= j.fails:
		x.fail(r, t, boom, -1, 0)
	default:
		x.succeed(r, t, []byte(`"ok"`))
	}
}

// tookOver tells whether the shard has had another owner, or the same one anew, since.
func (w *world) tookOver(shard uint8, since int64) bool {
	return slices.ContainsFunc(w.gained[shard], func(at int64) bool { return at >= since })
}

// mayFail tells whether the task is a leaf that fails in this attempt.
func (w *world) mayFail(t *broker.Task) bool {
	p := strings.Split(string(t.Item), ":")
	return p[0] == "v" && count([]byte(p[2])) >= int(t.Attempt)
}

func (w *world) executeSub(x *simWorker, r *simRun, t *broker.Task) {
	boom := broker.TaskError{Kind: broker.ErrorFailed, Message: "as planned"}
	p := strings.Split(string(t.Item), ":")
	number := func(i int) int {
		n, err := strconv.Atoi(p[i])
		if err != nil {
			w.fail("item %q: %v", t.Item, err)
		}
		return n
	}
	switch {
	case p[0] == "x":
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorPermanent, Message: "as planned"}, -1, 0)
	case p[0] == "m":
		e := &emission{r: r, t: t, token: w.rng.Uint64(), value: []byte("0")}
		e.items = slices.Repeat([]string{fmt.Sprintf("v:%s:0", p[2])}, number(1))
		if int(t.Attempt) <= number(3) {
			e.items, e.fails = e.items[:len(e.items)/2], true
		}
		x.emit(e, 0)
	case p[0] == "d":
		items := slices.Repeat([]string{fmt.Sprintf("m:2:%s:0", p[2])}, number(1))
		x.emit(&emission{r: r, t: t, items: items, token: w.rng.Uint64(), value: []byte("0")}, 0)
	case int(t.Attempt) <= number(2) && !r.lucky:
		x.fail(r, t, boom, -1, 0)
	default:
		x.succeed(r, t, []byte(p[1]))
	}
}

// hang never ends by itself.
func (x *simWorker) hang(r *simRun, t *broker.Task) {
	switch {
	case x.held[r.c.ChunkKey] != r:
	case r.stopped:
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorStopped, Message: "stopped"}, -1, 0)
	default:
		x.later(250, func() { x.hang(r, t) })
	}
}

// stepwise goes on where the checkpoint says, and keeps one after each of five steps.
func (x *simWorker) stepwise(r *simRun, t *broker.Task, done int) {
	j := x.w.work[r.c.Instance]
	switch {
	case x.held[r.c.ChunkKey] != r:
		return
	case r.stopped:
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorStopped, Message: "stopped"}, -1, 0)
		return
	case done == 5:
		x.succeed(r, t, []byte(`"ok"`))
		return
	case done == 2 && int(r.c.Attempt) <= j.fails:
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorFailed, Message: "as planned"}, -1, 0)
		return
	}
	x.later(x.w.between(1, 600), func() {
		if x.held[r.c.ChunkKey] == r && !r.stopped {
			rep := x.report(r, broker.ReportCheckpoint)
			rep.Numbers, rep.TaskAttempt, rep.Result = []int64{t.Number}, t.Attempt, []byte(strconv.Itoa(done+1))
			x.tell(outgoing{r.c.Shard, rep, nil})
		}
		x.stepwise(r, t, done+1)
	})
}

// emission is one run of a mapper.
type emission struct {
	r     *simRun
	t     *broker.Task
	items []string
	token uint64
	value []byte
	fails bool // after it has emitted
	ahead int  // batches to be staged before the lost one is staged again
	back  int  // where that one began
}

// emit stages the items in batches, and then succeeds as a task that has mapped.
func (x *simWorker) emit(e *emission, from int) {
	r, t, w := e.r, e.t, x.w
	if x.held[r.c.ChunkKey] != r {
		return
	}
	if e.ahead > 0 && from == len(e.items) {
		e.ahead, from = 0, e.back
	}
	if from == len(e.items) || r.stopped {
		x.emitted(e)
		return
	}
	r.emitting = from > 0
	frozen := w.overtake(x, r)
	r.emitting = false
	if frozen {
		x.later(0, func() { x.emit(e, from) })
		return
	}
	n := min(1+w.rng.IntN(20), len(e.items)-from)
	if e.ahead == 0 && w.faults.gap && !w.calm && w.chance(0.15) { // this one is lost; others overtake it
		w.harmed++
		e.ahead, e.back = 1+w.rng.IntN(3), from
		x.later(w.between(0, 5), func() { x.emit(e, from+n) })
		return
	}
	b := &broker.StageBatch{Instance: r.c.Instance, Run: r.c.Run, Mapper: t.Number, Token: e.token, First: int64(from)}
	for _, it := range e.items[from : from+n] {
		b.Items = append(b.Items, []byte(it))
	}
	if _, err := w.broker.addStage(b); err != nil {
		x.later(w.between(20, 200), func() { x.emit(e, from) })
		return
	}
	if w.faults.broker && !w.calm && w.chance(0.05) { // stored, but nobody knew
		x.later(w.between(1, 20), func() { x.emit(e, from) })
		return
	}
	if !r.c.Atomic && e.ahead == 0 {
		rep := x.report(r, broker.ReportEmitted)
		rep.Numbers, rep.TaskAttempt, rep.Emitted, rep.Token = []int64{t.Number}, t.Attempt, int64(from+n), e.token
		x.tell(outgoing{r.c.Shard, rep, nil})
	}
	next := from + n
	if e.ahead > 0 {
		if e.ahead--; e.ahead == 0 {
			next = e.back
		}
	}
	x.later(w.between(0, 5), func() { x.emit(e, next) })
}

func (x *simWorker) emitted(e *emission) {
	r, t := e.r, e.t
	if e.fails {
		x.fail(r, t, broker.TaskError{Kind: broker.ErrorFailed, Message: "as planned"}, int64(len(e.items)), e.token)
		return
	}
	x.w.executed(r, t)
	rep := x.report(r, broker.ReportSucceeded)
	rep.Numbers, rep.TaskAttempt, rep.Emitted, rep.Token, rep.Duration = []int64{t.Number}, t.Attempt, int64(len(e.items)), e.token, 2e6
	if r.c.Phase == broker.PhaseSub {
		x.handOver(r)
		x.deliver(r, rep, rep.Numbers, [][]byte{e.value})
	} else {
		x.send(r, rep)
	}
	x.step(r)
}
