package broker

// EncodeAskRequest is the question as it travels.
func EncodeAskRequest(q *AskRequest) ([]byte, error) {
	w := startWriter(nil, wireAskRequest)
	w.byte(byte(q.Kind))
	w.key(&q.ChunkKey)
	w.strings(q.App, q.Worker)
	w.byte(q.Shard)
	w.uvarint(q.Incarnation)
	w.uvarint(q.From)
	return w.done()
}

// DecodeAskRequest reads a question. Errors: ErrUndecodable.
func DecodeAskRequest(b []byte) (*AskRequest, error) {
	r, err := startReader(b, wireAskRequest)
	if err != nil {
		return nil, err
	}
	q := &AskRequest{}
	q.Kind = AskKind(r.byte())
	r.key(&q.ChunkKey)
	r.strings(&q.App, &q.Worker)
	q.Shard = r.byte()
	q.Incarnation = r.uvarint()
	q.From = r.uvarint()
	if err := r.end("question"); err != nil {
		return nil, err
	}
	return q, nil
}

// EncodeAskReply is the answer as it travels. ErrTooLarge: more than 262144 ranges, or
// 65536 errors or shares; answer a page and set Next.
func EncodeAskReply(a *AskReply) ([]byte, error) {
	w := startWriter(nil, wireAskReply)
	w.byte(byte(a.Verdict))
	w.numberList(a.Done)
	w.list("ranges", len(a.Results), maxRanges)
	var last uint64
	for _, g := range a.Results {
		w.varint(int64(g.First - last))
		w.varint(int64(g.Last - g.First))
		last = g.Last
	}
	w.uvarint(a.Next)
	w.varint(a.Failed)
	w.varint(a.Total)
	w.list("errors", len(a.Errors), maxRecords)
	for i := range a.Errors {
		at := w.open()
		w.varint(a.Errors[i].Number)
		w.string(a.Errors[i].Message)
		w.close(at)
	}
	w.list("shares", len(a.Shares), maxRecords)
	for i := range a.Shares {
		s := &a.Shares[i]
		at := w.open()
		w.varint(s.Index)
		w.string(s.Worker)
		var flags byte
		if s.OK {
			flags = 1
		}
		w.byte(flags)
		w.bytes(s.Result)
		w.string(s.Error)
		w.close(at)
	}
	return w.done()
}

// DecodeAskReply reads an answer. Results of shares alias b. Errors: ErrUndecodable.
func DecodeAskReply(b []byte) (*AskReply, error) {
	r, err := startReader(b, wireAskReply)
	if err != nil {
		return nil, err
	}
	a := &AskReply{}
	a.Verdict = Verdict(r.byte())
	a.Done = r.numberList()
	if n := r.list(maxRanges, 2); n > 0 {
		a.Results = make([]Range, n)
		var last uint64
		for i := range a.Results {
			first := last + uint64(r.varint())
			last = first + uint64(r.varint())
			a.Results[i] = Range{First: first, Last: last}
		}
	}
	a.Next = r.uvarint()
	a.Failed = r.varint()
	a.Total = r.varint()
	if n := r.list(maxRecords, 3); n > 0 {
		a.Errors = make([]NumberedError, n)
		for i := range a.Errors {
			in := r.record()
			a.Errors[i] = NumberedError{Number: in.varint(), Message: in.string()}
			r.leave(&in)
		}
	}
	if n := r.list(maxRecords, 6); n > 0 {
		a.Shares = make([]Share, n)
		for i := range a.Shares {
			in := r.record()
			s := &a.Shares[i]
			s.Index = in.varint()
			s.Worker = in.string()
			s.OK = in.byte()&1 != 0
			s.Result = in.bytes()
			s.Error = in.string()
			r.leave(&in)
		}
	}
	if err := r.end("answer"); err != nil {
		return nil, err
	}
	return a, nil
}
