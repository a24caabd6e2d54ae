//go:build !unix

package main

import "os/exec"

func shellCommand(command string) *exec.Cmd { return exec.Command("cmd", "/C", command) }

// There are no process groups here: only the command itself is ended.
func terminate(cmd *exec.Cmd) { kill(cmd) }
func kill(cmd *exec.Cmd)      { _ = cmd.Process.Kill() }

// programLine is how the program of a command line is started.
func programLine(command string) []string { return []string{"cmd", "/C", command} }
