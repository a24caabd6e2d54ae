// Package logcleanup is the built-in processor "log-cleanup": run as a broadcast it deletes or
// compresses old log files on every worker of an app.
//
//	w.Register(logcleanup.Name, logcleanup.New(logcleanup.Config{Roots: []string{"/var/log/shop"}}))
//
// A job says what is old; see Params for every field:
//
//	{"root": "/var/log/shop", "include": ["**/*.log", "**/*.log.*"], "exclude": ["audit"],
//	 "older_than": "14d", "keep_newest": 5, "remove_empty_dirs": true, "dry_run": true}
//
// # What it promises
//
// Nothing means everything: an empty or all-embracing pattern, a retention of zero or none, an
// unset variable, the top of a filesystem, a home or system folder are refused when the job is
// saved (Validate) and again when it runs, after links are resolved, against the worker's own
// list of roots. Filters are joined by "and": another filter never makes a run clean more. The
// oldest files go first, over the whole root.
//
// No link is followed. Every folder is opened through its parent's handle and compared with what
// was listed, every file is compared again right before it is removed, and a name is removed as
// the kind of entry it was. Filesystems mounted below the root, and folders bound there, are not
// entered. Only regular files are cleaned, and dangling links on request.
//
// A failure of one entry is recorded and the sweep goes on. Entries that vanish, change or are
// open meanwhile are no failures. Param on_error decides what failures mean: "report" (default)
// leaves the share a success with status "partial", "fail" sweeps to the end and fails it,
// "stop" ends at the first. What that means for the instance is the broadcast's rule.
//
// Age is that of the last write, so a log that is written is young. Open files are kept on
// Linux, as far as the worker may see other processes' descriptors: the list is some seconds old
// at most, and other users' processes are visible to root only, which the report says. Copy and
// truncate is not offered, since it loses lines.
//
// Memory is bounded whatever the size of the tree: names are read 256 at once, candidates are
// held 32768 at once, and where there are more the tree is walked again for the next ones.
//
// # What it cannot promise
//
// Between the last look at a file and its removal lies one system call, in which another process
// can still write to it. A dry run counts a file with several names as freeing nothing, and no
// folders that would become empty. Where the system is none of Linux, macOS and FreeBSD, disk
// usage, mounts, dangling links and free space are not known; open files are known on Linux only.
package logcleanup
