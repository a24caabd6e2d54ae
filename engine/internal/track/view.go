package track

import (
	"bytes"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/fanjet/fanjet/engine"
)

// Instance is the row of an instance that is in memory, for reading: not to be kept.
func (o *Owner) Instance(id int64) (*engine.Instance, bool) {
	in := o.insts[id]
	if in == nil {
		return nil, false
	}
	return &in.Instance, true
}

// RunView is what a reader sees of a map run that is not closed. Numbers begin with 1.
type RunView struct {
	Total     int64 // accepted so far
	Emitting  int   // tasks that may emit more
	InFlight  int   // chunks given out
	succeeded *roaring.Bitmap
	failed    *roaring.Bitmap
}

// Succeeded and Failed count those of the numbers first to last.
func (v *RunView) Succeeded(first, last int64) int64 { return within(v.succeeded, first, last) }

// Failed counts those that failed for good.
func (v *RunView) Failed(first, last int64) int64 { return within(v.failed, first, last) }

func within(m *roaring.Bitmap, first, last int64) int64 {
	if first < 0 || last < first || last > math.MaxUint32 {
		return 0
	}
	return int64(m.CardinalityInRange(uint64(first), uint64(last)+1))
}

// View reads the state of a stored run. It keeps nothing of state.
func View(state []byte) (*RunView, error) {
	if len(state) == 0 || state[0] != runVersion {
		return nil, fmt.Errorf("unknown version: %w", errRunState)
	}
	d := reader{b: state[1:]}
	next := int64(d.u())
	if next < 1 || next > math.MaxUint32 {
		return nil, fmt.Errorf("position %d: %w", next, errRunState)
	}
	skip := func(n int) {
		for range n {
			d.u()
		}
	}
	skip(8) // seq to reducing
	d.blob()
	v := &RunView{Total: next - 1, succeeded: roaring.New(), failed: roaring.New()}
	for range d.count() {
		skip(5)
		if d.u() == 0 {
			v.Emitting++
		}
		skip(1)
	}
	for range d.count() {
		v.InFlight++
		skip(7)
		d.blob()
		skip(1)
		for range d.count() {
			skip(1)
		}
	}
	for _, m := range []*roaring.Bitmap{v.succeeded, v.failed} {
		p := d.blob()
		if d.bad {
			return nil, errRunState
		}
		if err := unpack(m, bytes.Clone(p)); err != nil {
			return nil, err
		}
	}
	return v, nil
}
