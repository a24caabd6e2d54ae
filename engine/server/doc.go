// Package server is the assembly of an engine process: it drives the owner's decisions
// (packages track and flow) with what the broker, the database and the clock bring, stores
// their Changes through the one committer, and carries out what follows.
//
// It is handed a Store and a Broker and opens neither.
package server
