package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// getRequest is a direct get: a batch of the messages of a subject from a sequence on.
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// stored is one message of a stream.
type stored struct {
	seq     uint64
	subject string
	data    []byte
}

const (
	getBatch = 1024    // messages of one request
	getBytes = 4 << 20 // bytes of one request; it ends with the message that goes over
	getIdle  = 5 * time.Second
	// lagPause is how long a replica that lags behind is given before it is asked again.
	lagPause = 10 * time.Millisecond
)

// getSome makes one batched direct get and hands out what comes, in order. It returns how
// many messages of the subject are behind the last one, which is 0 at the end.
func (l *link) getSome(ctx context.Context, stream string, q getRequest, each func(stored) error) (left uint64, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", stream, err)
	}
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, border("read "+stream, err)
	}
	defer unsubscribe(sub)
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return 0, border("read "+stream, err)
	}
	if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return 0, border("read "+stream, err)
	}
	for {
		m, err := nextOf(ctx, sub)
		if err != nil {
			return 0, border("read "+stream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204":
			left, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: the broker's end of batch names no count: %w", stream, err)
			}
			return left, nil
		case "404":
			return 0, nil
		case "503":
			return 0, fmt.Errorf("read %s: no such stream now: %w", stream, ErrUnavailable)
		default:
			return 0, fmt.Errorf("read %s: the broker answers %s %s: %w", stream, status, m.Header.Get("Description"), ErrUnavailable)
		}
		s := stored{subject: m.Header.Get("Nats-Subject"), data: m.Data}
		if s.seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
			return 0, fmt.Errorf("read %s: a message names no sequence: %w", stream, err)
		}
		if err := each(s); err != nil {
			return 0, err
		}
	}
}

// nextOf waits for the next message, not for ever: a lost connection says nothing.
func nextOf(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	m, err := sub.NextMsg(time.Nanosecond)
	if err == nil || !errors.Is(err, nats.ErrTimeout) {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, getIdle)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// getAll hands out the messages of the filter from a sequence on, at most most (0: all).
// Whatever was stored before the call is among them: any replica may answer a read, and one
// that lags behind shows fewer, in order, so that the end is believed of the leader only.
func (l *link) getAll(ctx context.Context, stream, filter string, from uint64, most int, each func(stored) error) error {
	got := 0
	from = max(from, 1)
	for {
		batch := getBatch
		if most > 0 {
			batch = min(batch, most-got)
		}
		any := false
		left, err := l.getSome(ctx, stream, getRequest{Seq: from, NextFor: filter, Batch: batch, MaxBytes: getBytes}, func(s stored) error {
			any = true
			got++
			from = s.seq + 1
			return each(s)
		})
		if err != nil || got == most && most > 0 {
			return err
		}
		if left > 0 && any {
			continue
		}
		if !l.replicated {
			return nil // the leader itself has answered
		}
		last, err := l.leaderHas(ctx, stream, getRequest{LastFor: filter})
		if err != nil || last.seq < from {
			return err
		}
		if err := pause(ctx, lagPause); err != nil {
			return fmt.Errorf("read %s: message %d of %s is not on the replica that answers: %w", stream, last.seq, filter, ErrUnavailable)
		}
	}
}

// leaderHas asks the leader for one message; the zero stored if there is none.
func (l *link) leaderHas(ctx context.Context, stream string, q getRequest) (stored, error) {
	var out struct {
		Message struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	err := l.api(ctx, "read "+stream, "STREAM.MSG.GET."+stream, q, &out)
	if err != nil && !isNoMessage(err) {
		return stored{}, err
	}
	return stored{seq: out.Message.Seq, subject: out.Message.Subject, data: out.Message.Data}, nil
}

// isNoMessage tells a message that is not there from a stream that is not.
func isNoMessage(err error) bool {
	var said *apiError
	return errors.As(err, &said) && said.ErrCode == codeNoMessage
}

// getOne reads the message with that sequence; ErrNotFound if it is gone.
func (l *link) getOne(ctx context.Context, stream string, q getRequest) (stored, error) {
	op := fmt.Sprintf("read message %d of %s", q.Seq, stream)
	body, err := json.Marshal(q)
	if err != nil {
		return stored{}, fmt.Errorf("%s: %w", op, err)
	}
	m, err := l.request(ctx, op, "$JS.API.DIRECT.GET."+stream, body)
	if errors.Is(err, ErrNoResponders) {
		return stored{}, fmt.Errorf("%s: no such stream now: %w", op, ErrUnavailable)
	}
	if err != nil {
		return stored{}, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		if l.replicated {
			// A replica may lag behind.
			if has, err := l.leaderHas(ctx, stream, q); err != nil || has.seq > 0 {
				return has, err
			}
		}
		return stored{}, fmt.Errorf("%s: %w", op, ErrNotFound)
	default:
		return stored{}, fmt.Errorf("%s: the broker answers %s %s: %w", op, status, m.Header.Get("Description"), ErrUnavailable)
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("%s: it names no sequence: %w", op, err)
	}
	return stored{seq: seq, subject: m.Header.Get("Nats-Subject"), data: m.Data}, nil
}

// streamState is what a stream's leader says of it.
type streamState struct {
	Messages uint64            `json:"messages"`
	Bytes    uint64            `json:"bytes"`
	FirstSeq uint64            `json:"first_seq"`
	LastSeq  uint64            `json:"last_seq"`
	Subjects map[string]uint64 `json:"subjects"`
}

// state asks the leader; with a filter, also how many messages each subject has.
func (l *link) state(ctx context.Context, stream, filter string) (streamState, error) {
	var all streamState
	for offset := 0; ; {
		q := struct {
			Filter string `json:"subjects_filter,omitempty"`
			Offset int    `json:"offset,omitempty"`
		}{filter, offset}
		var in struct {
			State streamState `json:"state"`
			Total int         `json:"total"`
		}
		if err := l.api(ctx, "look at stream "+stream, "STREAM.INFO."+stream, q, &in); err != nil {
			return streamState{}, err
		}
		page := in.State.Subjects
		if offset == 0 {
			all = in.State
		} else {
			for s, n := range page {
				all.Subjects[s] = n
			}
		}
		offset += len(page)
		if len(page) == 0 || offset >= in.Total {
			return all, nil
		}
	}
}

// count is how many messages match the filter.
func (l *link) count(ctx context.Context, stream, filter string) (uint64, error) {
	s, err := l.state(ctx, stream, filter)
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, c := range s.Subjects {
		n += c
	}
	return n, nil
}

// readResults calls each for the result messages of filter whose sequence is in ranges. It
// holds one batch at a time.
func (l *link) readResults(ctx context.Context, stream, filter string, ranges []Range, each func(*ResultBatch) error) error {
	if len(ranges) == 0 {
		return nil
	}
	// missing asks the leader, which alone knows: nil if it has the message, and the replica
	// that was read does not yet.
	missing := func(seq uint64) error {
		has, err := l.leaderHas(ctx, stream, getRequest{Seq: seq})
		if err != nil || has.subject == filter {
			return err
		}
		return fmt.Errorf("result message %d of %s: %w", seq, filter, ErrNotFound)
	}
	at := 0                 // the range that is being read
	want := ranges[0].First // the next sequence that must come
	for at < len(ranges) {
		before := want
		_, err := l.getSome(ctx, stream, getRequest{Seq: want, NextFor: filter, Batch: getBatch, MaxBytes: getBytes}, func(s stored) error {
			switch {
			case at == len(ranges):
				return errEnough
			case s.seq < want:
				return nil // of the run, but not accepted
			case s.seq > want:
				return errGap
			}
			b, err := DecodeResult(s.data)
			if err != nil {
				return fmt.Errorf("result message %d of %s: %w", s.seq, filter, err)
			}
			if err := each(b); err != nil {
				return err
			}
			if want < ranges[at].Last {
				want++
			} else if at++; at < len(ranges) {
				want = ranges[at].First
			} else {
				want++
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, errGap) {
			return err
		}
		if want != before {
			continue
		}
		if err := missing(want); err != nil {
			return err
		}
		if err := pause(ctx, lagPause); err != nil {
			return border("read results of "+filter, err)
		}
	}
	return nil
}

var (
	errEnough = errors.New("enough")         // ends a read early
	errGap    = errors.New("not as it must") // so does a message that should have come before
)
