package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/fanjet/fanjet/broker"
)

// source is where a reduce and a PostProcess read from.
type source interface {
	// page is what the owner says from position from on.
	page(ctx context.Context, kind broker.AskKind, from uint64) (*broker.AskReply, error)
	read(ctx context.Context, ranges []broker.Range, each func(*broker.ResultBatch) error) error
}

// Failure is the error of a sub-task that failed for good.
type Failure struct {
	Number  int64 // of the sub-task
	Message string
}

// Results are the accepted values of the sub-tasks of a MapReduce, in no particular order.
// They are read as they are used, in constant memory. Not safe for concurrent use.
type Results struct {
	ctx   context.Context
	src   source
	first *broker.AskReply
	err   error
}

// Total is the number of accepted sub-tasks, the failed ones included.
func (r *Results) Total() int64 { return r.head().Total }

// Failed is the number of sub-tasks that failed for good, within the failure budget.
func (r *Results) Failed() int64 { return r.head().Failed }

// Errors are the errors of failed sub-tasks, the first 100 at most.
func (r *Results) Errors() []Failure {
	var out []Failure
	for _, e := range r.head().Errors {
		out = append(out, Failure{e.Number, e.Message})
	}
	return out
}

// Err is the error that ended an iteration or a question early. A reduce that returns no
// error in spite of it fails with it.
func (r *Results) Err() error { return r.err }

// Raw iterates over the values as they travelled: []byte as it was, the rest as JSON; what a
// Combine folded comes folded. Each iteration reads anew.
func (r *Results) Raw() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		page := r.head()
		for r.err == nil {
			err := r.src.read(r.ctx, page.Results, func(b *broker.ResultBatch) error {
				for _, v := range b.Values {
					if !yield(v) {
						return errEnough
					}
				}
				return nil
			})
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				r.fail(fmt.Errorf("read results: %w", err))
				return
			}
			if page.Next == 0 {
				return
			}
			if page, err = r.src.page(r.ctx, broker.AskResults, page.Next); err != nil {
				r.fail(fmt.Errorf("ask for results: %w", err))
			}
		}
	}
}

var errEnough = errors.New("enough")

func (r *Results) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Results) head() *broker.AskReply {
	if r.first == nil {
		page, err := r.src.page(r.ctx, broker.AskResults, 0)
		if err != nil {
			r.fail(fmt.Errorf("ask for results: %w", err))
			page = &broker.AskReply{}
		}
		r.first = page
	}
	return r.first
}

// Values are Results with the type of the values.
type Values[V any] struct{ *Results }

// ValuesOf gives the results their type.
func ValuesOf[V any](r *Results) *Values[V] { return &Values[V]{r} }

// All iterates over the values. A value that is no V ends the iteration; see Err.
func (v *Values[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		for raw := range v.Raw() {
			var x V
			if err := decode(raw, &x); err != nil {
				v.fail(&inputError{fmt.Errorf("decode a value as %T: %w", x, err)})
				return
			}
			if !yield(x) {
				return
			}
		}
	}
}

// Share is how one share of a broadcast ended.
type Share struct {
	Index  int
	Worker string
	OK     bool
	Result json.RawMessage // what Process returned, nil for nothing
	Error  string          // why it failed or was lost
}

// Decode decodes the result into v; without a result v is left as it is.
func (s Share) Decode(v any) error {
	if len(s.Result) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Result, v); err != nil {
		return &inputError{fmt.Errorf("decode result of share %d as %T: %w", s.Index, v, err)}
	}
	return nil
}

// Shares are the outcomes of all shares of a broadcast, by index. Not safe for concurrent
// use.
type Shares struct {
	ctx   context.Context
	src   source
	first *broker.AskReply
	err   error
}

// Total is the number of shares.
func (s *Shares) Total() int64 { return s.head().Total }

// Failed is the number of shares that failed or were lost.
func (s *Shares) Failed() int64 { return s.head().Failed }

// Err is the error that ended an iteration early; PostProcess fails with it.
func (s *Shares) Err() error { return s.err }

// All iterates over the shares, the failed ones included.
func (s *Shares) All() iter.Seq[Share] {
	return func(yield func(Share) bool) {
		page := s.head()
		for s.err == nil {
			for _, x := range page.Shares {
				if !yield(Share{int(x.Index), x.Worker, x.OK, x.Result, x.Error}) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
			var err error
			if page, err = s.src.page(s.ctx, broker.AskShares, page.Next); err != nil {
				s.err = fmt.Errorf("ask for shares: %w", err)
			}
		}
	}
}

func (s *Shares) head() *broker.AskReply {
	if s.first == nil {
		page, err := s.src.page(s.ctx, broker.AskShares, 0)
		if err != nil {
			s.err = fmt.Errorf("ask for shares: %w", err)
			page = &broker.AskReply{}
		}
		s.first = page
	}
	return s.first
}
