// Package engine holds the nouns of Fanjet, the transition tables that move them, and the
// ports the rest is built on: Change, which says what one decision wants stored, and Store,
// which stores it.
//
// It is pure: no clock, no dice, no wires. Time and ids are arguments.
package engine
