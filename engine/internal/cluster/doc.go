// Package cluster divides the shards among the live servers and keeps what depends on a
// server's lease: its number, its clock and its ids.
//
// A server's one row in the database is the lease of all its shards, renewed each second
// and measured by the database's clock. Shards spread by rendezvous hashing over live
// servers; each server claims those that are its own and free, and gives up the others.
// The package promises that no (shard, epoch) ever has two owners; that an owner which
// lost its shard stores nothing is the fence's promise, not this one's.
//
// A server without broker connection goes on as a standby if another one can take its
// shards: it joins again under its name with StandbySuffix, and nobody counts it.
package cluster
