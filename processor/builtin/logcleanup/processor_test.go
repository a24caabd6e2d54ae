//go:build linux

package logcleanup

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/processortest"
)

// A standalone run gives the report, a broadcast the sums, and a refusal is not tried again.
func TestProcessor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.file("a.log", 100*day, 4096)
	out := processortest.Execute(t.Context(), New(Config{Roots: []string{p.root}}), processortest.Task{Params: json.RawMessage(p.params(nil))})
	require.NoError(t, out.Err)
	var rep Report
	require.NoError(t, out.Decode(&rep))
	require.EqualValues(t, 1, rep.Files)
	require.NotEmpty(t, rep.Host)
	require.Contains(t, strings.Join(out.Lines, "\n"), "1 files deleted, 4096 bytes freed")

	refused := processortest.Execute(t.Context(), New(Config{}), processortest.Task{Params: json.RawMessage(p.params(nil)), Attempts: 5})
	require.ErrorContains(t, refused.Err, "allows no roots")
	require.Equal(t, 1, refused.Runs)
}

// However many workers and failures there are, results stay within what can be kept.
func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	long := strings.Repeat("\xff", 120)
	for i := range 400 {
		p.file(fmt.Sprintf("%s/%s/%s%d.log", long, long, long, i), 100*day, 0)
	}
	p.cleaner.sys.unlink = func(*dir, string, bool) error { return syscall.EIO }
	rep := p.run(nil)
	require.EqualValues(t, 400, rep.Errors)
	raw, err := json.Marshal(rep)
	require.NoError(t, err)
	require.Less(t, len(raw), broker.MaxItemBytes/2)

	out := processortest.Execute(t.Context(), New(Config{Roots: []string{p.root}}), processortest.Task{
		Mode: processor.ModeBroadcast, Workers: 700, MaxFailed: 700, Params: json.RawMessage(p.params(map[string]any{"root": p.root + "/not-here"})),
	})
	require.NoError(t, out.Err)
	var sum Summary
	require.NoError(t, out.Decode(&sum))
	require.EqualValues(t, 700, sum.Workers)
	require.Len(t, sum.Each, maxWorkers)
	require.Less(t, len(out.Result), broker.MaxItemBytes)
}

func TestFirstOfKeepsTheFirst(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 10, 1000} {
		f := firstOf[int]{n: n, compare: func(a, b int) int { return a - b }}
		for _, v := range rand.Perm(500) {
			f.offer(v)
			require.LessOrEqual(t, len(f.items), n)
		}
		last, full := f.last()
		require.Equal(t, n <= 500, full)
		if full {
			require.Equal(t, n-1, last)
		}
		got := f.take()
		require.Len(t, got, min(n, 500))
		require.True(t, slices.IsSorted(got))
		require.Zero(t, got[0])
	}
}

// What parses keeps the promises of Params, whatever the bytes.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{
		`{"root":"/srv/logs","include":["**/*.log"],"older_than":"7d"}`,
		`{"root":"/srv/logs","include":["a"],"exclude":["b"],"keep_newest":3,"keep_newest_per":"folder","until_free":"10%","max_bytes":"1GiB","remove_empty_dirs":true}`,
		`{"root":"/srv/../etc","include":["*"],"older_than":"-1d"}`, `{"root":"//","Root":"/x"}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parse(raw)
		if err != nil {
			return
		}
		require.NotEmpty(t, p.include)
		for _, g := range p.include {
			require.True(t, g.literal())
		}
		require.GreaterOrEqual(t, p.olderThan, minAge)
		require.GreaterOrEqual(t, p.dirsOlderThan, minAge)
		require.True(t, p.youngReason == ReasonYoung || p.keepNewest > 0 || p.untilFree != goal{})
		require.False(t, p.keepNewest < 0 || p.maxBytes < 0 || p.maxFiles < 0 || p.largerThan < 0)
		if p.root[0] == '/' {
			require.NotContains(t, []string{"/", "/etc", "/home", "/root", "/var"}, filepath.Clean(p.root))
			require.NotContains(t, strings.Split(p.root, "/"), "..")
		}
	})
}

// BenchmarkSweep walks and deletes files in one folder, on the temporary folder's disk.
func BenchmarkSweep(b *testing.B) {
	p := newPlace(b)
	const files = 20_000
	for b.Loop() {
		b.StopTimer()
		for i := range files {
			require.NoError(b, os.WriteFile(filepath.Join(p.root, fmt.Sprintf("%d.log", i)), nil, 0o644))
		}
		p.now = p.now.Add(30 * day)
		b.StartTimer()
		require.EqualValues(b, files, p.run(nil).Files)
	}
	b.ReportMetric(float64(b.N)*files/b.Elapsed().Seconds(), "files/s")
}
