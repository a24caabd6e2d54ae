// Package shell is a built-in processor that runs a script or a program. A worker that wants it
// registers it; none has it by itself:
//
//	p, err := shell.New(shell.Config{Dirs: []string{"/srv/reports"}})
//	…
//	w.Register("shell", p)
//
// The params of a job are JSON; Params documents them. The simplest are {"script": "df -h"}.
//
// # Values are data
//
// Values reach a script as variables ("env"), as arguments ("args") and as its input ("stdin"),
// and never as a part of its code: write {"script": "rm -- \"$FILE\"", "env": {"FILE": "${ context.file }"}}
// in a workflow, never {"script": "rm ${ context.file }"}. A worker with Config.Named set takes no
// code from the server at all: jobs then choose among the scripts the worker has.
//
// # What a script gets
//
// A clean environment (PATH, HOME, LANG, TZ and USER of the worker, what Config names, and the FANJET_
// variables below), a private folder that is removed afterwards (TMPDIR, and its working folder
// unless "dir" says otherwise), and no input unless "stdin" has some.
//
//	FANJET_APP, FANJET_JOB, FANJET_KEY, FANJET_NODE, FANJET_NAME
//	FANJET_INSTANCE, FANJET_ATTEMPT, FANJET_TASK, FANJET_TASK_ATTEMPT, FANJET_WORKFLOW
//	FANJET_SHARD, FANJET_SHARDS  of a broadcast, else 0 and 1
//	FANJET_SCHEDULED_AT          RFC 3339, empty if nothing was scheduled
//	FANJET_ITEM                  the item of a sub-task
//	FANJET_RESULT                a file: what the script writes there is the value of the Result
//
// # How it ends
//
// Exit code 0 is success; any other fails the task, with the code and the last lines in the error.
// Output goes to the task's log line by line, up to Config.LogLimit. When the task is stopped,
// times out, or the worker gives up draining, all processes of the script get SIGTERM and after
// Config.Grace SIGKILL. The end of the script is the end of what it left in the background: a
// process that still holds its output has Config.Grace to finish, all others are killed at once.
// On Linux that includes processes that made themselves daemons, unless they also cleared their
// environment; elsewhere the process group only. Without Unix (on Windows) the program alone is
// ended.
package shell
