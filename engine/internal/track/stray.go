package track

import "github.com/fanjet/fanjet/broker"

// Claim is what the owner thinks of a worker's claim to hold a chunk.
type Claim uint8

// The claims.
const (
	// ClaimFine: as far as the owner knows, the worker has it rightly.
	ClaimFine Claim = iota
	// ClaimStray: the chunk is finished, or another worker has it.
	ClaimStray
	// ClaimUnknown: the instance is not in memory: it is final, waits for a further attempt,
	// or belongs to another owner.
	ClaimUnknown
)

// Claim judges one entry of a beat. What a worker lists may be about to be reported, so one
// beat proves nothing.
func (o *Owner) Claim(key broker.ChunkKey, who Target) Claim {
	in := o.insts[key.Instance]
	if in == nil {
		return ClaimUnknown
	}
	c := in.chunks[key.Chunk]
	if in.Attempt != key.Attempt || c == nil || c.holder.Worker != "" && c.holder != who {
		return ClaimStray
	}
	return ClaimFine
}
