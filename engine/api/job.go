package api

import "encoding/json"

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
