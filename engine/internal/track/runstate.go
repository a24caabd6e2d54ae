package track

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// runVersion is the first byte of a stored run.
const runVersion = 1

var errRunState = errors.New("damaged run state")

// row is the run as stored. A closed run keeps its counts only.
func (r *run) row(now int64) engine.MapRun {
	if r.damaged != nil {
		row := *r.damaged
		row.Closed, row.State, row.UpdatedAt = true, nil, now
		return row
	}
	total, failed := r.counts()
	row := engine.MapRun{
		Instance: r.in.ID, Run: r.id, Closed: r.closed, Total: total,
		Succeeded: int64(r.finished.GetCardinality()), Failed: failed, UpdatedAt: now,
	}
	if !r.closed {
		row.State = r.encode()
	}
	return row
}

func (r *run) encode() []byte {
	b := make([]byte, 1, 512+16*len(r.in.chunks))
	b[0] = runVersion
	u := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
	}
	flag := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	blob := func(p []byte) {
		u(uint64(len(p)))
		b = append(b, p...)
	}
	reducing := false
	for _, c := range r.in.chunks {
		reducing = reducing || c.phase == phaseReduce
	}
	u(uint64(r.next), r.seq, uint64(r.off), uint64(r.chunkNo), flag(r.rootDone), uint64(r.rootStatus), flag(r.mapFailed), uint64(r.reduceAttempt), flag(reducing))
	blob([]byte(r.rootFailed))
	u(uint64(len(r.mappers)))
	for _, n := range sortedKeys(r.mappers) {
		m := r.mappers[n]
		u(uint64(n), m.token, uint64(m.accepted), m.hash, uint64(m.emitted), flag(m.done), uint64(m.total))
	}
	subs := make([]*chunk, 0, len(r.in.chunks))
	for _, c := range r.in.chunks {
		if c.phase == phaseSub {
			subs = append(subs, c)
		}
	}
	slices.SortFunc(subs, func(a, b *chunk) int { return cmp.Compare(a.key.Chunk, b.key.Chunk) })
	u(uint64(len(subs)))
	for _, c := range subs {
		u(uint64(c.key.Chunk&0xffffffff), uint64(c.first), uint64(c.count), c.seq, uint64(c.off), uint64(c.attempt), uint64(c.lost))
		blob([]byte(c.worker.Worker))
		u(c.worker.Incarnation, uint64(len(c.moved)))
		if len(c.moved) > 0 {
			for _, n := range sortedKeys(c.moved) {
				u(uint64(n - c.first))
			}
		}
	}
	r.finished.RunOptimize()
	r.failed.RunOptimize()
	r.accepted.RunOptimize()
	for _, m := range []interface{ ToBytes() ([]byte, error) }{r.finished, r.failed, r.accepted} {
		p, err := m.ToBytes()
		if err != nil {
			// Writing into memory does not fail.
			panic(fmt.Sprintf("encode bitmap of instance %d: %v", r.in.ID, err))
		}
		blob(p)
	}
	return b
}

// decode reads a stored run and takes its chunks into the instance.
func (r *run) decode(o *Owner, state []byte) error {
	if len(state) == 0 || state[0] != runVersion {
		return fmt.Errorf("unknown version: %w", errRunState)
	}
	d := reader{b: state[1:]}
	r.next, r.seq, r.off, r.chunkNo = int64(d.u()), d.u(), int32(d.u()), int64(d.u())
	if r.next < 1 || r.next > math.MaxUint32 || r.off < 0 || r.chunkNo < 0 {
		return fmt.Errorf("position %d: %w", r.next, errRunState)
	}
	r.rootDone, r.rootStatus, r.mapFailed = d.u() == 1, engine.Status(d.u()), d.u() == 1
	r.reduceAttempt, r.reducing = int32(d.u()), d.u() == 1
	r.rootFailed = string(d.blob())
	for range d.count() {
		n := int64(d.u())
		m := newMapper()
		m.token, m.accepted, m.hash, m.emitted = d.u(), int64(d.u()), d.u(), int64(d.u())
		m.done, m.total = d.u() == 1, int64(d.u())
		r.mappers[n] = m
		r.staged += m.emitted
	}
	var subs []*chunk
	for range d.count() {
		c := &chunk{phase: phaseSub}
		c.key = broker.ChunkKey{Instance: r.in.ID, Attempt: r.in.Attempt, Run: r.id, Chunk: int64(r.in.Attempt)<<32 | int64(d.u())}
		c.first, c.count, c.seq, c.off = int64(d.u()), int64(d.u()), d.u(), int32(d.u())
		c.attempt, c.lost = int32(d.u()), int32(d.u())
		c.worker = Target{Worker: string(d.blob())}
		c.worker.Incarnation = d.u()
		for range d.count() {
			if c.moved == nil {
				c.moved = map[int64]bool{}
			}
			c.moved[c.first+int64(d.u())] = true
		}
		if c.first < 1 || c.count < 1 || c.count > broker.MaxChunkTasks || c.first+c.count > r.next || c.off < 0 {
			return fmt.Errorf("a chunk of %d from %d: %w", c.count, c.first, errRunState)
		}
		subs = append(subs, c)
	}
	for _, m := range []bitmap{r.finished, r.failed, r.accepted} {
		p := d.blob()
		if d.bad {
			return errRunState
		}
		if err := unpack(m, bytes.Clone(p)); err != nil {
			return err
		}
	}
	if d.bad || len(d.b) > 0 {
		return errRunState
	}
	for _, m := range []*roaring.Bitmap{r.finished, r.failed} {
		if !m.IsEmpty() && (m.Minimum() < 1 || int64(m.Maximum()) >= r.next) {
			return fmt.Errorf("number %d of %d: %w", m.Maximum(), r.next-1, errRunState)
		}
	}
	if r.finished.Intersects(r.failed) {
		return fmt.Errorf("a number is finished and failed: %w", errRunState)
	}
	for _, c := range subs {
		c.left = int64(len(r.unfinished(c)))
		c.sentAt = o.now - 1
		if c.left > 0 {
			o.hold(r.in, c)
		}
	}
	return nil
}

type bitmap interface {
	UnmarshalBinary(p []byte) error
	Validate() error
}

// unpack reads a bitmap. The library trusts the sizes it reads; damaged ones must not bring
// the server down.
func unpack(m bitmap, p []byte) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("bitmap: %w: %v", errRunState, x)
		}
	}()
	if _, wide := m.(*roaring64.Bitmap); wide {
		if len(p) < 8 || binary.LittleEndian.Uint64(p) > uint64(len(p)-8)/12 {
			return fmt.Errorf("bitmap of %d bytes: %w", len(p), errRunState)
		}
	}
	if err := m.UnmarshalBinary(p); err != nil {
		return fmt.Errorf("bitmap: %w: %w", errRunState, err)
	}
	if err := m.Validate(); err != nil {
		return fmt.Errorf("bitmap: %w: %w", errRunState, err)
	}
	return nil
}

// reader reads varints and remembers that one was missing.
type reader struct {
	b   []byte
	bad bool
}

func (d *reader) u() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a length that cannot be more than what is left to read.
func (d *reader) count() uint64 {
	n := d.u()
	if n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return n
}

func (d *reader) blob() []byte {
	n := d.count()
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedTasks(m map[engine.TaskKey]*taskRow) []engine.TaskKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b engine.TaskKey) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Number, b.Number))
	})
}
