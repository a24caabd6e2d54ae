//go:build unix

package main

import (
	"os/exec"
	"strings"
	"syscall"
)

func shellCommand(command string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", command) //nolint:noctx // its group is ended, not it alone
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// terminate and kill signal the whole group; one that is gone already is no error.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
func kill(cmd *exec.Cmd)      { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// programLine is how the program of a command line is started: the shell reads the line, and
// the program takes its place.
func programLine(command string) []string {
	return []string{"sh", "-c", "exec " + strings.TrimPrefix(strings.TrimSpace(command), "exec ")}
}
