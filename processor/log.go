package processor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	maxLine      = 8 << 10
	maxLogBatch  = 256 << 10
	maxLogQueue  = 8 << 20
	logPatience  = 50 * time.Millisecond // how long one line may hold up its processor
	lastPatience = time.Second           // how long a report waits for the lines before it
)

// lineHandler makes each record of a task's log one line of text.
type lineHandler struct {
	sink   func(level slog.Level, at time.Time, text string)
	shared *lineBuffer
	attrs  slog.Handler // writes attributes, and only them, to shared
}

type lineBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func newLineHandler(sink func(slog.Level, time.Time, string)) *lineHandler {
	b := &lineBuffer{}
	return &lineHandler{sink, b, slog.NewTextHandler(&b.Buffer, &slog.HandlerOptions{
		Level: slog.Level(-128),
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})}
}

func (h *lineHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lineHandler{h.sink, h.shared, h.attrs.WithAttrs(attrs)}
}

func (h *lineHandler) WithGroup(name string) slog.Handler {
	return &lineHandler{h.sink, h.shared, h.attrs.WithGroup(name)}
}

func (h *lineHandler) Handle(ctx context.Context, r slog.Record) error {
	h.shared.Lock()
	h.shared.Reset()
	err := h.attrs.Handle(ctx, r)
	extra := bytes.TrimRight(h.shared.Bytes(), "\n")
	text := r.Message
	if len(extra) > 0 {
		text += " " + string(extra)
	}
	if h.shared.Cap() > 64<<10 {
		h.shared.Buffer = bytes.Buffer{}
	}
	h.shared.Unlock()
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	h.sink(r.Level, at, cut(text, maxLine))
	return err
}

// taskLog is the log of one task on its way to the broker. Its fields belong to the logShipper.
type taskLog struct {
	instance int64
	attempt  int32
	number   int64
	lines    []broker.LogLine
	lost     int
	queued   bool
	from, to uint64
	waiting  []chan struct{} // closed when all lines so far are stored
}

// logShipper ships lines by back-pressure: one batch is under way, and all that come meanwhile
// wait for the next, up to maxLogQueue; what is more is dropped and counted.
type logShipper struct {
	ctx     context.Context
	publish func(ctx context.Context, b *broker.LogBatch) (uint64, error)
	worker  string
	lost    func(n int)

	mu     sync.Mutex
	freed  sync.Cond
	queue  []*taskLog // with lines, in the order of their first
	bytes  int
	full   bool // somebody waited for room in vain; nobody waits until there is some
	flying bool
}

func newLogShipper(ctx context.Context, worker string, publish func(context.Context, *broker.LogBatch) (uint64, error), lost func(int)) *logShipper {
	l := &logShipper{ctx: ctx, publish: publish, worker: worker, lost: lost}
	l.freed.L = &l.mu
	return l
}

// add takes a line; it waits for room at most logPatience.
func (l *logShipper) add(t *taskLog, level slog.Level, at time.Time, text string) {
	size := len(text) + 64
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+size > maxLogQueue && !l.full {
		l.waitForRoom(size)
	}
	if l.bytes+size > maxLogQueue {
		l.full = true
		t.lost++
		l.lost(1)
	} else {
		l.full = false
		l.markLost(t)
		t.lines = append(t.lines, broker.LogLine{At: at.UnixMilli(), Level: int8(max(-128, min(127, level))), Text: text})
		l.bytes += size
	}
	l.enqueue(t)
}

func (l *logShipper) enqueue(t *taskLog) {
	if !t.queued && len(t.lines) > 0 {
		t.queued = true
		l.queue = append(l.queue, t)
	}
	if !l.flying && len(l.queue) > 0 {
		l.flying = true
		go l.fly()
	}
}

func (l *logShipper) waitForRoom(size int) {
	late := false
	timer := time.AfterFunc(logPatience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.freed.Broadcast()
	})
	defer timer.Stop()
	for l.bytes+size > maxLogQueue && !late && l.ctx.Err() == nil {
		l.freed.Wait()
	}
}

func (l *logShipper) markLost(t *taskLog) {
	if t.lost > 0 {
		text := fmt.Sprintf("… %d lines dropped: the log could not be stored as fast as it came", t.lost)
		t.lines = append(t.lines, broker.LogLine{At: time.Now().UnixMilli(), Level: int8(slog.LevelWarn), Text: text})
		l.bytes += len(text) + 64
		t.lost = 0
	}
}

func (l *logShipper) fly() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.flying = false
			l.mu.Unlock()
			return
		}
		t := l.queue[0]
		size, n := 0, 0
		for n < len(t.lines) && (n == 0 || size+len(t.lines[n].Text)+64 <= maxLogBatch) {
			size += len(t.lines[n].Text) + 64
			n++
		}
		b := &broker.LogBatch{Instance: t.instance, Attempt: t.attempt, Number: t.number, Worker: l.worker, Lines: t.lines[:n:n]}
		t.lines = t.lines[n:]
		l.mu.Unlock()

		seq, ok := l.send(b)
		if !ok {
			return // the worker ended; flying stays set, so that nobody starts anew
		}
		l.mu.Lock()
		if seq > 0 {
			if t.from == 0 {
				t.from = seq
			}
			t.to = seq
		}
		l.bytes -= size
		if len(t.lines) == 0 {
			l.markLost(t)
		}
		l.queue[0], l.queue = nil, l.queue[1:]
		if len(t.lines) > 0 {
			l.queue = append(l.queue, t) // others first
		} else {
			t.queued = false
			for _, c := range t.waiting {
				close(c)
			}
			t.waiting = nil
		}
		l.freed.Broadcast()
		l.mu.Unlock()
	}
}

func (l *logShipper) send(b *broker.LogBatch) (seq uint64, ok bool) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		seq, err := l.publish(l.ctx, b)
		if err == nil {
			return seq, true
		}
		if l.ctx.Err() != nil {
			return 0, false
		}
		sleep(l.ctx, pause)
	}
}

// shipped waits, at most d, until what the task logged is stored, and gives the sequences of
// its first and last message.
func (l *logShipper) shipped(t *taskLog, d time.Duration) (from, to uint64) {
	l.mu.Lock()
	l.markLost(t)
	l.enqueue(t)
	if !t.queued {
		defer l.mu.Unlock()
		return t.from, t.to
	}
	c := make(chan struct{})
	t.waiting = append(t.waiting, c)
	l.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	case <-l.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.from, t.to
}

// drain waits until everything is shipped, or ctx ends.
func (l *logShipper) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.freed.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && ctx.Err() == nil {
		l.freed.Wait()
	}
}
