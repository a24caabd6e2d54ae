// Command fanjet runs Fanjet: a demo, a workflow file, a server, a worker.
//
// Exit codes: 0 success, 1 failure, 2 bad flags or a broken file, 130 interrupted.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFailed      = 1
	exitInvalid     = 2
	exitInterrupted = 130
)

// exitError ends the command with a code. A nil err is one that was told already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// invalid marks what the user must write differently.
func invalid(format string, args ...any) error {
	return &exitError{exitInvalid, fmt.Errorf(format, args...)}
}

var errInterrupted = &exitError{exitInterrupted, errors.New("interrupted")}

// console is where a command writes: results to out, everything else to err.
type console struct {
	out, err io.Writer
}

type commands struct {
	Demo     demoCmd     `cmd:"" help:"See Fanjet work: count the words of the machine's Go source tree with three workers, all in this process."`
	Run      runCmd      `cmd:"" help:"Run a workflow file to its end."`
	Validate validateCmd `cmd:"" help:"Check files of definitions; every error with its file, line and column."`
	Next     nextCmd     `cmd:"" help:"Show when a schedule fires next, and which fires are moved or skipped and why."`
	Apply    applyCmd    `cmd:"" help:"Save the apps, calendars, jobs and workflows of files on a server."`
	Trigger  triggerCmd  `cmd:"" help:"Start instances of a job."`
	Cancel   cancelCmd   `cmd:"" help:"Cancel the instances of a job under a business key."`
	Schedule scheduleCmd `cmd:"" help:"Show, pause, resume, enable or disable the schedule of a job or workflow."`
	Ledger   ledgerCmd   `cmd:"" help:"Show which fires ran, and which did not and why."`
	Verify   verifyCmd   `cmd:"" help:"Compare what should have fired with what did; fails if they differ."`
	Backfill backfillCmd `cmd:"" help:"Fire a job for past times that have not run."`
	Import   importCmd   `cmd:"" help:"Write the jobs of another scheduler as definitions: a crontab, XXL-JOB, PowerJob."`
	Signal   signalCmd   `cmd:"" help:"Send a signal to a workflow that waits for it."`
	Approve  approveCmd  `cmd:"" help:"Approve or reject what a workflow waits for."`
	Worker   workerCmd   `cmd:"" help:"Run a worker with the built-in processors (demo-list, demo-count, demo-report)."`
	Server   serverCmd   `cmd:"" help:"Run a server, with NATS and SQLite inside unless told otherwise."`
	Setup    setupCmd    `cmd:"" help:"Make the first user of a server, with the code that it has printed."`
	Login    loginCmd    `cmd:"" help:"Log in at a server's API, and keep a token for the commands that ask it."`
	Logout   logoutCmd   `cmd:"" help:"Forget the login."`
	User     userCmd     `cmd:"" help:"List, make, disable, enable and reset users."`
	Token    tokenCmd    `cmd:"" help:"List, make and revoke your API tokens."`
	Version  versionCmd  `cmd:"" help:"Show the version."`
}

func main() {
	os.Exit(execute(os.Args[1:], &console{os.Stdout, os.Stderr}))
}

// execute runs one command line and returns the exit code.
func execute(args []string, con *console) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	var cmds commands
	code, left := 0, false
	parser, err := kong.New(&cmds,
		kong.Name("fanjet"),
		kong.Description("A distributed job scheduler and workflow engine with MapReduce."),
		kong.Writers(con.out, con.err),
		kong.Exit(func(c int) { code, left = c, true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Bind(con),
	)
	if err != nil {
		return report(con, err)
	}
	ctx, err := parser.Parse(joinNegative(args))
	if left { // --help has been printed
		return code
	}
	if err != nil {
		return report(con, invalid("%w; see fanjet %s", err, strings.TrimSpace(commandOf(ctx, err)+" --help")))
	}
	return report(con, ctx.Run())
}

// commandOf is the command the user meant, as far as it was understood.
func commandOf(ctx *kong.Context, err error) string {
	var p *kong.ParseError
	if ctx == nil && errors.As(err, &p) {
		ctx = p.Context
	}
	if ctx == nil || ctx.Selected() == nil {
		return ""
	}
	return ctx.Selected().Name
}

// report tells the error, if there is one to tell, and returns the exit code.
func report(con *console, err error) int {
	if err == nil {
		return 0
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{exitFailed, err}
	}
	if e.err != nil {
		fmt.Fprintf(con.err, "fanjet: %v\n", e.err)
	}
	return e.code
}
