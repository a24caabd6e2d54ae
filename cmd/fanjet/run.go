package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/workflow"
)

type runCmd struct {
	File    string        `arg:"" name:"FILE" help:"The workflow file, YAML or JSON."`
	With    []string      `type:"path" sep:"none" placeholder:"FILE" help:"Save this workflow first, for FILE to nest; may be repeated."`
	Param   []string      `sep:"none" placeholder:"NAME=VALUE" help:"A param of the workflow; may be repeated. The value is JSON, or a text."`
	Worker  string        `placeholder:"CMD" help:"A worker to run beside it, by the shell, with FANJET_URL and FANJET_APP set. It stays in the foreground and is ended at the end."`
	Wait    int           `name:"wait-workers" placeholder:"N" help:"Start when N workers of the app are there: a broadcast reaches those that are alive then."`
	JSON    bool          `name:"json" help:"Answer with one JSON document."`
	Data    string        `type:"path" placeholder:"DIR" help:"Keep the data there; default a temporary directory."`
	Server  string        `placeholder:"URL" help:"Run it on the server behind this broker, nats://host:4222, instead of one in this process."`
	Token   string        `env:"FANJET_TOKEN" help:"The token of the broker behind --server."`
	Timeout time.Duration `help:"Stop the workflow if it has not ended by then."`
}

// outcome is the answer of run --json.
type outcome struct {
	Workflow string           `json:"workflow"`
	ID       int64            `json:"id,string"`
	Status   string           `json:"status"`
	Error    string           `json:"error,omitempty"`
	Millis   int64            `json:"duration_ms"`
	Nodes    []api.NodeStatus `json:"nodes"`
	Result   json.RawMessage  `json:"result,omitempty"`
}

// Run runs the workflow; success is the workflow's.
func (c *runCmd) Run(con *console) error {
	o, err := c.order()
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	ctx := sig.first
	b := newBoard(con.err)
	t, url, closeTarget, err := c.target(ctx, b)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	o.url = redactURL(url)
	if c.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("the workflow did not end within %v", c.Timeout))
		defer cancel()
		ctx = limited
	}
	began := time.Now()
	id, reply, err := c.withWorker(ctx, sig, t, o, url, b)
	took := time.Since(began)
	if reply != nil {
		out := outcome{o.def().Name, id, reply.Status, reply.Text, took.Milliseconds(), inOrder(o, reply.Nodes), reply.Result}
		err = errors.Join(err, c.tell(con, &out, took))
	}
	return errors.Join(err, closeTarget())
}

// order checks the file and the flags.
func (c *runCmd) order() (*order, error) {
	graph, document, err := loadValid(c.File)
	if err != nil {
		return nil, err
	}
	nested, err := loadNested(graph.Definition(), c.With)
	if err != nil {
		return nil, err
	}
	params, err := parseParams(graph.Definition(), c.Param)
	if err != nil {
		return nil, err
	}
	if c.Timeout < 0 {
		return nil, invalid("--timeout %v: must not be negative", c.Timeout)
	}
	if c.Wait < 0 {
		return nil, invalid("--wait-workers %d: must not be negative", c.Wait)
	}
	if c.Server != "" {
		if c.Wait > 0 {
			return nil, invalid("--wait-workers is for the server in this process; leave it out with --server")
		}
		if c.Data != "" {
			return nil, invalid("--data is for the server in this process; leave it out with --server")
		}
		if err := checkURL("--server", c.Server); err != nil {
			return nil, err
		}
	}
	return &order{graph: graph, file: c.File, document: document, params: params, nested: nested}, nil
}

// loadNested reads the workflows that are saved before the one that nests them.
func loadNested(outer *workflow.Definition, files []string) ([]*order, error) {
	names := map[string]string{outer.Name: "FILE"}
	var all []*order
	for _, file := range files {
		graph, document, err := loadValid(file)
		if err != nil {
			return nil, fmt.Errorf("--with: %w", err)
		}
		def := graph.Definition()
		if def.App != outer.App {
			return nil, invalid("--with %s: it is of app %q, but the workflow that runs is of app %q; nested workflows are of the same app", file, def.App, outer.App)
		}
		if other, twice := names[def.Name]; twice {
			return nil, invalid("--with %s: workflow %q is that of %s too", file, def.Name, other)
		}
		names[def.Name] = file
		all = append(all, &order{graph: graph, file: file, document: document})
	}
	return all, nil
}

// target opens what the workflow runs on.
func (c *runCmd) target(ctx context.Context, b *board) (t target, url string, closeIt func() error, err error) {
	if c.Server != "" {
		dial, cancel := context.WithTimeout(ctx, dialPatience)
		defer cancel()
		client, err := broker.Dial(dial, broker.Options{URL: c.Server, Token: c.Token, Name: "fanjet run", Logger: warnings(b).Logger})
		if err != nil {
			return nil, "", nil, unreachable(err, c.Server, "is a server running there, and the token right? Start one with fanjet server")
		}
		return remote{client}, withToken(c.Server, c.Token), func() error { client.Close(); return nil }, nil
	}
	dir, remove, err := dataDir(c.Data)
	if err != nil {
		return nil, "", nil, err
	}
	p, err := startParts(ctx, partsConfig{dir: dir, port: -1, log: warnings(b)})
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("start the server: %w", err), remove())
	}
	return local{p.server}, p.url, func() error { return errors.Join(p.close(), remove()) }, nil
}

// withWorker runs the workflow while the worker command runs.
func (c *runCmd) withWorker(ctx context.Context, sig *interrupts, t target, o *order, url string, b *board) (int64, *api.StatusReply, error) {
	if c.Worker == "" {
		if c.Server == "" {
			b.say("no --worker is given: workers of app %s connect with %s", o.def().App, connectHint(o.def().App, url, false))
		}
		return c.drive(ctx, sig.second, t, o, b)
	}
	w, err := startChild(c.Worker, []string{"FANJET_URL=" + url, "FANJET_APP=" + o.def().App}, b)
	if err != nil {
		return 0, nil, err
	}
	defer w.stop(sig.second)
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	defer close(over)
	defer cancel(nil)
	go func() {
		select {
		case <-w.done:
			cancel(w.ended())
		case <-over:
		}
	}()
	return c.drive(ctx, sig.second, t, o, b)
}

const lookEvery = 20 * time.Millisecond // at the workers that are there

// drive waits for the workers and runs the workflow.
func (c *runCmd) drive(ctx, hurry context.Context, t target, o *order, b *board) (int64, *api.StatusReply, error) {
	if l, ok := t.(local); ok && c.Wait > 0 {
		if err := waitWorkers(ctx, l, o.def().App, c.Wait); err != nil {
			return 0, nil, err
		}
	}
	return drive(ctx, hurry, t, o, b)
}

// waitWorkers returns when n workers of the app are there.
func waitWorkers(ctx context.Context, l local, app string, n int) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for len(l.Workers(app)) < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of app %s, there are %d: %w", plural(int64(n), "worker"), app, len(l.Workers(app)), context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// inOrder sorts the nodes by the order they run in.
func inOrder(o *order, nodes []api.NodeStatus) []api.NodeStatus {
	by := make(map[string]api.NodeStatus, len(nodes))
	for _, n := range nodes {
		by[n.Node] = n
	}
	sorted := make([]api.NodeStatus, 0, len(nodes))
	for _, i := range o.graph.Order() {
		if n, ok := by[o.graph.Node(i).ID]; ok {
			sorted = append(sorted, n)
		}
	}
	return sorted
}

// tell writes the answer; a workflow without success is an error.
func (c *runCmd) tell(con *console, out *outcome, took time.Duration) error {
	if c.JSON {
		if err := writeJSON(con.out, out); err != nil {
			return err
		}
	} else {
		writeOutcome(con.out, out)
	}
	if out.Status != "succeeded" {
		text := fmt.Sprintf("workflow %s %s after %s", out.Workflow, out.Status, short(took))
		if out.Error != "" {
			text += ": " + out.Error
		}
		return errors.New(text)
	}
	if !c.JSON {
		fmt.Fprintf(con.err, "workflow %s succeeded in %s\n", out.Workflow, short(took))
	}
	return nil
}

const resultColumn = 100 // characters of a result in the table

// writeOutcome writes the nodes as a table.
func writeOutcome(w io.Writer, out *outcome) {
	rows := [][]string{{"NODE", "STATUS", "SUB-TASKS", "RESULT"}}
	for _, n := range out.Nodes {
		tasks := "-"
		if n.Total > 0 {
			tasks = fmt.Sprintf("%d/%d", n.Done, n.Total)
		}
		result := string(n.Result)
		if n.Error != "" {
			result = n.Error
		}
		rows = append(rows, []string{n.Node, n.Status, tasks, clip(result, resultColumn)})
	}
	fmt.Fprint(w, table(rows, 2))
}
