package broker

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// The wire format. A message is one version byte, one kind byte and a body of varints.
// The version changes only when old readers could not read on; minVersion..wireVersion are
// read, so that a rolling upgrade of N-1 to N works in both directions. Within a version a
// message grows only at its end, and so does every record inside a list, which carries its
// length: a reader skips what follows the last field it knows, and a field added later is
// read only if there are bytes left, so that a message of an older writer reads as zero
// there. The fields of version 1 are required; a message cut inside them is damaged.
//
// Every count is checked against the bytes that are left and against a bound before
// anything is allocated. Byte slices of a decoded message alias the message; strings are
// copies.
const (
	wireVersion = 1
	minVersion  = 1
)

type messageKind byte

const (
	wireChunk messageKind = iota + 1
	wireReports
	wireStage
	wireResults
	wireBeat
	wireRegistration
	wireAskRequest
	wireAskReply
	wireControl
	wireLog
	wireDirectedReply
	wireEvents
	wireInterest
)

// Bounds of lists on the wire, beyond those of message.go. Encoding more is ErrTooLarge,
// decoding more ErrUndecodable.
const (
	MaxBatchReports = 8192    // reports in a ReportBatch
	MaxNumbers      = 1 << 16 // numbers in one list
	maxAllNumbers   = 1 << 20 // numbers in one message
	maxRanges       = 1 << 18
	maxRecords      = 1 << 16 // held chunks, log lines, shares, errors
	maxNames        = 4096    // pools, labels, processors
)

// writer appends a message to b. err is set once when a bound is broken.
type writer struct {
	b       []byte
	err     error
	numbers int
}

func startWriter(dst []byte, k messageKind) writer {
	return writer{b: append(dst, wireVersion, byte(k))}
}

func (w *writer) tooMany(what string, n, bound int) {
	if w.err == nil {
		w.err = fmt.Errorf("%d %s, at most %d: %w", n, what, bound, ErrTooLarge)
	}
}

func (w *writer) byte(v byte)      { w.b = append(w.b, v) }
func (w *writer) uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) varint(v int64)   { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) int(v int)        { w.varint(int64(v)) }

// bytes keeps nil and empty apart: length + 1, or 0 for nil.
func (w *writer) bytes(v []byte) {
	if v == nil {
		w.byte(0)
		return
	}
	w.uvarint(uint64(len(v)) + 1)
	w.b = append(w.b, v...)
}

func (w *writer) string(v string) {
	w.uvarint(uint64(len(v)))
	w.b = append(w.b, v...)
}

// strings writes several strings as lengths and one run of text, so that a reader makes
// one string of it and cuts it.
func (w *writer) strings(vs ...string) {
	for _, v := range vs {
		w.uvarint(uint64(len(v)))
	}
	for _, v := range vs {
		w.b = append(w.b, v...)
	}
}

// open starts a record that carries its length; close ends it.
func (w *writer) open() int {
	w.b = append(w.b, 0)
	return len(w.b)
}

func (w *writer) close(start int) {
	n := len(w.b) - start
	if n < 0x80 {
		w.b[start-1] = byte(n)
		return
	}
	// The length takes more than the one byte kept for it: move the record.
	more := (bits.Len(uint(n))+6)/7 - 1
	for range more {
		w.b = append(w.b, 0)
	}
	copy(w.b[start+more:], w.b[start:start+n])
	binary.PutUvarint(w.b[start-1:], uint64(n))
}

// list writes a count, bounded.
func (w *writer) list(what string, n, bound int) {
	if n > bound {
		w.tooMany(what, n, bound)
	}
	w.uvarint(uint64(n))
}

// runs writes the numbers, without their count, as runs of consecutive ones: the distance
// from the end of the last run, and the length of the run less 1.
func (w *writer) runs(numbers []int64) {
	w.numbers += len(numbers)
	if w.numbers > maxAllNumbers {
		w.tooMany("numbers in one message", w.numbers, maxAllNumbers)
	}
	var last int64
	for i := 0; i < len(numbers); {
		j := i + 1
		for j < len(numbers) && numbers[j] == numbers[j-1]+1 {
			j++
		}
		w.varint(numbers[i] - last)
		w.uvarint(uint64(j - i - 1))
		last = numbers[j-1]
		i = j
	}
}

func (w *writer) numberList(numbers []int64) {
	w.list("numbers in one list", len(numbers), MaxNumbers)
	w.runs(numbers)
}

func (w *writer) key(k *ChunkKey) {
	w.varint(k.Instance)
	w.varint(int64(k.Attempt))
	w.varint(int64(k.Run))
	w.varint(k.Chunk)
}

func (w *writer) done() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.b, nil
}

// reader reads a message. After the first fault every read gives zero and bad stays set.
type reader struct {
	b       []byte
	i       int // read so far
	bad     bool
	arena   []int64 // numbers are cut from here
	numbers int
}

func startReader(b []byte, k messageKind) (reader, error) {
	if len(b) < 2 {
		return reader{}, fmt.Errorf("message of %d bytes: %w", len(b), ErrUndecodable)
	}
	if b[0] < minVersion || b[0] > wireVersion {
		return reader{}, fmt.Errorf("message of version %d, this program reads %d to %d: %w", b[0], minVersion, wireVersion, ErrUndecodable)
	}
	if messageKind(b[1]) != k {
		return reader{}, fmt.Errorf("message of kind %d, expected %d: %w", b[1], k, ErrUndecodable)
	}
	return reader{b: b[2:]}, nil
}

func (r *reader) fail() {
	r.bad = true
	r.b, r.i = nil, 0
}

func (r *reader) left() int { return len(r.b) - r.i }

func (r *reader) byte() byte {
	if r.i >= len(r.b) {
		r.fail()
		return 0
	}
	v := r.b[r.i]
	r.i++
	return v
}

func (r *reader) uvarint() uint64 {
	if i := r.i; i < len(r.b) && r.b[i] < 0x80 {
		r.i = i + 1
		return uint64(r.b[i])
	}
	return r.long()
}

// long reads a varint of more than one byte.
func (r *reader) long() uint64 {
	var v uint64
	b := r.b[r.i:]
	for i, c := range b {
		if i == binary.MaxVarintLen64 || i == binary.MaxVarintLen64-1 && c > 1 {
			break // more than 64 bits
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.i += i + 1
			return v
		}
	}
	r.fail()
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) int32() int32 {
	v := r.varint()
	if v != int64(int32(v)) {
		r.fail()
		return 0
	}
	return int32(v)
}

func (r *reader) int() int {
	v := r.varint()
	if v != int64(int(v)) {
		r.fail()
		return 0
	}
	return int(v)
}

// take cuts n bytes off; its capacity ends there, so that an append copies.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)-r.i) {
		r.fail()
		return nil
	}
	end := r.i + int(n)
	v := r.b[r.i:end:end]
	r.i = end
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	return r.take(n - 1)
}

func (r *reader) string() string { return string(r.take(r.uvarint())) }

// strings reads what writer.strings wrote: one allocation for all of them.
func (r *reader) strings(into ...*string) {
	var lens [8]uint64
	var sum uint64
	for i := range into {
		lens[i] = r.uvarint()
		if lens[i] > uint64(r.left()) {
			r.fail()
			return
		}
		sum += lens[i]
	}
	text := string(r.take(sum))
	if r.bad {
		return
	}
	for i, s := range into {
		*s, text = text[:lens[i]], text[lens[i]:]
	}
}

// list reads a count whose elements take at least least bytes each.
func (r *reader) list(bound, least int) int {
	n := r.uvarint()
	if n > uint64(bound) || n*uint64(least) > uint64(r.left()) {
		r.fail()
		return 0
	}
	return int(n)
}

// record cuts the next record off; the rest of r follows it. Numbers share one budget.
func (r *reader) record() reader {
	body := r.take(r.uvarint())
	return reader{b: body, bad: r.bad, arena: r.arena, numbers: r.numbers}
}

// leave takes back what a record used; what is left of the record is skipped.
func (r *reader) leave(inner *reader) {
	if inner.bad {
		r.fail()
	}
	r.arena, r.numbers = inner.arena, inner.numbers
}

// runs reads n numbers.
func (r *reader) runs(n int) []int64 {
	r.numbers += n
	if n == 0 || r.numbers > maxAllNumbers {
		if n != 0 {
			r.fail()
		}
		return nil
	}
	if cap(r.arena)-len(r.arena) < n {
		r.arena = make([]int64, 0, max(n, min(2*cap(r.arena), 8192), 16))
	}
	start := len(r.arena)
	out := r.arena[start : start : start+n]
	var last int64
	for len(out) < n {
		v := last + r.varint()
		length := r.uvarint()
		if r.bad || length >= uint64(n-len(out)) {
			r.fail()
			return nil
		}
		for range length + 1 {
			out = append(out, v)
			v++
		}
		last = v - 1
	}
	r.arena = r.arena[:start+n]
	return out
}

func (r *reader) numberList() []int64 { return r.runs(r.list(MaxNumbers, 0)) }

func (r *reader) key(k *ChunkKey) {
	k.Instance = r.varint()
	k.Attempt = r.int32()
	k.Run = r.int32()
	k.Chunk = r.varint()
}

func (r *reader) end(what string) error {
	if r.bad {
		return fmt.Errorf("damaged %s: %w", what, ErrUndecodable)
	}
	return nil
}
