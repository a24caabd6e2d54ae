package track

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// broadcast is a broadcast on its way. Its shares are fixed when it fires; each belongs to
// one incarnation of one worker and never moves.
type broadcast struct {
	shares []*taskRow // by index
	failed string     // why the rule cannot be met any more
}

func (b *broadcast) total() int { return len(b.shares) }

// startBroadcast fixes the shares. PreProcess, if the processor has one, runs before them.
func (o *Owner) startBroadcast(in *inst) {
	in.bc = &broadcast{}
	for i, t := range o.fleet.Shares(in.app.Name, in.spec) {
		row := o.task(in, taskKey(in, phaseShare, int64(i)))
		row.Worker, row.Incarnation = t.Worker, t.Incarnation
		in.bc.shares = append(in.bc.shares, row)
	}
	if o.fleet.Caps(in.app.Name, in.spec.Processor)&broker.CapPre != 0 {
		o.step(in, phasePre, chunkPre)
		return
	}
	o.advance(in)
}

// step runs PreProcess or PostProcess on some worker.
func (o *Owner) step(in *inst, phase broker.Phase, n int64) {
	row := o.task(in, taskKey(in, phase, 0))
	moveTask(row, engine.TaskDispatched)
	c := o.newChunk(in, phase, n+chunkAgain*int64(row.Attempt-1), 0)
	c.attempt = row.Attempt
	o.send(in, c)
}

func (o *Owner) shareStarted(in *inst, c *chunk) {
	row := in.bc.shares[c.first]
	if moveTask(row, engine.TaskRunning) {
		row.StartedAt = o.now
		o.touchTask(in, row)
	}
}

func (o *Owner) broadcastSucceeded(in *inst, c *chunk, r *broker.Report) {
	o.release(in, c)
	row := in.tasks[taskKey(in, c.phase, c.first)]
	if row == nil || !moveTask(row, engine.TaskSucceeded) {
		o.stats.Stale++
		return
	}
	row.FinishedAt, row.Checkpoint, row.Attempt = o.now, nil, c.attempt
	if row.StartedAt == 0 {
		row.StartedAt = o.now - r.Duration.Milliseconds()
	}
	row.Result = r.Result
	if err := engine.CheckBytes("result", r.Result, engine.MaxResult); err != nil {
		row.Result, row.Error = nil, err.Error()
	}
	o.touchTask(in, row)
	if c.phase == phasePost {
		o.finish(in, engine.StatusSucceeded, r.Result, "")
		return
	}
	o.advance(in)
}

// broadcastFailed ends a share, PreProcess or PostProcess, or has it tried again by the
// same worker.
func (o *Owner) broadcastFailed(in *inst, c *chunk, e broker.TaskError, as engine.TaskStatus) {
	o.release(in, c)
	row := in.tasks[taskKey(in, c.phase, c.first)]
	if row == nil {
		return
	}
	text := e.Message
	if e.Stack != "" {
		text += "\n" + e.Stack
	}
	row.Error, row.Attempt = engine.CutText(text, engine.MaxError), c.attempt
	permanent := e.Kind == broker.ErrorPermanent || e.Kind == broker.ErrorInput || as == engine.TaskLost
	if !permanent && int(c.attempt) <= in.spec.TaskRetry.Max && moveTask(row, engine.TaskWaiting) {
		after := e.RetryAfter
		if after <= 0 {
			after = engine.RetryDelay(in.spec.TaskRetry, c.attempt, in.ID^c.first)
		}
		row.Attempt, row.NextTryAt = c.attempt+1, o.now+max(after.Milliseconds(), 1)
		o.touchTask(in, row)
		o.at(&timer{at: row.NextTryAt, kind: timerShare, instance: in.ID, attempt: in.Attempt, number: c.first, chunk: int64(c.phase)})
		return
	}
	if moveTask(row, as) {
		row.FinishedAt, row.NextTryAt = o.now, 0
	}
	o.touchTask(in, row)
	if c.phase != phaseShare {
		step := "PreProcess"
		if c.phase == phasePost {
			step = "PostProcess"
		}
		o.failAttempt(in, engine.StatusFailed, step+" failed: "+text, permanent, e.RetryAfter)
		return
	}
	o.advance(in)
}

// shareRetryDue sends a share, PreProcess or PostProcess again.
func (o *Owner) shareRetryDue(in *inst, phase broker.Phase, index int64) {
	row := in.tasks[taskKey(in, phase, index)]
	if in.bc == nil || row == nil || row.Status != engine.TaskWaiting || row.NextTryAt == 0 || row.NextTryAt > o.now {
		return
	}
	row.NextTryAt = 0
	switch phase {
	case phasePre:
		o.step(in, phase, chunkPre)
	case phasePost:
		o.step(in, phase, chunkPost)
	default:
		o.sendShare(in, row)
	}
}

func (o *Owner) sendShare(in *inst, row *taskRow) {
	moveTask(row, engine.TaskDispatched)
	o.touchTask(in, row)
	c := o.newChunk(in, phaseShare, chunkShare+row.Number+chunkAgain*int64(row.Attempt-1), row.Number)
	c.attempt = row.Attempt
	c.worker = Target{row.Worker, row.Incarnation}
	o.send(in, c)
}

// advance starts the next wave, calls the rest off, or ends the shares.
func (o *Owner) advance(in *inst) {
	b := in.bc
	if pre := in.tasks[taskKey(in, phasePre, 0)]; pre != nil && pre.Status != engine.TaskSucceeded {
		return
	}
	if in.tasks[taskKey(in, phasePost, 0)] != nil {
		return
	}
	var ok, bad, open, begun int
	for _, s := range b.shares {
		switch {
		case s.Status == engine.TaskSucceeded:
			ok++
			begun++
		case s.Status.Terminal():
			bad++
			begun++
		case s.Status != engine.TaskWaiting || s.NextTryAt > 0:
			open++
			begun++
		}
	}
	total := len(b.shares)
	needed := needed(in.spec.Rule, total)
	if total-bad < needed {
		b.failed = fmt.Sprintf("%d of %d shares failed or were lost, %d had to succeed: %s", bad, total, needed, b.firstError())
		for _, s := range b.shares {
			if s.Status == engine.TaskWaiting && s.NextTryAt == 0 && moveTask(s, engine.TaskStopped) {
				s.FinishedAt = o.now
				o.touchTask(in, s)
			}
		}
		if open == 0 {
			o.failAttempt(in, engine.StatusFailed, b.failed, false, 0)
		}
		return
	}
	if open > 0 {
		return
	}
	if begun < total {
		upTo := wave(in.spec.Waves, begun, total)
		for _, s := range b.shares[:upTo] {
			if s.Status == engine.TaskWaiting && s.NextTryAt == 0 {
				o.sendShare(in, s)
			}
		}
		return
	}
	if o.fleet.Caps(in.app.Name, in.spec.Processor)&broker.CapPost != 0 {
		o.step(in, phasePost, chunkPost)
		return
	}
	result, err := json.Marshal(struct {
		Total     int `json:"total"`
		Succeeded int `json:"succeeded"`
		Failed    int `json:"failed"`
	}{total, ok, bad})
	if err != nil {
		panic("three numbers do not encode: " + err.Error())
	}
	o.finish(in, engine.StatusSucceeded, result, "")
}

// needed is how many of total shares must succeed by the rule.
func needed(rule string, total int) int {
	switch {
	case rule == "any":
		return min(1, total)
	case strings.HasSuffix(rule, "%"):
		p, err := strconv.ParseFloat(strings.TrimSuffix(rule, "%"), 64)
		if err == nil && p >= 0 && p <= 100 {
			return int(math.Ceil(p / 100 * float64(total)))
		}
	}
	return total
}

// wave is how many shares are to have begun when the next wave has, of which begun have.
func wave(waves []int, begun, total int) int {
	for _, p := range waves {
		if n := min(max(int(math.Ceil(float64(p)/100*float64(total))), 1), total); n > begun {
			return n
		}
	}
	return total
}

func (b *broadcast) firstError() string {
	for _, s := range b.shares {
		if s.Error != "" {
			return fmt.Sprintf("worker %q: %s", s.Worker, s.Error)
		}
	}
	return "no error was given"
}

// endBroadcast stops the shares that are not final.
func (o *Owner) endBroadcast(in *inst) {
	if in.bc == nil {
		return
	}
	for _, s := range in.bc.shares {
		if moveTask(s, engine.TaskStopped) {
			s.FinishedAt = o.now
			o.touchTask(in, s)
		}
	}
	in.bc = nil
}

// reviveBroadcast rebuilds a broadcast from its rows.
func (o *Owner) reviveBroadcast(in *inst) {
	in.bc = &broadcast{}
	for _, k := range sortedTasks(in.tasks) {
		t := in.tasks[k]
		if k.Run != in.Attempt {
			delete(in.tasks, k)
			continue
		}
		if t.Status == engine.TaskWaiting && t.NextTryAt > 0 {
			o.at(&timer{at: t.NextTryAt, kind: timerShare, instance: in.ID, attempt: in.Attempt, number: k.Number, chunk: int64(k.Kind)})
		}
		alive := t.Status == engine.TaskDispatched || t.Status == engine.TaskRunning
		switch k.Kind {
		case engine.TaskShare:
			in.bc.shares = append(in.bc.shares, t)
			if alive {
				c := o.newChunk(in, phaseShare, chunkShare+k.Number+chunkAgain*int64(t.Attempt-1), k.Number)
				c.worker, c.attempt, c.sentAt = Target{t.Worker, t.Incarnation}, t.Attempt, o.now-1
			}
		case engine.TaskPre, engine.TaskPost:
			if alive {
				n := int64(chunkPre)
				if k.Kind == engine.TaskPost {
					n = chunkPost
				}
				c := o.newChunk(in, broker.Phase(k.Kind), n+chunkAgain*int64(t.Attempt-1), 0)
				c.attempt, c.sentAt = t.Attempt, o.now-1
			}
		default: // a broadcast has no other rows
		}
	}
	if len(in.bc.shares) == 0 {
		o.failAttempt(in, engine.StatusFailed, "the rows of its shares are gone", false, 0)
	}
}
