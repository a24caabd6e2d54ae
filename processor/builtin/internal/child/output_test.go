package child_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/processor/builtin/internal/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a log that keeps its lines.
type lines struct{ all *[]string }

func (lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l lines) WithGroup(string) slog.Handler          { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	*l.all = append(*l.all, r.Message)
	return nil
}

func logged(limit int64, parts ...string) ([]string, child.Counts, string) {
	var all []string
	o := child.NewOutput(slog.New(lines{&all}), limit)
	s := o.Stream(slog.LevelInfo)
	for _, p := range parts {
		_, _ = s.Write([]byte(p))
	}
	_ = s.Close()
	return all, o.End(), s.Tail()
}

func TestStream(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", child.MaxLine)
	for _, c := range []struct {
		limit  int64
		parts  []string
		lines  []string
		counts child.Counts
	}{
		{100, nil, nil, child.Counts{}},
		{100, []string{"a\nb\n"}, []string{"a", "b"}, child.Counts{Bytes: 4, Lines: 2}},
		{100, []string{"a", "", "b\n\n", "c"}, []string{"ab", "", "c"}, child.Counts{Bytes: 5, Lines: 3}},
		{100, []string{"a\r\n", "\x00\xff\x1b[1m\t"}, []string{"a", "\uFFFD\uFFFD\x1b[1m\t"}, child.Counts{Bytes: 10, Lines: 2}},
		{10_000, []string{long, "yy", "y\nz\n"}, []string{long + " … (cut: 3 bytes more)", "z"}, child.Counts{Bytes: child.MaxLine + 6, Lines: 2, CutBytes: 3}},
		// The line that reaches the limit is logged whole.
		{3, []string{"ab\ncd\nef\ng", "h\n", "i"}, []string{"ab", "cd", "… the log was cut after 3 bytes: 3 more lines (7 bytes in all) were not logged"}, child.Counts{Bytes: 13, Lines: 5, CutLines: 3, CutBytes: 7}},
	} {
		all, counts, _ := logged(c.limit, c.parts...)
		require.Equal(t, c.lines, all)
		require.Equal(t, c.counts, counts)
	}
}

// However the bytes are split, the lines are the same.
func TestStream_does_not_depend_on_the_split(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("Ä line\n\nand another, "+strings.Repeat("z", 900)+"\n", 20) + "the end"
	want, counts, tail := logged(5000, text)
	for _, step := range []int{1, 2, 3, 7, 64, 1000} {
		var parts []string
		for rest := text; rest != ""; {
			n := min(step, len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		all, c, got := logged(5000, parts...)
		require.Equal(t, want, all, step)
		require.Equal(t, counts, c)
		require.Equal(t, tail, got)
	}
	require.True(t, strings.HasSuffix(tail, "\nthe end"))
	require.LessOrEqual(t, len(tail), 4<<10)
}

func TestOutput_switches(t *testing.T) {
	t.Parallel()
	var one, two []string
	o := child.NewOutput(slog.New(lines{&one}), 10)
	s := o.Stream(slog.LevelInfo)
	for i := range 10 {
		fmt.Fprintf(s, "line %d\n", i)
	}
	o.Switch(slog.New(lines{&two}))
	o.Line(slog.LevelInfo, "by itself")
	fmt.Fprintln(s, "anew")
	o.End()
	require.Equal(t, []string{"line 0", "line 1", "… the log was cut after 10 bytes: 8 more lines (56 bytes in all) were not logged"}, one)
	require.Equal(t, []string{"by itself", "anew"}, two)
	s.Forget()
	require.Empty(t, s.Tail())
}
