package track

import (
	"container/heap"

	"github.com/fanjet/fanjet/broker"
)

// timerKind says what a timer is for.
type timerKind uint8

const (
	timerInstance timerKind = iota + 1 // the attempt's timeout
	timerTask                          // a task over its timeout without a word
	timerRetry                         // a sub-task's next attempt
	timerReduce                        // the reduce's next attempt
	timerAgain                         // a chunk to be sent again
	timerDirect                        // a directed chunk without an answer
	timerShare                         // a share's next attempt
	timerFeed                          // a run held back by its rate
)

// timer is an alarm. Whoever it wakes looks whether it still matters; the long ones are
// canceled as well, so that they do not pile up.
type timer struct {
	at       int64
	kind     timerKind
	instance int64
	attempt  int32
	chunk    int64
	number   int64
	index    int
}

type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(x any) {
	e := x.(*timer)
	e.index = len(*t)
	*t = append(*t, e)
}

func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	x.index = -1
	return x
}

func (o *Owner) at(x *timer) *timer {
	heap.Push(&o.timers, x)
	return x
}

func (o *Owner) cancel(x *timer) {
	if x != nil && x.index >= 0 {
		heap.Remove(&o.timers, x.index)
	}
}

// fire runs what is due, and the sweep once a second.
func (o *Owner) fire() {
	for len(o.timers) > 0 && o.timers[0].at <= o.now {
		x := heap.Pop(&o.timers).(*timer)
		in := o.insts[x.instance]
		if in == nil || in.Attempt != x.attempt {
			continue
		}
		c := in.chunks[x.chunk]
		switch x.kind {
		case timerInstance:
			in.timeout = nil
			o.instanceTimeout(in)
		case timerTask:
			o.taskTimeout(in, x.chunk)
		case timerRetry:
			o.retryDue(in, x.number)
		case timerReduce:
			if in.run != nil {
				o.runOver(in.run)
			}
		case timerAgain:
			if c == nil {
				continue
			}
			c.pause = nil
			if c.holder.Worker == "" && c.worker.Worker == "" {
				o.again(in, c)
			}
		case timerShare:
			o.shareRetryDue(in, broker.Phase(x.chunk), x.number)
		case timerFeed:
			o.heat(in.q)
		case timerDirect:
			if c != nil && c.worker.Worker != "" && !c.accepted {
				o.sendAgain(in, c)
			}
		}
	}
	o.due()
	if o.sweepAt > 0 && o.now >= o.sweepAt {
		o.sweepAt = o.now + 1000
		o.sweep()
	}
}

// stepped moves what is measured from a moment that the clock has left behind. What is due
// at a time of day stays: that time has come.
func (o *Owner) stepped(by int64) {
	for _, t := range o.timers {
		switch t.kind {
		case timerInstance, timerTask, timerAgain, timerDirect, timerReduce, timerFeed:
			t.at += by
		default:
		}
	}
	heap.Init(&o.timers)
	for _, in := range o.insts {
		in.heard += by
		if in.listed > 0 {
			in.listed += by
		}
		for _, c := range in.chunks {
			c.sentAt += by
			if c.since > 0 {
				c.since += by
			}
		}
	}
	o.readyAt, o.newAt = o.readyAt+by, o.newAt+by
}
