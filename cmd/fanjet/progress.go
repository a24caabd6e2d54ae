package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/api"
)

// nodeProgress is what is shown of one node.
type nodeProgress struct {
	api.NodeStatus
	since time.Time
	until time.Time
	grown time.Time // when Total has grown last
}

// settled is how long Total must have stood still to be taken for the whole.
const settled = 500 * time.Millisecond

// whole tells whether all sub-tasks are known, as far as can be seen.
func (n *nodeProgress) whole(now time.Time) bool {
	return final(n.Status) || now.Sub(n.grown) >= settled
}

// update takes what is newer, and tells whether the status moved.
func (n *nodeProgress) update(s api.NodeStatus, now time.Time) bool {
	moved := s.Status != "" && s.Status != n.Status
	if moved {
		n.Status, n.Error = s.Status, s.Error
	}
	if s.Instance != 0 {
		n.Instance = s.Instance
	}
	if s.Total > n.Total {
		n.Total, n.grown = s.Total, now
	}
	if s.Done+s.Failed >= n.Done+n.Failed {
		n.Done, n.Failed = s.Done, s.Failed
	}
	if n.since.IsZero() && (n.running() || final(n.Status)) {
		n.since = now
	}
	if n.until.IsZero() && final(n.Status) {
		n.until = now
	}
	return moved
}

func (n *nodeProgress) running() bool { return n.Status == "running" || n.Status == "dispatched" }

// final tells whether a status is the last one.
func final(status string) bool {
	switch status {
	case "succeeded", "failed", "timed_out", "stopped", "canceled", "skipped":
		return true
	}
	return false
}

// over is how many sub-tasks are over, whatever their end.
func (n *nodeProgress) over() int64 { return n.Done + n.Failed }

// rate is sub-tasks a second since the node started, 0 if unknown.
func (n *nodeProgress) rate(now time.Time) float64 {
	end := n.until
	if end.IsZero() {
		end = now
	}
	d := end.Sub(n.since).Seconds()
	if n.since.IsZero() || d < 0.05 {
		return 0
	}
	return float64(n.over()) / d
}

// left is the time the remaining sub-tasks will take; false while nobody can tell.
func (n *nodeProgress) left(now time.Time) (time.Duration, bool) {
	r := n.rate(now)
	if r == 0 || !n.whole(now) || final(n.Status) {
		return 0, false
	}
	return time.Duration(float64(n.Total-n.over()) / r * float64(time.Second)), true
}

func (n *nodeProgress) took(now time.Time) string {
	switch {
	case n.since.IsZero(), n.since.Equal(n.until): // its end was the first that was heard of it
		return ""
	case n.until.IsZero():
		return short(now.Sub(n.since))
	}
	return short(n.until.Sub(n.since))
}

// figures are the numbers of the sub-tasks in words.
func (n *nodeProgress) figures(now time.Time) string {
	if n.Total == 0 {
		return ""
	}
	var b strings.Builder
	total := thousands(n.Total)
	if !n.whole(now) {
		total += "+"
	}
	fmt.Fprintf(&b, "%s/%s", thousands(n.over()), total)
	if n.Failed > 0 {
		fmt.Fprintf(&b, ", %s failed", thousands(n.Failed))
	}
	if r := n.rate(now); r >= 1 {
		fmt.Fprintf(&b, ", %s/s", thousands(int64(r)))
	}
	if d, ok := n.left(now); ok {
		fmt.Fprintf(&b, ", %s left", short(d))
	}
	return b.String()
}

const barWidth = 24

// bar is the share of the node that is over.
func (n *nodeProgress) bar() string {
	share := 0.0
	switch {
	case n.Status == "succeeded":
		share = 1
	case n.Total > 0:
		share = float64(n.over()) / float64(n.Total)
	}
	eighths := int(share * barWidth * 8)
	full := strings.Repeat("█", eighths/8)
	if r := eighths % 8; r > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[r-1])
	}
	return full + strings.Repeat("░", barWidth-len([]rune(full)))
}

var marks = map[string]string{
	"succeeded": "✔", "failed": "✘", "timed_out": "✘", "stopped": "■", "canceled": "■", "skipped": "–",
	"running": "▶", "dispatched": "▶", "paused": "‖",
}

// line is the node as one line of at most width characters; name pads its id.
func (n *nodeProgress) line(now time.Time, name, width int) string {
	mark, ok := marks[n.Status]
	if !ok {
		mark = "·"
	}
	status := n.Status
	if status == "" {
		status = "waiting"
	}
	text := fmt.Sprintf("%s %-*s %s %-10s %6s", mark, name, n.Node, n.bar(), status, n.took(now))
	if f := n.figures(now); f != "" {
		text += "  " + f
	}
	if n.Error != "" {
		text += "  " + n.Error
	}
	return clip(text, width)
}

// plainLine is the node as a line of a log.
func (n *nodeProgress) plainLine(now time.Time) string {
	text := n.Node + ": " + n.Status
	if final(n.Status) && n.took(now) != "" {
		text += " after " + n.took(now)
	}
	if f := n.figures(now); f != "" {
		text += ", sub-tasks " + f
	}
	if n.Error != "" {
		text += ": " + clip(n.Error, 500)
	}
	return text
}
