package track

import (
	"maps"

	"github.com/fanjet/fanjet/engine"
)

// limited is what this owner knows of a job with MaxRunning. The truth is in the store, where
// the permits of all shards are counted.
type limited struct {
	// held is instance → shard: those that have a permit, as far as this owner has seen. Of its
	// own shards it sees all: one that was granted and not used would keep all others waiting.
	held   map[int64]uint8
	asked  map[int64]question // those whose permit is being asked for
	full   bool               // the last question was refused, and nothing has ended since
	queues map[*queue]bool    // to be looked at again when a permit comes free
	// most is the limit of the newest version seen: it holds for older ones that wait, too, lest
	// they are refused for as long as a newer one with a higher limit keeps on running.
	most    int
	version int32
}

// question is for the permit of an instance that waits.
type question struct {
	shard uint8
	q     *queue
	at    engine.WaitingPos
}

func (o *Owner) limitOf(job int64) *limited {
	l := o.limits[job]
	if l == nil {
		l = &limited{held: map[int64]uint8{}, asked: map[int64]question{}, queues: map[*queue]bool{}}
		o.limits[job] = l
	}
	return l
}

// permitted tells whether the instance may be under way. If not, and there may be room for
// it, its permit is asked for: Permitted comes back.
func (o *Owner) permitted(in *inst) bool {
	if in.spec.MaxRunning <= 0 || in.Job == 0 {
		return true
	}
	l := o.limitOf(in.Job)
	if in.JobVersion >= l.version {
		l.most, l.version = in.spec.MaxRunning, in.JobVersion
	}
	if _, ok := l.held[in.ID]; ok {
		return true
	}
	l.queues[in.q] = true
	if _, ok := l.asked[in.ID]; ok || l.full || len(l.held)+len(l.asked) >= l.most {
		return false
	}
	l.asked[in.ID] = question{in.sh.id, in.q, engine.WaitingPos{DueAt: in.DueAt, ID: in.ID - 1}}
	in.sh.permits = append(in.sh.permits, engine.Permit{Job: in.Job, Instance: in.ID, Max: int32(l.most)})
	return false
}

// holdForPermit comes last of what may hold an instance back: one that cannot start for
// another reason must not keep a permit from those that can.
func (o *Owner) holdForPermit(in *inst) engine.Reason {
	if o.permitted(in) {
		return ""
	}
	return engine.ReasonQueued
}

// takePermits are the questions for permits, a Change each, so that each is answered alone.
// They leave the cursor alone: one that is refused is dropped without a second try of all that
// is stored with it.
func (s *shard) takePermits(to []Stored) []Stored {
	for _, p := range s.permits {
		c := engine.Change{
			Fenced: true, Shard: s.id, Owner: s.number, Epoch: s.epoch, Permits: []engine.Permit{p},
		}
		to = append(to, Stored{Change: c, Gen: s.gen, Permit: &p})
	}
	s.permits = nil
	return to
}

// answerPermit takes in whether a permit was granted.
func (o *Owner) answerPermit(e Permitted) {
	l := o.limits[e.Permit.Job]
	if l == nil {
		return
	}
	asked, ok := l.asked[e.Permit.Instance]
	if !ok {
		return
	}
	delete(l.asked, e.Permit.Instance)
	if e.Granted && o.shards[e.Shard] != nil {
		l.held[e.Permit.Instance] = e.Shard
		asked.q.wait.callBack(asked.at)
		o.unblock(asked.q)
	} else {
		l.full = true
	}
	o.tidyLimit(e.Permit.Job, l)
}

// givePermit is for an instance that is final. One whose spec cannot be read may have one.
func (o *Owner) givePermit(in *inst) {
	if in.Job == 0 || in.spec.MaxRunning <= 0 && !in.unread {
		return
	}
	in.sh.change.GonePermits = append(in.sh.change.GonePermits, engine.Permit{Job: in.Job, Instance: in.ID})
	if l := o.limits[in.Job]; l != nil {
		delete(l.held, in.ID)
		delete(l.asked, in.ID)
		l.full = false
		o.retryLimited(l)
		o.tidyLimit(in.Job, l)
	}
}

// holdPermit is for an instance that is under way as its shard is loaded: it has one.
func (o *Owner) holdPermit(in *inst) {
	if in.spec.MaxRunning > 0 && in.Job != 0 && in.Status != engine.StatusWaiting {
		o.limitOf(in.Job).held[in.ID] = in.sh.id
	}
}

// losePermits forgets what a lost shard held and asked for. The questions of other shards
// stand: a permit that was granted and is not known of would keep all others waiting.
func (o *Owner) losePermits(shard uint8) {
	for _, job := range sortedKeys(o.limits) {
		l := o.limits[job]
		maps.DeleteFunc(l.held, func(_ int64, of uint8) bool { return of == shard })
		maps.DeleteFunc(l.asked, func(_ int64, q question) bool { return q.shard == shard })
		o.tidyLimit(job, l)
	}
}

// freeLimits lets permits be asked for again: those of other owners end unheard.
func (o *Owner) freeLimits() {
	for _, l := range o.limits {
		l.full = false
	}
}

func (o *Owner) retryLimited(l *limited) {
	for _, q := range sortQueues(maps.Keys(l.queues)) {
		q.wait.callBack(engine.WaitingPos{})
		o.unblock(q)
	}
}

func (o *Owner) tidyLimit(job int64, l *limited) {
	if len(l.held) == 0 && len(l.asked) == 0 && !l.full {
		delete(o.limits, job)
	}
}
