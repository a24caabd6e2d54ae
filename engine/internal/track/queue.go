package track

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

type queueKey struct {
	app  int64
	lane workflow.Lane
	pool string
}

// queue is the window of one app, lane and pool: how many chunks may be on their way, and
// who takes turns in it.
type queue struct {
	key      queueKey
	app      *App
	wait     *waiting
	inflight int
	subs     int     // of these, chunks of map runs
	pace     float64 // ns a chunk holds a slot, smoothed; 0 unknown
	runs     []*run  // map runs that may have something to feed
	turn     int
	hot      bool
	blocked  bool // rows wait for a limit or a worker, not for room
}

// waiting is what waits in SQL under one feed key prefix. Several queues may share one.
type waiting struct {
	hash     engine.Queue
	backlog  bool  // due rows may be there
	nextDue  int64 // when the next one is due; 0 unknown
	later    bool  // something is due later, perhaps unknown when
	fetching bool
	after    engine.WaitingPos
	passing  bool // this pass held something back
	rewind   bool // the pass is called back to
	to       engine.WaitingPos
	// far is where the pass was when it was called back: after a page there it goes on here, a
	// page at least, lest what waits behind many that are held back is never reached.
	far   engine.WaitingPos
	gone  bool   // back to far, and no page was asked for there yet
	seen  uint64 // shards gained until the page was asked for
	again bool   // something due came while a page was being read
}

const (
	windowNanos = 20e6 // what the window lasts at the measured pace
	paceShare   = 0.2  // weight of a new measurement
	fetchMost   = 1000
	fetchProbe  = 500
)

func (o *Owner) queue(app *App, lane workflow.Lane, pool string) *queue {
	if lane == "" {
		lane = workflow.LaneNormal
	}
	if pool == "" {
		pool = workflow.PoolAny
	}
	k := queueKey{app.ID, lane, pool}
	q := o.queues[k]
	if q == nil {
		hash := engine.QueueOf(app.ID, lane, pool)
		q = &queue{key: k, app: app, wait: o.waiting(hash)}
		o.queues[k] = q
		o.hashes[hash] = append(o.hashes[hash], q)
	}
	return q
}

func (o *Owner) waiting(hash engine.Queue) *waiting {
	w := o.waits[hash]
	if w == nil {
		w = &waiting{hash: hash}
		o.waits[hash] = w
	}
	return w
}

// heat has the queue fed before the next batch is taken.
func (o *Owner) heat(q *queue) {
	if !q.hot {
		q.hot = true
		o.hot = append(o.hot, q)
	}
}

// window is how many chunks of the queue may be in flight: what its live slots finish in
// 20 ms, at least twice the slots and 16, at most MaxWindow or twice the slots.
func (o *Owner) window(q *queue) int {
	slots := o.fleet.Slots(q.app.Name, q.key.pool)
	if slots == 0 {
		return 0
	}
	least := max(2*slots, 16)
	if q.pace <= 0 {
		return least
	}
	w := int(float64(slots) * windowNanos / q.pace)
	return min(max(w, least), max(o.cfg.MaxWindow, 2*slots))
}

// paced takes a measurement: a chunk held its slot for so long.
func (q *queue) paced(nanos int64) {
	x := float64(max(nanos, 1000))
	if q.pace <= 0 {
		q.pace = x
		return
	}
	q.pace += (x - q.pace) * paceShare
}

func (o *Owner) feedHot() {
	for len(o.hot) > 0 {
		hot := o.hot
		o.hot = nil
		for _, q := range hot {
			q.hot = false
			o.feed(q)
		}
	}
}

// feed fills the window: map runs take turns, a chunk each, and what waits in SQL has half
// of the window while there are runs. A run is always let have two chunks.
func (o *Owner) feed(q *queue) {
	window := o.window(q)
	if window == 0 {
		return
	}
	runs := window
	if q.wait.backlog {
		runs = max(window/2, 1)
	}
	for idle := 0; idle < len(q.runs); {
		q.turn %= len(q.runs)
		r := q.runs[q.turn]
		q.turn++
		if (q.inflight < runs || r.inflight < 2) && o.feedRun(r) {
			idle = 0
		} else {
			idle++
		}
	}
	o.fetch(q.wait, false)
}

// room is how many instances may still be dispatched. Map runs count with no more than half
// of the window: their repeated tasks are sent whatever the window says, and must not keep
// everything else waiting until the runs are over.
func (o *Owner) room(q *queue) int {
	window := o.window(q)
	return max(window-(q.inflight-q.subs)-min(q.subs, window/2), 0)
}

// fetch reads on in what waits, if there is room for it. A sweep reads even without room,
// so that what waits in vain is timed out.
func (o *Owner) fetch(w *waiting, sweep bool) {
	if !w.backlog || w.fetching {
		return
	}
	room, known, idle := 0, false, true
	for _, q := range o.hashes[w.hash] {
		window := o.window(q)
		known, idle = true, idle && window == 0
		room += o.room(q)
	}
	switch {
	case room > 0 && w.passing:
		// The rows at hand are held back by a limit: look further than there is room.
		room = min(max(room, fetchProbe), fetchMost)
	case room > 0:
		room = min(room, fetchMost)
	case !known || sweep && idle:
		room = fetchProbe
	default:
		return
	}
	if w.rewind && !w.gone {
		if w.passing && before(w.far, w.after) {
			w.far = w.after
		}
		w.passing = w.passing && w.to != engine.WaitingPos{}
		w.after, w.to, w.rewind = w.to, engine.WaitingPos{}, false
	}
	w.gone = false
	w.fetching, w.again, w.seen = true, false, o.gains
	o.fetches++
	o.after(Fetch{Queue: w.hash, Shards: o.owned(), Due: o.now, After: w.after, Limit: room})
}

func (o *Owner) owned() []uint8 {
	var ids []uint8
	for id, sh := range o.shards {
		if sh != nil {
			ids = append(ids, uint8(id))
		}
	}
	return ids
}

// fetched starts what there is room for. A row that a limit or a missing worker holds back
// is passed over; what comes behind it gets its turn.
func (o *Owner) fetched(e Fetched) {
	w := o.waiting(e.Queue)
	w.fetching = false
	o.fetches--
	if e.Err != nil {
		return // the sweep tries again
	}
	full := false
	for _, row := range e.Rows {
		sh := o.shards[row.Instance.Shard]
		_, dead := o.tombs[row.Instance.ID]
		if sh != nil && sh.gained > w.seen {
			w.again, sh = true, nil // read before the shard was this owner's
		}
		if sh == nil || dead || o.insts[row.Instance.ID] != nil || row.Instance.Status != engine.StatusWaiting {
			continue
		}
		in := o.adopt(sh, row)
		switch {
		case row.Err != nil:
			o.finish(in, engine.StatusFailed, nil, row.Err.Error())
		case o.dispatchLate(in):
		default:
			if reason := o.holdBack(in); reason == "" {
				o.start(in)
			} else {
				o.forget(in)
				full = full || reason == engine.ReasonDue
				w.passing = true
			}
		}
		if full {
			break
		}
		w.after = engine.WaitingPos{DueAt: row.Instance.DueAt, ID: row.Instance.ID}
	}
	if o.fetches == 0 {
		clear(o.tombs)
	}
	switch {
	case full: // goes on here when there is room; the sweep begins again at the head
		if !w.passing {
			w.after = engine.WaitingPos{}
		}
	case len(e.Rows) < e.Limit: // the end of the pass
		w.backlog = w.again || w.rewind
		held := w.passing
		w.after, w.far, w.to = engine.WaitingPos{}, engine.WaitingPos{}, engine.WaitingPos{}
		w.passing, w.rewind = false, false
		if w.later && w.nextDue == 0 {
			// What is due next is known again after a look at the head of the queue.
			w.later = false
			o.after(Peek{})
		}
		if held {
			// Something is held back; a freed limit, a new worker or the sweep looks again.
			for _, q := range o.hashes[w.hash] {
				q.blocked = true
			}
		}
	case before(w.after, w.far):
		w.after, w.far, w.passing, w.gone = w.far, engine.WaitingPos{}, true, true
	}
	for _, q := range o.hashes[w.hash] {
		o.heat(q)
	}
}

// callBack has the pass look again at what waits behind a position.
func (w *waiting) callBack(to engine.WaitingPos) {
	if !w.rewind || before(to, w.to) {
		w.to = to
	}
	w.backlog, w.again, w.rewind = true, true, true // a page that is being read may lie behind it
}

// before tells whether a position comes before another in what waits.
func before(a, b engine.WaitingPos) bool {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), cmp.Compare(a.ID, b.ID)) < 0
}

// heads takes in which queues have something waiting and when it is due.
func (o *Owner) heads(heads []engine.QueueHead) {
	for _, h := range heads {
		w := o.waiting(h.Queue)
		o.dueLater(w, h.DueAt)
		o.fetch(w, true)
	}
	o.due()
}

// due marks the queues whose next instance has become due.
func (o *Owner) due() {
	if o.dueAt == 0 || o.dueAt > o.now {
		return
	}
	o.dueAt = 0
	for _, hash := range sortedKeys(o.waits) {
		w := o.waits[hash]
		if w.nextDue > o.now && (o.dueAt == 0 || w.nextDue < o.dueAt) {
			o.dueAt = w.nextDue
		}
		if w.nextDue > 0 && w.nextDue <= o.now {
			w.nextDue = 0
			if !w.backlog {
				w.backlog, w.after, w.passing = true, engine.WaitingPos{}, false
			}
			o.fetch(w, len(o.hashes[w.hash]) == 0)
		}
	}
}

// dueLater notes when something becomes due.
func (o *Owner) dueLater(w *waiting, at int64) {
	w.later = true
	if w.nextDue == 0 || at < w.nextDue {
		w.nextDue = at
	}
	if o.dueAt == 0 || at < o.dueAt {
		o.dueAt = max(at, 1)
	}
}

// noteWaiting notes that an instance waits in SQL.
func (o *Owner) noteWaiting(in *inst) {
	w := in.q.wait
	if in.DueAt <= o.now {
		w.backlog, w.again = true, true
		o.heat(in.q)
	} else {
		o.dueLater(w, in.DueAt)
	}
}

// unblock looks again at what was held back in the queue.
func (o *Owner) unblock(q *queue) {
	if q.blocked {
		q.blocked = false
		q.wait.backlog = true
	}
	o.heat(q)
}

// release gives back what a chunk held in its queue and job.
func (o *Owner) release(in *inst, c *chunk) {
	if in.chunks[c.key.Chunk] != c {
		return
	}
	delete(in.chunks, c.key.Chunk)
	o.cancel(c.timeout)
	o.cancel(c.pause)
	c.timeout, c.pause = nil, nil
	if c.phase == phaseShare || c.phase == phasePre || c.phase == phasePost {
		return
	}
	in.q.inflight--
	if c.phase == phaseSub && in.run != nil {
		in.run.inflight--
		in.q.subs--
	}
	if in.Job != 0 {
		if o.jobs[in.Job]--; o.jobs[in.Job] <= 0 {
			delete(o.jobs, in.Job)
		}
		if in.spec.Concurrency > 0 {
			o.unblock(in.q)
		}
	}
	o.heat(in.q)
}

// hold counts a chunk into its queue and job.
func (o *Owner) hold(in *inst, c *chunk) {
	in.chunks[c.key.Chunk] = c
	if c.phase == phaseShare || c.phase == phasePre || c.phase == phasePost {
		return
	}
	in.q.inflight++
	if c.phase == phaseSub && in.run != nil {
		in.run.inflight++
		in.q.subs++
	}
	if in.Job != 0 {
		o.jobs[in.Job]++
	}
}

// sorted are all queues in a fixed order: what the owner does depends on its events alone.
func (o *Owner) sorted() []*queue { return sortQueues(maps.Values(o.queues)) }

func sortQueues(all iter.Seq[*queue]) []*queue {
	return slices.SortedFunc(all, func(a, b *queue) int {
		return cmp.Or(cmp.Compare(a.key.app, b.key.app), cmp.Compare(a.key.lane, b.key.lane), cmp.Compare(a.key.pool, b.key.pool))
	})
}

// workerNews looks again at everything of the app that waits for a worker.
func (o *Owner) workerNews(app string) {
	for _, q := range o.sorted() {
		if q.app.Name == app {
			o.unblock(q)
		}
	}
}

// sweep is what the clock brings once a second: queues are looked at again, and instances
// that were silent for long are recovered.
func (o *Owner) sweep() {
	o.freeLimits()
	for _, q := range o.sorted() {
		if q.wait.passing {
			q.wait.callBack(engine.WaitingPos{})
		}
		o.unblock(q)
	}
	o.due()
	for _, hash := range sortedKeys(o.waits) {
		o.fetch(o.waits[hash], true)
	}
	o.recoverSilent()
	o.asksAgain()
}
