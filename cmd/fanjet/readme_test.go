//go:build unix

package main

import (
	"errors"
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
	require.Len(t, shown, 4)
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
		for _, node := range append([]*kong.Node{command}, command.Children...) { // import crontab
			for _, group := range node.AllFlags(false) {
				for _, flag := range group {
					flags[command.Name][flag.Name] = true
				}
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

// shellBlocks are blocks of commands, with what the line before says about them.
var shellBlocks = regexp.MustCompile("(?m)^(?:<!-- (.+) -->)?\n```sh\n((?:[^`].*\n)+)```$")

// Commands about schedules are run as they stand, in their order, on a server without a worker.
func TestReadmeCommandsRun(t *testing.T) {
	t.Parallel()
	text := readme(t)
	url := testServer(t, false)
	jobs := filepath.Join(t.TempDir(), "jobs.yaml")
	elsewhere := strings.NewReplacer("examples/", "../../examples/", "my.crontab", "importer/testdata/user.crontab",
		"xxl_job.sql", "importer/testdata/xxl_job.sql", "powerjob.sql", "importer/testdata/powerjob.sql")
	ran := 0
	var printed []string
	for _, m := range shellBlocks.FindAllStringSubmatch(text, -1) {
		if m[1] != "run by TestReadmeCommandsRun" {
			if strings.Contains("\n"+m[2], "\nfanjet ") || strings.Contains(m[2], " fanjet ") {
				by, ok := strings.CutPrefix(m[1], "tested by ")
				require.True(t, ok, "nobody runs %s", m[2])
				require.DirExists(t, filepath.Join("../..", filepath.FromSlash(by)))
			}
			continue
		}
		for line := range strings.Lines(m[2]) {
			line, into, _ := strings.Cut(strings.TrimSpace(line), " > ")
			args, err := shellWords(line)
			require.NoError(t, err, line)
			require.Equal(t, "fanjet", args[0], line)
			args = args[1:]
			for i, arg := range args {
				if args[i] = elsewhere.Replace(arg); arg == "jobs.yaml" {
					args[i] = jobs
				}
			}
			if args[0] != "next" && args[0] != "import" {
				args = append(args, "--server", url)
			}
			out, errs, code := command(args...)
			require.Zero(t, code, "%s: %s", line, errs)
			if into != "" {
				require.Equal(t, "jobs.yaml", into)
				require.NoError(t, os.WriteFile(jobs, []byte(out), 0o644))
			}
			printed = append(printed, out)
			ran++
		}
	}
	require.Equal(t, 14, ran)
	shown := regexp.MustCompile("<!-- printed by the second -->\n```text\n((?:[^`].*\n)+)```").FindStringSubmatch(text)
	require.NotNil(t, shown)
	require.Equal(t, shown[1], printed[1])
}

// shellWords splits a command as a shell does; all it knows of quotes is '.
func shellWords(line string) ([]string, error) {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	if strings.Count(line, "'")%2 == 1 {
		return nil, errors.New("a quote is open")
	}
	return words, nil
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
