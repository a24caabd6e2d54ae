package broker

import "time"

const (
	chunkCollect = 1 << iota
	chunkAtomic
	chunkDirected
	chunkCheckpoints
)

// EncodeChunk is the chunk as it travels. ErrTooLarge: more than MaxChunkTasks tasks.
func EncodeChunk(c *Chunk) ([]byte, error) { return appendChunk(nil, c) }

func appendChunk(dst []byte, c *Chunk) ([]byte, error) {
	w := startWriter(dst, wireChunk)
	var flags byte
	if c.Collect {
		flags |= chunkCollect
	}
	if c.Atomic {
		flags |= chunkAtomic
	}
	if c.Directed {
		flags |= chunkDirected
	}
	checkpoints := 0
	for i := range c.Tasks {
		if c.Tasks[i].Checkpoint != nil {
			checkpoints++
		}
	}
	if checkpoints > 0 {
		flags |= chunkCheckpoints
	}
	// The key comes first: lists of chunks read no further.
	w.key(&c.ChunkKey)
	w.byte(flags)
	w.byte(c.Shard)
	w.varint(c.Epoch)
	w.byte(byte(c.Phase))
	w.varint(c.JobID)
	w.varint(c.Workflow)
	w.varint(c.ScheduledAt)
	w.varint(c.CreatedAt - c.ScheduledAt)
	w.varint(int64(c.TaskTimeout))
	w.varint(c.StageQuota)
	w.varint(int64(c.ShardTotal))
	w.strings(c.App, c.Mode, c.Processor, c.Job, c.Node, c.Key, c.Name)
	w.bytes(c.Params)

	w.list("tasks in a chunk", len(c.Tasks), MaxChunkTasks)
	var last int64
	for i := 0; i < len(c.Tasks); {
		j := i + 1
		for j < len(c.Tasks) && c.Tasks[j].Number == c.Tasks[j-1].Number+1 {
			j++
		}
		w.varint(c.Tasks[i].Number - last)
		w.uvarint(uint64(j - i - 1))
		last = c.Tasks[j-1].Number
		i = j
	}
	for i := 0; i < len(c.Tasks); {
		j := i + 1
		for j < len(c.Tasks) && c.Tasks[j].Attempt == c.Tasks[i].Attempt {
			j++
		}
		w.varint(int64(c.Tasks[i].Attempt))
		w.uvarint(uint64(j - i - 1))
		i = j
	}
	for i := range c.Tasks {
		w.bytes(c.Tasks[i].Item)
	}
	if checkpoints > 0 {
		w.list("checkpoints", checkpoints, MaxChunkTasks)
		for i := range c.Tasks {
			if c.Tasks[i].Checkpoint != nil {
				w.uvarint(uint64(i))
				w.bytes(c.Tasks[i].Checkpoint)
			}
		}
	}
	return w.done()
}

// DecodeChunk reads a chunk. Items, checkpoints and params alias b. Errors: ErrUndecodable.
func DecodeChunk(b []byte) (*Chunk, error) {
	r, err := startReader(b, wireChunk)
	if err != nil {
		return nil, err
	}
	c := &Chunk{}
	r.key(&c.ChunkKey)
	flags := r.byte()
	c.Collect = flags&chunkCollect != 0
	c.Atomic = flags&chunkAtomic != 0
	c.Directed = flags&chunkDirected != 0
	c.Shard = r.byte()
	c.Epoch = r.varint()
	c.Phase = Phase(r.byte())
	c.JobID = r.varint()
	c.Workflow = r.varint()
	c.ScheduledAt = r.varint()
	c.CreatedAt = c.ScheduledAt + r.varint()
	c.TaskTimeout = time.Duration(r.varint())
	c.StageQuota = r.varint()
	c.ShardTotal = r.int32()
	r.strings(&c.App, &c.Mode, &c.Processor, &c.Job, &c.Node, &c.Key, &c.Name)
	c.Params = r.bytes()

	n := r.list(MaxChunkTasks, 1)
	if n > 0 {
		c.Tasks = make([]Task, n)
		r.taskNumbers(c.Tasks)
		r.taskAttempts(c.Tasks)
		for i := range c.Tasks {
			c.Tasks[i].Item = r.bytes()
		}
	}
	if flags&chunkCheckpoints != 0 {
		for range r.list(MaxChunkTasks, 2) {
			i := r.uvarint()
			v := r.bytes()
			if i >= uint64(len(c.Tasks)) {
				r.fail()
				break
			}
			c.Tasks[i].Checkpoint = v
		}
	}
	if err := r.end("chunk"); err != nil {
		return nil, err
	}
	return c, nil
}

func (r *reader) taskNumbers(tasks []Task) {
	var last int64
	for i := 0; i < len(tasks); {
		v := last + r.varint()
		length := r.uvarint()
		if r.bad || length >= uint64(len(tasks)-i) {
			r.fail()
			return
		}
		for range length + 1 {
			tasks[i].Number = v
			v++
			i++
		}
		last = v - 1
	}
}

func (r *reader) taskAttempts(tasks []Task) {
	for i := 0; i < len(tasks); {
		v := r.int32()
		length := r.uvarint()
		if r.bad || length >= uint64(len(tasks)-i) {
			r.fail()
			return
		}
		for range length + 1 {
			tasks[i].Attempt = v
			i++
		}
	}
}

// decodeChunkKey reads no more than which chunk it is.
func decodeChunkKey(b []byte) (ChunkKey, error) {
	r, err := startReader(b, wireChunk)
	if err != nil {
		return ChunkKey{}, err
	}
	var k ChunkKey
	r.key(&k)
	return k, r.end("chunk")
}
