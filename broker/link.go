package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Options says where the broker is and how to reach it.
type Options struct {
	URL       string // nats://host:port, comma separated for a cluster
	Name      string // shown in the broker's connection list
	User      string
	Password  string
	Token     string
	CredsFile string
	// Logger hears what nobody can be told otherwise; default slog.Default().
	Logger *slog.Logger
	// OnDown and OnUp tell of the connection; called one at a time, in order, OnDown first:
	// the connection that Dial waits for is not announced. They must not block.
	OnDown func()
	OnUp   func()
}

// How a connection behaves.
const (
	dialTimeout   = 2 * time.Second
	reconnectWait = 100 * time.Millisecond
	pingEvery     = 2 * time.Second // 3 unanswered pings are a dead connection
	requestWait   = 5 * time.Second // a request whose ctx has no deadline
	// writeWait is how long a write may hold up everybody else who writes, when the peer
	// reads nothing any more and says nothing either. The pings find out then.
	writeWait = 5 * time.Second
)

// link is one connection that is kept up.
type link struct {
	nc    *nats.Conn
	inbox string // prefix of every inbox of this connection, "_INBOX_…"
	log   *slog.Logger
	// replicated says that streams have replicas, and that not only the leader of one answers
	// direct reads. It is set before the link is used.
	replicated bool
	// epoch counts dials. What was sent in an earlier epoch has been answered or is lost:
	// it is raised before the new connection can carry anything.
	epoch atomic.Uint64
	// skew is the broker's clock less ours, in ns, as last measured; see measureSkew.
	skew     atomic.Int64
	measured atomic.Int64 // when, ns since 1970, or 0

	mu       sync.Mutex
	watchers []*watcher
	closed   chan struct{}
	damaged  atomic.Uint64 // messages that could not be decoded
	said     sync.Map      // subjects' first tokens whose damage was logged
}

// Dial implements nats.CustomDialer.
func (l *link) Dial(network, address string) (net.Conn, error) {
	l.epoch.Add(1)
	d := net.Dialer{Timeout: dialTimeout}
	return d.Dial(network, address)
}

func dial(ctx context.Context, o Options, role string) (*link, error) {
	l := &link{inbox: "_INBOX_" + nuid.Next(), log: o.Logger, closed: make(chan struct{})}
	if l.log == nil {
		l.log = slog.Default()
	}
	name := role
	if o.Name != "" {
		name = o.Name + " " + role
	}
	ready := make(chan struct{}, 1)
	opts := []nats.Option{
		nats.Name(name),
		nats.SetCustomDialer(l),
		nats.CustomInboxPrefix(l.inbox),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		// Nothing is buffered while the connection is down: a late publish would be wrong.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(3),
		nats.FlusherTimeout(writeWait),
		nats.ConnectHandler(func(*nats.Conn) { ready <- struct{}{} }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() {
				return // it was told to: nothing is lost
			}
			if err != nil {
				l.log.Warn("broker connection lost", "connection", name, "error", err)
			}
			l.tell(func(w *watcher) func() { return w.down })
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			l.log.Info("broker connection is back", "connection", name)
			l.tell(func(w *watcher) func() { return w.up })
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			l.log.Warn("broker connection error", "connection", name, "subject", subject, "error", err)
		}),
	}
	if o.User != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if o.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	}
	nc, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w: %w", o.URL, ErrUnavailable, err)
	}
	l.nc = nc
	select {
	case <-ready:
		return l, nil
	case <-l.closed:
		return nil, fmt.Errorf("connect to broker %s: %w: %w", o.URL, ErrUnavailable, nc.LastError())
	case <-ctx.Done():
		last := nc.LastError()
		nc.Close()
		if last == nil {
			last = ctx.Err()
		}
		return nil, fmt.Errorf("connect to broker %s: %w: %w", o.URL, ErrUnavailable, last)
	}
}

// watcher is told of the connection; either may be nil.
type watcher struct{ down, up func() }

// watch runs the two on every disconnect and reconnect, in the order of the calls, from
// the connection's one callback goroutine. They must not block. forget ends it.
func (l *link) watch(down, up func()) (forget func()) {
	w := &watcher{down, up}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, w)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers = slices.DeleteFunc(slices.Clone(l.watchers), func(x *watcher) bool { return x == w })
	}
}

func (l *link) tell(which func(*watcher) func()) {
	l.mu.Lock()
	ws := l.watchers
	l.mu.Unlock()
	// In order, so that what went with the connection has ended before the user is told:
	// the user's own watcher is the last of those that were there from the start.
	for _, w := range ws {
		if f := which(w); f != nil {
			f()
		}
	}
}

func (l *link) connected() bool { return l.nc.IsConnected() }

// lostEpoch is the last epoch of which nothing can arrive any more.
func (l *link) lostEpoch() uint64 {
	e := l.epoch.Load()
	if l.nc.IsConnected() {
		return e - 1
	}
	return e
}

// publish sends without waiting.
func (l *link) publish(op, subject string, data []byte) error {
	if err := l.nc.Publish(subject, data); err != nil {
		return border(op, err)
	}
	return nil
}

// request asks and waits; ErrNoResponders when nobody listens.
func (l *link) request(ctx context.Context, op, subject string, data []byte) (*nats.Msg, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestWait)
		defer cancel()
	}
	m, err := l.nc.RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%s: %w", op, ErrNoResponders)
	}
	if err != nil {
		return nil, border(op, err)
	}
	return m, nil
}

// api calls JetStream; in is encoded as JSON unless nil, the answer decoded into out
// unless nil. It waits 5 s at most, whatever ctx allows: while a cluster elects a leader,
// nobody may answer at all, and the caller had better ask again.
func (l *link) api(ctx context.Context, op, subject string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, "$JS.API."+subject, body)
	if err != nil {
		return border(op, err)
	}
	var answer struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("%s: read the broker's answer: %w", op, err)
	}
	if answer.Error != nil {
		return border(op, answer.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, out); err != nil {
		return fmt.Errorf("%s: read the broker's answer: %w", op, err)
	}
	return nil
}

// subscribe hears a subject; h runs on one goroutine of the subscription.
func (l *link) subscribe(subject, queue string, h nats.MsgHandler) (func(), error) {
	var sub *nats.Subscription
	var err error
	if queue == "" {
		sub, err = l.nc.Subscribe(subject, h)
	} else {
		sub, err = l.nc.QueueSubscribe(subject, queue, h)
	}
	if err != nil {
		return nil, border("subscribe "+subject, err)
	}
	// 512 MiB and no bound on the count: dropping is worse than holding a burst.
	if err := sub.SetPendingLimits(-1, 512<<20); err != nil {
		return nil, border("subscribe "+subject, err)
	}
	return func() { unsubscribe(sub) }, nil
}

func unsubscribe(sub *nats.Subscription) {
	// It fails only when the connection is closed, and then the subscription is gone too.
	_ = sub.Unsubscribe()
}

// undecodable counts a message that cannot be decoded and logs the first of its kind.
func (l *link) undecodable(what, subject string, err error) {
	l.damaged.Add(1)
	if _, before := l.said.LoadOrStore(what, true); !before {
		l.log.Warn("message dropped, further ones of this kind are only counted", "what", what, "subject", subject, "error", err)
	}
}

// flush waits until the broker has seen all that was sent.
func (l *link) flush(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestWait)
		defer cancel()
	}
	return border("flush", l.nc.FlushWithContext(ctx))
}

// close sends what is buffered and closes; it returns when the connection's own goroutine
// for callbacks is through.
func (l *link) close() {
	if l.nc.IsConnected() {
		// A peer that does not answer is not waited for longer: there is nobody to tell.
		_ = l.nc.FlushTimeout(time.Second)
	}
	l.nc.Close()
	<-l.closed
}
