//go:build linux

package shell_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/processor/builtin/shell"
	"github.com/fanjet/fanjet/processor/processortest"
)

// victim is a worker that is about to be killed: a process of its own.
func victim(dir string) {
	p, err := shell.New(shell.Config{TempDir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	processortest.Execute(context.Background(), p, processortest.Task{Params: object{
		"script": `echo $$ > $OUT.new; mv $OUT.new $OUT; exec sleep 600`, "env": object{"OUT": dir + "/pid"},
	}})
}

// F16: what a killed worker leaves is removed by the next one, and its script dies with it; the
// folder of one that lives is spared.
func TestNew_sweeps_after_the_dead(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "SHELL_TEST_VICTIM="+temp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- line
	}()
	var pid int
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(filepath.Join(temp, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		}
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	folders := func() []string {
		all, err := filepath.Glob(filepath.Join(temp, "fanjet-shell-*"))
		require.NoError(t, err)
		return all
	}
	require.Len(t, folders(), 1)
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(folders()[0], old, old))
	require.NoError(t, os.Mkdir(filepath.Join(temp, "fanjet-shell-young"), 0o700))
	require.NoError(t, os.Symlink("/etc", filepath.Join(temp, "fanjet-shell-link")))

	newShell(t, shell.Config{TempDir: temp})
	require.Len(t, folders(), 3, "the folder of a living worker was removed")

	require.NoError(t, cmd.Process.Kill())
	<-said
	require.Error(t, cmd.Wait())
	requireGone(t, []int{pid})
	newShell(t, shell.Config{TempDir: temp})
	require.ElementsMatch(t, []string{filepath.Join(temp, "fanjet-shell-link"), filepath.Join(temp, "fanjet-shell-young")}, folders())
	require.DirExists(t, "/etc")
}
