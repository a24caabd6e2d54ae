package track_test

import (
	"context"
	"errors"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// simServer drives an Owner as a server does: one event at a time, one commit in flight,
// effects after the commit.
type simServer struct {
	w           *world
	name        string
	alive       bool
	life        int // grows with each start; what an earlier life had under way is void
	nap         nap
	number      int16
	token       uint64
	leaseUntil  int64
	owner       *track.Owner
	fleet       *simFleet
	gens        [engine.Shards]uint32
	epochs      map[uint8]int64
	read        map[uint8]uint64 // the last report handed to the owner
	queue       []track.Stored   // to be committed, in order; effects alone count too
	committing  bool
	loseCommits int
	commands    int64
	taking      bool
	maxActive   int64
	shy         int64                     // takes no shard until then
	generous    uint8                     // a shard that it gives up once it has had it for a while
	finals      map[int64]*roaring.Bitmap // when the last batch was taken
}

func newSimServer(w *world, name string) *simServer { return &simServer{w: w, name: name} }

// later runs f in this life, after the freeze if there is one.
func (s *simServer) later(ms int64, f func()) {
	life := s.life
	var run func()
	run = func() {
		switch {
		case s.life != life || !s.alive:
		case s.nap.on:
			s.nap.parked = append(s.nap.parked, run)
		default:
			f()
		}
	}
	s.w.after(ms, run)
}

func (s *simServer) boot() {
	w := s.w
	s.life++
	s.alive, s.nap = true, nap{count: s.nap.count + 1}
	s.token = w.rng.Uint64()>>1 | 1
	s.fleet = newSimFleet(w)
	s.owner = track.New(track.Config{MaxLost: w.maxLost()}, s.fleet, nil)
	s.epochs = map[uint8]int64{}
	s.read, s.queue, s.committing, s.commands, s.taking, s.finals = map[uint8]uint64{}, nil, false, 0, false, nil
	row, err := w.db.JoinServer(context.Background(), s.name, s.token, leaseMs)
	if err != nil {
		w.fail("join: %v", err)
		return
	}
	s.number, s.leaseUntil = row.Number, w.now+leaseMs
	w.note("%s boots as %d", s.name, s.number)
	s.later(0, s.lease)
	s.later(5, s.second)
	s.later(10, s.tick)
}

func (s *simServer) kill() {
	s.w.note("%s killed", s.name)
	s.alive = false
	s.life++
	life := s.life
	s.w.after(s.w.between(10, 8000), func() {
		if s.life == life {
			s.boot()
		}
	})
}

func (s *simServer) freeze(ms int64) {
	s.w.note("%s frozen for %d ms", s.name, ms)
	s.nap.begin(s.w, ms, func() { s.fleet.refresh() })
}

func (s *simServer) deciding() bool { return s.w.now < s.leaseUntil }

// lease renews the lease and takes shards that nobody has; a live server that has many lets
// others have some at the start, which is enough to have all kinds of take-over.
func (s *simServer) lease() {
	s.later(1000, s.lease)
	w := s.w
	ctx := context.Background()
	if _, err := w.db.RenewServer(ctx, s.number, s.token, leaseMs, 0); err != nil {
		if errors.Is(err, engine.ErrFenced) {
			w.note("%s lost its number", s.name)
			s.alive = false
			s.life++
			w.after(w.between(10, 1000), s.boot)
			return
		}
		w.fail("renew: %v", err)
		return
	}
	// What was lost while it was away is let go before it decides again: a stale owner that
	// answers would have work acked that nobody has done.
	rows, err := w.db.ShardOwners(ctx)
	if err != nil {
		w.fail("shards: %v", err)
	}
	for _, row := range rows {
		if s.owner.Owns(row.Shard) && (row.Owner != s.number || row.Epoch != s.epochs[row.Shard]) {
			w.note("%s has lost shard %d", s.name, row.Shard)
			s.drop(row.Shard)
		}
	}
	s.leaseUntil = w.now + leaseMs
	owned, live := 0, 0
	for shard := range w.epochs {
		if s.owner.Owns(shard) {
			owned++
		}
	}
	for _, x := range w.servers {
		if x.alive {
			live++
		}
	}
	for _, shard := range sorted(w.epochs) {
		if !w.broker.up || s.owner.Owns(shard) || w.now < s.shy || owned > len(w.epochs)/max(live, 1) {
			continue
		}
		row, err := w.db.ClaimShard(ctx, shard, s.number, s.token)
		if err != nil {
			continue
		}
		w.epochs[shard] = max(w.epochs[shard], row.Epoch)
		owned++
		s.load(shard, row.Epoch)
	}
	if !w.calm && (owned > 1 && w.chance(0.02) || w.faults.alternate && owned > 0 && w.chance(0.3)) {
		for _, shard := range sorted(w.epochs) {
			if s.owner.Owns(shard) && (shard == s.generous || w.chance(0.6)) {
				w.note("%s gives shard %d up", s.name, shard)
				s.drop(shard)
				_ = w.db.ReleaseShard(ctx, shard, s.number, w.epochs[shard])
				break
			}
		}
	}
}

// drop forgets a shard; what of it was not committed is never spoken of.
func (s *simServer) drop(shard uint8) {
	s.gens[shard]++
	s.finals = nil
	s.handle(track.Lost{Shard: shard})
}

func (s *simServer) load(shard uint8, epoch int64) {
	w := s.w
	s.gens[shard]++
	s.finals = nil
	state, err := w.db.LoadShard(context.Background(), shard, s.number, epoch)
	if errors.Is(err, engine.ErrFenced) {
		s.handle(track.Lost{Shard: shard})
		return
	}
	if err != nil {
		w.fail("load: %v", err)
		return
	}
	w.note("%s owns shard %d at epoch %d, cursor %d, %d instances", s.name, shard, epoch, state.Shard.Cursor, len(state.Instances))
	var rows []track.Row
	for _, in := range state.Instances {
		rows = append(rows, w.row(in))
	}
	s.read[shard], s.epochs[shard] = state.Shard.Cursor, epoch
	w.gained[shard] = append(w.gained[shard], w.now)
	s.handle(track.Gained{State: state, Rows: rows, Gen: s.gens[shard], Number: s.number})
	s.resetIfShort(shard)
	s.pump(shard)
	for _, c := range state.Commands {
		s.handle(track.Command{Command: c})
	}
	for _, x := range w.workers {
		w.core(func() { x.control(broker.Control{Kind: broker.ControlEpoch, Shard: shard, Epoch: epoch}) })
	}
}

func (s *simServer) resetIfShort(shard uint8) {
	b := s.w.broker
	if b.up && s.owner.Owns(shard) && b.report < s.owner.Cursor(shard) {
		s.w.note("%s resets the cursor of shard %d to %d", s.name, shard, b.report)
		s.read[shard] = b.report
		for _, j := range s.w.work {
			if engine.ShardOf(j.in.Job) == shard {
				j.lossy = true // what was stored below the old cursor meanwhile is never read
			}
		}
		s.handle(track.CursorReset{Shard: shard, End: b.report})
	}
}

func (s *simServer) brokerUp() {
	if !s.alive {
		return
	}
	s.fleet.refresh()
	// What the stream lost is seen before it gives the same sequences again.
	for shard := range s.w.epochs {
		if b := s.w.broker; b.report < s.owner.Cursor(shard) {
			s.read[shard] = min(s.read[shard], b.report)
		}
	}
	for _, shard := range sorted(s.w.epochs) {
		s.resetIfShort(shard)
		s.pump(shard)
	}
	s.handle(track.BrokerUp{})
}

// pump hands the next report of the shard to the owner, in order.
func (s *simServer) pump(shard uint8) {
	if !s.alive || !s.owner.Owns(shard) {
		return
	}
	late := int64(4)
	if s.w.faults.slow && !s.w.calm {
		late = 200
	}
	s.later(s.w.between(0, late), func() {
		if !s.w.broker.up || !s.owner.Owns(shard) {
			return
		}
		for _, r := range s.w.broker.reports[shard] {
			if r.seq > s.read[shard] {
				s.read[shard] = r.seq
				s.handle(track.Reported{Shard: shard, Seq: r.seq, Batch: r.batch})
				s.pump(shard)
				return
			}
		}
	})
}

func (s *simServer) tick() {
	s.handle(track.Tick{})
	next := s.owner.NextWake()
	s.later(min(max(next-s.w.now, 1), 500), s.tick)
}

// second is what a server does each second beside: look for work, orders and dead workers.
func (s *simServer) second() {
	s.later(1000, s.second)
	w := s.w
	ctx := context.Background()
	var shards []uint8
	for _, shard := range sorted(w.epochs) {
		if s.owner.Owns(shard) {
			shards = append(shards, shard)
		}
	}
	if len(shards) > 0 {
		heads, err := w.db.QueueHeads(ctx)
		if err != nil {
			w.fail("heads: %v", err)
		}
		s.handle(track.Heads{Heads: heads})
		commands, err := w.db.Commands(ctx, shards, 0, 100)
		if err != nil {
			w.fail("commands: %v", err)
		}
		for _, c := range commands {
			s.handle(track.Command{Command: c})
		}
		s.enqueue(s.owner.MoveCursors())
	}
	s.rebuke()
	for _, d := range s.fleet.expire() {
		s.handle(track.WorkerDead{App: w.app.Name, Worker: d.Worker, Incarnation: d.Incarnation})
	}
	s.maxActive = max(s.maxActive, s.owner.Stats().Active)
}

func (s *simServer) beat(b *broker.Beat) {
	news, dead := s.fleet.hear(b)
	if dead.Worker != "" {
		s.handle(track.WorkerDead{App: b.App, Worker: dead.Worker, Incarnation: dead.Incarnation})
	}
	if news {
		s.handle(track.WorkerNews{App: b.App})
	}
}

func (s *simServer) handle(ev track.Event) {
	s.owner.Handle(s.w.now, ev)
	s.w.examine(s, ev)
	if !s.taking {
		s.taking = true
		s.later(s.w.rng.Int64N(2), func() {
			s.taking = false
			b := s.owner.Take()
			s.w.decided(s, b)
			s.enqueue(b)
			s.w.examine(s, nil)
		})
	}
}

func (s *simServer) enqueue(b track.Batch) {
	s.queue = append(s.queue, b.Changes...)
	if len(b.After) > 0 {
		s.queue = append(s.queue, track.Stored{Gen: afterGen, Effects: b.After})
	}
	s.commit()
}

const afterGen = 1<<32 - 1

func (s *simServer) commit() {
	if s.committing || len(s.queue) == 0 {
		return
	}
	s.committing = true
	n := 1 + s.w.rng.IntN(len(s.queue))
	slow := s.w.between(0, 4)
	if s.w.faults.straddle && !s.w.calm && s.w.chance(0.02) {
		slow = s.w.between(50, 1500)
	}
	s.later(slow, func() {
		batch := s.queue[:n:n]
		s.queue = s.queue[n:]
		if s.strike(batch, "before a commit") {
			return
		}
		s.later(0, func() {
			outcome := s.store(batch)
			s.later(s.w.between(0, 2), func() { s.committed(batch, outcome) })
			s.strike(batch, "between a commit and its effects")
		})
	})
}

// store puts what is to be stored into the database; it is the moment of the commit.
func (s *simServer) store(batch []track.Stored) []error {
	w := s.w
	errs := make([]error, len(batch))
	var changes []engine.Change
	var at []int
	for i := range batch {
		c := &batch[i].Change
		if batch[i].Gen == afterGen {
			continue
		}
		if batch[i].Gen != s.gens[c.Shard] {
			errs[i] = engine.ErrFenced
			continue
		}
		if !c.Empty() {
			changes, at = append(changes, *c), append(at, i)
		}
	}
	if len(changes) == 0 {
		return errs
	}
	lost, stored := false, true
	if s.loseCommits > 0 && w.chance(0.3) || w.faults.unknown && !w.calm && w.chance(0.01) {
		s.loseCommits = max(s.loseCommits-1, 0)
		w.harmed++
		lost, stored = true, w.chance(0.5)
	}
	if stored {
		results, err := w.db.Commit(context.Background(), changes)
		if err != nil {
			w.fail("commit: %v", err)
			return errs
		}
		for k, err := range results {
			c := &changes[k]
			errs[at[k]] = err
			switch {
			case err == nil && c.Epoch < w.epochs[c.Shard]:
				w.fail("a Change of epoch %d of shard %d was stored, the shard is at %d", c.Epoch, c.Shard, w.epochs[c.Shard])
			case err == nil:
				w.stored(c)
			case !errors.Is(err, engine.ErrFenced) && !errors.Is(err, engine.ErrConflict):
				w.fail("a Change was refused: %v", err)
			}
		}
	}
	if lost {
		w.note("%s does not know the outcome of a commit (stored: %v)", s.name, stored)
		for _, i := range at {
			errs[i] = engine.ErrUnavailable
		}
	}
	return errs
}

func (s *simServer) committed(batch []track.Stored, errs []error) {
	s.committing = false
	reload := map[uint8]bool{}
	s.strike(batch, "in the middle of effects")
	for i := range batch {
		st := &batch[i]
		shard := st.Change.Shard
		if st.Gen != afterGen && errs[i] == nil && (st.Gen != s.gens[shard] || reload[shard]) {
			errs[i] = engine.ErrFenced
		}
		if errs[i] == nil {
			for _, e := range st.Effects {
				s.perform(e)
			}
			continue
		}
		if st.Gen == s.gens[shard] {
			reload[shard] = true
		}
		for _, e := range st.Effects {
			if wake, ok := e.(track.Wake); ok && wake.Done != nil {
				wake.Done(errs[i])
			}
		}
	}
	for _, shard := range sorted(reload) {
		s.w.note("%s reloads shard %d", s.name, shard)
		s.finals = nil
		s.handle(track.Lost{Shard: shard})
		row := s.w.shardRow(shard)
		if row.Owner == s.number {
			s.load(shard, row.Epoch)
		} else {
			s.gens[shard]++
		}
	}
	s.commit()
}

// perform carries an effect out; each by itself, so that a kill comes between any two.
func (s *simServer) perform(e track.Effect) {
	w, b := s.w, s.w.broker
	committed := w.now
	answer := func(ev track.Event) {
		late := w.between(0, 5)
		if w.faults.straddle && !w.calm && w.chance(0.15) {
			late = w.between(100, 4000)
		}
		s.later(late, func() { s.handle(ev) })
	}
	switch e := e.(type) {
	case track.Publish:
		s.later(w.rng.Int64N(2), func() {
			var err error
			if w.now > committed+1000 {
				err = errors.New("the commit is too long ago")
			} else if err = b.publish(e.Lane, e.Chunk); err == nil && w.chance(0.01) && !w.calm && w.faults.broker {
				err = broker.ErrUnavailable // stored all the same
			}
			w.published(e.Chunk, err)
			w.about(e.Chunk.Instance, "%s publishes %s: %d tasks from %d, %v", s.name, keyOf(e.Chunk.ChunkKey), len(e.Chunk.Tasks), e.Chunk.Tasks[0].Number, err)
			if err != nil {
				answer(track.Unpublished{Shard: e.Chunk.Shard, Key: e.Chunk.ChunkKey, Err: err})
			}
		})
	case track.Direct:
		s.later(w.between(0, 2), func() {
			w.handed(e.Chunk)
			s.direct(e)
		})
	case track.Order:
		for _, x := range w.workers {
			w.core(func() { x.control(e.Control) })
		}
		s.later(500, func() { // told again, as beats would have it
			for _, x := range w.workers {
				w.core(func() { x.control(e.Control) })
			}
		})
	case track.Answer:
		with := e.With
		if !s.deciding() {
			with = &broker.AskReply{Verdict: broker.VerdictRetry}
		}
		w.core(func() { e.Reply(with) })
	case track.Wake:
		if e.Done != nil {
			e.Done(e.Err)
		}
	case track.Final:
		if j := w.work[e.Instance.ID]; j != nil && !w.known[e.Instance.ID].Terminal() {
			w.fail("instance %d was said to be final before that was stored", e.Instance.ID)
		}
	case track.Fetch:
		s.later(w.between(0, 3), func() {
			rows, err := w.db.Waiting(context.Background(), e.Queue, e.Shards, e.Due, e.After, e.Limit)
			var out []track.Row
			for _, in := range rows {
				out = append(out, w.row(in))
			}
			ev := track.Fetched{Queue: e.Queue, Rows: out, Due: e.Due, Limit: e.Limit, Err: err}
			if !s.straddle(ev) {
				answer(ev)
			}
		})
	case track.ReadStage:
		s.later(w.between(0, 3), func() {
			msgs, err := b.readStage(e.Instance, e.Run, e.From, e.Max)
			answer(track.Staged{Instance: e.Instance, Run: e.Run, From: e.From, Max: e.Max, Ask: e.Ask, Messages: msgs, Err: err})
		})
	case track.Reread:
		s.later(w.between(0, 3), func() {
			ev := track.Restaged{Instance: e.Instance, Run: e.Run, Seq: e.Seq}
			if !b.up {
				ev.Err = broker.ErrUnavailable
			}
			for _, m := range b.stage[e.Instance] {
				if m.Seq == e.Seq && b.up {
					ev.Message = &m
				}
			}
			answer(ev)
		})
	case track.List:
		// It waits for the publishes begun before.
		s.later(w.between(3, 8), func() {
			l := s.list(e)
			w.about(w.watch, "%s lists %v: present %v", s.name, slices.Contains(e.Instances, w.watch), l.Present[w.watch])
			answer(l)
		})
	case track.Purge:
		s.later(w.between(0, 50), func() { b.purge(e.Instance, e.Tasks, e.Run) })
		s.later(3000, func() { b.purge(e.Instance, e.Tasks, e.Run) })
	case track.Peek:
		s.later(w.between(0, 3), func() {
			if heads, err := w.db.QueueHeads(context.Background()); err == nil {
				s.handle(track.Heads{Heads: heads})
			}
		})
	case track.Load:
		s.later(w.between(0, 3), func() {
			ev := track.Command{Command: e.Command, Loaded: true, Ask: e.Ask}
			if in, err := w.db.Instance(context.Background(), e.ID); err == nil {
				row := w.row(*in)
				ev.Row = &row
			}
			answer(ev)
		})
	case track.LoadLate:
		s.later(w.between(0, 3), func() {
			if in, err := w.db.Instance(context.Background(), e.ID); err == nil && in.Attempt == e.Attempt {
				row := w.row(*in)
				answer(track.LateLoaded{Row: &row, Result: e.Result})
			}
		})
	default:
		w.fail("nobody carries out %T", e)
	}
}

func (s *simServer) direct(e track.Direct) {
	w := s.w
	life := s.life
	back := func(r broker.DirectedReply, err error) {
		w.about(e.Chunk.Instance, "%s directed %s to %s: %d %v", s.name, keyOf(e.Chunk.ChunkKey), e.Worker, r, err)
		if s.life == life {
			late := w.between(0, 3)
			if w.faults.tardy && !w.calm && w.chance(0.1) {
				w.harmed++
				late = w.between(100, 4000)
			}
			s.later(late, func() {
				s.handle(track.Directed{Shard: e.Chunk.Shard, Key: e.Chunk.ChunkKey, Worker: e.Worker, Ask: e.Ask, Reply: r, Err: err})
			})
		}
	}
	for _, x := range w.workers {
		if x.name != e.Worker || !x.alive || !w.broker.up {
			continue
		}
		answered := false
		w.core(func() {
			switch {
			case x.nap.on:
				w.excuse(&simRun{c: e.Chunk}, "its worker finds the request when it wakes")
			case w.now-x.bootedAt < 5000:
				w.excuse(&simRun{c: e.Chunk}, "it may have been meant for the incarnation before")
			}
			x.later(0, func() {
				r := x.directed(e.Chunk)
				w.core(func() {
					if !answered {
						answered = true
						back(r, nil)
					}
				})
			})
		})
		s.later(5000, func() {
			if !answered {
				answered = true
				w.excuse(&simRun{c: e.Chunk}, "its worker may find the request later")
				back(0, broker.ErrUnavailable)
			}
		})
		return
	}
	back(0, broker.ErrNoResponders)
}

func (s *simServer) list(e track.List) track.Listed {
	b := s.w.broker
	out := track.Listed{App: e.App.ID, Ask: e.Ask, Instances: e.Instances, Present: map[int64][]int64{}, After: map[uint8]uint64{}}
	if !b.up {
		out.Err = broker.ErrUnavailable
		return out
	}
	for _, m := range b.tasks {
		if slices.Contains(e.Instances, m.chunk.Instance) {
			out.Present[m.chunk.Instance] = append(out.Present[m.chunk.Instance], m.chunk.Chunk)
		}
	}
	for _, shard := range e.Shards {
		out.After[shard] = b.lastReport(shard)
	}
	return out
}

// ask is a question as it arrives: it is answered after the reports read so far.
func (s *simServer) ask(q *broker.AskRequest, reply func(*broker.AskReply)) {
	if s.alive && s.owner.Owns(q.Shard) {
		s.later(s.w.rng.Int64N(2), func() {
			if s.w.broker.up {
				gone := s.owner.Gone(q.ChunkKey)
				s.handle(track.Asked{Request: q, After: s.w.broker.lastReport(q.Shard), Reply: func(a *broker.AskReply) {
					for _, n := range gone {
						if q.Kind == broker.AskRun && a.Verdict == broker.VerdictYours && !slices.Contains(a.Done, n) {
							s.w.fail("instance %d: %s gives number %d with chunk %s, which has it no more", q.Instance, s.name, n, keyOf(q.ChunkKey))
						}
					}
					reply(a)
				}})
			}
		})
	}
}
