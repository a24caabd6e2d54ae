package fire

import (
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Follows tells whether the due fire of a schedule must wait for a job that it follows, and
// whether it must not run, because that job had to succeed and has not.
func Follows(row *engine.Schedule, d workflow.Dependency, of *engine.Schedule) (wait, skip bool) {
	// One that is due at this moment and has not been fired yet comes first.
	due := of.Enabled && !of.Paused() && of.NextAt != 0 && of.NextAt <= row.NextAt
	return of.Open > 0 || due, !d.Weak && of.LastStatus != 0 && of.LastStatus != engine.StatusSucceeded
}
