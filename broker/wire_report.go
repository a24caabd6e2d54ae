package broker

import "time"

// Which optional parts of a report follow.
const (
	reportResult = 1 << iota
	reportResultSeq
	reportEmitted
	reportStage
	reportError
	reportLog
	reportContext
)

// EncodeReports is the batch as it travels. ErrTooLarge: more than MaxBatchReports
// reports, or MaxNumbers numbers in one of them.
func EncodeReports(b *ReportBatch) ([]byte, error) { return appendReports(nil, b) }

func appendReports(dst []byte, b *ReportBatch) ([]byte, error) {
	w := startWriter(dst, wireReports)
	w.strings(b.App, b.Worker)
	w.uvarint(b.Incarnation)
	w.list("reports in a batch", len(b.Reports), MaxBatchReports)
	for i := range b.Reports {
		at := w.open()
		w.report(&b.Reports[i])
		w.close(at)
	}
	return w.done()
}

func (w *writer) report(p *Report) {
	var has uint64
	if p.Result != nil {
		has |= reportResult
	}
	if p.ResultSeq != 0 {
		has |= reportResultSeq
	}
	if p.Emitted != 0 || p.EmittedHash != 0 {
		has |= reportEmitted
	}
	if p.StageSeq != 0 || p.StageFirst != 0 || p.Token != 0 {
		has |= reportStage
	}
	if p.Error != (TaskError{}) {
		has |= reportError
	}
	if p.LogFrom != 0 || p.LogTo != 0 {
		has |= reportLog
	}
	if p.Context != nil {
		has |= reportContext
	}
	w.uvarint(has)
	w.key(&p.ChunkKey)
	w.byte(byte(p.Kind))
	w.byte(byte(p.Phase))
	w.numberList(p.Numbers)
	w.varint(int64(p.TaskAttempt))
	w.varint(int64(p.Duration))
	if has&reportResult != 0 {
		w.bytes(p.Result)
	}
	if has&reportResultSeq != 0 {
		w.uvarint(p.ResultSeq)
	}
	if has&reportEmitted != 0 {
		w.varint(p.Emitted)
		w.uvarint(p.EmittedHash)
	}
	if has&reportStage != 0 {
		w.uvarint(p.StageSeq)
		w.uvarint(p.StageFirst)
		w.uvarint(p.Token)
	}
	if has&reportError != 0 {
		w.byte(byte(p.Error.Kind))
		w.string(p.Error.Message)
		w.string(p.Error.Stack)
		w.varint(int64(p.Error.RetryAfter))
	}
	if has&reportLog != 0 {
		w.uvarint(p.LogFrom)
		w.uvarint(p.LogTo)
	}
	if has&reportContext != 0 {
		w.bytes(p.Context)
	}
}

// DecodeReports reads a batch. Results alias b. Errors: ErrUndecodable.
func DecodeReports(b []byte) (*ReportBatch, error) {
	r, err := startReader(b, wireReports)
	if err != nil {
		return nil, err
	}
	out := &ReportBatch{}
	r.strings(&out.App, &out.Worker)
	out.Incarnation = r.uvarint()
	// The smallest report is 11 bytes with its length.
	n := r.list(MaxBatchReports, 11)
	if n > 0 {
		out.Reports = make([]Report, n)
	}
	for i := range out.Reports {
		in := r.record()
		in.report(&out.Reports[i])
		r.leave(&in)
		if r.bad {
			break
		}
	}
	if err := r.end("report batch"); err != nil {
		return nil, err
	}
	return out, nil
}

func (r *reader) report(p *Report) {
	has := r.uvarint()
	r.key(&p.ChunkKey)
	p.Kind = ReportKind(r.byte())
	p.Phase = Phase(r.byte())
	p.Numbers = r.numberList()
	p.TaskAttempt = r.int32()
	p.Duration = time.Duration(r.varint())
	if has&reportResult != 0 {
		p.Result = r.bytes()
	}
	if has&reportResultSeq != 0 {
		p.ResultSeq = r.uvarint()
	}
	if has&reportEmitted != 0 {
		p.Emitted = r.varint()
		p.EmittedHash = r.uvarint()
	}
	if has&reportStage != 0 {
		p.StageSeq = r.uvarint()
		p.StageFirst = r.uvarint()
		p.Token = r.uvarint()
	}
	if has&reportError != 0 {
		p.Error.Kind = ErrorKind(r.byte())
		p.Error.Message = r.string()
		p.Error.Stack = r.string()
		p.Error.RetryAfter = time.Duration(r.varint())
	}
	if has&reportLog != 0 {
		p.LogFrom = r.uvarint()
		p.LogTo = r.uvarint()
	}
	if has&reportContext != 0 {
		p.Context = r.bytes()
	}
}
