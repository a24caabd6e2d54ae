// Package api is the JSON contract of Fanjet: what a client may ask of a server and what
// comes back. Standard library only.
package api

import "encoding/json"

// Names of the calls a client may make through the broker.
const (
	CallStart   = "start"    // StartRequest → StartReply
	CallStatus  = "status"   // StatusRequest → StatusReply
	CallStop    = "stop"     // StopRequest → StopReply
	CallTrigger = "trigger"  // TriggerRequest → StartReply
	CallSaveJob = "save_job" // SaveJobRequest → SaveJobReply

	CallSaveWorkflow = "save_workflow" // SaveWorkflowRequest → SaveWorkflowReply
	CallSignal       = "signal"        // SignalRequest → StopReply
	CallApprove      = "approve"       // ApproveRequest → StopReply
	CallWorkflow     = "workflow"      // WorkflowRequest → StopReply

	CallSaveCalendar = "save_calendar" // SaveCalendarRequest → SaveCalendarReply
	CallSchedule     = "schedule"      // ScheduleRequest → ScheduleReply
	CallLedger       = "ledger"        // LedgerRequest → LedgerReply
	CallVerify       = "verify"        // LedgerRequest → VerifyReply
	CallBackfill     = "backfill"      // BackfillRequest → BackfillReply
	CallCancelKey    = "cancel_key"    // CancelKeyRequest → CancelKeyReply
)

// Error is why a call was refused.
type Error struct {
	Code    string `json:"code"` // invalid, not_found, conflict, too_large, unavailable, internal
	Message string `json:"message"`
}

// StartRequest asks for one execution of a workflow document.
type StartRequest struct {
	App      string                     `json:"app,omitempty"`
	Document string                     `json:"document"`       // YAML or JSON
	File     string                     `json:"file,omitempty"` // its name, for messages
	Params   map[string]json.RawMessage `json:"params,omitempty"`
	Key      string                     `json:"key,omitempty"`
}

// TriggerRequest asks for Count (default 1) instances of a job.
type TriggerRequest struct {
	App    string          `json:"app"`
	Job    string          `json:"job"`
	Params json.RawMessage `json:"params,omitempty"`
	Key    string          `json:"key,omitempty"`
	Count  int             `json:"count,omitempty"`
	// DelayMS has it start so much later; a key lets it be canceled until then.
	DelayMS int64  `json:"delay_ms,omitempty"`
	Lane    string `json:"lane,omitempty"` // high, normal or bulk; default the job's
}

// SaveJobRequest makes or updates a job.
type SaveJobRequest struct {
	App  string          `json:"app"`
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"` // workflow.Spec
	// Title is for people. Schedule (workflow.Schedule) says when it fires by itself; none if
	// left out. One that is disabled neither fires nor can be triggered.
	Title    string          `json:"title,omitempty"`
	Schedule json.RawMessage `json:"schedule,omitempty"`
	Disabled bool            `json:"disabled,omitempty"`
}

// SaveJobReply is the job as saved.
type SaveJobReply struct {
	ID      int64  `json:"id,string"`
	Version int32  `json:"version"`
	Error   *Error `json:"error,omitempty"`
}

// StartReply names what was started.
type StartReply struct {
	ID    int64    `json:"id,string"`
	IDs   []string `json:"ids,omitempty"` // of several instances
	Error *Error   `json:"error,omitempty"`
}

// StatusRequest asks how a workflow instance or an instance stands.
type StatusRequest struct {
	Workflow int64 `json:"workflow,string,omitempty"`
	Instance int64 `json:"instance,string,omitempty"`
	// App alone asks for its instances counted by status.
	App string `json:"app,omitempty"`
}

// StatusReply is how it stands.
type StatusReply struct {
	Status string           `json:"status,omitempty"`
	Text   string           `json:"text,omitempty"` // why it failed
	Result json.RawMessage  `json:"result,omitempty"`
	Nodes  []NodeStatus     `json:"nodes,omitempty"`
	Counts map[string]int64 `json:"counts,omitempty"`
	Error  *Error           `json:"error,omitempty"`
}

// NodeStatus is how one node stands.
type NodeStatus struct {
	Node     string          `json:"node"`
	Status   string          `json:"status"`
	Attempt  int32           `json:"attempt,omitempty"`
	Instance int64           `json:"instance,string,omitempty"`
	Nested   int64           `json:"nested,string,omitempty"` // workflow instance that runs it
	DueAt    int64           `json:"due_at,omitempty"`        // epoch ms: a wait ends, a signal expires
	Error    string          `json:"error,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Total    int64           `json:"total,omitempty"`
	Done     int64           `json:"done,omitempty"`
	Failed   int64           `json:"failed,omitempty"`
}

// StopRequest stops a workflow instance or an instance.
type StopRequest struct {
	Workflow int64 `json:"workflow,string,omitempty"`
	Instance int64 `json:"instance,string,omitempty"`
}

// StopReply answers it.
type StopReply struct {
	Error *Error `json:"error,omitempty"`
}

// SaveWorkflowRequest saves a workflow document and starts nothing.
type SaveWorkflowRequest struct {
	Document string `json:"document"`       // YAML or JSON
	File     string `json:"file,omitempty"` // its name, for messages
}

// SaveWorkflowReply is the workflow as saved.
type SaveWorkflowReply struct {
	ID      int64  `json:"id,string"`
	Version int32  `json:"version"`
	Error   *Error `json:"error,omitempty"`
}

// SignalRequest sends a signal to a workflow instance.
type SignalRequest struct {
	Workflow int64           `json:"workflow,string"`
	Name     string          `json:"name"` // of the signal, or the node's id
	Payload  json.RawMessage `json:"payload,omitempty"`
	By       string          `json:"by,omitempty"`
	Request  string          `json:"request,omitempty"` // the same twice is one signal
}

// ApproveRequest approves or rejects an approval node of a workflow instance.
type ApproveRequest struct {
	Workflow int64    `json:"workflow,string"`
	Node     string   `json:"node"`
	Reject   bool     `json:"reject,omitempty"`
	By       string   `json:"by,omitempty"`
	Comment  string   `json:"comment,omitempty"`
	Roles    []string `json:"roles,omitempty"` // of the caller
	Request  string   `json:"request,omitempty"`
}

// WorkflowRequest orders something of a workflow instance: Order is pause, resume or retry.
type WorkflowRequest struct {
	Workflow int64  `json:"workflow,string"`
	Order    string `json:"order"`
}
