package track_test

import (
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/broker"
)

// fakeBroker keeps the streams as JetStream does: what was acked to a publisher is there,
// unless a restart loses the last messages that had not reached the disk.
type fakeBroker struct {
	w       *world
	up      bool
	tasks   []*taskMsg // work queue, in order
	taskSeq int64
	stage   map[int64][]broker.Staged // by instance; sequences are of the whole stream
	staged  uint64
	results map[uint64]*broker.ResultBatch
	result  uint64
	reports map[uint8][]reportMsg
	report  uint64
	most    int // task messages at once
}

type taskMsg struct {
	seq       int64
	lane      string
	chunk     *broker.Chunk
	delivered int
	storedAt  int64
	holder    int64 // delivery that is out; 0: none
	until     int64 // when it may be delivered again
}

type reportMsg struct {
	seq   uint64
	at    int64
	batch *broker.ReportBatch
}

func newFakeBroker(w *world) *fakeBroker {
	return &fakeBroker{
		w: w, up: true, stage: map[int64][]broker.Staged{}, results: map[uint64]*broker.ResultBatch{},
		reports: map[uint8][]reportMsg{},
	}
}

func (b *fakeBroker) publish(lane string, c *broker.Chunk) error {
	if !b.up {
		return broker.ErrUnavailable
	}
	raw, err := broker.EncodeChunk(c)
	if err != nil {
		return err
	}
	if c, err = broker.DecodeChunk(raw); err != nil {
		return err
	}
	b.taskSeq++
	b.tasks = append(b.tasks, &taskMsg{seq: b.taskSeq, lane: lane, chunk: c, storedAt: b.w.now})
	b.most = max(b.most, len(b.tasks))
	return nil
}

// pull gives the first message that is free.
func (b *fakeBroker) pull() (*taskMsg, int64) {
	if !b.up {
		return nil, 0
	}
	for _, m := range b.tasks {
		if m.until <= b.w.now {
			m.delivered++
			b.w.seq++
			m.holder, m.until = b.w.seq, b.w.now+ackWait
			return m, m.holder
		}
	}
	return nil, 0
}

// ack is accepted from whoever had the message once, as JetStream does.
func (b *fakeBroker) ack(m *taskMsg) {
	if b.up && !(b.w.faults.dropCore && !b.w.calm && b.w.chance(0.1)) { // acks may be lost
		b.tasks = slices.DeleteFunc(b.tasks, func(x *taskMsg) bool { return x == m })
	}
}

func (b *fakeBroker) nak(m *taskMsg, after int64) {
	if b.up {
		m.until = b.w.now + after
	}
}

func (b *fakeBroker) inProgress(m *taskMsg) {
	if b.up {
		m.until = b.w.now + ackWait
	}
}

func (b *fakeBroker) addStage(s *broker.StageBatch) (uint64, error) {
	if !b.up {
		return 0, broker.ErrUnavailable
	}
	b.staged++
	b.stage[s.Instance] = append(b.stage[s.Instance], broker.Staged{Seq: b.staged, StageBatch: *s})
	return b.staged, nil
}

func (b *fakeBroker) addResult(r *broker.ResultBatch) (uint64, error) {
	if !b.up {
		return 0, broker.ErrUnavailable
	}
	b.result++
	b.results[b.result] = r
	return b.result, nil
}

func (b *fakeBroker) addReports(shard uint8, r *broker.ReportBatch) error {
	if !b.up {
		return broker.ErrUnavailable
	}
	raw, err := broker.EncodeReports(r)
	if err != nil {
		return err
	}
	if r, err = broker.DecodeReports(raw); err != nil {
		return err
	}
	b.report++
	b.reports[shard] = append(b.reports[shard], reportMsg{b.report, b.w.now, r})
	for _, s := range b.w.servers {
		s.pump(shard)
	}
	return nil
}

func (b *fakeBroker) lastReport(shard uint8) uint64 {
	if l := b.reports[shard]; len(l) > 0 {
		return l[len(l)-1].seq
	}
	return 0
}

func (b *fakeBroker) readStage(instance int64, run int32, from uint64, most int) ([]broker.Staged, error) {
	if !b.up {
		return nil, broker.ErrUnavailable
	}
	var out []broker.Staged
	for _, s := range b.stage[instance] {
		if s.Run == run && s.Seq >= from && len(out) < most {
			out = append(out, s)
		}
	}
	return out, nil
}

func (b *fakeBroker) purge(instance int64, tasks bool, run int32) {
	if tasks {
		b.tasks = slices.DeleteFunc(b.tasks, func(x *taskMsg) bool { return x.chunk.Instance == instance })
	}
	if run != 0 {
		delete(b.stage, instance)
		for seq, r := range b.results {
			if r.Instance == instance {
				delete(b.results, seq)
			}
		}
	}
}

// restart takes the broker away for a while. Lossy: tasks and reports of the last moment
// had not reached the disk, and their sequences are given again.
func (b *fakeBroker) restart(ms int64, lossy bool) {
	w := b.w
	w.note("broker down for %d ms, lossy %v", ms, lossy)
	b.up = false
	if lossy {
		since := w.now - w.between(0, 300)
		b.lose(func(x *taskMsg) bool { return x.storedAt > since })
		last := uint64(0)
		for _, shard := range sorted(b.reports) {
			l := b.reports[shard]
			for _, r := range l {
				if r.at > since {
					w.reportsLost(r.batch)
				}
			}
			l = slices.DeleteFunc(l, func(r reportMsg) bool { return r.at > since })
			b.reports[shard] = l
			if len(l) > 0 {
				last = max(last, l[len(l)-1].seq)
			}
		}
		b.report = last
	}
	w.after(ms, func() {
		w.note("broker up")
		b.up = true
		for _, s := range w.servers {
			s.brokerUp()
		}
	})
}

// wipe loses every task message: the stream was made anew.
func (b *fakeBroker) wipe() {
	b.w.note("the lanes are wiped, %d messages", len(b.tasks))
	b.lose(func(*taskMsg) bool { return true })
}

// lose loses task messages. Who holds one and was not heard yet may not be known to hold it.
func (b *fakeBroker) lose(which func(*taskMsg) bool) {
	for _, x := range b.w.workers {
		for _, r := range x.held {
			if r.msg != nil && which(r.msg) {
				b.w.excuse(r, "its message was lost while it ran")
			}
		}
	}
	b.tasks = slices.DeleteFunc(b.tasks, which)
}

func keyOf(c broker.ChunkKey) string {
	return fmt.Sprintf("%d/%d/%d/%x", c.Instance, c.Attempt, c.Run, c.Chunk)
}
