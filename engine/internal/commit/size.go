package commit

import "github.com/fanjet/fanjet/engine"

// rowSize stands for the fixed columns of a row.
const rowSize = 160

// size estimates the bytes that a Change sends to the database: its variable fields, and a
// constant for each row.
func size(c *engine.Change) int {
	n := c.Rows() * rowSize
	instances := func(rows []engine.Instance) {
		for i := range rows {
			r := &rows[i]
			n += len(r.Node) + len(r.Pool) + len(r.Key) + len(r.Params) + len(r.Result) + len(r.Error) + len(r.Worker) + len(r.Late)
		}
	}
	runs := func(rows []engine.MapRun) {
		for i := range rows {
			n += len(rows[i].State)
		}
	}
	tasks := func(rows []engine.Task) {
		for i := range rows {
			r := &rows[i]
			n += len(r.Worker) + len(r.Error) + len(r.Result) + len(r.Checkpoint)
		}
	}
	workflows := func(rows []engine.WorkflowInstance) {
		for i := range rows {
			r := &rows[i]
			n += len(r.Key) + len(r.Params) + len(r.Context) + len(r.Result) + len(r.Error)
		}
	}
	nodes := func(rows []engine.Node) {
		for i := range rows {
			r := &rows[i]
			n += len(r.Node) + len(r.Reason) + len(r.Choice) + len(r.Result) + len(r.Error)
		}
	}
	instances(c.NewInstances)
	instances(c.Instances)
	runs(c.NewRuns)
	runs(c.Runs)
	tasks(c.NewTasks)
	tasks(c.Tasks)
	workflows(c.NewWorkflows)
	workflows(c.Workflows)
	nodes(c.NewNodes)
	nodes(c.Nodes)
	for i := range c.Firings {
		for _, r := range c.Firings[i].Runs {
			if r.Instance != nil {
				n += len(r.Instance.Params)
			}
			if r.Workflow != nil {
				n += len(r.Workflow.Params)
			}
		}
	}
	for i := range c.NewAttempts {
		n += len(c.NewAttempts[i].Error) + len(c.NewAttempts[i].Worker)
	}
	for i := range c.NewCommands {
		n += len(c.NewCommands[i].Request) + len(c.NewCommands[i].Payload)
	}
	for i := range c.DeadLetters {
		n += len(c.DeadLetters[i].Subject) + len(c.DeadLetters[i].Payload) + len(c.DeadLetters[i].Reason)
	}
	return n
}
