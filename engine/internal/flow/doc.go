// Package flow carries workflow instances on: it asks package workflow which node moves
// next, makes the instances of job nodes, evaluates decisions, and takes the results of
// instances back.
//
// Like package track it is deterministic and does no I/O: rows go into the Change that the
// shard's next commit stores, through a Sink, and ids come from there too.
package flow
