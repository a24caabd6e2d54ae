package processor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// wrapped embeds a MapReduce and changes one of its steps.
type wrapped struct{ MapReduce[int, int64, int64] }

func (wrapped) Process(context.Context, *Task) (any, error) { return "mine", nil }

type everything struct{ Func }

func (everything) Reduce(context.Context, *Task, *Results) (any, error)     { return nil, nil }
func (everything) Combine(context.Context, []any) (any, error)              { return nil, nil }
func (everything) PreProcess(context.Context, *Task) error                  { return nil }
func (everything) PostProcess(context.Context, *Task, *Shares) (any, error) { return nil, nil }

func TestRegistered_finds_the_steps_a_processor_has(t *testing.T) {
	t.Parallel()
	mapOnly, folding := square(), square()
	mapOnly.Reduce = nil
	folding.Combine = func(context.Context, []int64) int64 { return 0 }
	for name, tc := range map[string]struct {
		p    Processor
		caps broker.Caps
	}{
		"function":     {echo, broker.CapMap},
		"typed":        {Typed(func(context.Context, *Task, int) (int, error) { return 0, nil }), broker.CapMap},
		"map only":     {mapOnly, broker.CapMap},
		"map reduce":   {square(), broker.CapMap | broker.CapReduce},
		"with combine": {&folding, broker.CapMap | broker.CapReduce | broker.CapCombine},
		"embedded":     {wrapped{square()}, broker.CapMap | broker.CapReduce},
		"everything":   {everything{}, broker.CapMap | broker.CapReduce | broker.CapCombine | broker.CapPre | broker.CapPost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistered("p", tc.p)
			require.Equal(t, tc.caps, r.caps)
			require.Equal(t, tc.caps&broker.CapReduce != 0, r.reduce != nil)
			require.Equal(t, tc.caps&broker.CapCombine != 0, r.combine != nil)
			require.Equal(t, tc.caps&broker.CapPre != 0, r.pre != nil)
			require.Equal(t, tc.caps&broker.CapPost != 0, r.post != nil)
		})
	}
	v, err := newRegistered("p", wrapped{square()}).proc.Process(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "mine", v)
}
