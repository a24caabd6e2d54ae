package brokertest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// Connect opens both ends on the broker that c.URL names. Exercise closes them.
type Connect func(t testing.TB, c broker.Config) (*broker.Broker, *broker.Client)

// Open is Connect by the package's own functions.
func Open(t testing.TB, c broker.Config) (*broker.Broker, *broker.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b, err := broker.Connect(ctx, c)
	require.NoError(t, err)
	w, err := broker.Dial(ctx, c.Options)
	require.NoError(t, err)
	return b, w
}

// Site is where the broker of a test runs: a Server, or a Cluster.
type Site interface {
	// URL is where clients connect.
	URL() string
	// Replicas is what its streams have.
	Replicas() int
	// Kill cuts all connections and stops all of it; Restart does and brings it back.
	Kill()
	Restart()
	// Broker and Client connect an end that is closed with the test.
	Broker(t testing.TB, c broker.Config) *broker.Broker
	Client(t testing.TB) *broker.Client
}

// Exercise is the suite for the two ends of package broker: every method against a real
// site of its own that run starts, and what must hold when it goes away and comes back.
func Exercise(t *testing.T, run func(testing.TB) Site, connect Connect) {
	for name, f := range map[string]func(*testing.T, place){
		"one chunk flows end to end":                         oneChunk,
		"assets are made once, by many at once":              assetsOnce,
		"shared sets keep their apps apart":                  sharedSets,
		"registration waits for a server":                    registration,
		"beats, orders, questions, nudges, events":           coreMessages,
		"directed chunks":                                    directed,
		"nobody answers":                                     nobody,
		"wants add up and end":                               wantsEnd,
		"wants end when the durable is not there":            wantsWithoutDurable,
		"wants end over restarts of the broker":              wantsOverRestarts,
		"a chunk comes again after AckWait":                  redelivery,
		"a chunk in progress does not":                       inProgress,
		"a thousand requests wait on one durable":            manyWaiting,
		"what cannot be decoded is terminated":               undecodable,
		"tasks are counted, listed and purged":               tasksListed,
		"purge while in flight":                              purgeInFlight,
		"stage and results":                                  stageAndResults,
		"a purge takes its run only":                         purgeRun,
		"a large stage is purged in slices":                  purgeSlices,
		"logs":                                               logs,
		"reports by shard and cursor":                        reportsByCursor,
		"reports before their stream":                        reportsBeforeStream,
		"no report lost or doubled over restarts under load": reportsOverRestarts,
		"no room":   noRoom,
		"too large": tooLarge,
		"nothing is buffered while the broker is down":        down,
		"every outcome is told once over restarts under load": outcomesOverRestarts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, place{run, connect})
		})
	}
}

// place is how a test gets its site and both ends.
type place struct {
	run     func(testing.TB) Site
	connect Connect
}

// ends are both ends on a broker of their own, with an app "shop".
type ends struct {
	*testing.T
	s   Site
	b   *broker.Broker
	w   *broker.Client
	ctx context.Context
}

func start(t *testing.T, in place, c broker.Config) *ends {
	t.Helper()
	e := bare(t, in, c)
	e.ok(e.b.EnsureReports(e.ctx))
	e.ok(e.b.EnsureApp(e.ctx, "shop", "", []string{"any"}))
	return e
}

// bare is start without any stream.
func bare(t *testing.T, in place, c broker.Config) *ends {
	t.Helper()
	e := &ends{T: t, s: in.run(t)}
	c.URL, c.Replicas = e.s.URL(), e.s.Replicas()
	if c.Logger == nil {
		c.Logger = Quiet()
	}
	e.b, e.w = in.connect(t, c)
	t.Cleanup(func() { e.w.Close(); e.b.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(e.s.Replicas())*time.Minute)
	t.Cleanup(cancel)
	e.ctx = ctx
	return e
}

func (e *ends) ok(err error) {
	e.Helper()
	require.NoError(e.T, err)
}

// raw is a connection that may send anything.
func (e *ends) raw() *nats.Conn {
	e.Helper()
	nc, err := nats.Connect(e.s.URL())
	e.ok(err)
	e.Cleanup(nc.Close)
	return nc
}

// wait waits for a value, as long as the test may take.
func wait[T any](e *ends, what string, ch <-chan T) T {
	e.Helper()
	select {
	case v := <-ch:
		return v
	case <-e.ctx.Done():
		require.FailNow(e.T, "waited in vain", what)
		panic("unreachable")
	}
}

// until polls for a state that no message tells of.
func (e *ends) until(what string, f func() bool) {
	e.Helper()
	require.Eventually(e.T, f, time.Duration(e.s.Replicas())*20*time.Second, 5*time.Millisecond, what)
}

func chunkOf(app string, instance, chunk int64, items ...string) *broker.Chunk {
	c := &broker.Chunk{ChunkKey: broker.ChunkKey{Instance: instance, Attempt: 1, Chunk: chunk}, App: app, Shard: 3, Phase: broker.PhaseRoot, Processor: "p"}
	for i, it := range items {
		c.Tasks = append(c.Tasks, broker.Task{Number: int64(i), Attempt: 1, Item: []byte(it)})
	}
	return c
}

// publish stores a chunk in the normal lane of the pool any.
func (e *ends) publish(set string, c *broker.Chunk) error {
	e.Helper()
	done := make(chan error, 2)
	e.b.PublishChunk(set, broker.LaneNormal, "any", c, func(err error) { done <- err })
	return wait(e, "the ack of a chunk", done)
}

// counter keeps what a puller got.
type counter struct {
	got   chan *broker.Delivery
	ended chan int
}

func (e *ends) puller(app, set string, expiry time.Duration) (*broker.Puller, counter) {
	e.Helper()
	c := counter{make(chan *broker.Delivery, 1<<16), make(chan int, 1<<16)}
	p, err := e.w.Puller(app, set, broker.LaneNormal, "any", expiry, func(d *broker.Delivery) { c.got <- d }, func(n int) { c.ended <- n })
	e.ok(err)
	e.Cleanup(p.Close)
	return p, c
}

func oneChunk(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	reports := make(chan *broker.ReportBatch, 1)
	stop, err := e.b.Reports(e.ctx, map[uint8]uint64{3: 0}, func(_ uint8, _ uint64, b *broker.ReportBatch, _ []byte, _ error) { reports <- b })
	e.ok(err)
	defer stop()
	p, c := e.puller("shop", "", 2*time.Second)
	e.ok(p.Want(1))
	chunk := chunkOf("shop", 7, 1, "x")
	e.ok(e.publish("", chunk))
	d := wait(e, "the chunk", c.got)
	require.Equal(t, chunk, d.Chunk)
	require.Equal(t, 1, d.Delivered)
	require.Equal(t, broker.LaneNormal, d.Lane)
	require.Less(t, d.Age, 10*time.Second)
	seq, err := e.w.PublishReports(e.ctx, 3, &broker.ReportBatch{App: "shop", Worker: "w", Reports: []broker.Report{{ChunkKey: chunk.ChunkKey, Kind: broker.ReportSucceeded}}})
	e.ok(err)
	require.Equal(t, uint64(1), seq)
	e.ok(d.Ack())
	require.Len(t, wait(e, "the report", reports).Reports, 1)
	e.until("the chunk is gone", func() bool {
		n, err := e.b.TaskCounts(e.ctx, "shop", "")
		return err == nil && len(n) == 0
	})
}

func assetsOnce(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	other := e.s.Broker(t, broker.Config{})
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for i := range 8 {
		wg.Go(func() {
			b := []*broker.Broker{e.b, other}[i%2]
			errs <- b.EnsureReports(e.ctx)
			errs <- b.EnsureApp(e.ctx, "shop", "", []string{"any", "gpu"})
			errs <- b.EnsureApp(e.ctx, "bank", "s1", []string{"any"})
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		e.ok(err)
	}
	// Another server with other bounds takes the streams as they are and adapts them.
	grown := e.s.Broker(t, broker.Config{TaskBytes: 300 << 20, AckWait: time.Second})
	e.ok(grown.EnsureApp(e.ctx, "shop", "", []string{"any"}))
	require.Error(t, e.b.EnsureApp(e.ctx, "Shop", "", nil))
	require.Error(t, e.b.EnsureApp(e.ctx, "shop", "s9", nil))
	require.Error(t, e.b.EnsureApp(e.ctx, "shop", "", []string{"a.b"}))
	e.ok(e.publish("", chunkOf("shop", 1, 1, "x")))
	// A stream that went away is made again, by the next who ensures it.
	nc := e.raw()
	_, err := nc.Request("$JS.API.STREAM.DELETE.TASKS_shop", nil, 5*time.Second)
	e.ok(err)
	require.ErrorIs(t, e.publish("", chunkOf("shop", 2, 1, "x")), broker.ErrUnavailable)
	e.ok(e.b.EnsureApp(e.ctx, "shop", "", []string{"any"}))
	e.ok(e.publish("", chunkOf("shop", 3, 1, "x")))
	// And after a restart nothing is taken for granted.
	_, err = nc.Request("$JS.API.STREAM.DELETE.TASKS_shop", nil, 5*time.Second)
	e.ok(err)
	e.s.Restart()
	e.until("the streams are made again", func() bool {
		return e.b.EnsureApp(e.ctx, "shop", "", []string{"any"}) == nil && e.publish("", chunkOf("shop", 4, 1, "x")) == nil
	})
}

func registration(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	beat := broker.Beat{App: "shop", Worker: "w1", Incarnation: 9, Pools: []string{"any"}}
	short, cancel := context.WithTimeout(e.ctx, 200*time.Millisecond)
	defer cancel()
	_, err := e.w.Register(short, beat)
	require.ErrorIs(t, err, broker.ErrNoResponders)

	type answer struct {
		g   broker.Registration
		err error
	}
	got := make(chan answer, 1)
	go func() {
		g, err := e.w.Register(e.ctx, beat)
		got <- answer{g, err}
	}()
	asked := 0
	stop, err := e.b.OnRegister(func(b *broker.Beat, reply func(*broker.Registration)) {
		require.Equal(t, "w1", b.Worker)
		if asked++; asked == 1 {
			reply(&broker.Registration{Error: "no server is ready yet", Retry: true})
			return
		}
		go reply(&broker.Registration{Set: "s1", AckWait: time.Second, Now: 5})
	})
	e.ok(err)
	defer stop()
	a := wait(e, "the registration", got)
	e.ok(a.err)
	require.Equal(t, broker.Registration{Set: "s1", AckWait: time.Second, Now: 5}, a.g)
	_, err = e.w.Register(e.ctx, broker.Beat{App: "a b", Worker: "w"})
	require.Error(t, err)
}

func coreMessages(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	beats := make(chan *broker.Beat, 1)
	stopBeats, err := e.b.OnBeat(func(b *broker.Beat) { beats <- b })
	e.ok(err)
	defer stopBeats()
	orders := make(chan broker.Control, 1)
	stopOrders, err := e.w.OnControl("shop", func(c broker.Control) { orders <- c })
	e.ok(err)
	defer stopOrders()
	stopAsk, err := e.b.OnAsk(5, func(q *broker.AskRequest, reply func(*broker.AskReply)) {
		go reply(&broker.AskReply{Verdict: broker.VerdictHeld, Done: []int64{q.Chunk}})
	})
	e.ok(err)
	defer stopAsk()
	nudges := make(chan uint8, 1)
	stopNudges, err := e.b.OnNudge(func(shard uint8) { nudges <- shard })
	e.ok(err)
	defer stopNudges()
	events := make(chan string, 1)
	stopEvents, err := e.b.OnEvent("", func(app, topic string, payload []byte) { events <- app + " " + topic + " " + string(payload) })
	e.ok(err)
	defer stopEvents()
	e.ok(e.b.Flush(e.ctx))
	e.ok(e.w.Flush(e.ctx))

	beat := &broker.Beat{App: "shop", Worker: "w1", Seq: 4, Labels: map[string]string{"zone": "b"}, FreeCPU: -1, Held: []broker.ChunkKey{{Instance: 1, Chunk: 2}}}
	e.ok(e.w.Beat(beat))
	require.Equal(t, beat, wait(e, "the beat", beats))
	order := broker.Control{Kind: broker.ControlStop, Instance: 9, Attempt: 2}
	e.ok(e.b.Order("shop", order))
	require.Equal(t, order, wait(e, "the order", orders))
	a, err := e.w.Ask(e.ctx, &broker.AskRequest{Kind: broker.AskRun, Shard: 5, ChunkKey: broker.ChunkKey{Chunk: 77}})
	e.ok(err)
	require.Equal(t, &broker.AskReply{Verdict: broker.VerdictHeld, Done: []int64{77}}, a)
	e.ok(e.b.Nudge(12))
	require.Equal(t, uint8(12), wait(e, "the nudge", nudges))
	e.ok(e.b.PublishEvent("shop", "instance.7", []byte("done")))
	require.Equal(t, "shop instance.7 done", wait(e, "the event", events))

	// Garbage on a core subject is dropped and counted.
	nc := e.raw()
	e.ok(nc.Publish("beat.shop.w1", []byte("garbage")))
	e.ok(nc.Publish("ask.5", []byte{1, 7}))
	e.until("both are counted", func() bool { return e.b.Undecodable() == 2 })

	// So is what speaks for somebody else than its subject, or of impossible numbers.
	send := func(subject string, data []byte, err error) {
		e.ok(err)
		e.ok(nc.Publish(subject, data))
	}
	for _, shard := range []uint8{6, 200} {
		data, err := broker.EncodeAskRequest(&broker.AskRequest{Kind: broker.AskRun, App: "shop", Shard: shard})
		send("ask.5", data, err)
	}
	for _, b := range []broker.Beat{
		{App: "bank", Worker: "w1"},
		{App: "shop", Worker: "w2"},
		{App: "shop", Worker: "w1", Slots: -1},
		{App: "shop", Worker: "w1", Slots: broker.MaxSlots + 1},
		{App: "shop", Worker: "w1", Busy: -1},
		{App: "shop", Worker: "w1", Pools: []string{"a.b"}},
	} {
		data, err := broker.EncodeBeat(&b)
		send("beat.shop.w1", data, err)
	}
	e.until("all are counted", func() bool { return e.b.Undecodable() == 10 })
	require.Empty(t, beats)
}

func directed(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	chunks := make(chan *broker.Chunk, 1)
	stop, err := e.w.OnDirected("shop", "w1", func(c *broker.Chunk) broker.DirectedReply {
		chunks <- c
		return broker.DirectedAccepted
	})
	e.ok(err)
	e.ok(e.w.Flush(e.ctx))
	want := chunkOf("shop", 1, 1, "x")
	want.Directed = true
	answer, err := e.b.SendDirected(e.ctx, "w1", want)
	e.ok(err)
	require.Equal(t, broker.DirectedAccepted, answer)
	require.Equal(t, want, wait(e, "the chunk", chunks))
	m, err := e.raw().Request("worker.shop.w1", []byte("garbage"), 5*time.Second)
	e.ok(err)
	answer, err = broker.DecodeDirectedReply(m.Data)
	e.ok(err)
	require.Equal(t, broker.DirectedRefused, answer)
	stop()
	e.ok(e.w.Flush(e.ctx))
	_, err = e.b.SendDirected(e.ctx, "w1", want)
	require.ErrorIs(t, err, broker.ErrNoResponders)
}

func nobody(t *testing.T, in place) {
	e := bare(t, in, broker.Config{})
	_, err := e.w.Ask(e.ctx, &broker.AskRequest{Shard: 1})
	require.ErrorIs(t, err, broker.ErrNoResponders)
	_, err = e.b.SendDirected(e.ctx, "nobody", chunkOf("shop", 1, 1, "x"))
	require.ErrorIs(t, err, broker.ErrNoResponders)
	// Somebody who never answers.
	stop, err := e.b.OnAsk(1, func(*broker.AskRequest, func(*broker.AskReply)) {})
	e.ok(err)
	defer stop()
	e.ok(e.b.Flush(e.ctx))
	short, cancel := context.WithTimeout(e.ctx, 100*time.Millisecond)
	defer cancel()
	_, err = e.w.Ask(short, &broker.AskRequest{Shard: 1})
	require.ErrorIs(t, err, broker.ErrUnavailable)
	// No streams at all.
	require.ErrorIs(t, e.publish("", chunkOf("shop", 1, 1, "x")), broker.ErrUnavailable)
	_, err = e.w.PublishReports(e.ctx, 1, &broker.ReportBatch{App: "shop"})
	require.ErrorIs(t, err, broker.ErrUnavailable)
	n, err := e.b.TaskCounts(e.ctx, "shop", "")
	e.ok(err)
	require.Empty(t, n)
	e.ok(e.b.PurgeRun(e.ctx, "shop", "", 1, 0))
	e.ok(e.b.PurgeTasks(e.ctx, "shop", "", 1))
	_, err = e.b.ReportsEnd(e.ctx)
	require.ErrorIs(t, err, broker.ErrNotFound)
}

func tooLarge(t *testing.T, in place) {
	e := start(t, in, broker.Config{})
	big := strings.Repeat("x", 9<<20)
	require.ErrorIs(t, e.publish("", chunkOf("shop", 1, 1, big)), broker.ErrTooLarge)
	_, err := e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 1, Run: 1, Values: [][]byte{[]byte(big)}})
	require.ErrorIs(t, err, broker.ErrTooLarge)
	calls := 0
	err = e.w.Stage("shop", "", &broker.StageBatch{Instance: 1, Run: 1, Items: [][]byte{[]byte(big)}}, func(_ uint64, err error) {
		calls++
		require.ErrorIs(t, err, broker.ErrTooLarge)
	})
	require.ErrorIs(t, err, broker.ErrTooLarge)
	require.Equal(t, 1, calls)
	_, err = e.b.SendDirected(e.ctx, "w", chunkOf("shop", 1, 1, big))
	require.ErrorIs(t, err, broker.ErrTooLarge)
}

// noRoom fills each stream to its bound; afterwards it takes again what was purged.
func noRoom(t *testing.T, in place) {
	const room = 64 << 10
	e := start(t, in, broker.Config{TaskBytes: room, StageBytes: room, ResultBytes: room, ReportBytes: room})
	body := []byte(strings.Repeat("x", 4<<10))
	fill := func(what string, store func(i int) error) {
		for i := range 64 {
			if err := store(i); err != nil {
				require.ErrorIs(t, err, broker.ErrNoRoom, what)
				return
			}
		}
		require.Fail(t, "the bound does not hold", what)
	}
	fill("tasks", func(i int) error { return e.publish("", chunkOf("shop", int64(i), 1, string(body))) })
	fill("stage", func(i int) error {
		done := make(chan error, 1)
		e.ok(e.w.Stage("shop", "", &broker.StageBatch{Instance: 1, Run: 1, Items: [][]byte{body}}, func(_ uint64, err error) { done <- err }))
		return wait(e, "the ack of a stage batch", done)
	})
	fill("results", func(i int) error {
		_, err := e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 1, Run: 1, Values: [][]byte{body}})
		return err
	})
	fill("reports", func(i int) error {
		_, err := e.w.PublishReports(e.ctx, 1, &broker.ReportBatch{App: "shop", Reports: []broker.Report{{Result: body}}})
		return err
	})
	last, err := e.b.LastReport(e.ctx, 1)
	e.ok(err)
	e.ok(e.b.PurgeReports(e.ctx, 1, last))
	_, err = e.w.PublishReports(e.ctx, 1, &broker.ReportBatch{App: "shop", Reports: []broker.Report{{Result: body}}})
	e.ok(err)
	e.ok(e.b.PurgeRun(e.ctx, "shop", "", 1, 1))
	_, err = e.w.PublishResult(e.ctx, "shop", "", &broker.ResultBatch{Instance: 1, Run: 1, Values: [][]byte{body}})
	e.ok(err)
}
