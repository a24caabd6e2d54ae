package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	return string(text)
}

// Code in the README is code of an example, which a test runs.
func TestReadmeShowsTheExamples(t *testing.T) {
	t.Parallel()
	text := readme(t)
	shown := regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```[a-z]+\n(.*?\n)```\n").FindAllStringSubmatch(text, -1)
	require.Len(t, shown, 3)
	for _, m := range shown {
		file, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(m[1])))
		require.NoError(t, err)
		require.Contains(t, string(file), m[2], "README.md shows something else than %s", m[1])
	}
	for _, lang := range []string{"go", "yaml"} {
		blocks := len(regexp.MustCompile("(?m)^```"+lang+"$").FindAllString(text, -1))
		from := len(regexp.MustCompile("(?m)^<!-- from .* -->\n```"+lang+"$").FindAllString(text, -1))
		require.Equal(t, from, blocks, "code of the README that no example has")
	}
}

// Every command of the README is one, with the flags it has; and no command is left out.
func TestReadmeKnowsTheCommands(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name("fanjet"), kong.Writers(io.Discard, io.Discard))
	require.NoError(t, err)
	flags := map[string]map[string]bool{}
	for _, command := range parser.Model.Children {
		flags[command.Name] = map[string]bool{}
		for _, group := range command.AllFlags(false) {
			for _, flag := range group {
				flags[command.Name][flag.Name] = true
			}
		}
	}
	require.Greater(t, len(flags), 10)
	text := readme(t)
	for name := range flags {
		require.Contains(t, text, "| `fanjet "+name, "README.md leaves the command out")
	}
	used := 0
	for line := range strings.Lines(text) {
		m := regexp.MustCompile(`fanjet ([a-z]+)\b.*`).FindStringSubmatch(line)
		if m == nil || flags[m[1]] == nil {
			require.NotRegexp(t, "cmd/fanjet [a-z]", line, "no such command")
			continue
		}
		for _, flag := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(m[0], -1) {
			require.True(t, flags[m[1]][flag[1]], "fanjet %s has no flag --%s, which README.md shows", m[1], flag[1])
			used++
		}
	}
	require.Greater(t, used, 5)
}

// Files that the README leads to are there.
func TestReadmeLinksLead(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme(t), -1)
	require.Greater(t, len(links), 5)
	for _, m := range links {
		if strings.Contains(m[1], "://") {
			continue
		}
		_, err := os.Stat(filepath.Join("../..", filepath.FromSlash(m[1])))
		require.NoError(t, err)
	}
}
