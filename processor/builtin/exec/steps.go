package exec

import (
	"context"

	"github.com/fanjet/fanjet/processor"
)

// Steps of a task, as the program is told.
const (
	stepRoot   = "root"
	stepSub    = "sub"
	stepShare  = "share"
	stepReduce = "reduce"
	stepPre    = "pre"
	stepPost   = "post"
)

// named is one processor of the program.
type named struct {
	pool *Pool
	name string
}

func (n *named) Process(ctx context.Context, task *processor.Task) (any, error) {
	step := stepSub
	switch {
	case task.IsRoot():
		step = stepRoot
	case task.Mode() == processor.ModeBroadcast:
		step = stepShare
	}
	return n.pool.run(ctx, task, n.name, step, nil)
}

type reducer struct{ n *named }

func (r reducer) Reduce(ctx context.Context, task *processor.Task, results *processor.Results) (any, error) {
	return r.n.pool.run(ctx, task, r.n.name, stepReduce, func(write func(input) error) error {
		for raw := range results.Raw() {
			value, bytes := jsonOrBytes(raw)
			if err := write(input{Type: typeValue, Value: value, Bytes: bytes}); err != nil {
				return err
			}
		}
		if err := results.Err(); err != nil {
			return err
		}
		total, failed := results.Total(), results.Failed()
		return write(input{Type: typeEnd, Total: &total, Failed: &failed})
	})
}

type pre struct{ n *named }

func (p pre) PreProcess(ctx context.Context, task *processor.Task) error {
	_, err := p.n.pool.run(ctx, task, p.n.name, stepPre, nil)
	return err
}

type post struct{ n *named }

func (p post) PostProcess(ctx context.Context, task *processor.Task, shares *processor.Shares) (any, error) {
	return p.n.pool.run(ctx, task, p.n.name, stepPost, func(write func(input) error) error {
		for s := range shares.All() {
			if err := write(input{Type: typeShare, Index: &s.Index, Worker: s.Worker, OK: s.OK, Result: s.Result, Error: s.Error}); err != nil {
				return err
			}
		}
		if err := shares.Err(); err != nil {
			return err
		}
		total, failed := shares.Total(), shares.Failed()
		return write(input{Type: typeEnd, Total: &total, Failed: &failed})
	})
}

// processor has exactly the steps that the program announced: the engine plans by them.
func (p *Pool) processor(a announced) processor.Processor {
	n := &named{p, a.Name}
	r, b, e := reducer{n}, pre{n}, post{n}
	switch {
	case a.Reduce && a.Pre && a.Post:
		return struct {
			*named
			reducer
			pre
			post
		}{n, r, b, e}
	case a.Reduce && a.Pre:
		return struct {
			*named
			reducer
			pre
		}{n, r, b}
	case a.Reduce && a.Post:
		return struct {
			*named
			reducer
			post
		}{n, r, e}
	case a.Pre && a.Post:
		return struct {
			*named
			pre
			post
		}{n, b, e}
	case a.Reduce:
		return struct {
			*named
			reducer
		}{n, r}
	case a.Pre:
		return struct {
			*named
			pre
		}{n, b}
	case a.Post:
		return struct {
			*named
			post
		}{n, e}
	}
	return n
}
