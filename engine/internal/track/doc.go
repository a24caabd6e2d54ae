// Package track is the owner of shards as a state machine: it keeps the instances that are
// on their way, takes in what happened (Event), and puts out what is to be stored (Change)
// and what is to be done once that is stored (Effect).
//
// It is deterministic: no clock, no goroutine, no I/O. Whoever drives it hands in the time
// with every event, stores the Changes in order through the committer, carries the Effects
// out after their Change is committed, and hands the outcomes back as events. Its memory
// runs ahead of the database by what is being committed; when a commit is lost, the shard
// is dropped and loaded again, so nothing decided on top of a lost Change is ever seen.
//
// It never chooses a worker (package dispatch does, behind Fleet) and knows of workflows
// only that somebody wants to hear of final instances (Hooks).
package track
