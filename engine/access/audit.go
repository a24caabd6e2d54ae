package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/fanjet/fanjet/engine"
)

// auditVersion begins the encoding of a record.
const auditVersion = 1

// Chain makes the audit record r follow the last one. Number, the hash before and the hash
// are filled in; what is over its bound is cut first, so that a change is never lost for the
// length of its description. Before and After are to be masked already, see Masker.
func Chain(r engine.AuditRecord) engine.AuditFunc {
	r.ActorName = engine.CutText(r.ActorName, engine.MaxUserName)
	r.Action = engine.CutText(r.Action, engine.MaxName)
	r.Target = engine.CutText(r.Target, engine.MaxKey)
	r.From = engine.CutText(r.From, engine.MaxAgent)
	r.Request = engine.CutText(r.Request, engine.MaxKey)
	r.Before, r.After = cutBody(r.Before), cutBody(r.After)
	return func(prev engine.AuditRecord) engine.AuditRecord {
		next := r
		next.Seq, next.Prev = prev.Seq+1, prev.Hash
		next.Hash = AuditHash(&next)
		return next
	}
}

// cutBody stands a description of what is too long in its place, with its hash, so that
// whoever kept it can prove it.
func cutBody(b []byte) []byte {
	switch {
	case len(b) == 0:
		return nil
	case len(b) <= engine.MaxAuditBody:
		return bytes.Clone(b)
	}
	sum := sha256.Sum256(b)
	out, err := json.Marshal(map[string]any{"cut": len(b), "sha256": hex.EncodeToString(sum[:])})
	if err != nil { // a number and a text always encode
		return nil
	}
	return out
}

// AuditHash is SHA-256 over the canonical encoding of a record: a version byte, then every
// field but Hash in the order of the struct, numbers as 8 bytes, big-endian, texts behind
// their length. Prev is one of the fields, so each hash holds all before it.
func AuditHash(r *engine.AuditRecord) [32]byte {
	b := []byte{auditVersion}
	number := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	text := func(s string) { number(int64(len(s))); b = append(b, s...) }
	number(r.Seq)
	number(r.At)
	text(string(r.ActorKind))
	number(r.Actor)
	number(r.Credential)
	text(r.ActorName)
	text(r.Action)
	number(r.App)
	text(r.Target)
	text(string(r.Outcome))
	text(r.From)
	text(r.Request)
	text(string(r.Before))
	text(string(r.After))
	b = append(b, r.Prev[:]...)
	return sha256.Sum256(b)
}

// BrokenError says where the audit log is not what it was.
type BrokenError struct {
	Seq  int64 // the first record that cannot be trusted
	What string
}

// Error names the record.
func (e *BrokenError) Error() string { return fmt.Sprintf("audit record %d: %s", e.Seq, e.What) }

// AuditPin is the hash of a record, known from elsewhere: from a log, a backup, a print.
// Without one, who can write to the database can shorten the log, or write all of it anew;
// with one, not up to there.
type AuditPin struct {
	Seq  int64
	Hash [32]byte
}

// VerifyAudit reads the log in its order, from the record after start (the zero record for
// the beginning), and returns its last record. The error is a *BrokenError at the first
// record that is missing, changed, or does not follow the one before; or the iterator's. Every
// pin after start must be met. It keeps one record at a time.
func VerifyAudit(records iter.Seq2[engine.AuditRecord, error], start engine.AuditRecord, pins ...AuditPin) (engine.AuditRecord, error) {
	last := start
	for r, err := range records {
		if err != nil {
			return last, fmt.Errorf("read the audit log after record %d: %w", last.Seq, err)
		}
		switch {
		case r.Seq <= last.Seq:
			return last, &BrokenError{Seq: last.Seq + 1, What: fmt.Sprintf("record %d stands in its place", r.Seq)}
		case r.Seq > last.Seq+1:
			return last, &BrokenError{Seq: last.Seq + 1, What: fmt.Sprintf("missing, the next is record %d", r.Seq)}
		case r.Prev != last.Hash:
			return last, &BrokenError{Seq: r.Seq, What: "it does not follow the record before: one of the two was exchanged"}
		case AuditHash(&r) != r.Hash:
			return last, &BrokenError{Seq: r.Seq, What: "it was changed: its content has another hash"}
		}
		for _, p := range pins {
			if p.Seq == r.Seq && p.Hash != r.Hash {
				return last, &BrokenError{Seq: r.Seq, What: "it is not the record that was known: the log was written anew at or before it"}
			}
		}
		last = r
	}
	for _, p := range pins {
		if p.Seq > last.Seq {
			return last, &BrokenError{Seq: last.Seq + 1, What: fmt.Sprintf("missing, and so are all up to record %d, which was known", p.Seq)}
		}
	}
	return last, nil
}
