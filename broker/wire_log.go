package broker

// EncodeLog is the batch as it travels. ErrTooLarge: more than 65536 lines.
func EncodeLog(l *LogBatch) ([]byte, error) { return appendLog(nil, l) }

func appendLog(dst []byte, l *LogBatch) ([]byte, error) {
	w := startWriter(dst, wireLog)
	w.varint(l.Instance)
	w.varint(int64(l.Attempt))
	w.varint(l.Number)
	w.string(l.Worker)
	w.list("log lines", len(l.Lines), maxRecords)
	var last int64
	for i := range l.Lines {
		at := w.open()
		w.varint(l.Lines[i].At - last)
		w.byte(byte(l.Lines[i].Level))
		w.string(l.Lines[i].Text)
		w.close(at)
		last = l.Lines[i].At
	}
	return w.done()
}

// DecodeLog reads a batch. It keeps nothing of b. Errors: ErrUndecodable.
func DecodeLog(b []byte) (*LogBatch, error) {
	r, err := startReader(b, wireLog)
	if err != nil {
		return nil, err
	}
	l := &LogBatch{}
	l.Instance = r.varint()
	l.Attempt = r.int32()
	l.Number = r.varint()
	l.Worker = r.string()
	if n := r.list(maxRecords, 4); n > 0 {
		l.Lines = make([]LogLine, n)
		var last int64
		for i := range l.Lines {
			in := r.record()
			last += in.varint()
			l.Lines[i] = LogLine{At: last, Level: int8(in.byte()), Text: in.string()}
			r.leave(&in)
		}
	}
	if err := r.end("log batch"); err != nil {
		return nil, err
	}
	return l, nil
}

// decodeLogInstance reads no more than whose log it is.
func decodeLogInstance(b []byte) (int64, error) {
	r, err := startReader(b, wireLog)
	if err != nil {
		return 0, err
	}
	id := r.varint()
	return id, r.end("log batch")
}
