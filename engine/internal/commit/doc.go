// Package commit owns the one committer of a server: owners of shards, API handlers and
// housekeeping hand it Changes, and one transaction takes all that arrived while the last
// one was in flight. It batches by back-pressure, never by timer.
//
// It keeps the law "nothing decided on top of a lost Change is stored": an owner decides
// its next batch while a commit is in flight, so when a Change of a shard is lost, all that
// was decided after it in the same generation is refused. It never publishes anything and
// never looks inside a row.
package commit
