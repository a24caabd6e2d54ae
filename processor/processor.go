package processor

import (
	"context"

	"github.com/fanjet/fanjet/broker"
)

// Processor runs tasks. One value serves all tasks of its name at once: it must be safe for
// concurrent use. The result travels as JSON: whatever encoding/json encodes; a []byte that
// is JSON already travels as it is. In mode map_reduce what a sub-task returns is its value:
// a []byte travels as it is whatever it holds, anything else as JSON.
//
// A result of more than broker.MaxItemBytes fails the task, with the sizes in its message.
type Processor interface {
	Process(ctx context.Context, task *Task) (any, error)
}

// Func is a Processor made of a function.
type Func func(ctx context.Context, task *Task) (any, error)

// Process calls f.
func (f Func) Process(ctx context.Context, task *Task) (any, error) { return f(ctx, task) }

// Reducer is a Processor that can end a MapReduce: Reduce runs once after the last sub-task,
// on any worker, and its result is that of the instance. It also runs after a map of nothing.
// Results that could not be read fail the reduce even if it returns no error.
type Reducer interface {
	Reduce(ctx context.Context, task *Task, results *Results) (any, error)
}

// Combiner is a Reducer that can fold values before they travel. values are what Process
// returned, not yet encoded; the answer must be of the same kind, since Reduce sees folded
// and plain values alike. The fold must be associative and commutative. When it fails the
// values travel unfolded.
type Combiner interface {
	Combine(ctx context.Context, values []any) (any, error)
}

// PreProcessor runs once before the shares of a broadcast; its error ends the instance.
type PreProcessor interface {
	PreProcess(ctx context.Context, task *Task) error
}

// PostProcessor runs once after the shares of a broadcast; its result is that of the instance.
type PostProcessor interface {
	PostProcess(ctx context.Context, task *Task, shares *Shares) (any, error)
}

// capable narrows what the methods of a type promise to what this value can do.
type capable interface{ caps() broker.Caps }

// registered is a Processor with its optional steps looked up once.
type registered struct {
	name    string
	proc    Processor
	caps    broker.Caps
	reduce  Reducer
	combine Combiner
	pre     PreProcessor
	post    PostProcessor
}

func newRegistered(name string, p Processor) *registered {
	r := &registered{name: name, proc: p, caps: broker.CapMap}
	steps := p // where the optional steps are looked for, if p itself has none
	if e, ok := p.(expandable); ok {
		steps = e.expand()
	}
	allowed := broker.CapReduce | broker.CapCombine | broker.CapPre | broker.CapPost
	if c, ok := steps.(capable); ok {
		allowed = c.caps()
	}
	find(p, steps, allowed, broker.CapReduce, &r.reduce, &r.caps)
	find(p, steps, allowed, broker.CapCombine, &r.combine, &r.caps)
	find(p, steps, allowed, broker.CapPre, &r.pre, &r.caps)
	find(p, steps, allowed, broker.CapPost, &r.post, &r.caps)
	return r
}

// find sets step to what has the methods of S: p, or else steps if they are allowed to.
func find[S any](p, steps Processor, allowed, this broker.Caps, step *S, caps *broker.Caps) {
	s, ok := p.(S)
	if !ok && allowed&this != 0 {
		s, ok = steps.(S)
	}
	if ok {
		*step, *caps = s, *caps|this
	}
}

// lacks names the step of the chunk that this processor does not have, or is empty.
func (r *registered) lacks(c *broker.Chunk) string {
	if c.Phase == broker.PhaseReduce && r.reduce == nil {
		return "Reduce"
	}
	return ""
}

// invoke runs the step of the user's code that the task asks for.
func (r *registered) invoke(ctx context.Context, t *Task) (any, error) {
	switch t.c.Phase {
	case broker.PhaseReduce:
		res := &Results{ctx: ctx, src: t.env.results(t)}
		v, err := r.reduce.Reduce(ctx, t, res)
		if err == nil {
			err = res.Err()
		}
		return v, err
	case broker.PhasePre:
		if r.pre == nil {
			return nil, nil
		}
		return nil, r.pre.PreProcess(ctx, t)
	case broker.PhasePost:
		if r.post == nil {
			return nil, nil
		}
		sh := &Shares{ctx: ctx, src: t.env.results(t)}
		v, err := r.post.PostProcess(ctx, t, sh)
		if err == nil {
			err = sh.Err()
		}
		return v, err
	default:
		if t.c.Phase == broker.PhaseRoot && len(t.t.Item) > 0 {
			return nil, t.emitList(t.t.Item)
		}
		return r.proc.Process(ctx, t)
	}
}
