// Package broker is NATS JetStream and nothing else of Fanjet: the subjects, the streams
// and durables, the wire messages, and the two ends that speak them. Client is what a
// worker process holds; Broker is what an engine process holds.
//
// It decides nothing. Who may run a task, what a report means, and when work is over is
// the engine's business; what the user's code does is the processor package's.
//
// Nothing is buffered while the connection is down: a call then fails at once with
// ErrUnavailable, and what was under way without an ack fails too, though it may have been
// stored. Subjects and names of streams are in subject.go and nowhere else; the wire format
// is described in wire.go. This package never links the nats-server: see embedded.
package broker
