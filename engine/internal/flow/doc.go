// Package flow carries workflow instances on: it asks package workflow which node moves
// next, makes the instances of job nodes and the workflow instances of nested workflows,
// evaluates decisions, keeps the timers of waits and the signals that came early, and takes
// the results of all of them back.
//
// A nested workflow instance lies in the shard of its root: its end, the end of the node that
// waits for it, and what follows there are one Change. It begins only while that node waits
// for it, so one that was read late, or whose parent has ended, never runs.
//
// Like package track it is deterministic and does no I/O: rows go into the Change that the
// shard's next commit stores, through a Sink, and ids come from there too.
package flow
