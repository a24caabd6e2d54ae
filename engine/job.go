package engine

import "github.com/fanjet/fanjet/workflow"

// Job is Schedule + ExecuteMode + Processor + policies under a name. Each save makes a
// version, kept for ever; a running instance keeps the version it started with.
type Job struct {
	ID        int64
	App       int64
	Name      string // unique in the app
	Title     string
	Version   int32 // from 1
	Enabled   bool
	Spec      workflow.Spec
	Schedule  workflow.Schedule
	CreatedAt int64 // epoch ms
	UpdatedAt int64
}

// WorkflowDef is a saved workflow document under a name, versioned as a Job is.
type WorkflowDef struct {
	ID         int64
	App        int64
	Name       string // unique in the app
	Title      string
	Version    int32
	Enabled    bool
	Definition []byte // canonical JSON of workflow.Definition
	// Schedule and MaxRunning are those of the definition; they are stored beside it.
	Schedule   workflow.Schedule
	MaxRunning int32
	CreatedAt  int64
	UpdatedAt  int64
}
