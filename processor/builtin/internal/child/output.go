package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// MaxLine is how many bytes of a line are logged; the rest is counted.
	MaxLine = 8000
	// maxTail is how much of the end of a stream is kept.
	maxTail = 4 << 10
)

// Output is what a program writes, on its way to a log: line by line, in bounded memory
// whatever is written. Its streams may be written from several goroutines.
type Output struct {
	limit int64

	mu     sync.Mutex
	log    *slog.Logger
	counts Counts
	logged int64 // bytes
}

// Counts is how much was written.
type Counts struct {
	Bytes, Lines int64 // written
	CutBytes     int64 // written and not logged
	CutLines     int64 // not logged at all
}

// NewOutput logs at most limit bytes.
func NewOutput(log *slog.Logger, limit int64) *Output { return &Output{log: log, limit: limit} }

// Switch makes the output go to another log, with all its bounds anew, after it closed the old one
// as End does.
func (o *Output) Switch(log *slog.Logger) Counts {
	counts := o.End()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log, o.counts, o.logged = log, Counts{}, 0
	return counts
}

// End writes what was cut to the log, and tells how much there was.
func (o *Output) End() Counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.counts.CutLines; n > 0 {
		o.log.Warn(fmt.Sprintf("… the log was cut after %d bytes: %d more lines (%d bytes in all) were not logged", o.limit, n, o.counts.CutBytes))
	}
	return o.counts
}

// Line logs one line that did not come by a stream, within the same limit.
func (o *Output) Line(level slog.Level, text string) {
	s := o.Stream(level)
	_, _ = s.Write([]byte(text)) // never fails
	_ = s.Close()
}

// Stream is one of the streams of an Output: a Writer. A last line without its end is logged by
// Close.
type Stream struct {
	o     *Output
	level slog.Level
	line  []byte
	long  int64 // bytes of this line beyond MaxLine
	open  bool  // a line has begun
	cut   bool  // a line that is not logged has begun
	tail  []byte
}

// Stream makes a stream whose lines are logged at the level.
func (o *Output) Stream(level slog.Level) *Stream { return &Stream{o: o, level: level} }

// Write takes a part of the stream. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.keepTail(p)
	s.o.counts.Bytes += int64(len(p))
	n := len(p)
	for len(p) > 0 {
		if !s.open && (s.cut || s.o.logged >= s.o.limit) {
			s.skip(p)
			break
		}
		s.open = true
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		room := min(len(part), MaxLine-len(s.line))
		s.o.logged += int64(room)
		s.line = append(s.line, part[:room]...)
		s.long += int64(len(part) - room)
		if ended {
			s.flush()
		}
		p = rest
	}
	return n, nil
}

// skip counts what is not logged: this is where the gigabytes pass.
func (s *Stream) skip(p []byte) {
	c := &s.o.counts
	lines := int64(bytes.Count(p, []byte{'\n'}))
	c.Lines += lines
	c.CutLines += lines
	c.CutBytes += int64(len(p))
	s.cut = p[len(p)-1] != '\n'
}

// flush logs the line. The caller holds the lock.
func (s *Stream) flush() {
	text := Clean(s.line)
	if s.long > 0 {
		text += fmt.Sprintf(" … (cut: %d bytes more)", s.long)
		s.o.counts.CutBytes += s.long
	}
	s.o.counts.Lines++
	s.o.log.Log(context.Background(), s.level, text)
	s.line, s.long, s.open = s.line[:0], 0, false
}

// keepTail keeps the end of the stream.
func (s *Stream) keepTail(p []byte) {
	if len(p) >= maxTail {
		s.tail = append(s.tail[:0], p[len(p)-maxTail:]...)
		return
	}
	if over := len(s.tail) + len(p) - maxTail; over > 0 {
		s.tail = s.tail[:copy(s.tail, s.tail[over:])]
	}
	s.tail = append(s.tail, p...)
}

// Tail is the end of the stream as text: whole lines as far as they fit.
func (s *Stream) Tail() string {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	tail := s.tail
	if len(tail) == maxTail {
		if _, rest, ok := bytes.Cut(tail, []byte{'\n'}); ok && len(rest) > 0 {
			tail = rest
		}
	}
	return strings.TrimRight(Clean(tail), "\n")
}

// Close logs the last line if it has no end.
func (s *Stream) Close() error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.open {
		s.flush()
	}
	if s.cut {
		s.o.counts.Lines++
		s.o.counts.CutLines++
		s.cut = false
	}
	return nil
}

// Forget lets go of the tail.
func (s *Stream) Forget() {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.tail = s.tail[:0]
}

// Copy reads f to its end, or to its deadline, into the stream and closes that. held tells that it
// was the deadline: somebody still holds the other end.
func (s *Stream) Copy(f *os.File) (held bool) {
	defer s.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		_, _ = s.Write(buf[:n]) // never fails
		if err != nil {
			return !errors.Is(err, io.EOF) && errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// Clean makes a text of bytes: valid UTF-8, and of the control characters only tabs, line ends
// and escapes (the colours of terminals).
func Clean(b []byte) string {
	clean := utf8.Valid(b)
	for i := 0; clean && i < len(b); i++ {
		clean = b[i] >= ' ' && b[i] != 0x7f || b[i] == '\t' || b[i] == '\n' || b[i] == 0x1b
	}
	if clean {
		return string(b)
	}
	b = bytes.ReplaceAll(bytes.TrimSuffix(b, []byte{'\r'}), []byte("\r\n"), []byte{'\n'})
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != 0x1b || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
}
