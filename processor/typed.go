package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/broker"
)

// Typed makes a Processor of a function that gets its params decoded. For the modes
// standalone and broadcast.
func Typed[P, R any](f func(ctx context.Context, task *Task, params P) (R, error)) Processor {
	return Func(func(ctx context.Context, task *Task) (any, error) {
		var p P
		if err := task.Params(&p); err != nil {
			return nil, err
		}
		return f(ctx, task, p)
	})
}

// MapReduce is a typed Processor for the modes map and map_reduce: Split emits the items,
// Work makes a value of each, anywhere, and Reduce makes the result of the values. Register
// a value or a pointer; it must not be changed afterwards.
type MapReduce[P, Item, Value any] struct {
	// Split runs once, in the root task, and calls emit for each item. It must return the
	// error of emit. Items are stored as they are emitted, so there may be millions.
	// Required.
	Split func(ctx context.Context, task *Task, params P, emit func(Item) error) error
	// Work makes the value of one item. task.Params has the params, if they are needed.
	// Required.
	Work func(ctx context.Context, task *Task, item Item) (Value, error)
	// Combine folds values before they travel; nil sends each. It must be associative and
	// commutative.
	Combine func(ctx context.Context, values []Value) Value
	// Reduce makes the result; nil leaves the processor fit for mode map only.
	Reduce func(ctx context.Context, task *Task, values *Values[Value]) (any, error)
}

// Process is Split in the root task and Work in the others.
func (m MapReduce[P, Item, Value]) Process(ctx context.Context, task *Task) (any, error) {
	if !task.IsRoot() {
		var item Item
		if err := task.Item(&item); err != nil {
			return nil, err
		}
		if m.Work == nil {
			return nil, Cancel(errors.New("MapReduce without Work"))
		}
		return m.Work(ctx, task, item)
	}
	if m.Split == nil {
		return nil, Cancel(errors.New("MapReduce without Split"))
	}
	var p P
	if err := task.Params(&p); err != nil {
		return nil, err
	}
	return nil, task.mapEach("item", func(emit func([]byte) error) error {
		return m.Split(ctx, task, p, func(item Item) error {
			raw, err := encode(item)
			if err != nil {
				return Cancel(err)
			}
			return emit(raw)
		})
	})
}

// reducing has the optional steps as methods, which the fields of the same name forbid to
// MapReduce itself.
type reducing[P, Item, Value any] struct{ MapReduce[P, Item, Value] }

func (m reducing[P, Item, Value]) Reduce(ctx context.Context, task *Task, results *Results) (any, error) {
	return m.MapReduce.Reduce(ctx, task, ValuesOf[Value](results))
}

func (m reducing[P, Item, Value]) Combine(ctx context.Context, values []any) (any, error) {
	typed := make([]Value, len(values))
	for i, v := range values {
		x, ok := v.(Value)
		if !ok {
			return nil, fmt.Errorf("value %T is no %T", v, x)
		}
		typed[i] = x
	}
	return m.MapReduce.Combine(ctx, typed), nil
}

func (m reducing[P, Item, Value]) caps() broker.Caps {
	caps := broker.CapMap
	if m.MapReduce.Reduce != nil {
		caps |= broker.CapReduce
	}
	if m.MapReduce.Combine != nil {
		caps |= broker.CapCombine
	}
	return caps
}

// expand gives the registry the value with all its steps.
func (m MapReduce[P, Item, Value]) expand() Processor { return reducing[P, Item, Value]{m} }

type expandable interface{ expand() Processor }
