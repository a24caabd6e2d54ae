// Package schedule says when a job fires: it compiles a workflow.Schedule and answers for any
// instant what comes next, what was due in a range, and what a server that was away must make
// up for.
//
// It owns the meaning of every schedule type, of time zones and their clock changes, of
// business calendars and of misfire policies. It has no clock and no dice: every instant is an
// argument, in milliseconds since 1970-01-01 UTC. The scheduler calls it for every fire, the
// ledger's verification to recompute what should have fired, and `fanjet next` to show it.
//
// # Cron
//
// 5 fields are Vixie's: minute hour day-of-month month day-of-week, Sunday is 0 and 7. If a
// day field begins with * both must match, else either. 6 or 7 fields are Quartz's: seconds
// first, weekdays 1 (Sunday) to 7, exactly one of the day fields is ?, L W LW L-n nL n#k, and
// an optional year from 1970 to 2199. Both read names, lists, ranges that wrap around the end
// of the field, and N/step as N to the end of the field. A step that is no smaller than the
// field is refused: cron does not count across the end of a field.
//
// # Clock changes
//
// A cron expression has a fixed hour unless an item of its hour field is *, */step or N/step.
// With a fixed hour a local time fires at the first instant at which the wall clock shows it or
// a later one: a time that a clock change leaves out fires right after the gap, several such
// times fire once, and a time that comes twice fires at its first pass. The policies of the
// schedule change either. Without a fixed hour real time counts: a local time that does not
// exist does not fire, one that comes twice fires twice.
//
// The window of a daily interval opens at the first instant at which the wall clock shows its
// begin or a later time; from there on real time counts, until the wall clock first passes the
// window's end.
package schedule
