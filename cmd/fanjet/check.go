package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// plainCount counts the same words as the demo does, by one loop that shares no code with
// it: what both agree on is right.
func plainCount(ctx context.Context, root string) (*tally, error) {
	t := newTally()
	tree := os.DirFS(root)
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	between := func(r rune) bool { return !letter(r) && (r < '0' || r > '9') && r != '_' }
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		data, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		t.Files++
		t.Bytes += int64(len(data))
		for field := range bytes.FieldsFuncSeq(data, between) {
			if len(field) >= minWord && len(field) <= maxWord && letter(rune(field[0])) {
				t.Words++
				t.Count[strings.ToLower(string(field))]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the words of %s in a plain loop: %w", root, err)
	}
	return t, nil
}

// differences compares what the workflow gave with a plain count; none is right.
func differences(got summary, plain *tally) []string {
	want := summarize(plain)
	var out []string
	compare := func(what string, got, want int64) {
		if got != want {
			out = append(out, fmt.Sprintf("%s: the workflow counted %d, the plain loop %d", what, got, want))
		}
	}
	compare("files", got.Files, want.Files)
	compare("bytes", got.Bytes, want.Bytes)
	compare("words", got.Words, want.Words)
	compare("distinct words", got.Distinct, want.Distinct)
	compare("top words", int64(len(got.Top)), int64(len(want.Top)))
	for i := range min(len(got.Top), len(want.Top)) {
		if got.Top[i] != want.Top[i] {
			out = append(out, fmt.Sprintf("top word %d: the workflow has %q %d times, the plain loop %q %d times",
				i+1, got.Top[i].Word, got.Top[i].Count, want.Top[i].Word, want.Top[i].Count))
		}
	}
	return out
}
