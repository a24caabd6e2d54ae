package cluster

import (
	"sync"

	"github.com/fanjet/fanjet/engine"
)

// The layout of an id is told at engine.IDTime.
const (
	idEpoch    = engine.IDEpoch
	msShift    = engine.IDTimeShift
	seqBits    = 12
	numberBits = msShift - seqBits
	maxSeq     = 1<<seqBits - 1

	// MaxNumber is the highest server number an id can hold.
	MaxNumber = 1<<numberBits - 1
)

// idSpan is how many ms of ids every promise leaves, however far ids run ahead of the clock.
const idSpan = 1000

// ids issues the ids of one process.
//
// Invariant: an id is issued only at or below the bound that is stored in the row of its
// number, and whoever takes the number begins above the bound it finds. So two holders of
// one number never issue the same id, even if the first one is frozen and wakes up
// without knowing that it lost its lease.
type ids struct {
	mu     sync.Mutex
	number int64
	ms     int64 // of the last id, since idEpoch
	seq    int64
	follow int64 // ms up to which ids follow the clock
	bound  int64 // highest id promised; 0 before the first promise
}

// next returns the next id, greater than all before, or 0 if nothing is promised. It
// never waits: when a millisecond is used up it borrows the next one.
func (g *ids) next(now int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Past follow no renewal has come for long. The ids left must last until one does, so
	// they no longer jump with the clock.
	if ms := min(now-idEpoch, g.follow); ms > g.ms {
		g.ms, g.seq = ms, 0
	} else if g.seq++; g.seq > maxSeq {
		g.ms, g.seq = g.ms+1, 0
	}
	id := g.ms<<msShift | g.number<<seqBits | g.seq
	if id > g.bound {
		g.seq--
		return 0
	}
	return id
}

// promise is the bound to store with a renewal: ids for ahead ms from now, and some in any
// case. floor is the bound found in the row at joining, else 0.
func (g *ids) promise(now, ahead, floor int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	used := max(g.ms, floor>>msShift)
	ms := max(now-idEpoch+ahead, used+idSpan)
	return max(ms<<msShift|(1<<msShift-1), g.bound)
}

// promised begins to use a bound that is stored under number. floor is as for promise;
// follow is until when, epoch ms, ids follow the clock.
func (g *ids) promised(number int16, bound, floor, follow int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if int64(number) != g.number || floor>>msShift > g.ms {
		g.number = int64(number)
		g.ms, g.seq = max(g.ms, floor>>msShift), maxSeq // the next id opens a new ms
	}
	g.bound = bound
	g.follow = follow - idEpoch
}
