//go:build unix

package killtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/processor"
)

const app = "kill"

// ledger is a file to which all workers append a line for each task they begin and end.
type ledger struct {
	f    *os.File
	name string
}

func openLedger(path, name string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &ledger{f, name}, err
}

// entry is one line.
type entry struct {
	what rune // B begins, E ends
	kind rune // o one, r root, s sub-task, d reduce
	key  taskKey
	pid  int
	at   int64 // ns
	who  string
}

// taskKey names one attempt of one task.
type taskKey struct {
	instance int64
	attempt  int
	number   int64
	try      int
	kind     rune
}

func (l *ledger) note(what, kind rune, t *processor.Task) {
	// One write of a short line is not torn by a kill.
	line := fmt.Appendf(nil, "%c %c %d %d %d %d %d %d %s\n", what, kind, t.Instance(), t.Attempt(), t.Number(), t.TaskAttempt(), os.Getpid(), time.Now().UnixNano(), l.name)
	if _, err := l.f.Write(line); err != nil {
		panic(err)
	}
}

func readLedger(t testing.TB, path string) []entry {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []entry
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var e entry
		_, err := fmt.Sscanf(lines.Text(), "%c %c %d %d %d %d %d %d %s", &e.what, &e.kind, &e.key.instance, &e.key.attempt, &e.key.number, &e.key.try, &e.pid, &e.at, &e.who)
		require.NoError(t, err, "%q", lines.Text())
		e.key.kind = e.kind
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	return out
}

// load is the params of all processors.
type load struct {
	Key   string `json:"key"`
	N     int64  `json:"n,omitempty"`     // sub-tasks
	MS    int64  `json:"ms,omitempty"`    // of work, at most
	Fails int    `json:"fails,omitempty"` // attempts that fail, of one
}

// total is what a sub-task makes, and a map of them: how many, and the sum of the squares.
type total struct {
	N   int64 `json:"n"`
	Sum int64 `json:"sum"`
}

func (l load) expected() total { return total{l.N, (l.N - 1) * l.N * (2*l.N - 1) / 6} }

func busy(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failing are sub-tasks whose first attempt fails.
func failing(i int64) bool { return i%997 == 5 }

func (l *ledger) register(w *processor.Worker) {
	w.Register("one", processor.Typed(func(ctx context.Context, t *processor.Task, p load) (load, error) {
		l.note('B', 'o', t)
		if err := busy(ctx, time.Duration(p.MS)*time.Millisecond); err != nil {
			return p, err
		}
		l.note('E', 'o', t)
		if t.Attempt() <= p.Fails {
			return p, errors.New("fails at first")
		}
		return p, nil
	}))
	sum := processor.MapReduce[load, int64, total]{
		Split: func(ctx context.Context, t *processor.Task, p load, emit func(int64) error) error {
			l.note('B', 'r', t)
			for i := range p.N {
				if i%50 == 49 {
					if err := busy(ctx, time.Millisecond); err != nil {
						return err
					}
				}
				if err := emit(i); err != nil {
					return err
				}
			}
			l.note('E', 'r', t)
			return nil
		},
		Work: func(ctx context.Context, t *processor.Task, i int64) (total, error) {
			l.note('B', 's', t)
			var p load
			if err := t.Params(&p); err != nil {
				return total{}, err
			}
			if err := busy(ctx, time.Duration(i*7919%(p.MS*1000+1))*time.Microsecond); err != nil {
				return total{}, err
			}
			l.note('E', 's', t)
			if failing(i) && t.TaskAttempt() == 1 {
				return total{}, errors.New("fails at first")
			}
			return total{1, i * i}, nil
		},
		Reduce: func(ctx context.Context, t *processor.Task, values *processor.Values[total]) (any, error) {
			l.note('B', 'd', t)
			var all total
			for v := range values.All() {
				all.N += v.N
				all.Sum += v.Sum
			}
			if err := busy(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
			l.note('E', 'd', t)
			return all, nil
		},
	}
	w.Register("sum", sum)
	sum.Combine = func(_ context.Context, values []total) total {
		var all total
		for _, v := range values {
			all.N += v.N
			all.Sum += v.Sum
		}
		return all
	}
	w.Register("fold", sum)
}
