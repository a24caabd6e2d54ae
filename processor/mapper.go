package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
)

const (
	// stageWindow bounds the batches that are sent and not yet stored, and so the memory of
	// a mapper.
	stageWindow = 16
	// roomPatience is how long Map waits for the room of others.
	roomPatience = 30 * time.Second
	// quotaEvery is how many bytes are staged between two looks at the quota.
	quotaEvery = 4 << 20
)

// progress is what a mapper has stored so far.
type progress struct {
	items       int64
	hash        uint64
	first, last uint64 // sequences in the stage
	token       uint64
}

// mapper streams the items of one task to the stage: in order, in batches, each with the
// index of its first item and a hash over everything so far, so that a repetition is
// recognised and a mapper that does not repeat itself is caught.
type mapper struct {
	t      *Task
	token  uint64
	name   string
	next   int64  // index of the next item
	hash   uint64 // over all items
	batch  *broker.StageBatch
	bytes  int
	arena  []byte // items are copied: a caller may reuse its buffer
	sent   uint64 // bytes
	sends  uint64 // batches
	looked uint64 // sent, when the quota was looked at
	failed error

	mu     sync.Mutex
	moved  sync.Cond // a batch was answered, or the context ended
	flight []*flying // in order, oldest first
	done   progress
	dry    time.Time // since when there is no room; zero while there is
}

// flying is a batch under way.
type flying struct {
	b        *broker.StageBatch
	answered bool
	seq      uint64
	err      error
}

func newMapper(t *Task) *mapper {
	m := &mapper{t: t, token: rand.Uint64() | 1, hash: fnvOffset}
	m.done.token, m.done.hash = m.token, m.hash
	m.moved.L = &m.mu
	return m
}

func (m *mapper) fail(err error) {
	if m.failed == nil {
		m.failed = err
	}
}

func (m *mapper) progress() progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// add takes one encoded item.
func (m *mapper) add(item []byte) error {
	if m.failed != nil {
		return m.failed
	}
	if len(item) > broker.MaxItemBytes {
		return Cancel(fmt.Errorf("item %d of map %q has %d bytes; at most %d travel", m.next, m.name, len(item), broker.MaxItemBytes))
	}
	if b := m.batch; b != nil && (b.Name != m.name || len(b.Items) == broker.MaxStageItems || m.bytes+len(item) > broker.MaxStageBytes) {
		if err := m.send(); err != nil {
			return err
		}
	}
	if m.batch == nil {
		m.batch = &broker.StageBatch{
			Instance: m.t.c.Instance, Run: m.t.c.Run, Mapper: m.t.t.Number,
			Token: m.token, First: m.next, Name: m.name,
		}
	}
	m.hash = fnvPart(fnvPart(m.hash, m.name), item)
	m.batch.Items = append(m.batch.Items, m.keep(item))
	m.bytes += len(item)
	m.next++
	return nil
}

func (m *mapper) keep(item []byte) []byte {
	if cap(m.arena)-len(m.arena) < len(item) {
		m.arena = make([]byte, 0, max(16<<10, len(item)))
	}
	n := len(m.arena)
	m.arena = append(m.arena, item...)
	return m.arena[n:len(m.arena):len(m.arena)]
}

// flush sends what is left and waits until everything is stored.
func (m *mapper) flush() error {
	if m.failed != nil {
		return m.failed
	}
	if m.batch != nil {
		if err := m.send(); err != nil {
			return err
		}
	}
	return m.await(1)
}

// send stages the current batch, once the window has room for it.
func (m *mapper) send() error {
	if err := m.await(stageWindow); err != nil {
		return err
	}
	if err := m.quota(); err != nil {
		return err
	}
	b := m.batch
	b.Hash = m.hash
	m.sent += uint64(m.bytes)
	m.sends++
	m.batch, m.bytes = nil, 0
	f := &flying{b: b}
	m.mu.Lock()
	m.flight = append(m.flight, f)
	m.mu.Unlock()
	m.stage(f)
	return nil
}

func (m *mapper) stage(f *flying) {
	if err := m.t.env.stage(m.t, f.b, func(seq uint64, err error) { m.answer(f, seq, err) }); err != nil {
		m.answer(f, 0, err)
	}
}

// answer takes what the broker says to a batch. It is called from the broker's goroutine.
func (m *mapper) answer(f *flying, seq uint64, err error) {
	m.mu.Lock()
	f.answered, f.seq, f.err = true, seq, err
	stored := false
	for len(m.flight) > 0 && m.flight[0].answered && m.flight[0].err == nil {
		head := m.flight[0]
		m.flight[0], m.flight = nil, m.flight[1:]
		m.done.items = head.b.First + int64(len(head.b.Items))
		m.done.hash, m.done.last = head.b.Hash, head.seq
		if m.done.first == 0 {
			m.done.first = head.seq
		}
		m.dry = time.Time{}
		stored = true
	}
	p := m.done
	m.moved.Broadcast()
	m.mu.Unlock()
	if stored {
		m.t.env.emitted(m.t, p)
	}
}

// await returns when fewer than limit batches are under way. A batch that failed and all
// after it are sent again, in order: the feed takes items by their index.
func (m *mapper) await(limit int) error {
	ctx := &m.t.ctx
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.moved.Broadcast()
	})
	defer stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for pause := 20 * time.Millisecond; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		bad, quiet := m.look()
		switch {
		case bad == nil && len(m.flight) < limit:
			return nil
		case bad == nil || !quiet:
			m.moved.Wait()
			continue
		}
		if err := m.hopeless(bad); err != nil {
			return err
		}
		again := append([]*flying(nil), m.flight...)
		for _, f := range again {
			f.answered, f.err = false, nil
		}
		m.mu.Unlock()
		sleep(ctx, pause)
		pause = min(2*pause, 2*time.Second)
		for _, f := range again {
			m.stage(f)
		}
		m.mu.Lock()
	}
}

// look finds the first failed batch, and whether all under way are answered.
func (m *mapper) look() (bad *flying, quiet bool) {
	quiet = true
	for _, f := range m.flight {
		if !f.answered {
			quiet = false
		} else if f.err != nil && bad == nil {
			bad = f
		}
	}
	return bad, quiet
}

// hopeless tells whether sending again would not help.
func (m *mapper) hopeless(f *flying) error {
	switch {
	case errors.Is(f.err, broker.ErrNoRoom):
		if m.dry.IsZero() {
			m.dry = time.Now()
		}
		if waited := time.Since(m.dry); waited >= roomPatience {
			return fmt.Errorf("map %q, after %d items and %v of waiting: %w", f.b.Name, m.done.items, roomPatience, ErrNoRoom)
		}
		return nil
	case errors.Is(f.err, broker.ErrUnavailable), errors.Is(f.err, broker.ErrNoResponders):
		return nil // the broker comes back, or the task is stopped
	}
	return fmt.Errorf("store items from %d of map %q: %w", f.b.First, f.b.Name, f.err)
}

// quota fails a run that holds more in the stage than it may. The broker counts batches, not
// bytes, so the size of those of other mappers of the run is taken to be that of one's own.
func (m *mapper) quota() error {
	limit := m.t.c.StageQuota
	if limit <= 0 || m.sent-m.looked < min(quotaEvery, uint64(limit)) {
		return nil
	}
	m.looked = m.sent
	batches, err := m.t.env.staged(&m.t.ctx, m.t)
	if err != nil {
		return nil //nolint:nilerr // the stage itself is bounded too; the next look comes soon
	}
	if used := batches * (m.sent / m.sends); used > uint64(limit) {
		return Cancel(fmt.Errorf("map %q: after %d items the run holds about %d bytes of items; its quota is %d", m.name, m.next, used, limit))
	}
	return nil
}

// FNV-1a of 64 bits over length-prefixed parts.
const fnvOffset, fnvPrime = 14695981039346656037, 1099511628211

func fnvPart[S []byte | string](h uint64, part S) uint64 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
	for _, c := range n {
		h = (h ^ uint64(c)) * fnvPrime
	}
	for i := range len(part) {
		h = (h ^ uint64(part[i])) * fnvPrime
	}
	return h
}

// itemsOf makes one iterator of whatever Map accepts.
func itemsOf(items any) (iter.Seq2[any, error], error) {
	switch x := items.(type) {
	case nil:
		return func(func(any, error) bool) {}, nil
	case [][]byte:
		return sliceOf(x), nil
	case []string:
		return sliceOf(x), nil
	case []int:
		return sliceOf(x), nil
	case []any:
		return sliceOf(x), nil
	case iter.Seq[[]byte]:
		return seqOf(x), nil
	case iter.Seq[string]:
		return seqOf(x), nil
	case iter.Seq[int]:
		return seqOf(x), nil
	case iter.Seq[any]:
		return seqOf(x), nil
	}
	v := reflect.ValueOf(items)
	switch {
	case v.Kind() == reflect.Slice && v.Type() == reflect.TypeFor[[]byte](),
		v.Kind() == reflect.Func && v.IsNil():
		return nil, Cancel(fmt.Errorf("%w; got %T", errItems, items))
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		return func(yield func(any, error) bool) {
			for i := range v.Len() {
				if !yield(v.Index(i).Interface(), nil) {
					return
				}
			}
		}, nil
	case v.Kind() == reflect.Func && v.Type().CanSeq():
		return func(yield func(any, error) bool) {
			for x := range v.Seq() {
				if !yield(x.Interface(), nil) {
					return
				}
			}
		}, nil
	case v.Kind() == reflect.Func && v.Type().CanSeq2() && v.Type().In(0).In(1) == reflect.TypeFor[error]():
		return func(yield func(any, error) bool) {
			for x, e := range v.Seq2() {
				err, _ := e.Interface().(error)
				if !yield(x.Interface(), err) || err != nil {
					return
				}
			}
		}, nil
	}
	return nil, Cancel(fmt.Errorf("%w; got %T", errItems, items))
}

func sliceOf[T any](items []T) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, v := range items {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func seqOf[T any](items iter.Seq[T]) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for v := range items {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
