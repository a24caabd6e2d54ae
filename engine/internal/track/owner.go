package track

import (
	"slices"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Config bounds the owner. The zero value is the stock setting.
type Config struct {
	// Silent is how long an instance may be silent before its messages are listed; default 30 s.
	Silent int64
	// BeatEvery is the workers' beat, ms; default 2000.
	BeatEvery int64
	// MaxWindow bounds the chunks of one lane and pool in flight; default 1024.
	MaxWindow int
	// MaxRetrying is how many sub-tasks of a run may wait for a further attempt before it is
	// fed nothing new; default 10 000.
	MaxRetrying int
	// MaxFailedRows is how many final failures of a run keep a row; default 10 000.
	MaxFailedRows int
	// MaxLost is how often a task's worker may die; default 3.
	MaxLost int32
	// LateGrace is what the owner adds to a task's timeout, ms; default 10 000.
	LateGrace int64
}

func (c Config) withDefaults() Config {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.Silent, 30_000)
	def(&c.BeatEvery, 2_000)
	def(&c.LateGrace, 10_000)
	if c.MaxWindow <= 0 {
		c.MaxWindow = 1024
	}
	if c.MaxRetrying <= 0 {
		c.MaxRetrying = 10_000
	}
	if c.MaxFailedRows <= 0 {
		c.MaxFailedRows = 10_000
	}
	if c.MaxLost <= 0 {
		c.MaxLost = 3
	}
	return c
}

// Stats counts what is normal but worth knowing. Read it from the owner's goroutine.
type Stats struct {
	Stale       int64 // reports about something that has moved on
	Repeated    int64 // tasks run again after their worker died or their message was lost
	Refused     int64 // chunks refused by a worker
	Late        int64 // successes after the instance was final
	Republished int64
	DeadLetters int64
	Active      int64 // instances in memory
}

// Owner is the state machine. It is not safe for concurrent use.
type Owner struct {
	cfg    Config
	fleet  Fleet
	hooks  Hooks
	shards [engine.Shards]*shard
	insts  map[int64]*inst
	queues map[queueKey]*queue
	hashes map[engine.Queue][]*queue
	hot    []*queue // to be fed when the events at hand are handled
	jobs   map[int64]int
	limits map[int64]*limited // by job
	timers timers
	dueAt  int64 // when something waiting becomes due, at the earliest; 0: nothing known
	gains  uint64
	// loading are instances that are being read for a command: whether one was touched
	// meanwhile.
	loading map[int64]bool
	newest  map[int64]asking // the newest Load of each: an older one may bring an older row
	loads   uint64
	asks    uint64 // Directs, Lists and ReadStages so far: an answer that names an older one is late
	global  []Effect
	lists   []Listed // wait for reports
	now     int64
	// tombs are instances that became final without passing through memory while a fetch
	// was open, which may still bring their old row.
	waits   map[engine.Queue]*waiting
	tombs   map[int64]struct{}
	fetches int
	sweepAt int64
	readyAt int64 // until then beats may be missing because this owner is new
	newAt   int64 // since when it is: the last take-over or reconnect
	stats   Stats
}

// New makes an owner of no shard.
func New(cfg Config, fleet Fleet, hooks Hooks) *Owner {
	return &Owner{
		cfg: cfg.withDefaults(), fleet: fleet, hooks: hooks,
		insts: map[int64]*inst{}, queues: map[queueKey]*queue{}, hashes: map[engine.Queue][]*queue{},
		jobs: map[int64]int{}, limits: map[int64]*limited{}, waits: map[engine.Queue]*waiting{}, tombs: map[int64]struct{}{}, loading: map[int64]bool{}, newest: map[int64]asking{},
	}
}

// asking is a Load that is under way.
type asking struct {
	ask uint64
	at  int64
}

// inst is an instance on its way.
type inst struct {
	engine.Instance
	app        *App
	spec       *workflow.Spec
	job        string
	sh         *shard
	q          *queue
	unread     bool // its spec cannot be read
	fresh      bool // not yet inserted
	dirty      bool
	chunks     map[int64]*chunk // unfinished, of every phase
	run        *run
	bc         *broadcast
	tasks      map[engine.TaskKey]*taskRow
	timeout    *timer
	heard      int64  // last report about it
	listed     int64  // last recovery
	relist     bool   // a message of it is known to be lost
	listing    uint64 // the List under way; 0: none
	checkpoint []byte // of the attempt before
}

// chunk is one chunk on its way.
type chunk struct {
	key      broker.ChunkKey
	phase    broker.Phase
	first    int64
	count    int64
	left     int64
	seq      uint64 // where its items lie in the stage
	off      int32
	attempt  int32 // of its tasks
	lost     int32
	holder   Target
	last     Target // who had it before it was taken away
	since    int64  // when the holder got it
	worker   Target // it is directed to; empty: the lane
	asked    uint64 // its Direct that is not answered yet; 0: none
	accepted bool   // the directed worker has said so
	sentAt   int64
	unsent   bool           // waits for its items to be read again
	moved    map[int64]bool // numbers that travel in another chunk
	spent    int64          // ns of work reported
	timeout  *timer
	pause    *timer   // after which it is sent again
	exclude  []string // workers that refused it
}

// taskRow is a row of the tasks table in memory.
type taskRow struct {
	engine.Task
	fresh bool
	dirty bool
	gone  bool
}

// shard is a shard that this owner owns.
type shard struct {
	id      uint8
	number  int16
	epoch   int64
	gen     uint32
	gained  uint64 // when, counted in gains
	cursor  uint64
	moved   bool // the cursor, since the last Change
	reset   bool
	insts   map[int64]*inst
	dirty   []*inst
	runs    []*run
	tasks   []*taskRow
	change  engine.Change
	permits []engine.Permit // to be asked for behind the Change
	out     []Effect
	// asks wait for the reports up to a sequence.
	asks []Asked
}

// Batch is what some events came to: Changes to be stored in this order, each with its
// effects, and effects that wait for all of them.
type Batch struct {
	Changes []Stored
	After   []Effect
}

// Stored is the Change of one shard with what follows it.
type Stored struct {
	Change  engine.Change
	Gen     uint32
	Effects []Effect
	// Permit is set if the Change does nothing but ask for it: Permitted comes back. A refusal
	// (ErrLimit) is an answer.
	Permit *engine.Permit
}

// Owns tells whether the shard is owned and loaded.
func (o *Owner) Owns(shard uint8) bool { return o.shards[shard] != nil }

// Cursor is how far the shard's reports are taken in, committed or about to be.
func (o *Owner) Cursor(shard uint8) uint64 {
	if sh := o.shards[shard]; sh != nil {
		return sh.cursor
	}
	return 0
}

// Stats is a copy of the counters.
func (o *Owner) Stats() Stats {
	s := o.stats
	s.Active = int64(len(o.insts))
	return s
}

// Advance tells the owner the time without an event, before Admit, Stop or Pending.
func (o *Owner) Advance(now int64) { o.now = max(o.now, now) }

// Handle takes one event in. now is epoch ms by the server's clock and never goes back.
func (o *Owner) Handle(now int64, ev Event) {
	o.now = max(o.now, now)
	switch e := ev.(type) {
	case Gained:
		o.gain(e)
	case Lost:
		o.lose(e.Shard)
	case Triggered:
		o.trigger(e)
	case Reported:
		o.reported(e)
	case CursorReset:
		o.resetCursor(e)
	case Asked:
		o.asked(e)
	case Fetched:
		o.fetched(e)
	case Heads:
		o.heads(e.Heads)
	case Staged:
		o.staged(e)
	case Restaged:
		o.restaged(e)
	case Unpublished:
		o.unpublished(e)
	case Listed:
		o.listed(e)
	case Directed:
		o.directed(e)
	case WorkerNews:
		o.workerNews(e.App)
	case WorkerDead:
		o.workerDead(e)
	case BrokerUp:
		o.recoverAll()
	case Command:
		o.command(e)
	case LateLoaded:
		o.lateLoaded(e)
	case Permitted:
		o.answerPermit(e)
	case Stepped:
		o.stepped(e.By)
	case Tick:
	}
	o.fire()
}

// NextWake is when the owner wants a Tick at the latest, epoch ms.
func (o *Owner) NextWake() int64 {
	at := o.sweepAt
	earlier := func(t int64) {
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	if len(o.timers) > 0 {
		earlier(o.timers[0].at)
	}
	earlier(o.dueAt)
	return at
}

// Take feeds the queues that changed and takes out what there is to store and to do.
func (o *Owner) Take() Batch {
	o.feedHot()
	var b Batch
	for _, sh := range o.shards {
		if sh == nil {
			continue
		}
		if st, ok := sh.take(o.now); ok {
			b.Changes = append(b.Changes, st)
		}
		b.Changes = sh.takePermits(b.Changes)
	}
	b.After, o.global = o.global, nil
	return b
}

func (o *Owner) after(e Effect) { o.global = append(o.global, e) }

func (s *shard) effect(e Effect) { s.out = append(s.out, e) }

// take turns what is dirty into a Change. A cursor that moved alone does not make one,
// unless nothing else came for a while: Flush.
func (s *shard) take(now int64) (Stored, bool) {
	c := s.change
	s.change = engine.Change{}
	for _, in := range s.dirty {
		in.dirty = false
		if in.fresh {
			in.fresh = false
			c.NewInstances = append(c.NewInstances, in.Instance)
		} else {
			c.Instances = append(c.Instances, in.Instance)
		}
	}
	s.dirty = s.dirty[:0]
	for _, r := range s.runs {
		row := r.row(now)
		r.dirty = false
		if r.fresh {
			r.fresh = false
			c.NewRuns = append(c.NewRuns, row)
		} else {
			c.Runs = append(c.Runs, row)
		}
	}
	s.runs = s.runs[:0]
	for _, t := range s.tasks {
		t.dirty = false
		switch {
		case t.gone && t.fresh:
		case t.gone:
			c.GoneTasks = append(c.GoneTasks, t.TaskKey)
		case t.fresh:
			t.fresh = false
			c.NewTasks = append(c.NewTasks, t.Task)
		default:
			c.Tasks = append(c.Tasks, t.Task)
		}
	}
	s.tasks = s.tasks[:0]
	effects := s.out
	s.out = nil
	if c.Rows() == 0 && len(effects) == 0 && !s.reset {
		return Stored{}, false
	}
	if c.Rows() > 0 || s.reset {
		c.Fenced, c.Shard, c.Owner, c.Epoch = true, s.id, s.number, s.epoch
		c.Cursor, c.ResetCursor = s.cursor, s.reset
		s.moved, s.reset = false, false
	}
	c.Shard = s.id
	return Stored{Change: c, Gen: s.gen, Effects: effects}, true
}

// MoveCursors makes a Change of every cursor that moved without one, so that reports that
// changed nothing can be purged. The driver calls it now and then.
func (o *Owner) MoveCursors() Batch {
	var b Batch
	for _, sh := range o.shards {
		if sh != nil && sh.moved && !sh.pending() {
			sh.moved = false
			b.Changes = append(b.Changes, Stored{Gen: sh.gen, Change: engine.Change{
				Fenced: true, Shard: sh.id, Owner: sh.number, Epoch: sh.epoch, Cursor: sh.cursor,
			}})
		}
	}
	return b
}

// pending tells whether something of the shard waits to be taken: the cursor must not be
// stored before it.
func (s *shard) pending() bool {
	return len(s.dirty)+len(s.runs)+len(s.tasks)+s.change.Rows() > 0 || s.reset
}

// Pending gives hooks the Change that the shard's next batch will store, to add rows of
// their own; nil if the shard is not owned.
func (o *Owner) Pending(shard uint8) *engine.Change {
	if sh := o.shards[shard]; sh != nil {
		return &sh.change
	}
	return nil
}

// After adds an effect that waits for the shard's next Change.
func (o *Owner) After(shard uint8, e Effect) {
	if sh := o.shards[shard]; sh != nil {
		sh.effect(e)
	}
}

func (o *Owner) touch(in *inst) {
	if !in.dirty {
		in.dirty = true
		in.sh.dirty = append(in.sh.dirty, in)
	}
}

func (o *Owner) touchTask(in *inst, t *taskRow) {
	if !t.dirty {
		t.dirty = true
		in.sh.tasks = append(in.sh.tasks, t)
	}
}

// task is the row of a task, made if there is none.
func (o *Owner) task(in *inst, k engine.TaskKey) *taskRow {
	t := in.tasks[k]
	if t == nil {
		t = &taskRow{fresh: true, Task: engine.Task{TaskKey: k, Status: engine.TaskWaiting, Attempt: 1}}
		if in.tasks == nil {
			in.tasks = map[engine.TaskKey]*taskRow{}
		}
		in.tasks[k] = t
	}
	o.touchTask(in, t)
	return t
}

func (o *Owner) dropTask(in *inst, k engine.TaskKey) {
	if t := in.tasks[k]; t != nil {
		delete(in.tasks, k)
		t.gone = true
		o.touchTask(in, t)
	}
}

// moveTask moves a task row by its table; an illegal move is a no-op.
func moveTask(t *taskRow, to engine.TaskStatus) bool {
	if !engine.TaskMoves.Can(t.Status, to) {
		return false
	}
	t.Status = to
	return true
}

// gain takes a shard over. Everything in it may have lost its messages: it is recovered.
func (o *Owner) gain(e Gained) {
	st := e.State
	o.lose(st.Shard.Shard)
	sh := &shard{
		id: st.Shard.Shard, number: e.Number, epoch: st.Shard.Epoch, gen: e.Gen,
		cursor: st.Shard.Cursor, insts: map[int64]*inst{},
	}
	o.gains++
	sh.gained = o.gains
	o.shards[sh.id] = sh
	o.readyAt, o.newAt = max(o.readyAt, o.now+2*o.cfg.BeatEvery+500), o.now
	tasks := map[int64][]engine.Task{}
	for _, t := range st.Tasks {
		tasks[t.Instance] = append(tasks[t.Instance], t)
	}
	runs := map[int64]engine.MapRun{}
	for _, r := range st.Runs {
		runs[r.Instance] = r
	}
	for _, p := range st.Permits {
		o.limitOf(p.Job).held[p.Instance] = sh.id
	}
	sh.change.GonePermits = append(sh.change.GonePermits, st.SparePermits...)
	var ids []int64
	for _, row := range e.Rows {
		in := o.adopt(sh, row)
		if row.Err != nil {
			o.finish(in, engine.StatusFailed, nil, row.Err.Error())
			continue
		}
		o.holdPermit(in)
		o.revive(in, runs[in.ID], tasks[in.ID])
		if o.insts[in.ID] == in {
			ids = append(ids, in.ID)
		}
	}
	for _, w := range o.waits {
		w.backlog, w.again = true, true
	}
	for _, q := range o.sorted() {
		o.heat(q)
	}
	o.sweepAt = o.now
	o.recover(ids)
}

// adopt makes an instance of a row.
func (o *Owner) adopt(sh *shard, row Row) *inst {
	in := &inst{Instance: row.Instance, app: row.App, spec: row.Spec, job: row.Job, sh: sh, heard: o.now}
	if in.spec == nil {
		in.spec, in.unread = &workflow.Spec{}, true
	}
	if in.app == nil {
		in.app = &App{ID: in.Instance.App}
	}
	in.q = o.queue(in.app, in.Lane, in.Pool)
	in.chunks, in.checkpoint = map[int64]*chunk{}, row.Checkpoint
	if _, ok := o.loading[in.ID]; ok {
		o.loading[in.ID] = true
	}
	o.insts[in.ID] = in
	sh.insts[in.ID] = in
	return in
}

// lose forgets a shard and everything in it.
func (o *Owner) lose(id uint8) {
	sh := o.shards[id]
	if sh == nil {
		return
	}
	o.shards[id] = nil
	o.losePermits(id)
	for target := range o.loading {
		o.loading[target] = true
	}
	for _, id := range sortedKeys(sh.insts) {
		o.forget(sh.insts[id])
	}
	for _, a := range sh.asks {
		o.after(Answer{Reply: a.Reply, With: &broker.AskReply{Verdict: broker.VerdictRetry}})
	}
	for _, e := range sh.out {
		switch e := e.(type) {
		case Wake:
			o.after(Wake{Done: e.Done, Err: engine.ErrFenced})
		case Answer:
			o.after(Answer{Reply: e.Reply, With: &broker.AskReply{Verdict: broker.VerdictRetry}})
		}
	}
}

// forget takes an instance out of memory and gives back what it held.
func (o *Owner) forget(in *inst) {
	for _, n := range sortedKeys(in.chunks) {
		o.release(in, in.chunks[n])
	}
	if in.run != nil {
		in.q.runs = slices.DeleteFunc(in.q.runs, func(r *run) bool { return r == in.run })
	}
	o.cancel(in.timeout)
	in.timeout = nil
	if _, ok := o.loading[in.ID]; ok {
		o.loading[in.ID] = true
	}
	delete(o.insts, in.ID)
	delete(in.sh.insts, in.ID)
}
