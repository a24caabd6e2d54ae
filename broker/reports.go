package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// ReportHandler gets one message of the reports stream. batch is nil and err set
// (ErrUndecodable) when it cannot be decoded; raw is the message. Both are the handler's.
type ReportHandler func(shard uint8, seq uint64, batch *ReportBatch, raw []byte, err error)

const (
	reportBeat  = time.Second // of the broker, while there is nothing to read
	reportQuiet = 3 * time.Second
	createWait  = 2 * time.Second
	retryFirst  = 20 * time.Millisecond
	retryLast   = time.Second
)

// Reports reads the reports of the given shards, each from after its cursor, in stream
// order, from one goroutine, until ctx ends or stop is called. It survives reconnects, and
// a stream that is not there yet, without loss; a message at or below its shard's cursor is
// not handed out. When the stream itself lost messages (ReportsEnd is below a cursor), what
// is stored at or below the cursor anew is not seen: stop, reset the cursor, begin again.
//
// stop returns when the handler has returned for the last time; the handler must not call it.
func (b *Broker) Reports(ctx context.Context, cursors map[uint8]uint64, h ReportHandler) (stop func(), err error) {
	r := &reportReader{l: b.in, h: h}
	low := ^uint64(0)
	for shard, cursor := range cursors {
		if shard >= Shards {
			return nil, fmt.Errorf("read reports: shard %d of %d", shard, Shards)
		}
		r.cursor[shard], r.mine[shard] = cursor, true
		r.filters = append(r.filters, reportFilter(shard))
		low = min(low, cursor)
	}
	if len(cursors) == 0 {
		return func() {}, nil
	}
	slices.Sort(r.filters)
	if len(r.filters) == Shards {
		r.filters = []string{allReports}
	}
	r.next = low + 1
	ctx, cancel := context.WithCancel(ctx)
	var gone sync.WaitGroup
	forget := b.in.watch(r.interrupt, r.interrupt)
	gone.Go(func() {
		defer forget()
		r.loop(ctx)
	})
	return func() { cancel(); gone.Wait() }, nil
}

// reportReader is an ordered reader: a consumer without acks that is thrown away and made
// anew after the last message read, whenever one was missed or the broker is silent.
type reportReader struct {
	l       *link
	h       ReportHandler
	filters []string
	cursor  [Shards]uint64
	mine    [Shards]bool
	next    uint64 // sequence to read on from

	mu  sync.Mutex
	cut context.CancelFunc // ends the session that runs
}

// interrupt ends the session that runs, if its connection is not the present one.
func (r *reportReader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut != nil {
		r.cut()
	}
}

var errReadOn = errors.New("read on with a new consumer")

func (r *reportReader) loop(ctx context.Context) {
	wait := retryFirst
	said := false
	for ctx.Err() == nil {
		session, cancel := context.WithCancel(ctx)
		r.mu.Lock()
		r.cut = cancel
		r.mu.Unlock()
		before := r.next
		err := r.session(session)
		cancel()
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		if r.next > before {
			wait, said = retryFirst, false
		}
		if !said && !errors.Is(err, context.Canceled) {
			said = true
			r.l.log.Warn("reading the reports starts again", "from", r.next, "error", err)
		}
		if pause(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, retryLast)
	}
}

// session reads with one consumer until it is of no use any more.
func (r *reportReader) session(ctx context.Context) error {
	inbox := r.l.nc.NewInbox()
	sub, err := r.l.nc.SubscribeSync(inbox)
	if err != nil {
		return border("read reports", err)
	}
	defer unsubscribe(sub)
	// The broker's flow control bounds what waits here.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return border("read reports", err)
	}
	name := "owner-" + nuid.Next()
	config := map[string]any{
		"name": name, "deliver_subject": inbox, "ack_policy": "none", "max_deliver": 1,
		"deliver_policy": "by_start_sequence", "opt_start_seq": r.next, "replay_policy": "instant",
		"flow_control": true, "idle_heartbeat": reportBeat.Nanoseconds(),
		"mem_storage": true, "num_replicas": 1, "inactive_threshold": (10 * time.Second).Nanoseconds(),
	}
	if len(r.filters) == 1 {
		config["filter_subject"] = r.filters[0]
	} else {
		config["filter_subjects"] = r.filters
	}
	create := map[string]any{"stream_name": reportStream, "config": config, "action": ""}
	// While a cluster elects its leader nobody may answer at all.
	try, cancel := context.WithTimeout(ctx, createWait)
	err = r.l.api(try, "read reports", "CONSUMER.CREATE."+reportStream+"."+name, create, nil)
	cancel()
	if err != nil {
		return err
	}
	defer r.drop(name)
	var consumed uint64
	for {
		m, err := r.wait(ctx, sub)
		if err != nil {
			return err
		}
		if status := m.Header.Get("Status"); status != "" {
			if err := r.status(status, m, consumed); err != nil {
				return err
			}
			continue
		}
		meta, ok := readAckSubject(m.Reply)
		if !ok {
			return fmt.Errorf("read reports: a message without its sequence: %w", errReadOn)
		}
		if meta.consumer != consumed+1 {
			return fmt.Errorf("read reports: delivery %d follows %d: %w", meta.consumer, consumed, errReadOn)
		}
		consumed = meta.consumer
		r.next = meta.stream + 1
		r.hand(m, meta.stream)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (r *reportReader) hand(m *nats.Msg, seq uint64) {
	shard, ok := shardOf(m.Subject)
	if !ok || !r.mine[shard] || seq <= r.cursor[shard] {
		return
	}
	batch, err := DecodeReports(m.Data)
	if err == nil && m.Subject != reportSubject(batch.App, shard) {
		// The subject is what the broker's permissions bind a worker to.
		batch, err = nil, fmt.Errorf("reports of app %q on %s: %w", batch.App, m.Subject, ErrUndecodable)
	}
	r.h(shard, seq, batch, m.Data, err)
}

// wait waits for the next message, as long as a live consumer may be silent.
func (r *reportReader) wait(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	m, err := sub.NextMsg(time.Nanosecond)
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, nats.ErrTimeout) {
		return nil, border("read reports", err)
	}
	quiet, cancel := context.WithTimeout(ctx, reportQuiet)
	defer cancel()
	m, err = sub.NextMsgWithContext(quiet)
	return m, border("read reports", err)
}

// status handles heartbeats and flow control.
func (r *reportReader) status(status string, m *nats.Msg, consumed uint64) error {
	if status != "100" {
		return fmt.Errorf("read reports: the broker answers %s %s: %w", status, m.Header.Get("Description"), errReadOn)
	}
	for _, answer := range []string{m.Reply, m.Header.Get("Nats-Consumer-Stalled")} {
		if answer != "" {
			return r.l.publish("read reports", answer, nil)
		}
	}
	if last := m.Header.Get("Nats-Last-Consumer"); last != "" {
		if n, err := strconv.ParseUint(last, 10, 64); err == nil && n > consumed {
			return fmt.Errorf("read reports: %d delivered, %d received: %w", n, consumed, errReadOn)
		}
	}
	return nil
}

// drop removes a consumer. If it cannot, the broker does after 10 s without a listener.
func (r *reportReader) drop(name string) {
	if r.l.connected() {
		_ = r.l.nc.Publish("$JS.API.CONSUMER.DELETE."+reportStream+"."+name, nil)
	}
}

// LastReport is the sequence of the newest report of the shard, 0 if there is none.
func (b *Broker) LastReport(ctx context.Context, shard uint8) (uint64, error) {
	q := getRequest{LastFor: reportFilter(shard)}
	if b.l.replicated {
		// Only the leader knows for sure.
		last, err := b.l.leaderHas(ctx, reportStream, q)
		return last.seq, err
	}
	s, err := b.l.getOne(ctx, reportStream, q)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return s.seq, err
}

// ReportsEnd is the last sequence the reports stream ever gave. ErrNotFound when there is
// no such stream.
func (b *Broker) ReportsEnd(ctx context.Context) (uint64, error) {
	s, err := b.l.state(ctx, reportStream, "")
	return s.LastSeq, err
}

// PurgeReports removes the reports of the shard up to and including seq.
func (b *Broker) PurgeReports(ctx context.Context, shard uint8, seq uint64) error {
	if seq == 0 {
		return nil
	}
	err := b.l.api(ctx, fmt.Sprintf("purge the reports of shard %d", shard), "STREAM.PURGE."+reportStream,
		purgeRequest{Filter: reportFilter(shard), Seq: seq + 1}, nil)
	if noSuch(err) {
		return nil
	}
	return err
}
