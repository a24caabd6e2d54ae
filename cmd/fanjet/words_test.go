package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/processortest"
)

// smallTree is a tree with everything that is hard to count: an empty file, a file of many
// pieces, words at their borders, runs that are too long, bytes that are no text.
func smallTree(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("a.txt", "The cat, the dog; THE end")
	write("empty", "")
	write("deep/er/b.txt", "größe naïve 日本 don't X1y_2 0xFF _a \u212A")
	write("deep/binary", string([]byte{0, 255, 'a', 'b', 254, 'C', 13, 10}))
	write("long.txt", strings.Repeat("a", maxWord)+" "+strings.Repeat("b", maxWord+1)+" end")
	dice := rand.New(rand.NewPCG(1, 2))
	var big strings.Builder
	for big.Len() < 3*pieceBytes+100 {
		big.WriteString(strings.Repeat(string(rune('a'+dice.IntN(26))), 1+dice.IntN(70)))
		big.WriteString(" \n.0"[dice.IntN(3):][:1])
	}
	write("big.txt", big.String())
	write("border.txt", strings.Repeat(".", pieceBytes-3)+"border"+strings.Repeat("-", 10))
	write("exact.txt", strings.Repeat("x ", pieceBytes/2)+"y")
	for i := range 150 {
		write(fmt.Sprintf("many/%03d", i), fmt.Sprintf("file number %d", i))
	}
	require.NoError(t, os.Symlink("a.txt", filepath.Join(root, "link")))
	return root
}

func countTree(t testing.TB, root string) summary {
	t.Helper()
	var l listing
	out := processortest.Run(t, processor.Typed(listTree), processortest.Task{Params: listParams{root}})
	require.NoError(t, out.Err)
	require.NoError(t, out.Decode(&l))

	count := processor.MapReduce[countParams, []piece, *tally]{Split: splitTree, Work: countPieces, Combine: foldTallies, Reduce: totals}
	out = processortest.Run(t, count, processortest.Task{Mode: processor.ModeMapReduce, Params: l})
	require.NoError(t, out.Err)
	require.Greater(t, out.SubTasks, 5)
	var s summary
	require.NoError(t, out.Decode(&s))
	require.Equal(t, l.Files, s.Files)
	require.Equal(t, l.Bytes, s.Bytes)
	return s
}

func TestWordCount_EqualsPlainLoop(t *testing.T) {
	t.Parallel()
	root := smallTree(t)
	s := countTree(t, root)
	plain, err := plainCount(t.Context(), root)
	require.NoError(t, err)
	require.Empty(t, differences(s, plain))
	require.EqualValues(t, 3, plain.Count["the"])
	require.EqualValues(t, 1, plain.Count["border"])
	require.EqualValues(t, 1, plain.Count["x1y_2"])
	require.Contains(t, plain.Count, strings.Repeat("a", maxWord))
	for _, no := range []string{strings.Repeat("b", maxWord+1), "x", "0xff", "xff", "_a"} {
		require.NotContains(t, plain.Count, no)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	plain := &tally{Files: 1, Bytes: 9, Words: 2, Count: map[string]int64{"a": 1, "b": 1}}
	good := summary{1, 9, 2, 2, []wordCount{{"a", 1}, {"b", 1}}}
	require.Empty(t, differences(good, plain))
	bad := summary{1, 9, 3, 2, []wordCount{{"a", 2}, {"b", 1}}}
	require.Equal(t, []string{
		"words: the workflow counted 3, the plain loop 2",
		`top word 1: the workflow has "a" 2 times, the plain loop "a" 1 times`,
	}, differences(bad, plain))
}

func TestSplitTree_RefusesAChangedTree(t *testing.T) {
	t.Parallel()
	count := processor.MapReduce[countParams, []piece, *tally]{Split: splitTree, Work: countPieces}
	out := processortest.Run(t, count, processortest.Task{Mode: processor.ModeMap, Params: countParams{t.TempDir(), 3}})
	require.ErrorContains(t, out.Err, "had 3 files when it was listed, it has 0 now")
}

func TestListTree_NoSuchRoot(t *testing.T) {
	t.Parallel()
	out := processortest.Run(t, processor.Typed(listTree), processortest.Task{Params: listParams{"/no/such/tree"}})
	require.ErrorContains(t, out.Err, "walk /no/such/tree")
}

func TestReport(t *testing.T) {
	t.Parallel()
	r, err := reportTotals(context.Background(), nil, reportParams{summary{Words: 8, Top: []wordCount{{"a", 4}, {"b", 2}}}})
	require.NoError(t, err)
	require.Equal(t, []reportRow{{1, "a", 4, 50}, {2, "b", 2, 25}}, r.Rows)
	r, err = reportTotals(context.Background(), nil, reportParams{})
	require.NoError(t, err)
	require.Empty(t, r.Rows)
}
