package schedule

import "github.com/fanjet/fanjet/workflow"

// MaxRun bounds how many fires one Plan runs.
const MaxRun = 10_000

// Plan is what to do at an instant about the scheduled times that have come.
type Plan struct {
	// Run are the scheduled times to run now, oldest first.
	Run []int64
	// Skips are those that do not run, by misfire or calendar, in order of time.
	Skips []Span
	// Until is the last scheduled time that was decided on: the after of the next Plan.
	Until int64
	// Next is the next scheduled time, if NextOK. A fixed_delay that runs has none until the
	// run has ended.
	Next   int64
	NextOK bool
}

// Plan decides at now on every scheduled time in (after, now]; after is the last one decided
// on, and anchor is that of Next. A time that is at most MisfireAfter ago runs. Older ones were
// missed: with once the newest of them runs if nothing newer does, with skip none does, with all
// the newest MisfireMax do. The rest is skipped. At most MaxRun times run, the newest.
//
// A now before after decides nothing and looks for what comes after after, so that a clock that
// was set back does not fire a second time.
func (s *Schedule) Plan(after, now, anchor int64) Plan {
	after, now, anchor = clamp(after), clamp(now), clamp(anchor)
	p := Plan{Until: after}
	until := now
	delay := s.spec.Type == workflow.ScheduleDelay
	if delay {
		if first, ok := s.Next(after, anchor); ok {
			until = min(until, first)
		}
	}
	spans := s.spans(after, until, anchor)
	if len(spans) > 0 {
		p.Until = spans[len(spans)-1].To
	}
	p.Run, spans = s.newest(spans, anchor, s.runs(spans, now, anchor))
	for _, sp := range spans {
		if sp.Reason == "" {
			sp.Reason = ReasonMisfire
		}
		p.Skips = append(p.Skips, sp)
	}
	p.Skips = bound(p.Skips)
	if !delay || len(p.Run) == 0 {
		p.Next, p.NextOK = s.Next(max(after, now), anchor)
	}
	return p
}

// runs is how many of the newest times that may run do.
func (s *Schedule) runs(spans []Span, now, anchor int64) int64 {
	onTime := now - s.spec.MisfireAfter.Milliseconds()
	var missed, inTime int64
	for _, sp := range spans {
		switch {
		case sp.Reason != "":
		case sp.To < onTime:
			missed += sp.Count
		case sp.From >= onTime:
			inTime += sp.Count
		default:
			n := s.count(onTime-1, sp.To, anchor)
			inTime += n
			missed += sp.Count - n
		}
	}
	n := inTime
	switch s.spec.Misfire {
	case workflow.MisfireOnce:
		if n == 0 {
			n = min(missed, 1)
		}
	case workflow.MisfireAll:
		n += min(missed, int64(s.spec.MisfireMax))
	case workflow.MisfireSkip:
	}
	return min(n, MaxRun)
}
