package fire

import (
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Depends is how a fire stands to the jobs that it follows.
type Depends struct {
	Wait bool // one of them is under way, or is to be fired first
	Skip bool // one that must have succeeded has not
	// Ready is when the last of them ended, epoch ms; 0: none has ever run. A fire is not late
	// for having waited until then.
	Ready int64
}

// Follow adds what one of these jobs says about the due fire of a schedule.
func (d *Depends) Follow(row *engine.Schedule, on workflow.Dependency, of *engine.Schedule) {
	// One that is due at this moment and has not been fired yet comes first.
	due := of.Enabled && !of.Paused() && of.NextAt != 0 && of.NextAt <= row.NextAt
	d.Wait = d.Wait || of.Open > 0 || due
	d.Skip = d.Skip || !on.Weak && of.LastStatus != 0 && of.LastStatus != engine.StatusSucceeded
	d.Ready = max(d.Ready, of.LastEnd)
}
