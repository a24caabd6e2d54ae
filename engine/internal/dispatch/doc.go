// Package dispatch knows the workers by their beats and chooses among them. It is pure:
// time is an argument, chance is a seed, and nothing is sent from here.
//
// A Fleet answers what is asked thousands of times in a millisecond (Pool, NeedsDirected)
// from counters that each beat moves, and what is asked once for a directed task (Pick) by
// a walk over the workers of the pool.
package dispatch
