package broker

// MaxEvents bounds one batch of events.
const MaxEvents = 4096

// EncodeEvents is the batch as it travels. ErrTooLarge: more than MaxEvents.
func EncodeEvents(b *EventBatch) ([]byte, error) {
	w := startWriter(nil, wireEvents)
	w.uvarint(b.Source)
	w.uvarint(b.Seq)
	if b.Lost {
		w.byte(1)
	} else {
		w.byte(0)
	}
	w.list("events", len(b.Events), MaxEvents)
	for i := range b.Events {
		e := &b.Events[i]
		at := w.open()
		w.byte(byte(e.Kind))
		w.byte(e.Status)
		w.varint(e.Workflow)
		w.varint(e.Instance)
		w.varint(e.Job)
		w.varint(int64(e.Attempt))
		w.strings(e.Node, e.Reason, e.Error)
		w.varint(e.Total)
		w.varint(e.Done)
		w.varint(e.Failed)
		w.close(at)
	}
	return w.done()
}

// DecodeEvents reads a batch. It keeps nothing of b. Errors: ErrUndecodable.
func DecodeEvents(b []byte) (*EventBatch, error) {
	r, err := startReader(b, wireEvents)
	if err != nil {
		return nil, err
	}
	out := &EventBatch{Source: r.uvarint(), Seq: r.uvarint(), Lost: r.byte() != 0}
	if n := r.list(MaxEvents, 13); n > 0 {
		out.Events = make([]Event, n)
		for i := range out.Events {
			e := &out.Events[i]
			in := r.record()
			e.Kind, e.Status = EventKind(in.byte()), in.byte()
			e.Workflow, e.Instance, e.Job, e.Attempt = in.varint(), in.varint(), in.varint(), in.int32()
			in.strings(&e.Node, &e.Reason, &e.Error)
			e.Total, e.Done, e.Failed = in.varint(), in.varint(), in.varint()
			r.leave(&in)
		}
	}
	if err := r.end("event batch"); err != nil {
		return nil, err
	}
	return out, nil
}

// EncodeInterest is the interest as it travels.
func EncodeInterest(n *Interest) ([]byte, error) {
	w := startWriter(nil, wireInterest)
	w.uvarint(n.Source)
	w.varint(n.App)
	return w.done()
}

// DecodeInterest reads an interest. Errors: ErrUndecodable.
func DecodeInterest(b []byte) (*Interest, error) {
	r, err := startReader(b, wireInterest)
	if err != nil {
		return nil, err
	}
	out := &Interest{Source: r.uvarint(), App: r.varint()}
	if err := r.end("interest"); err != nil {
		return nil, err
	}
	return out, nil
}
