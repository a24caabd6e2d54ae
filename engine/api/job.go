package api

import "encoding/json"

// App is the tenant: it owns workers, jobs and workflows.
type App struct {
	ID        int64  `json:"id,string"`
	Name      string `json:"name"`
	CreatedAt int64  `json:"created_at"`
}

// Job is a job of an app as it is saved.
type Job struct {
	ID        int64           `json:"id,string"`
	App       string          `json:"app"`
	Name      string          `json:"name"`
	Title     string          `json:"title,omitempty"`
	Version   int32           `json:"version"`
	Enabled   bool            `json:"enabled"`
	Spec      json.RawMessage `json:"spec"`     // workflow.Spec
	Schedule  json.RawMessage `json:"schedule"` // workflow.Schedule
	CreatedAt int64           `json:"created_at"`
	UpdatedAt int64           `json:"updated_at"`
}

// SaveJob is a job as it is to be saved.
type SaveJob struct {
	Title    string          `json:"title,omitempty"`
	Spec     json.RawMessage `json:"spec"`
	Schedule json.RawMessage `json:"schedule,omitempty"`
	Disabled bool            `json:"disabled,omitempty"`
}

// Workflow is a saved workflow.
type Workflow struct {
	ID         int64           `json:"id,string"`
	App        string          `json:"app"`
	Name       string          `json:"name"`
	Title      string          `json:"title,omitempty"`
	Version    int32           `json:"version"`
	Enabled    bool            `json:"enabled"`
	Definition json.RawMessage `json:"definition,omitempty"` // workflow.Definition; not in lists
	CreatedAt  int64           `json:"created_at"`
	UpdatedAt  int64           `json:"updated_at"`
}

// Document is a definition as it was written, YAML or JSON.
type Document struct {
	Document string `json:"document"`
	File     string `json:"file,omitempty"` // its name, for messages
}

// Trigger starts a run of a job. What is left out is the job's.
type Trigger struct {
	Params  json.RawMessage `json:"params,omitempty"`
	Key     string          `json:"key,omitempty"` // business key
	DelayMS int64           `json:"delay_ms,omitempty"`
	Lane    string          `json:"lane,omitempty"` // high, normal or bulk
}

// StartWorkflow starts a run of a saved workflow.
type StartWorkflow struct {
	Params map[string]json.RawMessage `json:"params,omitempty"`
	Key    string                     `json:"key,omitempty"`
}

// Started names what was started.
type Started struct {
	ID int64 `json:"id,string"`
}

// Instance is a run of a job, or of a workflow's node.
type Instance struct {
	ID         int64           `json:"id,string"`
	App        string          `json:"app"`
	Job        int64           `json:"job,string,omitempty"`
	JobVersion int32           `json:"job_version,omitempty"`
	Workflow   int64           `json:"workflow_instance,string,omitempty"`
	Node       string          `json:"node,omitempty"`
	Status     string          `json:"status"`
	Reason     string          `json:"reason,omitempty"` // why it waits
	Attempt    int32           `json:"attempt"`
	Lane       string          `json:"lane"`
	Pool       string          `json:"pool"`
	Key        string          `json:"key,omitempty"`
	Params     json.RawMessage `json:"params,omitempty"` // not in lists
	FireAt     int64           `json:"scheduled_at,omitempty"`
	DueAt      int64           `json:"due_at"`
	CreatedAt  int64           `json:"created_at"`
	StartedAt  int64           `json:"started_at,omitempty"`
	FinishedAt int64           `json:"finished_at,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // not in lists
	Error      string          `json:"error,omitempty"`
	Worker     string          `json:"worker,omitempty"`
	Late       json.RawMessage `json:"late_result,omitempty"` // of a run that ended after it was final
	Map        *MapRun         `json:"map,omitempty"`         // not in lists
}

// MapRun counts the sub-tasks of a map.
type MapRun struct {
	Total     int64 `json:"total"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
}

// Attempt is a try of an instance that ended without success, before the last.
type Attempt struct {
	Attempt    int32  `json:"attempt"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
	Worker     string `json:"worker,omitempty"`
	StartedAt  int64  `json:"started_at,omitempty"`
	FinishedAt int64  `json:"finished_at"`
}

// WorkflowInstance is a run of a workflow.
type WorkflowInstance struct {
	ID         int64           `json:"id,string"`
	App        string          `json:"app"`
	Workflow   int64           `json:"workflow,string"`
	Version    int32           `json:"version"`
	Status     string          `json:"status"`
	Reason     string          `json:"reason,omitempty"`
	Attempt    int32           `json:"attempt"`
	Key        string          `json:"key,omitempty"`
	Params     json.RawMessage `json:"params,omitempty"`  // not in lists
	Context    json.RawMessage `json:"context,omitempty"` // not in lists
	Result     json.RawMessage `json:"result,omitempty"`  // not in lists
	Error      string          `json:"error,omitempty"`
	Parent     int64           `json:"parent,string,omitempty"`
	ParentNode string          `json:"parent_node,omitempty"`
	FireAt     int64           `json:"scheduled_at,omitempty"`
	CreatedAt  int64           `json:"created_at"`
	StartedAt  int64           `json:"started_at,omitempty"`
	FinishedAt int64           `json:"finished_at,omitempty"`
}

// Node is how a node of a workflow's run stands.
type Node struct {
	Node       string          `json:"node"`
	Attempt    int32           `json:"attempt"`
	Status     string          `json:"status"`
	Reason     string          `json:"reason,omitempty"`
	Instance   int64           `json:"instance,string,omitempty"`
	Nested     int64           `json:"nested,string,omitempty"` // workflow instance
	DueAt      int64           `json:"due_at,omitempty"`
	Choice     json.RawMessage `json:"choice,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	StartedAt  int64           `json:"started_at,omitempty"`
	FinishedAt int64           `json:"finished_at,omitempty"`
}

// SendSignal sends a signal to a run of a workflow.
type SendSignal struct {
	Name    string          `json:"name"` // of the signal, or the node's id
	Payload json.RawMessage `json:"payload,omitempty"`
	Request string          `json:"request,omitempty"` // the same twice is one signal
}

// Decide approves or rejects what a run of a workflow waits for.
type Decide struct {
	Reject  bool   `json:"reject,omitempty"`
	Comment string `json:"comment,omitempty"`
	Request string `json:"request,omitempty"`
}

// Order is something to do with a run or a schedule.
type Order struct {
	Order string `json:"order"`
}

// Worker is a live worker.
type Worker struct {
	Name       string            `json:"name"`
	Host       string            `json:"host,omitempty"`
	Version    string            `json:"version,omitempty"`
	Pools      []string          `json:"pools,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Processors []string          `json:"processors,omitempty"`
	Slots      int               `json:"slots"`
	Busy       int               `json:"busy"`
	Drain      bool              `json:"maintenance,omitempty"`
	FirstSeen  int64             `json:"first_seen,omitempty"`
	LastSeen   int64             `json:"last_seen,omitempty"`
	Live       bool              `json:"live"`
}

// Server is an engine process.
type Server struct {
	Number    int16  `json:"number"`
	Name      string `json:"name"`
	Shards    int    `json:"shards"`
	StartedAt int64  `json:"started_at"`
	Until     int64  `json:"lease_until"`
}

// Calendar is a business calendar.
type Calendar struct {
	Name      string          `json:"name"`
	Version   int32           `json:"version"`
	Calendar  json.RawMessage `json:"calendar,omitempty"` // schedule.Calendar; not in lists
	UpdatedAt int64           `json:"updated_at"`
}

// LogLine is a line that a task has logged.
type LogLine struct {
	At      int64  `json:"at"`
	Level   string `json:"level"`
	Message string `json:"message"`
	Task    int64  `json:"task"`
	Worker  string `json:"worker,omitempty"`
}

// Preview asks what a schedule fires next.
type Preview struct {
	Schedule json.RawMessage `json:"schedule"`
	From     int64           `json:"from,omitempty"` // epoch ms; now if left out
	Count    int             `json:"count,omitempty"`
}

// PreviewFire is one time of a schedule.
type PreviewFire struct {
	At      int64  `json:"at"`
	Local   string `json:"local"`
	Skipped bool   `json:"skipped,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Note    string `json:"note,omitempty"`
}
