package server

import (
	"sync"

	"github.com/fanjet/fanjet/engine/internal/track"
)

// item is something for the loop: an event for the owner, or a piece of the server's own
// work that needs the loop's state.
type item struct {
	event track.Event
	do    func(now int64)
	bytes int // of a message that it holds, if it is one of many
}

// inbox is what waits for the loop. Whoever brings much waits for room; what the loop's own
// work brings back never waits, for the loop may be waiting for it.
type inbox struct {
	mu     sync.Mutex
	room   *sync.Cond
	items  []item
	bytes  int // of items
	spare  []item
	wake   chan struct{}
	closed bool
}

// What may wait before whoever waits for room does: items, and bytes of messages. The
// reports that pile up while no server is there are many, and may be large.
const (
	inboxRoom  = 8192
	inboxBytes = 16 << 20
)

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1)}
	b.room = sync.NewCond(&b.mu)
	return b
}

// put adds an item; with wait it blocks while the inbox is full. False: the loop is gone.
func (b *inbox) put(it item, wait bool) bool {
	b.mu.Lock()
	for wait && (len(b.items) >= inboxRoom || b.bytes >= inboxBytes) && !b.closed {
		b.room.Wait()
	}
	closed := b.closed
	if !closed {
		b.items = append(b.items, it)
		b.bytes += it.bytes
	}
	b.mu.Unlock()
	if closed {
		return false
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take takes everything; the result is valid until the next call.
func (b *inbox) take() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.spare)
	b.items, b.spare, b.bytes = b.spare[:0], b.items, 0
	b.room.Broadcast()
	return b.spare
}

// rest takes what the loop left when it ended.
func (b *inbox) rest() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.items
	b.items = nil
	return rest
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}
