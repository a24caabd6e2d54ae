package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/api"
)

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0ms", 8 * time.Millisecond: "8ms", 999 * time.Millisecond: "999ms", 1290 * time.Millisecond: "1.2s",
		34*time.Second + 1: "34s", 125 * time.Second: "2m05s", 3*time.Hour + 4*time.Minute: "3h04m",
	} {
		require.Equal(t, want, short(d), d)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0", thousands(0))
	require.Equal(t, "999", thousands(999))
	require.Equal(t, "1 000", thousands(1000))
	require.Equal(t, "-1 234 567", thousands(-1234567))
	require.Equal(t, "1 node", plural(1, "node"))
	require.Equal(t, "0 nodes", plural(0, "node"))
	require.Equal(t, "512 B", size(512))
	require.Equal(t, "1.5 KiB", size(1536))
	require.Equal(t, "157.0 MiB", size(157<<20))
}

func TestTable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "A     NUM  B\nlöng    1  x\nc      22\n", table([][]string{{"A", "NUM", "B"}, {"löng", "1", "x"}, {"c", "22", ""}}, 1))
	require.Empty(t, table(nil))
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", clip("abc", 3))
	require.Equal(t, "ab…", clip("abcd", 3))
	require.Equal(t, "a b", clip("a\n\tb", 9))
	require.Equal(t, "日…", clip("日本語", 2))
}

// at is a clock that stands still.
func at(seconds float64) time.Time {
	return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

func TestNodeProgress_Line(t *testing.T) {
	t.Parallel()
	n := &nodeProgress{NodeStatus: api.NodeStatus{Node: "count"}}
	require.Equal(t, "· count  ░░░░░░░░░░░░░░░░░░░░░░░░ waiting", strings.TrimRight(n.line(at(0), 6, 120), " "))

	require.True(t, n.update(api.NodeStatus{Node: "count", Status: "running"}, at(0)))
	require.False(t, n.update(api.NodeStatus{Node: "count", Total: 300, Done: 100}, at(1)))
	require.Equal(t, "▶ count  ████████░░░░░░░░░░░░░░░░ running      1.0s  100/300+, 100/s", n.line(at(1), 6, 120))

	n.update(api.NodeStatus{Node: "count", Total: 400, Done: 100}, at(1.4))
	n.update(api.NodeStatus{Node: "count", Total: 400, Done: 195, Failed: 5}, at(2))
	require.Equal(t, "▶ count  ████████████░░░░░░░░░░░░ running      2.0s  200/400, 5 failed, 100/s, 2.0s left", n.line(at(2), 6, 120))
	require.Equal(t, "count: running, sub-tasks 200/400, 5 failed, 100/s, 2.0s left", n.plainLine(at(2)))

	// Late news changes nothing.
	n.update(api.NodeStatus{Node: "count", Total: 300, Done: 100}, at(2))
	require.EqualValues(t, 200, n.over())

	require.True(t, n.update(api.NodeStatus{Node: "count", Status: "failed", Error: "too many\nfailed"}, at(4)))
	require.Equal(t, "✘ count  ████████████░░░░░░░░░░░░ failed       4.0s  200/400, 5 failed, 50/s  too many failed", n.line(at(9), 6, 120))
	require.Len(t, []rune(n.line(at(9), 6, 40)), 40)
	require.Equal(t, "count: failed after 4.0s, sub-tasks 200/400, 5 failed, 50/s: too many failed", n.plainLine(at(9)))
}

func TestBar_EighthsAndEnds(t *testing.T) {
	t.Parallel()
	for done := range int64(101) {
		n := &nodeProgress{NodeStatus: api.NodeStatus{Total: 100, Done: done}}
		require.Len(t, []rune(n.bar()), barWidth)
	}
	full := &nodeProgress{NodeStatus: api.NodeStatus{Status: "succeeded"}}
	require.Equal(t, strings.Repeat("█", barWidth), full.bar())
}

func TestBoard_Plain(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBoard(&out)
	now := at(0)
	b.now = func() time.Time { return now }
	b.start([]string{"a", "b"})
	b.update(api.NodeStatus{Node: "a", Status: "running"})
	for i := range int64(50) {
		now = at(float64(i) / 10)
		b.update(api.NodeStatus{Node: "a", Total: 50, Done: i})
	}
	b.update(api.NodeStatus{Node: "a", Status: "succeeded", Done: 50, Total: 50})
	b.update(api.NodeStatus{Node: "a", Status: "succeeded"})
	b.update(api.NodeStatus{Node: "ghost", Status: "running"})
	b.say("hello %d", 1)
	b.finish()
	require.Equal(t, `12:00:00 a: running
12:00:02 a: running, sub-tasks 20/50, 10/s, 3.0s left
12:00:04 a: running, sub-tasks 40/50, 10/s, 1.0s left
12:00:04 a: succeeded after 4.9s, sub-tasks 50/50, 10/s
12:00:04 hello 1
`, out.String())
}

// screen plays what a terminal does with the few codes the board uses.
type screen struct {
	lines []string
	row   int
}

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b[?25"):
			text = text[len("\x1b[?25l"):]
		case strings.HasPrefix(text, "\x1b[K"):
			text = text[len("\x1b[K"):]
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines = s.lines[:min(s.row, len(s.lines))]
			text = text[len("\x1b[J"):]
		case strings.HasPrefix(text, "\x1b["):
			n := 0
			for text = text[2:]; text[0] != 'A'; text = text[1:] {
				n = 10*n + int(text[0]-'0')
			}
			s.row -= n
			text = text[1:]
		case text[0] == '\r':
			text = text[1:]
		default:
			line, rest, _ := strings.Cut(text, "\n")
			line = strings.TrimSuffix(line, "\x1b[K")
			for len(s.lines) <= s.row {
				s.lines = append(s.lines, "")
			}
			s.lines[s.row] = strings.TrimRight(line, " ")
			s.row++
			text = rest
		}
	}
	return len(p), nil
}

func TestBoard_Live(t *testing.T) {
	t.Parallel()
	s := &screen{}
	b := newBoard(s)
	b.live = true
	b.now = func() time.Time { return at(0) }
	b.start([]string{"a", "bb"})
	b.say("above %d", 1)
	b.update(api.NodeStatus{Node: "a", Status: "succeeded"})
	_, err := b.Write([]byte("above 2"))
	require.NoError(t, err)
	b.finish()
	b.finish()
	_, err = b.Write([]byte("below\n"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"above 1",
		"above 2",
		"✔ a  " + strings.Repeat("█", barWidth) + " succeeded",
		"· bb " + strings.Repeat("░", barWidth) + " waiting",
		"below",
	}, s.lines)
}

func TestBoard_ManyNodes(t *testing.T) {
	t.Parallel()
	b := newBoard(&bytes.Buffer{})
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = "n" + two(i)
	}
	b.start(ids)
	b.update(api.NodeStatus{Node: "n50", Status: "running"})
	b.update(api.NodeStatus{Node: "n00", Status: "succeeded"})
	shown, hidden := b.visible(maxLines)
	require.Len(t, shown, maxLines)
	require.Equal(t, 80, hidden)
	require.Equal(t, "n50", shown[0].Node)
	require.Equal(t, "n01", shown[1].Node)
}

func TestDrawable_OnlyOnTerminals(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	require.False(t, drawable(f, func(string) string { return "" }))
}

func TestHints(t *testing.T) {
	t.Parallel()
	graph, document, err := load("demo.yaml")
	require.NoError(t, err)
	h := newHints(&order{graph: graph, document: document})
	require.Empty(t, h.about(nil, nil))
	require.Equal(t, []string{"no worker of app demo is there yet"}, h.about([]string{"list"}, nil))
	require.Empty(t, h.about([]string{"list"}, nil), "said once")
	workers := []broker.Beat{{Processors: []broker.ProcessorInfo{{Name: "b"}, {Name: "demo-count"}}}, {Processors: []broker.ProcessorInfo{{Name: "a"}}}}
	require.Equal(t, []string{
		`node list waits: no worker of app demo has its processor "demo-list"; they have a, b, demo-count. Register it, or correct the name in the file`,
	}, h.about([]string{"list", "count"}, workers))
	require.Empty(t, h.about([]string{"list", "count", "ghost"}, workers))
}
