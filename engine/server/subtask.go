package server

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
)

// Bounds of what is told of the sub-tasks of a map run.
const (
	HeatMost        = 1024   // buckets
	FailedMost      = 500    // rows of one page
	errorGroupsMost = 100    // groups
	errorRowsMost   = 10_000 // rows that are grouped: more are not kept
	errorPage       = 1000
)

// SubTasks is how the sub-tasks of a map run stand, in numbers that do not grow with them.
type SubTasks struct {
	Run       int32 // 0: the instance has no map run
	Closed    bool
	Total     int64 // accepted so far
	Succeeded int64
	Failed    int64
	Retrying  int64 // wait for their next attempt
	InFlight  int   // chunks given out
	Growing   bool  // there may come more
	Rate      float64
	// Left is what is left of the known ones at that rate, ms; -1 if nobody knows.
	Left   int64
	Errors []ErrorGroup
	Heat   Heat
}

// ErrorGroup are failures whose texts are the same but for their numbers.
type ErrorGroup struct {
	Error string // the first one
	Count int64
	First int64 // number of a sub-task that failed with it
}

// Heat is how far along the sub-tasks are, by number: bucket i is of those from i×Size+1 on.
type Heat struct {
	Size      int64
	Succeeded []int64
	Failed    []int64
}

// SubTasks tells how the sub-tasks of the newest map run of an instance stand, as last
// committed, in at most buckets buckets, 1 to HeatMost.
func (s *Server) SubTasks(ctx context.Context, in *engine.Instance, buckets int) (*SubTasks, error) {
	runs, err := s.cfg.Store.MapRuns(ctx, in.ID)
	if err != nil {
		return nil, fmt.Errorf("map runs of instance %d: %w", in.ID, err)
	}
	out := &SubTasks{Left: -1}
	if len(runs) == 0 {
		return out, nil
	}
	row := &runs[len(runs)-1]
	out.Run, out.Closed, out.Total, out.Succeeded, out.Failed = row.Run, row.Closed, row.Total, row.Succeeded, row.Failed
	var view *track.RunView
	if !row.Closed {
		if view, err = track.View(row.State); err != nil {
			return nil, fmt.Errorf("map run %d of instance %d: %w", row.Run, in.ID, err)
		}
		out.InFlight, out.Growing = view.InFlight, view.Emitting > 0 && !in.Status.Terminal()
	}
	size := heatSize(out.Total, buckets)
	out.Heat = Heat{Size: size}
	if size > 0 {
		n := (out.Total + size - 1) / size
		out.Heat.Succeeded, out.Heat.Failed = make([]int64, n), make([]int64, n)
	}
	if err := s.failures(ctx, in.ID, out, view == nil); err != nil {
		return nil, err
	}
	for i := range out.Heat.Succeeded {
		first := int64(i)*size + 1
		last := min(first+size-1, out.Total)
		switch {
		case view != nil:
			out.Heat.Succeeded[i], out.Heat.Failed[i] = view.Succeeded(first, last), view.Failed(first, last)
		case out.Succeeded+out.Failed == out.Total:
			out.Heat.Succeeded[i] = last - first + 1 - out.Heat.Failed[i]
		}
	}
	until := s.now()
	if in.FinishedAt != 0 {
		until = in.FinishedAt
	}
	done := out.Succeeded + out.Failed
	if ms := until - in.StartedAt; in.StartedAt != 0 && ms > 0 {
		out.Rate = float64(done) * 1000 / float64(ms)
	}
	switch {
	case in.Status.Terminal() || out.Closed || done == out.Total && !out.Growing:
		out.Left = 0
	case out.Rate > 0:
		out.Left = int64(float64(out.Total-done) * 1000 / out.Rate)
	}
	return out, nil
}

// heatSize is how many sub-tasks a bucket is of.
func heatSize(total int64, buckets int) int64 {
	n := int64(min(max(buckets, 1), HeatMost))
	return (total + n - 1) / n
}

// failures groups the rows of failed sub-tasks; of a run without bitmaps it fills the heat
// strip too, as far as the rows go.
func (s *Server) failures(ctx context.Context, instance int64, out *SubTasks, heat bool) error {
	at := map[string]int{}
	for from, seen := int64(0), 0; seen < errorRowsMost; {
		rows, err := s.cfg.Store.TasksOf(ctx, instance, out.Run, engine.TaskSub, from, errorPage)
		if err != nil {
			return fmt.Errorf("sub-tasks of instance %d: %w", instance, err)
		}
		for i := range rows {
			r := &rows[i]
			if !r.Status.Terminal() {
				out.Retrying++
				continue
			}
			if b := out.Heat.Size; heat && b > 0 && r.Number >= 1 && (r.Number-1)/b < int64(len(out.Heat.Failed)) {
				out.Heat.Failed[(r.Number-1)/b]++
			}
			key := likeness(r.Error)
			n, ok := at[key]
			switch {
			case ok:
				out.Errors[n].Count++
			case len(out.Errors) < errorGroupsMost:
				at[key] = len(out.Errors)
				out.Errors = append(out.Errors, ErrorGroup{Error: engine.CutText(r.Error, liveText), Count: 1, First: r.Number})
			}
		}
		if seen += len(rows); len(rows) < errorPage {
			return nil
		}
		from = rows[len(rows)-1].Number + 1
	}
	return nil
}

// likeness is an error's text without its numbers.
func likeness(text string) string {
	text = engine.CutText(text, liveText)
	var b strings.Builder
	number := false
	for _, r := range text {
		if unicode.IsDigit(r) {
			if !number {
				b.WriteByte('#')
			}
			number = true
			continue
		}
		number = false
		b.WriteRune(r)
	}
	return b.String()
}

// FailedSubTasks reads the rows of sub-tasks of the newest map run that have failed or wait
// for their next attempt, with numbers from..to (0: to the end), at most limit of them, 1 to
// FailedMost. next is where to go on, 0 at the end.
func (s *Server) FailedSubTasks(ctx context.Context, instance, from, to int64, limit int) (rows []engine.Task, next int64, err error) {
	if from < 0 || to < 0 || to != 0 && to < from {
		return nil, 0, fmt.Errorf("sub-tasks %d to %d: %w", from, to, engine.ErrInvalid)
	}
	runs, err := s.cfg.Store.MapRuns(ctx, instance)
	if err != nil || len(runs) == 0 {
		return nil, 0, err
	}
	limit = min(max(limit, 1), FailedMost)
	rows, err = s.cfg.Store.TasksOf(ctx, instance, runs[len(runs)-1].Run, engine.TaskSub, from, limit+1)
	if err != nil {
		return nil, 0, fmt.Errorf("sub-tasks of instance %d: %w", instance, err)
	}
	for i := range rows {
		if to != 0 && rows[i].Number > to {
			return rows[:i], 0, nil
		}
		if i == limit {
			return rows[:i], rows[i].Number, nil
		}
	}
	return rows, 0, nil
}
