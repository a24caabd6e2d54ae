package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/fanjet/fanjet/engine/api"
)

const (
	frameEvery = 100 * time.Millisecond
	plainEvery = 2 * time.Second // between two lines about the sub-tasks of a node
)

// board shows how a workflow goes: on a terminal as lines that are drawn anew in place,
// else as a log. Safe for concurrent use. As a Writer it takes whole lines, such as those
// of a log, and shows them above what is drawn.
type board struct {
	out  io.Writer
	live bool
	size func() (width, height int)
	now  func() time.Time

	mu    sync.Mutex
	nodes []*nodeProgress
	index map[string]*nodeProgress
	told  map[string]time.Time
	name  int // width of the longest id
	drawn int // lines on the screen
	stop  chan struct{}
	done  chan struct{}
}

// newBoard makes a board that writes to w, live if w is a terminal that can be drawn on.
func newBoard(w io.Writer) *board {
	b := &board{out: w, now: time.Now, size: func() (int, int) { return 80, 24 }, index: map[string]*nodeProgress{}, told: map[string]time.Time{}}
	if f, ok := w.(*os.File); ok && drawable(f, os.Getenv) {
		b.live = true
		b.size = func() (int, int) {
			if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return width, height
			}
			return 80, 24
		}
	}
	return b
}

func drawable(f *os.File, env func(string) string) bool {
	return term.IsTerminal(int(f.Fd())) && env("NO_COLOR") == "" && env("CI") == "" && env("TERM") != "dumb"
}

// start begins to show the nodes, in this order.
func (b *board) start(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		n := &nodeProgress{NodeStatus: api.NodeStatus{Node: id}}
		b.nodes, b.index[id] = append(b.nodes, n), n
		b.name = min(max(b.name, len(id)), 32)
	}
	if !b.live {
		return
	}
	b.stop, b.done = make(chan struct{}), make(chan struct{})
	_, _ = io.WriteString(b.out, "\x1b[?25l") // no cursor
	b.draw()
	go b.animate(b.stop, b.done)
}

func (b *board) animate(stop, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			b.mu.Lock()
			b.draw()
			b.mu.Unlock()
		}
	}
}

// finish shows the last state and leaves it on the screen. Idempotent.
func (b *board) finish() {
	b.mu.Lock()
	stop, done := b.stop, b.done
	b.stop = nil
	b.mu.Unlock()
	if stop == nil {
		return
	}
	close(stop)
	<-done
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draw()
	b.drawn = 0
	_, _ = io.WriteString(b.out, "\x1b[?25h")
}

// update takes what became of a node.
func (b *board) update(s api.NodeStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.index[s.Node]
	if n == nil {
		return
	}
	now := b.now()
	moved := n.update(s, now)
	if b.live {
		return
	}
	if moved && n.Status != "dispatched" || n.over() > 0 && !final(n.Status) && now.Sub(b.told[s.Node]) >= plainEvery {
		b.told[s.Node] = now
		fmt.Fprintf(b.out, "%s %s\n", now.Format("15:04:05"), n.plainLine(now))
	}
}

// waiting are the nodes that have been started and no worker has begun.
func (b *board) waiting() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, n := range b.nodes {
		if n.Instance != 0 && n.Status != "running" && !final(n.Status) {
			ids = append(ids, n.Node)
		}
	}
	return ids
}

// say shows a line above the nodes.
func (b *board) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !b.live {
		text = b.now().Format("15:04:05") + " " + text
	}
	_, _ = b.Write([]byte(text + "\n"))
}

// Write shows lines above the nodes.
func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn == 0 {
		return b.out.Write(p)
	}
	frame := append([]byte(b.up()+"\x1b[J"), p...)
	if !bytes.HasSuffix(p, []byte("\n")) {
		frame = append(frame, '\n')
	}
	b.drawn = 0
	if _, err := b.out.Write(frame); err != nil {
		return 0, err
	}
	b.draw()
	return len(p), nil
}

// up moves the cursor to the first line drawn.
func (b *board) up() string {
	if b.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r", b.drawn)
}

// maxLines bounds what is drawn; of more nodes those that matter now are shown.
const maxLines = 20

// draw writes one frame in one write, each line over the old one, so that nothing
// flickers. The caller holds mu.
func (b *board) draw() {
	now := b.now()
	width, height := b.size()
	var frame strings.Builder
	frame.WriteString(b.up())
	shown, hidden := b.visible(min(maxLines, max(height-2, 1)))
	for _, n := range shown {
		frame.WriteString(n.line(now, b.name, width-1) + "\x1b[K\n")
	}
	lines := len(shown)
	if hidden > 0 {
		frame.WriteString(fmt.Sprintf("  and %s more", plural(int64(hidden), "node")) + "\x1b[K\n")
		lines++
	}
	frame.WriteString("\x1b[J")
	b.drawn = lines
	_, _ = io.WriteString(b.out, frame.String()) // a screen that is gone needs no frame
}

// visible are the nodes to draw in so many lines, and how many are left out: running ones come first when
// there is no room for all.
func (b *board) visible(room int) (shown []*nodeProgress, hidden int) {
	if len(b.nodes) <= room {
		return b.nodes, 0
	}
	for _, want := range []func(*nodeProgress) bool{
		(*nodeProgress).running,
		func(n *nodeProgress) bool { return !n.running() && !final(n.Status) },
		func(n *nodeProgress) bool { return final(n.Status) },
	} {
		for _, n := range b.nodes {
			if len(shown) < room && want(n) {
				shown = append(shown, n)
			}
		}
	}
	return shown, len(b.nodes) - len(shown)
}
