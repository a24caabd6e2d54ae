package flow

import "github.com/fanjet/fanjet/engine"

// pastMost bounds how many final workflow instances are remembered.
const pastMost = 8192

// past remembers the workflow instances that ended lately: a row that was read before one
// ended still waits, and must not begin it again.
type past struct {
	ended map[int64]ending
	order []int64 // a ring
	next  int
}

type ending struct {
	attempt int32
	shard   uint8
}

func (p *past) add(w *engine.WorkflowInstance) {
	if _, ok := p.ended[w.ID]; !ok {
		if len(p.order) < pastMost {
			p.order = append(p.order, w.ID)
		} else {
			delete(p.ended, p.order[p.next])
			p.order[p.next] = w.ID
			p.next = (p.next + 1) % pastMost
		}
	}
	p.ended[w.ID] = ending{w.Attempt, w.Shard}
}

// stale tells whether the row is older than the end of its attempt, or of a later one.
func (p *past) stale(w *engine.WorkflowInstance) bool {
	e, ok := p.ended[w.ID]
	return ok && (w.Attempt < e.attempt || w.Attempt == e.attempt && !w.Status.Terminal())
}

// forget is for a shard that went: what is remembered of it may never have been stored. Its
// rows tell when it comes back.
func (p *past) forget(shard uint8) {
	for id, e := range p.ended {
		if e.shard == shard {
			delete(p.ended, id)
		}
	}
}
