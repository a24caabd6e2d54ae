package httpapi

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
)

// Live bounds streams of events. The zero value is the stock one.
type Live struct {
	// Heartbeat is how often a stream that has nothing to tell shows that it lives; default 15 s.
	Heartbeat time.Duration
	// Recheck is how often the caller's credentials and permission are looked at again; default
	// a minute.
	Recheck time.Duration
	// PerUser and Most bound the streams of one user and of all; defaults 16 and 1000.
	PerUser, Most int
	// Ring is how many events of an app are kept for those who are slow or come again; default
	// 4096.
	Ring int
}

func (l Live) withDefaults() Live {
	for _, f := range []struct {
		to    *int
		stock int
	}{{&l.PerUser, 16}, {&l.Most, 1000}, {&l.Ring, 4096}} {
		if *f.to <= 0 {
			*f.to = f.stock
		}
	}
	if l.Heartbeat <= 0 {
		l.Heartbeat = 15 * time.Second
	}
	if l.Recheck <= 0 {
		l.Recheck = time.Minute
	}
	return l
}

// feedLasts is how long an app's events are kept when its last reader has gone.
const feedLasts = time.Minute

// feeds are the events of apps that somebody reads. Safe for concurrent use.
type feeds struct {
	c      Live
	server *server.Server

	mu     sync.Mutex
	m      map[int64]*feed
	all    int
	byUser map[int64]int
}

func newFeeds(s *server.Server, c Live) *feeds {
	return &feeds{c: c.withDefaults(), server: s, m: map[int64]*feed{}, byUser: map[int64]int{}}
}

// feed is a ring of the newest events of an app. Event n is the n-th since the feed began, and
// its id in the stream is epoch-n.
type feed struct {
	app   int64
	epoch uint64

	// Under feeds.mu.
	readers int
	stop    func()
	expiry  *time.Timer

	mu    sync.Mutex
	ring  []api.Event // event n is at n mod its length
	next  uint64
	ended bool
	wake  map[chan struct{}]struct{}
}

// enter counts a stream of a user and gives it the feed of the app; leave is to be called.
func (s *feeds) enter(app *engine.App, user int64) (f *feed, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.c.Most || s.byUser[user] >= s.c.PerUser {
		return nil, nil, &waitError{wait: 10 * time.Second, text: fmt.Sprintf("there are %d streams of yours and %d in all; you may have %d", s.byUser[user], s.all, s.c.PerUser)}
	}
	f = s.m[app.ID]
	if f != nil && f.hasEnded() {
		s.drop(f)
		f = nil
	}
	if f == nil {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails, since Go 1.24
		f = &feed{
			app: app.ID, epoch: binary.LittleEndian.Uint64(b[:]), next: 1, ring: make([]api.Event, s.c.Ring),
			wake: map[chan struct{}]struct{}{},
		}
		if f.stop, err = s.server.Listen(app, f.take); err != nil {
			return nil, nil, err
		}
		s.m[app.ID] = f
	}
	if f.expiry != nil {
		f.expiry.Stop()
		f.expiry = nil
	}
	f.readers++
	s.all++
	s.byUser[user]++
	return f, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.byUser[user]--; s.byUser[user] == 0 {
			delete(s.byUser, user)
		}
		if f.readers--; f.readers == 0 {
			f.expiry = time.AfterFunc(feedLasts, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if f.readers == 0 {
					s.drop(f)
				}
			})
		}
	}), nil
}

func (s *feeds) drop(f *feed) {
	if s.m[f.app] == f {
		delete(s.m, f.app)
	}
	f.stop()
}

func (f *feed) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

var eventKinds = map[server.EventKind]string{
	server.EventInstance: api.EventInstance, server.EventProgress: api.EventProgress, server.EventWorkflow: api.EventWorkflowInstance,
	server.EventNode: api.EventNode, server.EventLost: api.EventGap,
}

// take puts events into the ring, where they push the oldest out.
func (f *feed) take(events []server.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) == 0 {
		f.ended = true
	}
	for i := range events {
		e := &events[i]
		out := api.Event{
			ID: f.id(f.next), Kind: eventKinds[e.Kind], Workflow: e.Workflow, Node: e.Node, Instance: e.Instance, Job: e.Job, Attempt: e.Attempt,
			Reason: string(e.Reason), Error: e.Error, Total: e.Total, Done: e.Done, Failed: e.Failed,
		}
		if e.Status != 0 {
			out.Status = e.Status.String()
		}
		f.ring[f.next%uint64(len(f.ring))] = out
		f.next++
	}
	for ch := range f.wake {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (f *feed) id(n uint64) string {
	return strconv.FormatUint(f.epoch, 16) + "-" + strconv.FormatUint(n, 10)
}

// at is the position behind the event of that id: what comes next. ok is false if it is none of
// this feed, or what comes behind it has been pushed out.
func (f *feed) at(id string) (n uint64, ok bool) {
	epoch, number, _ := strings.Cut(id, "-")
	e, err := strconv.ParseUint(epoch, 16, 64)
	if err != nil || e != f.epoch {
		return 0, false
	}
	n, err = strconv.ParseUint(number, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	return n + 1, err == nil && n < f.next && n+1 >= f.first()
}

// first is the oldest event in the ring. Under mu.
func (f *feed) first() uint64 {
	if n := uint64(len(f.ring)); f.next > n {
		return f.next - n
	}
	return 1
}

// read appends to buf what fits of the events from n on, at most most of them looked at, and
// returns the position behind them. gap says that some were pushed out before they were read.
func (f *feed) read(buf []api.Event, n uint64, most int, fits func(*api.Event) bool) (out []api.Event, next uint64, gap, more, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first := f.first(); n < first {
		n, gap = first, true
	}
	for ; n < f.next && most > 0; n, most = n+1, most-1 {
		if e := &f.ring[n%uint64(len(f.ring))]; fits(e) {
			buf = append(buf, *e)
		}
	}
	return buf, n, gap, n < f.next, f.ended
}

// subscribe gives a channel that is woken when there is more, and the position of what comes
// next.
func (f *feed) subscribe() (woken chan struct{}, next uint64, stop func()) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wake[ch] = struct{}{}
	return ch, f.next, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.wake, ch)
	}
}
