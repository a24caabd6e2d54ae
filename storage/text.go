package storage

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/engine"
)

const (
	maxWorker   = 255      // of a worker's name in a row: any worker's, and words about it
	maxLane     = 16       // of a lane's name
	maxDead     = 64 << 10 // of the payload of a dead letter
	maxSpec     = 1 << 20  // of a job's spec as JSON
	maxSchedule = 64 << 10 // of a schedule as JSON
	maxCalendar = 1 << 20  // of a calendar as JSON
	maxReason   = 16       // of why a fire did not run
	maxTags     = 1 << 20  // of a worker's pools, labels or processors as JSON
	maxState    = 6 << 20  // of a map run; as text of a statement it is twice that, within minPacket
)

// door collects what the checks of one row refuse.
type door struct{ errs []error }

func (d *door) text(what, s string, bound int) {
	if err := engine.CheckText(what, s, bound); err != nil {
		d.errs = append(d.errs, err)
	}
}

func (d *door) name(what, s string) {
	if err := engine.CheckName(what, s); err != nil {
		d.errs = append(d.errs, err)
	}
}

func (d *door) bytes(what string, b []byte, bound int) {
	if err := engine.CheckBytes(what, b, bound); err != nil {
		d.errs = append(d.errs, err)
	}
}

func (d *door) hold(ok bool, format string, args ...any) {
	if !ok {
		d.errs = append(d.errs, fmt.Errorf(format+": %w", append(args, engine.ErrInvalid)...))
	}
}

func (d *door) err() error { return errors.Join(d.errs...) }

// cutValue keeps a produced value within its bound. A value cannot be cut and stay JSON, so
// over the bound a JSON string that tells the sizes takes its place.
func cutValue(b []byte, bound int) []byte {
	if len(b) <= bound {
		return b
	}
	mark, err := json.Marshal(fmt.Sprintf("[cut: the value had %d bytes, at most %d are stored]", len(b), bound))
	if err != nil { // a string always encodes
		return nil
	}
	return mark
}

func nonZero(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func bit(b bool) int16 {
	if b {
		return 1
	}
	return 0
}
