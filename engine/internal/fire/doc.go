// Package fire makes schedules fire: it keeps what wakes in the next seconds, decides with
// engine/schedule what is due, and hands the decision to the committer as a Firing. The store
// looks whether the schedule still is as it was known here, so that a fire that was decided
// twice, or about a schedule that was changed, paused or disabled meanwhile, is a no-op.
package fire
