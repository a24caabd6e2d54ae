package broker

import (
	"maps"
	"math"
	"slices"
	"time"
)

// EncodeBeat is the beat as it travels. ErrTooLarge: more than 4096 pools, labels or
// processors, or 65536 held chunks.
func EncodeBeat(b *Beat) ([]byte, error) { return appendBeat(nil, b) }

func appendBeat(dst []byte, b *Beat) ([]byte, error) {
	w := startWriter(dst, wireBeat)
	w.strings(b.App, b.Worker, b.Version, b.SDK, b.Host)
	w.uvarint(b.Incarnation)
	w.uvarint(b.Seq)
	w.int(b.PID)
	w.varint(b.SentAt)
	w.int(b.Slots)
	w.int(b.Busy)
	w.int(b.Directed)
	var flags byte
	if b.Draining {
		flags = 1
	}
	w.byte(flags)
	w.uvarint(math.Float64bits(b.CPUs))
	w.uvarint(math.Float64bits(b.FreeCPU))
	w.varint(b.FreeMemory)
	w.varint(b.FreeDisk)
	w.list("pools", len(b.Pools), maxNames)
	for _, p := range b.Pools {
		w.string(p)
	}
	w.list("labels", len(b.Labels), maxNames)
	for _, k := range slices.Sorted(maps.Keys(b.Labels)) {
		w.string(k)
		w.string(b.Labels[k])
	}
	w.list("processors", len(b.Processors), maxNames)
	for i := range b.Processors {
		at := w.open()
		w.string(b.Processors[i].Name)
		w.byte(byte(b.Processors[i].Caps))
		w.close(at)
	}
	w.list("held chunks", len(b.Held), maxRecords)
	for i := range b.Held {
		w.key(&b.Held[i])
	}
	return w.done()
}

// DecodeBeat reads a beat. It keeps nothing of raw. Errors: ErrUndecodable.
func DecodeBeat(raw []byte) (*Beat, error) {
	r, err := startReader(raw, wireBeat)
	if err != nil {
		return nil, err
	}
	b := &Beat{}
	r.strings(&b.App, &b.Worker, &b.Version, &b.SDK, &b.Host)
	b.Incarnation = r.uvarint()
	b.Seq = r.uvarint()
	b.PID = r.int()
	b.SentAt = r.varint()
	b.Slots = r.int()
	b.Busy = r.int()
	b.Directed = r.int()
	b.Draining = r.byte()&1 != 0
	b.CPUs = math.Float64frombits(r.uvarint())
	b.FreeCPU = math.Float64frombits(r.uvarint())
	b.FreeMemory = r.varint()
	b.FreeDisk = r.varint()
	if n := r.list(maxNames, 1); n > 0 {
		b.Pools = make([]string, n)
		for i := range b.Pools {
			b.Pools[i] = r.string()
		}
	}
	if n := r.list(maxNames, 2); n > 0 {
		b.Labels = make(map[string]string, n)
		for range n {
			k := r.string()
			b.Labels[k] = r.string()
		}
	}
	if n := r.list(maxNames, 3); n > 0 {
		b.Processors = make([]ProcessorInfo, n)
		for i := range b.Processors {
			in := r.record()
			b.Processors[i] = ProcessorInfo{Name: in.string(), Caps: Caps(in.byte())}
			r.leave(&in)
		}
	}
	if n := r.list(maxRecords, 4); n > 0 {
		b.Held = make([]ChunkKey, n)
		for i := range b.Held {
			r.key(&b.Held[i])
		}
	}
	if err := r.end("beat"); err != nil {
		return nil, err
	}
	return b, nil
}

// EncodeRegistration is the answer as it travels.
func EncodeRegistration(g *Registration) ([]byte, error) {
	w := startWriter(nil, wireRegistration)
	w.string(g.Error)
	var flags byte
	if g.Retry {
		flags = 1
	}
	w.byte(flags)
	w.string(g.Set)
	w.varint(int64(g.AckWait))
	w.varint(int64(g.BeatEvery))
	w.varint(g.Now)
	return w.done()
}

// DecodeRegistration reads the answer. Errors: ErrUndecodable.
func DecodeRegistration(b []byte) (*Registration, error) {
	r, err := startReader(b, wireRegistration)
	if err != nil {
		return nil, err
	}
	g := &Registration{}
	g.Error = r.string()
	g.Retry = r.byte()&1 != 0
	g.Set = r.string()
	g.AckWait = time.Duration(r.varint())
	g.BeatEvery = time.Duration(r.varint())
	g.Now = r.varint()
	if err := r.end("registration"); err != nil {
		return nil, err
	}
	return g, nil
}

// EncodeControl is the order as it travels.
func EncodeControl(c *Control) ([]byte, error) {
	w := startWriter(nil, wireControl)
	w.byte(byte(c.Kind))
	w.varint(c.Instance)
	w.varint(int64(c.Attempt))
	w.string(c.Worker)
	w.byte(c.Shard)
	w.varint(c.Epoch)
	w.key(&c.Chunk)
	return w.done()
}

// DecodeControl reads an order. Errors: ErrUndecodable.
func DecodeControl(b []byte) (Control, error) {
	r, err := startReader(b, wireControl)
	if err != nil {
		return Control{}, err
	}
	c := Control{}
	c.Kind = ControlKind(r.byte())
	c.Instance = r.varint()
	c.Attempt = r.int32()
	c.Worker = r.string()
	c.Shard = r.byte()
	c.Epoch = r.varint()
	r.key(&c.Chunk)
	if err := r.end("order"); err != nil {
		return Control{}, err
	}
	return c, nil
}

// EncodeDirectedReply is the answer to a directed chunk as it travels.
func EncodeDirectedReply(v DirectedReply) []byte {
	return []byte{wireVersion, byte(wireDirectedReply), byte(v)}
}

// DecodeDirectedReply reads the answer to a directed chunk. Errors: ErrUndecodable.
func DecodeDirectedReply(b []byte) (DirectedReply, error) {
	r, err := startReader(b, wireDirectedReply)
	if err != nil {
		return 0, err
	}
	v := DirectedReply(r.byte())
	return v, r.end("answer to a directed chunk")
}
