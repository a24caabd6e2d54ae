package api

// The kinds of Event.
const (
	EventInstance         = "instance"          // a run has moved
	EventProgress         = "progress"          // the sub-tasks of a run have moved on
	EventWorkflowInstance = "workflow_instance" // a run of a workflow has moved
	EventNode             = "node"              // a node of one has moved
	EventOpen             = "open"              // the stream has begun: what moves from now on is told
	EventGap              = "gap"               // something was not told: read again what is shown
)

// Event is something that moved in an app, the newest word about its object. Its id is that of
// the stream, for Last-Event-ID.
type Event struct {
	ID       string `json:"-"`
	Kind     string `json:"kind"`
	Workflow int64  `json:"workflow_instance,string,omitempty"`
	Node     string `json:"node,omitempty"`
	Instance int64  `json:"instance,string,omitempty"`
	Job      int64  `json:"job,string,omitempty"`
	Attempt  int32  `json:"attempt,omitempty"`
	Status   string `json:"status,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Error    string `json:"error,omitempty"` // cut to 1 KiB
	Total    int64  `json:"total,omitempty"` // sub-tasks so far
	Done     int64  `json:"succeeded,omitempty"`
	Failed   int64  `json:"failed,omitempty"`
}

// SubTasks is how the sub-tasks of the newest map of a run stand, in numbers that do not grow
// with them.
type SubTasks struct {
	Run       int32        `json:"run"`    // 0: the run maps nothing
	Closed    bool         `json:"closed"` // nothing of it moves any more
	Total     int64        `json:"total"`  // so far
	Succeeded int64        `json:"succeeded"`
	Failed    int64        `json:"failed"`
	Retrying  int64        `json:"retrying"`          // wait for their next attempt
	InFlight  int          `json:"chunks_in_flight"`  // messages with sub-tasks that are given out
	Growing   bool         `json:"growing"`           // more may be emitted
	Rate      float64      `json:"rate"`              // finished a second, since the run began
	LeftMS    *int64       `json:"left_ms,omitempty"` // of the known ones at that rate; left out if nobody knows
	Errors    []ErrorGroup `json:"errors"`            // the first 100 groups of the first 10 000 rows
	Heat      Heat         `json:"heat"`
}

// ErrorGroup are failures whose texts are the same but for their numbers.
type ErrorGroup struct {
	Error string `json:"error"` // the first of them
	Count int64  `json:"count"`
	First int64  `json:"first"` // number of a sub-task that failed with it
}

// Heat is how far along the sub-tasks are, by number: element i counts those of the Size
// numbers from i×Size+1 on.
type Heat struct {
	Size      int64   `json:"size"`
	Succeeded []int64 `json:"succeeded"`
	Failed    []int64 `json:"failed"`
}

// SubTask is a sub-task that failed, or waits for its next attempt.
type SubTask struct {
	Number     int64  `json:"number"`
	Status     string `json:"status"`
	Attempt    int32  `json:"attempt"`
	Lost       int32  `json:"lost,omitempty"` // runs of it whose worker died
	Worker     string `json:"worker,omitempty"`
	NextTryAt  int64  `json:"next_try_at,omitempty"`
	Error      string `json:"error,omitempty"`
	StartedAt  int64  `json:"started_at,omitempty"`
	FinishedAt int64  `json:"finished_at,omitempty"`
}
