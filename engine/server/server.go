package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Server is an engine process. Safe for concurrent use.
type Server struct{}

// New makes a Server. Nothing happens before Run.
func New(c Config) (*Server, error) { panic("unwritten") }

// Run serves until ctx ends, then stops cleanly: what is decided is stored, shards are
// released. It returns nil after a clean stop.
func (s *Server) Run(ctx context.Context) error { panic("unwritten") }

// Ready is closed once the server takes work: it owns its shards, and workers can register.
func (s *Server) Ready() <-chan struct{} { panic("unwritten") }

// EnsureApp returns the app of that name, made if there is none, with its streams.
func (s *Server) EnsureApp(ctx context.Context, name string) (*engine.App, error) { panic("unwritten") }

// SaveJob makes or updates a job of the app by its name.
func (s *Server) SaveJob(ctx context.Context, app, name, title string, spec workflow.Spec) (*engine.Job, error) {
	panic("unwritten")
}

// Trigger asks for one instance of a job.
type Trigger struct {
	App    string
	Job    string
	Params json.RawMessage // nil: the job's
	Key    string          // business key
	Delay  time.Duration
}

// Trigger fires a job once and returns the instance's id when its row is stored.
func (s *Server) Trigger(ctx context.Context, t Trigger) (int64, error) { panic("unwritten") }

// Start asks for one execution of a workflow.
type Start struct {
	App        string // default the definition's
	Definition *workflow.Definition
	Params     map[string]json.RawMessage
	Key        string
}

// StartWorkflow saves the definition if it is new, and starts it. It returns the workflow
// instance's id when its row is stored.
func (s *Server) StartWorkflow(ctx context.Context, st Start) (int64, error) { panic("unwritten") }

// StopInstance and StopWorkflow stop what runs; a final one stays as it is. They return
// when the command is stored; Wait tells when it is carried out.
func (s *Server) StopInstance(ctx context.Context, id int64) error { panic("unwritten") }

// StopWorkflow stops a workflow instance and everything it has running.
func (s *Server) StopWorkflow(ctx context.Context, id int64) error { panic("unwritten") }

// WaitInstance returns the instance once it is final.
func (s *Server) WaitInstance(ctx context.Context, id int64) (*engine.Instance, error) {
	panic("unwritten")
}

// WaitWorkflow returns the workflow instance once it is final.
func (s *Server) WaitWorkflow(ctx context.Context, id int64) (*engine.WorkflowInstance, error) {
	panic("unwritten")
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of Event.
const (
	EventNode     EventKind = iota + 1 // a node of a workflow has moved
	EventProgress                      // a map run has moved on
	EventWorkflow                      // the workflow instance has moved
)

// Event is something that was committed, for live views. The newest of a node says it
// all; one may be left out when the listener is slow.
type Event struct {
	Kind     EventKind
	Workflow int64 // workflow instance
	Node     string
	Instance int64
	Status   engine.Status
	Error    string
	Total    int64 // sub-tasks so far
	Done     int64
	Failed   int64
	Mapped   bool // Total will not grow
}

// Watch returns the events of one workflow instance from now on; the channel is closed
// after the final one, or when ctx ends.
func (s *Server) Watch(ctx context.Context, workflowInstance int64) <-chan Event {
	panic("unwritten")
}

// Logs calls each for the log lines that the instance's tasks wrote, in order.
func (s *Server) Logs(ctx context.Context, instance int64, each func(*broker.LogBatch) error) error {
	panic("unwritten")
}

// Store is the store the server was given, for reading.
func (s *Server) Store() engine.Store { panic("unwritten") }

// Workers are the live workers of the app, by name.
func (s *Server) Workers(app string) []broker.Beat { panic("unwritten") }

// Stats are counters since the start.
type Stats struct {
	Stale, Repeated, Refused, Late, Republished, DeadLetters, Active int64
	Commits, Rows                                                    uint64
}

// Stats returns the counters.
func (s *Server) Stats() Stats { panic("unwritten") }
