package broker

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Delivery is one chunk as delivered from a lane. Its methods are safe for concurrent use.
type Delivery struct {
	Chunk     *Chunk
	Lane      string
	Delivered int           // 1 at first
	Age       time.Duration // since it was stored, by the broker's clock at delivery; never negative

	l     *link
	reply string
}

// Ack ends the chunk. Like Nak and InProgress it does not wait for the broker, and returns
// ErrUnavailable when the connection is down: the delivery then comes again after AckWait.
func (d *Delivery) Ack() error { return d.l.publish("ack chunk", d.reply, ackBody) }

// Nak gives the chunk back, to be delivered again not before after has passed.
func (d *Delivery) Nak(after time.Duration) error {
	if after <= 0 {
		return d.l.publish("nak chunk", d.reply, nakBody)
	}
	body := append([]byte(`-NAK {"delay": `), strconv.FormatInt(int64(after), 10)...)
	return d.l.publish("nak chunk", d.reply, append(body, '}'))
}

// InProgress gives the delivery a fresh AckWait.
func (d *Delivery) InProgress() error {
	return d.l.publish("keep chunk in progress", d.reply, progressBody)
}

var (
	ackBody      = []byte("+ACK")
	nakBody      = []byte("-NAK")
	progressBody = []byte("+WPI")
	termBody     = []byte("+TERM undecodable")
)

// ackMeta is what the ack subject of a delivery says.
type ackMeta struct {
	delivered int
	stream    uint64 // sequence in the stream
	consumer  uint64 // sequence of the delivery
	stored    int64  // ns since 1970, the broker's clock
	pending   uint64
}

// readAckSubject reads both forms:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ns>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ns>.<pending>[.<more>]
func readAckSubject(reply string) (ackMeta, bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return ackMeta{}, false
	}
	skip := 2
	if strings.Count(rest, ".") >= 8 {
		skip = 4
	}
	for range skip {
		if _, rest, ok = strings.Cut(rest, "."); !ok {
			return ackMeta{}, false
		}
	}
	var n [5]uint64
	for i := range n {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		v, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			return ackMeta{}, false
		}
		n[i] = v
	}
	return ackMeta{delivered: int(n[0]), stream: n[1], consumer: n[2], stored: int64(n[3]), pending: n[4]}, true
}

// newDelivery reads a message of a durable.
func newDelivery(l *link, lane string, m *nats.Msg) (*Delivery, error) {
	c, err := DecodeChunk(m.Data)
	if err != nil {
		return nil, err
	}
	d := &Delivery{Chunk: c, Lane: lane, Delivered: 1, l: l, reply: m.Reply}
	if meta, ok := readAckSubject(m.Reply); ok {
		d.Delivered = meta.delivered
		d.Age = max(0, time.Duration(time.Now().UnixNano()+l.skew.Load()-meta.stored))
	}
	return d, nil
}
