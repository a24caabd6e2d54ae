package processor

import (
	"math"
	"runtime"
	"sync"
	"time"
)

const (
	pullExpiry = 2 * time.Second
	// fresh is how long an open request of a busy lane counts as about to be filled. After it
	// the lane is taken for dry, and its open requests for probes that wait for work.
	fresh = 10 * time.Millisecond
	// maxProbes bounds the requests that wait on a lane without work. The first delivery makes
	// the lane busy, and the rest of the free slots is asked for at once.
	maxProbes = 8
	laneBulk  = "bulk"
)

var lanesByPriority = []struct {
	name   string
	weight float64
}{{"high", 8}, {"normal", 4}, {laneBulk, 1}}

// lane is one (lane, pool) the worker pulls from.
type lane struct {
	name   string
	pool   string
	weight float64
	pull   puller

	open  int       // messages asked for and not come
	busy  bool      // the last request was filled
	asked time.Time // when the newest request was made
	got   time.Time // when the newest message came
	pass  float64   // virtual time of the weighted turn
}

// slots knows what is free and asks the lanes for exactly that: busy lanes share the free slots
// 8:4:1, lanes without work hold a few probes. Only probes can bring more than is free; the surplus
// goes back at once.
type slots struct {
	now func() time.Time

	mu     sync.Mutex
	total  int
	busy   int
	bulk   int // of the busy ones
	closed bool
	lanes  []*lane
	kick   chan struct{}
}

func newSlots(total int) *slots {
	return &slots{now: time.Now, total: total, kick: make(chan struct{}, 1)}
}

// bulkLimit leaves one slot to the other lanes, if there are two.
func (s *slots) bulkLimit() int { return max(1, s.total-1) }

// take takes a slot if one is free for the lane.
func (s *slots) take(laneName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(laneName)
}

func (s *slots) takeLocked(laneName string) bool {
	if s.busy >= s.total || laneName == laneBulk && s.bulk >= s.bulkLimit() {
		return false
	}
	s.busy++
	if laneName == laneBulk {
		s.bulk++
	}
	return true
}

func (s *slots) free(laneName string) {
	s.mu.Lock()
	s.busy--
	if laneName == laneBulk {
		s.bulk--
	}
	s.mu.Unlock()
	s.poke()
}

func (s *slots) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (s *slots) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// came notes a delivery of l and takes a slot for it, in one step: between the two the asker would
// see a slot that is neither asked for nor taken, and ask once too often.
func (s *slots) came(l *lane) (took bool) {
	s.mu.Lock()
	l.open = max(0, l.open-1)
	if !l.busy {
		l.busy = true
		for _, o := range s.lanes { // no credit for the time without work
			if o != l && o.busy {
				l.pass = max(l.pass, o.pass)
			}
		}
	}
	l.got = s.now()
	took = s.takeLocked(l.name)
	s.mu.Unlock()
	s.poke()
	return took
}

// ended notes that a request of l ended with n messages unfilled.
func (s *slots) ended(l *lane, n int) {
	s.mu.Lock()
	l.open = max(0, l.open-n)
	if n > 0 {
		l.busy = false
	}
	s.mu.Unlock()
	s.poke()
}

// forget gives up requests whose end was never told, long after they expired.
func (s *slots) forget() {
	s.mu.Lock()
	for _, l := range s.lanes {
		if l.open > 0 && s.now().Sub(l.asked) > 3*pullExpiry {
			l.open, l.busy = 0, false
		}
	}
	s.mu.Unlock()
	s.poke()
}

type wish struct {
	lane *lane
	n    int
}

// wishes decides what to ask for, and notes it as asked. later says that slots were set aside for
// requests that may turn out to wait in vain: decide again when they are no longer fresh.
func (s *slots) wishes() (out []wish, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.total - s.busy
	if s.closed || free <= 0 {
		return nil, false
	}
	now := s.now()
	bulkFree := s.bulkLimit() - s.bulk
	more := make([]int, len(s.lanes))
	budget := free
	for _, l := range s.lanes {
		if l.open > 0 && l.busy && (now.Sub(l.asked) < fresh || now.Sub(l.got) < fresh) {
			budget -= l.open
			later = true
		}
		if l.name == laneBulk {
			bulkFree -= l.open
		}
	}
	for ; budget > 0; budget-- {
		best := -1
		for i, l := range s.lanes {
			if l.busy && l.open+more[i] < free && (l.name != laneBulk || bulkFree > 0) && (best < 0 || l.pass < s.lanes[best].pass) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		more[best]++
		s.lanes[best].pass += 1 / s.lanes[best].weight
		if s.lanes[best].name == laneBulk {
			bulkFree--
		}
	}
	var weights float64
	for _, l := range s.lanes {
		weights += l.weight
	}
	for i, l := range s.lanes {
		if l.busy {
			continue
		}
		probes := min(maxProbes, int(math.Ceil(float64(free)*l.weight/weights)))
		if l.name == laneBulk {
			probes = min(probes, l.open+max(0, bulkFree))
		}
		more[i] = max(0, probes-l.open)
		if l.name == laneBulk {
			bulkFree -= more[i]
		}
	}
	for i, n := range more {
		if n > 0 {
			s.lanes[i].open += n
			s.lanes[i].asked = now
			out = append(out, wish{s.lanes[i], n})
		}
	}
	return out, later
}

// run asks whenever something moved, until stop closes. It yields first until no more slots
// come free, so that slots that finish together share a request.
func (s *slots) run(stop <-chan struct{}) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-stop:
			return
		case <-s.kick:
		case <-again.C:
		}
		for last, i := -1, 0; i < 10; i++ {
			n := s.taken()
			if n == last {
				break
			}
			last = n
			runtime.Gosched()
		}
		wishes, later := s.wishes()
		if later {
			again.Reset(fresh)
		} else {
			again.Stop()
		}
		for _, w := range wishes {
			if err := w.lane.pull.Want(w.n); err != nil {
				s.mu.Lock() // asked again at the next tick of the keeper
				w.lane.open = max(0, w.lane.open-w.n)
				w.lane.busy = false
				s.mu.Unlock()
			}
		}
	}
}

// close ends the asking and the pullers.
func (s *slots) close() {
	s.mu.Lock()
	s.closed = true
	lanes := s.lanes
	s.mu.Unlock()
	for _, l := range lanes {
		if l.pull != nil {
			l.pull.Close()
		}
	}
}
