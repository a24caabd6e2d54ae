package logcleanup

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// order is the place of a file in the whole set: by the time of its last write, then by path.
type order struct {
	mtime int64 // ns
	path  string
}

func (a order) compare(b order) int {
	return cmp.Or(cmp.Compare(a.mtime, b.mtime), strings.Compare(a.path, b.path))
}

// candidate is a file or dangling link that a run may clean, as it was when it was listed.
type candidate struct {
	order
	id   fileID
	size int64
	link bool
}

// firstOf keeps the first n of all that it is offered, by an order, in the memory of n.
type firstOf[T any] struct {
	n       int
	compare func(a, b T) int
	items   []T // a heap, the last one on top
}

func (f *firstOf[T]) offer(v T) {
	if len(f.items) < f.n {
		heap.Push(f, v)
		return
	}
	if f.compare(v, f.items[0]) < 0 {
		f.items[0] = v
		heap.Fix(f, 0)
	}
}

// last is the last of those kept; ok is false while fewer than n were offered.
func (f *firstOf[T]) last() (v T, ok bool) {
	if len(f.items) < f.n {
		return v, false
	}
	return f.items[0], true
}

// take gives what is kept, in order, and forgets it.
func (f *firstOf[T]) take() []T {
	out := f.items
	f.items = nil
	slices.SortFunc(out, f.compare)
	return out
}

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (f *firstOf[T]) Len() int           { return len(f.items) }
func (f *firstOf[T]) Less(i, j int) bool { return f.compare(f.items[i], f.items[j]) > 0 }
func (f *firstOf[T]) Swap(i, j int)      { f.items[i], f.items[j] = f.items[j], f.items[i] }
func (f *firstOf[T]) Push(v any)         { f.items = append(f.items, v.(T)) }
func (f *firstOf[T]) Pop() any {
	v := f.items[len(f.items)-1]
	f.items = f.items[:len(f.items)-1]
	return v
}
