package processor

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// fake is a broker and an owner in one, written by hand: it keeps what it is told and answers
// as its fields say.
type fake struct {
	mu       sync.Mutex
	options  broker.Options
	beats    []broker.Beat
	reports  []broker.Report
	batches  int
	pullers  map[string]*fakePuller
	directed func(*broker.Chunk) broker.DirectedReply
	control  func(broker.Control)
	staged   []*broker.StageBatch
	results  []*broker.ResultBatch
	logs     []*broker.LogBatch
	asked    []broker.AskRequest
	closed   bool
	offered  int // registrations

	registerFn func(n int) (broker.Registration, error)
	reportFn   func(ctx context.Context, b *broker.ReportBatch) error
	stageFn    func(b *broker.StageBatch) error
	resultFn   func(b *broker.ResultBatch) error
	logFn      func(ctx context.Context, b *broker.LogBatch) error
	askFn      func(q *broker.AskRequest) (*broker.AskReply, error)
	used       uint64
	slowStage  bool

	flying, mostFlying int // stage batches not answered
}

type fakePuller struct {
	f       *fake
	deliver func(*delivery)
	ended   func(int)
	open    int
	closed  bool
}

func (p *fakePuller) Want(n int) error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.open += n
	return nil
}

func (p *fakePuller) Close() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.closed = true
}

func (f *fake) Register(ctx context.Context, b broker.Beat) (broker.Registration, error) {
	f.mu.Lock()
	f.offered++
	n, fn := f.offered, f.registerFn
	f.mu.Unlock()
	if fn != nil {
		return fn(n)
	}
	return broker.Registration{Set: "s1", AckWait: 8 * time.Second, BeatEvery: 2 * time.Second}, nil
}

func (f *fake) Beat(b *broker.Beat) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats = append(f.beats, *b)
	return nil
}

func (f *fake) Puller(_, _, lane, pool string, _ time.Duration, deliver func(*delivery), ended func(int)) (puller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &fakePuller{f: f, deliver: deliver, ended: ended}
	f.pullers[lane+"/"+pool] = p
	return p, nil
}

func (f *fake) OnDirected(_, _ string, h func(*broker.Chunk) broker.DirectedReply) (func(), error) {
	f.directed = h
	return func() {}, nil
}

func (f *fake) OnControl(_ string, h func(broker.Control)) (func(), error) {
	f.control = h
	return func() {}, nil
}

func (f *fake) PublishReports(ctx context.Context, _ uint8, b *broker.ReportBatch) (uint64, error) {
	if fn := f.reportFn; fn != nil {
		if err := fn(ctx, b); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, b.Reports...)
	f.batches++
	return uint64(f.batches), nil
}

func (f *fake) Stage(_, _ string, b *broker.StageBatch, done func(uint64, error)) error {
	if fn := f.stageFn; fn != nil {
		if err := fn(b); err != nil {
			go done(0, err)
			return nil
		}
	}
	f.mu.Lock()
	f.staged = append(f.staged, b)
	seq := uint64(len(f.staged))
	f.flying++
	f.mostFlying = max(f.mostFlying, f.flying)
	f.mu.Unlock()
	go func() {
		if f.slowStage {
			<-time.After(time.Millisecond)
		}
		f.mu.Lock()
		f.flying--
		f.mu.Unlock()
		done(seq, nil)
	}()
	return nil
}

func (f *fake) StageUsed(context.Context, string, string, int64, int32) (uint64, error) {
	return f.used, nil
}

func (f *fake) PublishResult(_ context.Context, _, _ string, b *broker.ResultBatch) (uint64, error) {
	if fn := f.resultFn; fn != nil {
		if err := fn(b); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results = append(f.results, b)
	return uint64(len(f.results)), nil
}

func (f *fake) ReadResults(_ context.Context, _, _ string, _ int64, _ int32, ranges []broker.Range, each func(*broker.ResultBatch) error) error {
	for _, r := range ranges {
		for s := r.First; s <= r.Last; s++ {
			if int(s) > len(f.results) {
				return broker.ErrNotFound
			}
			if err := each(f.results[s-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fake) Ask(ctx context.Context, q *broker.AskRequest) (*broker.AskReply, error) {
	f.mu.Lock()
	f.asked = append(f.asked, *q)
	fn := f.askFn
	f.mu.Unlock()
	if fn == nil {
		<-ctx.Done()
		return nil, broker.ErrNoResponders
	}
	return fn(q)
}

func (f *fake) PublishLog(ctx context.Context, _, _ string, b *broker.LogBatch) (uint64, error) {
	if fn := f.logFn; fn != nil {
		if err := fn(ctx, b); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := *b
	c.Lines = append([]broker.LogLine(nil), b.Lines...)
	f.logs = append(f.logs, &c)
	return uint64(len(f.logs)), nil
}

func (f *fake) Flush(context.Context) error { return nil }
func (f *fake) Close()                      { f.mu.Lock(); f.closed = true; f.mu.Unlock() }

// message is one delivery and what the worker said to it.
type message struct {
	mu         sync.Mutex
	acks       int
	naks       []time.Duration
	inProgress int
}

func (m *message) Ack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acks++
	return nil
}

func (m *message) Nak(d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.naks = append(m.naks, d)
	return nil
}

func (m *message) InProgress() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inProgress++
	return nil
}

func (m *message) said() (acks int, naks []time.Duration, inProgress int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acks, m.naks, m.inProgress
}

// bench is a running Worker on a fake, inside a synctest bubble.
type bench struct {
	t    *testing.T
	f    *fake
	w    *Worker
	stop context.CancelFunc
	done chan error
}

func quietLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newFake() *fake { return &fake{pullers: map[string]*fakePuller{}} }

// start runs a worker of app "a" with processor "p" and waits until all is still.
func start(t *testing.T, p Processor, slots int, tune ...func(*fake, *Config)) *bench {
	t.Helper()
	f := newFake()
	cfg := Config{App: "a", Name: "w1", Slots: slots, Logger: quietLogger()}
	for _, fn := range tune {
		fn(f, &cfg)
	}
	w := NewWorker(cfg).Register("p", p)
	w.dial = func(_ context.Context, o broker.Options) (link, error) { f.options = o; return f, nil }
	ctx, stop := context.WithCancel(t.Context())
	b := &bench{t: t, f: f, w: w, stop: stop, done: make(chan error, 1)}
	go func() { b.done <- w.Run(ctx) }()
	synctest.Wait()
	return b
}

// end drains the worker and waits for it.
func (b *bench) end() {
	b.t.Helper()
	b.stop()
	require.NoError(b.t, <-b.done)
	require.True(b.t, b.f.closed)
}

// deliver hands a chunk over on the normal lane, delivered for the nth time.
func (b *bench) deliver(c *broker.Chunk, delivered int) *message {
	return b.deliverOn("normal/any", c, delivered, 0)
}

func (b *bench) deliverOn(lane string, c *broker.Chunk, delivered int, age time.Duration) *message {
	m := &message{}
	b.f.pullers[lane].deliver(&delivery{answer: m, chunk: c, delivered: delivered, age: age})
	return m
}

// kinds are the reports so far, of the kind.
func (b *bench) kinds(kind broker.ReportKind) []broker.Report {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	var out []broker.Report
	for _, r := range b.f.reports {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

func rootChunk(instance int64) *broker.Chunk {
	return &broker.Chunk{
		ChunkKey: broker.ChunkKey{Instance: instance, Attempt: 1, Chunk: 1},
		App:      "a", Shard: uint8(instance % broker.Shards), Epoch: 1, Phase: broker.PhaseRoot, Mode: ModeStandalone, Processor: "p",
		Tasks: []broker.Task{{Attempt: 1}},
	}
}

// subChunk holds n sub-tasks from number first on; each item is its number as JSON.
func subChunk(instance, chunk, first int64, n int) *broker.Chunk {
	c := rootChunk(instance)
	c.Run, c.Chunk, c.Phase, c.Mode, c.Name = 1, chunk, broker.PhaseSub, ModeMapReduce, "n"
	c.Tasks = nil
	for i := range int64(n) {
		raw, _ := json.Marshal(first + i)
		c.Tasks = append(c.Tasks, broker.Task{Number: first + i, Attempt: 1, Item: raw})
	}
	return c
}

func withParams(c *broker.Chunk, params string) *broker.Chunk { c.Params = []byte(params); return c }

func numbers(reports []broker.Report) (all []int64) {
	for _, r := range reports {
		all = append(all, r.Numbers...)
	}
	return all
}

// pass lets d of the bubble's own time pass and waits until all is still.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// heard is a copy of what the worker has reported so far, and beats of its beats.
func (b *bench) heard() []broker.Report {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return append([]broker.Report(nil), b.f.reports...)
}

func (b *bench) beats() []broker.Beat {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return append([]broker.Beat(nil), b.f.beats...)
}

func (b *bench) lastBeat() broker.Beat {
	all := b.beats()
	return all[len(all)-1]
}
