package api

import "encoding/json"

// SaveCalendarRequest makes or updates a business calendar of an app.
type SaveCalendarRequest struct {
	App      string          `json:"app"`
	Name     string          `json:"name"`
	Calendar json.RawMessage `json:"calendar"` // schedule.Calendar
}

// SaveCalendarReply is the calendar as saved.
type SaveCalendarReply struct {
	ID      int64  `json:"id,string"`
	Version int32  `json:"version"`
	Error   *Error `json:"error,omitempty"`
}

// ScheduleRequest asks how a job or workflow stands, or orders something of its schedule.
type ScheduleRequest struct {
	App      string `json:"app"`
	Job      string `json:"job,omitempty"` // one of the two
	Workflow string `json:"workflow,omitempty"`
	// Order is pause, resume, enable or disable; empty only asks.
	Order string `json:"order,omitempty"`
}

// ScheduleReply is how a job or workflow stands. Times are epoch ms, 0 for none.
type ScheduleReply struct {
	Kind       string          `json:"kind,omitempty"`
	ID         int64           `json:"id,string"`
	Version    int32           `json:"version"`
	Enabled    bool            `json:"enabled"`
	Schedule   json.RawMessage `json:"schedule,omitempty"` // workflow.Schedule
	NextAt     int64           `json:"next_at,omitempty"`  // scheduled time of the next fire
	PausedAt   int64           `json:"paused_at,omitempty"`
	Open       int32           `json:"open"` // fired runs that are not final
	Runs       int64           `json:"runs"` // that ended, whoever started them
	Succeeded  int64           `json:"succeeded"`
	Failed     int64           `json:"failed"` // or timed out
	LastID     int64           `json:"last_id,string,omitempty"`
	LastStatus string          `json:"last_status,omitempty"`
	LastStart  int64           `json:"last_start,omitempty"`
	LastEnd    int64           `json:"last_end,omitempty"`
	// P50MS and P95MS are the running time of the newest runs that succeeded, Window of them.
	P50MS  int64  `json:"p50_ms,omitempty"`
	P95MS  int64  `json:"p95_ms,omitempty"`
	Window int    `json:"window,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// LedgerRequest asks for the fires of a job or workflow whose scheduled times lie in
// [From, To], epoch ms. To 0 is now.
type LedgerRequest struct {
	App      string `json:"app"`
	Job      string `json:"job,omitempty"` // one of the two
	Workflow string `json:"workflow,omitempty"`
	From     int64  `json:"from"`
	To       int64  `json:"to,omitempty"`
	Limit    int    `json:"limit,omitempty"` // entries; default 500, at most 10 000
}

// LedgerEntry is one fire that ran, or consecutive ones that did not.
type LedgerEntry struct {
	From     int64  `json:"from"` // scheduled time, epoch ms
	To       int64  `json:"to"`   // last scheduled time; From if it is one
	Count    int64  `json:"count"`
	Skipped  string `json:"skipped,omitempty"` // why it did not run
	Instance int64  `json:"instance,string,omitempty"`
	FiredAt  int64  `json:"fired_at,omitempty"`
	LateMS   int64  `json:"late_ms,omitempty"`
	Status   string `json:"status,omitempty"`
}

// LedgerReply are the entries, oldest first. More says that the limit cut them.
type LedgerReply struct {
	Entries []LedgerEntry `json:"entries"`
	More    bool          `json:"more,omitempty"`
	Error   *Error        `json:"error,omitempty"`
}

// VerifyReply compares what should have fired with what did.
type VerifyReply struct {
	From     int64 `json:"from"`
	To       int64 `json:"to"`
	Expected int64 `json:"expected"` // scheduled times by the versions that were in force
	Fired    int64 `json:"fired"`
	Skipped  int64 `json:"skipped"` // with a reason in the ledger
	// Missing should have fired and left no trace; Doubled fired more than once; Unexpected
	// fired at a time that no version names. The first 100 of each are listed.
	Missing    Times `json:"missing"`
	Doubled    Times `json:"doubled"`
	Unexpected Times `json:"unexpected"`
	// MaxLateMS and P99LateMS are the lateness of what fired.
	MaxLateMS int64  `json:"max_late_ms"`
	P99LateMS int64  `json:"p99_late_ms"`
	Error     *Error `json:"error,omitempty"`
}

// Clean tells whether nothing was missed, doubled or made up.
func (v *VerifyReply) Clean() bool {
	return v.Missing.Count == 0 && v.Doubled.Count == 0 && v.Unexpected.Count == 0
}

// Times are scheduled times, the first of them listed.
type Times struct {
	Count int64   `json:"count"`
	First []int64 `json:"first,omitempty"` // epoch ms
}

// BackfillRequest fires a job for the scheduled times in [From, To] that have not run.
type BackfillRequest struct {
	App    string `json:"app"`
	Job    string `json:"job"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Max    int    `json:"max,omitempty"` // refused if there are more; default 1 000, at most 10 000
	DryRun bool   `json:"dry_run,omitempty"`
}

// BackfillReply says what was, or would be, fired.
type BackfillReply struct {
	Times   []int64 `json:"times"`             // scheduled, epoch ms
	Existed int64   `json:"existed,omitempty"` // had run already
	Error   *Error  `json:"error,omitempty"`
}

// CancelKeyRequest cancels what waits, and stops what runs, of a job under a business key.
type CancelKeyRequest struct {
	App string `json:"app"`
	Job string `json:"job"`
	Key string `json:"key"`
}

// CancelKeyReply says how many instances were told to end.
type CancelKeyReply struct {
	Count int    `json:"count"`
	Error *Error `json:"error,omitempty"`
}
