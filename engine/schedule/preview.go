package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanjet/fanjet/workflow"
)

// MaxPreview bounds how many fires one Preview gives.
const MaxPreview = 1000

// Fire is a line of a preview: a fire, or fires in a row that do not run for one reason.
type Fire struct {
	// At and Last are the first and last scheduled time, epoch ms; the same for one fire.
	At   int64 `json:"at"`
	Last int64 `json:"last"`
	// Count is how many fires it stands for. A fire that is moved stands for all that a clock
	// change moves there.
	Count int64 `json:"count"`
	// Local and UTC are At in RFC 3339, in the zone of the schedule and in UTC.
	Local string `json:"local"`
	UTC   string `json:"utc"`
	// Skipped tells that it does not run.
	Skipped bool `json:"skipped,omitempty"`
	// Reason says why it is skipped, moved, or runs once only; empty for an ordinary fire.
	Reason Reason `json:"reason,omitempty"`
	// Note says the same to people.
	Note string `json:"note,omitempty"`
}

// Preview is the next n fires after after that run, at most MaxPreview, and between them those
// that do not. Fewer than n run if the schedule ends. anchor is that of Next; a fixed_delay is
// shown as if every run ended at once.
func (s *Schedule) Preview(after, anchor int64, n int) []Fire {
	after, anchor = clamp(after), clamp(anchor)
	if s.rule == nil {
		return nil
	}
	n = min(n, MaxPreview)
	p := preview{Schedule: s, anchor: anchor, most: 4*n + 16}
	p.tooEarly(after)
	after = max(after, s.start-1)
	limit := patternEnd(after, lastYear+1)
	for left := n; left > 0; {
		t, ok := s.next(after, anchor)
		if !ok || t > limit {
			p.gaps(after, min(s.end, limit))
			p.tooLate(after)
			break
		}
		p.gaps(after, t)
		if len(s.calendars) > 0 {
			if allowed, to := s.state(t); !allowed {
				after = p.excluded(t, to)
				continue
			}
		}
		p.runs(t)
		after = t
		left--
	}
	return p.fires
}

// preview is a Preview in the making.
type preview struct {
	*Schedule
	anchor int64
	most   int // of lines; reached where nothing runs any more
	asked  int // how often a calendar was asked why
	fires  []Fire
}

func (p *preview) add(f Fire) {
	at := time.UnixMilli(f.At)
	f.Local = at.In(p.zone.loc).Format("2006-01-02T15:04:05.999Z07:00")
	f.UTC = at.UTC().Format("2006-01-02T15:04:05.999Z07:00")
	p.fires = append(p.fires, f)
}

// tooEarly notes what Start keeps from running.
func (p *preview) tooEarly(after int64) {
	n := int64(0)
	if p.start > after {
		n = p.rule.count(after, p.start-1, p.anchor)
	}
	if n == 0 {
		return
	}
	first, _ := p.rule.next(after, p.anchor)
	last, _ := p.rule.prev(p.start-1, p.anchor)
	p.add(Fire{At: first, Last: last, Count: n, Skipped: true, Reason: ReasonValidity, Note: "before the start, " + p.spec.Start})
}

// tooLate notes what End keeps from running.
func (p *preview) tooLate(after int64) {
	if p.end == maxTime {
		return
	}
	if t, ok := p.rule.next(max(p.end, after), p.anchor); ok {
		p.add(Fire{At: t, Last: t, Count: 1, Skipped: true, Reason: ReasonValidity, Note: "after the end, " + p.spec.End + ", and so is all that follows"})
	}
}

// gaps notes the fires that clock changes in (after, until] leave out for good.
func (p *preview) gaps(after, until int64) {
	r, ok := p.rule.(*cronRule)
	if !ok || r.hourly || r.gap != workflow.GapSkip || r.never {
		return
	}
	for u := p.zone.at(floorDiv(after, 1000)).end; u <= floorDiv(until, 1000) && len(p.fires) < p.most; u = p.zone.at(u).end {
		if first, last, n := r.missing(u); n > 0 {
			p.add(Fire{At: u * 1000, Last: u * 1000, Count: n, Skipped: true, Reason: ReasonGap, Note: leftOut(first, last, n)})
		}
	}
}

// leftOut says that local times do not exist.
func leftOut(first, last, n int64) string {
	if n == 1 {
		return fmt.Sprintf("%s does not exist on %s", clockText(first), formatDate(dayOf(first)))
	}
	if dayOf(first) != dayOf(last) {
		return fmt.Sprintf("%s %s to %s %s do not exist", formatDate(dayOf(first)), clockText(first), formatDate(dayOf(last)), clockText(last))
	}
	return fmt.Sprintf("%s to %s do not exist on %s", clockText(first), clockText(last), formatDate(dayOf(first)))
}

// clockText is 15:04, or 15:04:05 if there are seconds.
func clockText(local int64) string {
	s := floorMod(local, daySeconds)
	text := fmt.Sprintf("%02d:%02d", s/3600, s/60%60)
	if s%60 != 0 {
		text += fmt.Sprintf(":%02d", s%60)
	}
	return text
}

// excluded notes what calendars exclude from t on, a day at a time so that each gets its own
// reason, and tells how far it came. to is how far all is excluded: it goes that far at once
// after so many days that nobody reads on.
func (p *preview) excluded(t, to int64) int64 {
	var last *Fire
	if n := len(p.fires); n > 0 && p.fires[n-1].Reason == ReasonCalendar {
		last = &p.fires[n-1]
	}
	note := ""
	if p.asked < p.most {
		p.asked++
		day := p.day(t)
		note = p.why(day)
		u := floorDiv(t, 1000)
		midnight := (day+1)*daySeconds - (p.zone.local(u) - u) // if no clock change is before it, else to is less
		to = min(to, midnight*1000-1)
	} else if last != nil {
		note = last.Note
	}
	end, _ := p.prev(to, p.anchor)
	n := p.count(t-1, to, p.anchor)
	if last != nil && last.Note == note {
		last.Last, last.Count = end, last.Count+n
	} else {
		p.add(Fire{At: t, Last: end, Count: n, Skipped: true, Reason: ReasonCalendar, Note: note})
	}
	return to
}

// why names the calendars that exclude a day, and what it is in them.
func (p *preview) why(day int64) string {
	var why []string
	for i, c := range p.calendars {
		if c.off(day) {
			why = append(why, fmt.Sprintf("calendar %s: %s", p.spec.Calendars[i], c.why(day)))
		}
	}
	return strings.Join(why, "; ")
}

// runs notes a fire, and what a clock change does to it.
func (p *preview) runs(t int64) {
	f := Fire{At: t, Last: t, Count: 1}
	u := floorDiv(t, 1000)
	local := p.zone.local(u)
	switch r := p.rule.(type) {
	case *cronRule:
		if r.hourly || r.zone.utc {
			break
		}
		if first, last, n := r.missing(u); n > 0 && r.gap == workflow.GapAfter {
			f.Reason, f.Count = ReasonGap, n
			f.Note = leftOut(first, last, n) + ": moved to " + clockText(local)
			if dayOf(local) != dayOf(first) {
				f.Note += " on " + formatDate(dayOf(local))
			}
			if n > 1 {
				f.Note += ", once"
			}
			break
		}
		if pass := p.zone.pass(u); pass > 0 {
			f.Reason = ReasonOverlap
			f.Note = fmt.Sprintf("%s comes twice on %s: ", clockText(local), formatDate(dayOf(local)))
			switch {
			case r.repeat == workflow.RepeatFirst:
				f.Note += "it runs at the first only"
			case pass == 1:
				f.Note += "this is the first"
			default:
				f.Note += "this is the second"
			}
		}
	case once:
		if want, ok := localSeconds(p.spec.At); ok && want != local {
			f.Reason, f.Note = ReasonGap, leftOut(want, want, 1)+": moved to "+clockText(local)
		} else if ok && p.zone.pass(u) == 1 {
			f.Reason, f.Note = ReasonOverlap, fmt.Sprintf("%s comes twice on %s: it runs at the first", clockText(local), formatDate(dayOf(local)))
		}
	case *daily:
		if begin, moved := r.moved(t); moved {
			f.Reason = ReasonGap
			f.Note = leftOut(begin, begin, 1) + ": the window begins at " + clockText(local)
		}
	}
	p.add(f)
}

// moved tells whether t is the first fire of a window whose begin a clock change leaves out,
// and that begin.
func (d *daily) moved(t int64) (begin int64, moved bool) {
	u := floorDiv(t, 1000)
	local := d.zone.local(u)
	for day := dayOf(local) - 1; day <= dayOf(local); day++ {
		begin := day*daySeconds + d.from
		if d.weekdays.has(weekday(day)) && begin != local && d.zone.first(begin)*1000 == t {
			return begin, true
		}
	}
	return 0, false
}

// pass tells for a local time that comes twice which of the two u is, 1 or 2; else 0.
func (z zone) pass(u int64) int {
	seg := z.at(u)
	local := u + seg.off
	if u-seg.start <= lookBack && local < z.high(seg.start) {
		return 2
	}
	for end := seg.end; end-u <= lookBack; {
		after := z.at(end)
		if local >= end+after.off && local < after.end+after.off {
			return 1
		}
		end = after.end
	}
	return 0
}
