package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fanjet/fanjet/processor"
)

// The word count of the demo. A word begins with a letter, goes on with letters, digits
// and _, and has 2 to 64 of them, ASCII all; it is counted in lower case. What is longer,
// or begins with a digit, is data.

const (
	minWord = 2
	maxWord = 64
	// pieceBytes bounds the bytes of one sub-task, so that even a piece of words that are
	// all different makes a value that may travel. A larger file is several pieces.
	pieceBytes = 128 << 10
	pieceFiles = 64
	topWords   = 20
)

// registerDemo gives w the built-in processors.
func registerDemo(w *processor.Worker) *processor.Worker {
	return w.
		Register("demo-list", processor.Typed(listTree)).
		Register("demo-count", processor.MapReduce[countParams, []piece, *tally]{
			Split: splitTree, Work: countPieces, Combine: foldTallies, Reduce: totals,
		}).
		Register("demo-report", processor.Typed(reportTotals))
}

type listParams struct {
	Root string `json:"root"`
}

// listing is the result of demo-list: not the names, which may be many, but what the next
// step needs to walk the same tree.
type listing struct {
	Root  string `json:"root"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
}

func listTree(ctx context.Context, task *processor.Task, p listParams) (listing, error) {
	l := listing{Root: p.Root}
	err := walk(ctx, p.Root, func(_ string, size int64) error {
		l.Files++
		l.Bytes += size
		return nil
	})
	task.Logger().Info("listed", "root", l.Root, "files", l.Files, "bytes", l.Bytes)
	return l, err
}

// walk calls each with every regular file below root, in lexical order, by its path from
// root. Symbolic links are left out.
func walk(ctx context.Context, root string, each func(path string, size int64) error) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if !utf8.ValidString(rel) {
			return processor.Cancel(fmt.Errorf("the name of %q is not UTF-8; rename it or choose another --root", path))
		}
		return each(rel, info.Size())
	})
	if err != nil {
		return fmt.Errorf("walk %s: %w", root, err)
	}
	return nil
}

type countParams struct {
	Root  string `json:"root"`
	Files int64  `json:"files"`
}

// piece is a file or a part of one: the words that begin in [From, From+Size).
type piece struct {
	Path string `json:"path"`
	From int64  `json:"from,omitempty"`
	Size int64  `json:"size"`
}

// splitTree emits batches of pieces. It walks in lexical order, so that a repetition emits
// the same.
func splitTree(ctx context.Context, task *processor.Task, p countParams, emit func([]piece) error) error {
	var (
		batch        []piece
		bytes, files int64
	)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		b := batch
		batch, bytes = nil, 0
		return emit(b)
	}
	err := walk(ctx, p.Root, func(path string, size int64) error {
		files++
		for from := int64(0); from == 0 || from < size; from += pieceBytes {
			part := min(size-from, pieceBytes)
			if bytes+part > pieceBytes || len(batch) == pieceFiles {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, piece{path, from, part})
			bytes += part
		}
		return nil
	})
	if err != nil {
		return err
	}
	if files != p.Files {
		return processor.Cancel(fmt.Errorf("%s had %d files when it was listed, it has %d now; run again when it is at rest", p.Root, p.Files, files))
	}
	return flush()
}

// tally is what was counted in some pieces.
type tally struct {
	Files int64            `json:"files"`
	Bytes int64            `json:"bytes"`
	Words int64            `json:"words"`
	Count map[string]int64 `json:"count"`
}

func newTally() *tally { return &tally{Count: map[string]int64{}} }

func (t *tally) add(o *tally) {
	t.Files += o.Files
	t.Bytes += o.Bytes
	t.Words += o.Words
	for w, n := range o.Count {
		t.Count[w] += n
	}
}

func countPieces(ctx context.Context, task *processor.Task, pieces []piece) (*tally, error) {
	var p countParams
	if err := task.Params(&p); err != nil {
		return nil, err
	}
	c := counter{words: map[string]*int64{}}
	for _, part := range pieces {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.piece(p.Root, part); err != nil {
			return nil, err
		}
	}
	return c.tally(), nil
}

func foldTallies(_ context.Context, values []*tally) *tally {
	sum := newTally()
	for _, v := range values {
		sum.add(v)
	}
	return sum
}

// counter counts without an allocation a word.
type counter struct {
	words map[string]*int64
	sum   tally
	buf   []byte
}

func (c *counter) tally() *tally {
	t := c.sum
	t.Count = make(map[string]int64, len(c.words))
	for w, n := range c.words {
		t.Count[w] = *n
	}
	return &t
}

// piece counts the words that begin in p. It reads one byte before, to see whether a run
// began there, and as much behind as tells a word from a longer run.
func (c *counter) piece(root string, p piece) error {
	f, err := os.Open(filepath.Join(root, p.Path))
	if err != nil {
		return fmt.Errorf("count words: %w", err)
	}
	defer f.Close()
	before := min(p.From, 1)
	want := int(before + p.Size + maxWord + 1)
	c.buf = slices.Grow(c.buf[:0], want)[:want]
	n, err := f.ReadAt(c.buf, p.From-before)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("count words: %w", err)
	}
	if p.From == 0 {
		c.sum.Files++
	}
	c.sum.Bytes += p.Size
	c.count(c.buf[:n], int(before), int(before+p.Size))
	return nil
}

// count counts the words of b that begin in [from, to); a run that began before from is
// none of ours.
func (c *counter) count(b []byte, from, to int) {
	i := from
	if from > 0 && inWord(b[from-1]) != 0 {
		for i < len(b) && inWord(b[i]) != 0 {
			i++
		}
	}
	for i < min(to, len(b)) {
		start := i
		for i < len(b) {
			l := inWord(b[i])
			if l == 0 {
				break
			}
			b[i] = l
			i++
		}
		if n := i - start; n >= minWord && n <= maxWord && b[start] >= 'a' {
			c.sum.Words++
			if count, ok := c.words[string(b[start:i])]; ok {
				*count++
			} else {
				one := int64(1)
				c.words[string(b[start:i])] = &one
			}
		}
		i++
	}
}

// inWord is the byte in lower case, 0 for what is in no word.
func inWord(b byte) byte {
	switch {
	case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '_':
		return b
	case b >= 'A' && b <= 'Z':
		return b + 'a' - 'A'
	}
	return 0
}

// summary is the result of demo-count.
type summary struct {
	Files    int64       `json:"files"`
	Bytes    int64       `json:"bytes"`
	Words    int64       `json:"words"`
	Distinct int64       `json:"distinct"`
	Top      []wordCount `json:"top"`
}

type wordCount struct {
	Word  string `json:"word"`
	Count int64  `json:"count"`
}

func totals(_ context.Context, _ *processor.Task, values *processor.Values[*tally]) (any, error) {
	sum := newTally()
	for v := range values.All() {
		sum.add(v)
	}
	if err := values.Err(); err != nil {
		return nil, err
	}
	return summarize(sum), nil
}

func summarize(t *tally) summary {
	all := make([]wordCount, 0, len(t.Count))
	for w, n := range t.Count {
		all = append(all, wordCount{w, n})
	}
	slices.SortFunc(all, func(a, b wordCount) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Word, b.Word)
	})
	return summary{t.Files, t.Bytes, t.Words, int64(len(all)), all[:min(topWords, len(all))]}
}

type reportParams struct {
	Count summary `json:"count"`
}

// wordReport is the result of demo-report: the totals, and the top words with their share.
type wordReport struct {
	Totals summary     `json:"totals"`
	Rows   []reportRow `json:"rows"`
}

type reportRow struct {
	Rank    int     `json:"rank"`
	Word    string  `json:"word"`
	Count   int64   `json:"count"`
	Percent float64 `json:"percent"`
}

func reportTotals(_ context.Context, _ *processor.Task, p reportParams) (wordReport, error) {
	r := wordReport{Totals: p.Count, Rows: []reportRow{}}
	for i, w := range p.Count.Top {
		r.Rows = append(r.Rows, reportRow{i + 1, w.Word, w.Count, 100 * float64(w.Count) / float64(p.Count.Words)})
	}
	return r, nil
}
