package broker

// EncodeStage is the batch as it travels. ErrTooLarge: more than MaxStageItems items.
func EncodeStage(b *StageBatch) ([]byte, error) { return appendStage(nil, b) }

func appendStage(dst []byte, b *StageBatch) ([]byte, error) {
	w := startWriter(dst, wireStage)
	w.varint(b.Instance)
	w.varint(int64(b.Run))
	w.varint(b.Mapper)
	w.uvarint(b.Token)
	w.varint(b.First)
	w.uvarint(b.Hash)
	w.string(b.Name)
	w.list("items in a stage batch", len(b.Items), MaxStageItems)
	for _, item := range b.Items {
		w.bytes(item)
	}
	return w.done()
}

// DecodeStage reads a batch. Items alias b. Errors: ErrUndecodable.
func DecodeStage(b []byte) (*StageBatch, error) {
	out := &StageBatch{}
	if err := decodeStage(b, out); err != nil {
		return nil, err
	}
	return out, nil
}

func decodeStage(b []byte, out *StageBatch) error {
	r, err := startReader(b, wireStage)
	if err != nil {
		return err
	}
	out.Instance = r.varint()
	out.Run = r.int32()
	out.Mapper = r.varint()
	out.Token = r.uvarint()
	out.First = r.varint()
	out.Hash = r.uvarint()
	out.Name = r.string()
	if n := r.list(MaxStageItems, 1); n > 0 {
		out.Items = make([][]byte, n)
		for i := range out.Items {
			out.Items[i] = r.bytes()
		}
	}
	return r.end("stage batch")
}

// EncodeResult is the batch as it travels. ErrTooLarge: more than MaxNumbers numbers or values.
func EncodeResult(b *ResultBatch) ([]byte, error) { return appendResult(nil, b) }

func appendResult(dst []byte, b *ResultBatch) ([]byte, error) {
	w := startWriter(dst, wireResults)
	w.varint(b.Instance)
	w.varint(int64(b.Run))
	var flags byte
	if b.Folded {
		flags = 1
	}
	w.byte(flags)
	w.numberList(b.Numbers)
	w.list("values in a result batch", len(b.Values), MaxNumbers)
	for _, v := range b.Values {
		w.bytes(v)
	}
	return w.done()
}

// DecodeResult reads a batch. Values alias b. Errors: ErrUndecodable.
func DecodeResult(b []byte) (*ResultBatch, error) {
	r, err := startReader(b, wireResults)
	if err != nil {
		return nil, err
	}
	out := &ResultBatch{}
	out.Instance = r.varint()
	out.Run = r.int32()
	out.Folded = r.byte()&1 != 0
	out.Numbers = r.numberList()
	if n := r.list(MaxNumbers, 1); n > 0 {
		out.Values = make([][]byte, n)
		for i := range out.Values {
			out.Values[i] = r.bytes()
		}
	}
	if err := r.end("result batch"); err != nil {
		return nil, err
	}
	return out, nil
}
