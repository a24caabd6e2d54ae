package engine

import (
	"fmt"

	"github.com/fanjet/fanjet/workflow"
)

// Status is where an Instance, a WorkflowInstance, or a node of one stands.
type Status uint8

// The statuses. Spelling as in Go's context: canceled.
const (
	// StatusWaiting: not handed to a worker; the Reason says why. The engine moves it in at
	// creation, and back from Dispatched and Running for a further attempt or run.
	StatusWaiting Status = iota + 1
	// StatusDispatched: its root task is on its way to a worker.
	StatusDispatched
	// StatusRunning: a worker has started it.
	StatusRunning
	// StatusPaused: a workflow instance that starts no further node.
	StatusPaused
	// StatusSucceeded: final.
	StatusSucceeded
	// StatusFailed: final; every attempt failed, or no worker came in time.
	StatusFailed
	// StatusTimedOut: final; started work ran over its timeout and had no attempt left.
	StatusTimedOut
	// StatusStopped: final; stopped by a person or a policy after it was dispatched.
	StatusStopped
	// StatusCanceled: final; stopped before it was dispatched.
	StatusCanceled
	// StatusSkipped: final; a policy or a path not taken decided not to run it.
	StatusSkipped
)

var statusWords = [...]string{
	StatusWaiting: "waiting", StatusDispatched: "dispatched", StatusRunning: "running", StatusPaused: "paused",
	StatusSucceeded: "succeeded", StatusFailed: "failed", StatusTimedOut: "timed_out", StatusStopped: "stopped",
	StatusCanceled: "canceled", StatusSkipped: "skipped",
}

// String is the word for the status in JSON, logs and the console.
func (s Status) String() string {
	if int(s) < len(statusWords) && s > 0 {
		return statusWords[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// ParseStatus reads the word back.
func ParseStatus(word string) (Status, error) {
	for s, w := range statusWords {
		if w == word && w != "" {
			return Status(s), nil
		}
	}
	return 0, fmt.Errorf("status %q is unknown: %w", word, ErrInvalid)
}

// MarshalText writes the word.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word.
func (s *Status) UnmarshalText(b []byte) (err error) {
	*s, err = ParseStatus(string(b))
	return err
}

// Terminal tells whether the status is final.
func (s Status) Terminal() bool { return s >= StatusSucceeded }

// InstanceMoves is the transition table of an Instance.
var InstanceMoves = workflow.NewTable("instance", map[Status][]Status{
	StatusWaiting:    {StatusDispatched, StatusFailed, StatusCanceled, StatusSkipped},
	StatusDispatched: {StatusRunning, StatusWaiting, StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped},
	StatusRunning:    {StatusWaiting, StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped},
	StatusSucceeded:  {}, StatusFailed: {}, StatusTimedOut: {}, StatusStopped: {}, StatusCanceled: {}, StatusSkipped: {},
})

// WorkflowMoves is the transition table of a WorkflowInstance.
var WorkflowMoves = workflow.NewTable("workflow instance", map[Status][]Status{
	StatusWaiting:   {StatusRunning, StatusFailed, StatusCanceled, StatusSkipped},
	StatusRunning:   {StatusPaused, StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped},
	StatusPaused:    {StatusRunning, StatusSucceeded, StatusFailed, StatusTimedOut, StatusStopped},
	StatusSucceeded: {}, StatusFailed: {}, StatusTimedOut: {}, StatusStopped: {}, StatusCanceled: {}, StatusSkipped: {},
})

// Reason says why something waits, or why it ended without running.
type Reason string

// The reasons.
const (
	ReasonDue      Reason = "due"       // not yet due, or next in line
	ReasonQueued   Reason = "queued"    // a limit is reached
	ReasonNoWorker Reason = "no_worker" // no live worker fits
	ReasonRetry    Reason = "retry"     // an attempt failed; the next one is due later
	ReasonPaused   Reason = "paused"
	ReasonStopped  Reason = "stopped"
)

// TaskStatus is where a task that has a row stands.
type TaskStatus uint8

// The statuses of a task.
const (
	// TaskWaiting: a sub-task that waits for its next attempt, a share for its wave.
	TaskWaiting TaskStatus = iota + 1
	// TaskDispatched: sent, or being sent, to a worker.
	TaskDispatched
	// TaskRunning: a worker has started it.
	TaskRunning
	// TaskSucceeded: final.
	TaskSucceeded
	// TaskFailed: final; no attempt is left.
	TaskFailed
	// TaskLost: final; the worker that alone could run it is gone.
	TaskLost
	// TaskStopped: final; its instance was stopped or the wave was called off.
	TaskStopped
)

var taskWords = [...]string{
	TaskWaiting: "waiting", TaskDispatched: "dispatched", TaskRunning: "running", TaskSucceeded: "succeeded",
	TaskFailed: "failed", TaskLost: "lost", TaskStopped: "stopped",
}

// String is the word for the status.
func (s TaskStatus) String() string {
	if int(s) < len(taskWords) && s > 0 {
		return taskWords[s]
	}
	return fmt.Sprintf("task(%d)", uint8(s))
}

// MarshalText writes the word.
func (s TaskStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Terminal tells whether the status is final.
func (s TaskStatus) Terminal() bool { return s >= TaskSucceeded }

// TaskMoves is the transition table of a task with a row.
var TaskMoves = workflow.NewTable("task", map[TaskStatus][]TaskStatus{
	TaskWaiting:    {TaskDispatched, TaskRunning, TaskSucceeded, TaskFailed, TaskLost, TaskStopped},
	TaskDispatched: {TaskWaiting, TaskRunning, TaskSucceeded, TaskFailed, TaskLost, TaskStopped},
	TaskRunning:    {TaskWaiting, TaskDispatched, TaskSucceeded, TaskFailed, TaskLost, TaskStopped},
	TaskSucceeded:  {}, TaskFailed: {}, TaskLost: {}, TaskStopped: {},
})
