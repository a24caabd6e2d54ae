package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
	"github.com/fanjet/fanjet/workflow"
)

//go:embed demo.yaml
var demoWorkflow []byte

//go:embed demo-report.yaml
var demoNested []byte

type demoCmd struct {
	Root    string `type:"path" placeholder:"DIR" help:"Count the words of this tree; default the Go source tree of the machine."`
	Workers int    `default:"3" help:"How many workers."`
	Slots   int    `default:"2" help:"How many chunks each worker runs at once."`
	Keep    string `type:"path" placeholder:"DIR" help:"Keep the data of the server there; default a temporary directory."`
}

// Run runs the demo; success is a result that equals that of a plain loop, and logs of which
// exactly the old ones are gone.
func (c *demoCmd) Run(con *console) (err error) {
	if c.Workers < 1 || c.Workers > 100 || c.Slots < 1 || c.Slots > 1000 {
		return invalid("--workers must be 1 to 100, and --slots 1 to 1000")
	}
	root, err := demoRoot(c.Root)
	if err != nil {
		return err
	}
	logs, err := newDemoLogs(time.Now())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.remove()) }()
	o, err := demoOrder(root, logs.root)
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	result, err := c.run(sig, con, o)
	if err != nil {
		return err
	}
	result.logs = logs
	fmt.Fprint(con.out, result)
	if err := result.checkClean(); err != nil {
		return err
	}
	plainBegan := time.Now()
	plain, err := plainCount(sig.first, root)
	if err != nil {
		if sig.first.Err() != nil {
			return context.Cause(sig.first)
		}
		return err
	}
	if wrong := differences(result.totals, plain); len(wrong) > 0 {
		return fmt.Errorf("checked: NOT equal to a plain loop over the same files:\n  %s", strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(con.out, "\nchecked: equal to a plain loop over the same files, which took %s\n", short(time.Since(plainBegan)))
	fmt.Fprintf(con.out, "checked: exactly the %d old logs of %d are gone\n", logs.old(), logs.made)
	return nil
}

func demoOrder(root, logs string) (*order, error) {
	o, err := embeddedOrder("demo.yaml", demoWorkflow)
	if err != nil {
		return nil, err
	}
	nested, err := embeddedOrder("demo-report.yaml", demoNested)
	if err != nil {
		return nil, err
	}
	o.nested = []*order{nested}
	o.params = map[string]json.RawMessage{}
	for name, value := range map[string]string{"root": root, "logs": logs} {
		if o.params[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode the param %s: %w", name, err)
		}
	}
	return o, nil
}

func embeddedOrder(file string, document []byte) (*order, error) {
	def, err := workflow.Parse(file, document)
	if err != nil {
		return nil, err
	}
	graph, err := workflow.Build(def)
	if err != nil {
		return nil, err
	}
	return &order{graph: graph, file: file, document: document}, nil
}

// demoResult is what the demo shows at its end.
type demoResult struct {
	totals   summary
	rows     []reportRow // none if the workflow found too few words
	clean    logcleanup.Summary
	logs     *demoLogs
	root     string
	took     time.Duration
	workers  int
	subTasks int64
}

// run runs the workflow with everything inside.
func (c *demoCmd) run(sig *interrupts, con *console, o *order) (res *demoResult, err error) {
	dir, remove, err := dataDir(c.Keep)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := newBoard(con.err)
	log := warnings(b)
	p, err := startParts(sig.first, partsConfig{dir: dir, port: -1, log: log})
	if err != nil {
		if sig.first.Err() != nil {
			return nil, context.Cause(sig.first)
		}
		return nil, fmt.Errorf("start the server: %w", err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	b.say("a server with NATS and SQLite inside runs at %s, with %s; data in %s", p.url, plural(int64(c.Workers), "worker"), dir)
	// Of the workers only errors: that a fold was too large to travel as one, for example, is
	// slower and not wrong.
	cleaner := logcleanup.New(logcleanup.Config{Roots: []string{paramText(o, "logs")}})
	stop := startWorkers(sig, o.def().App, p.url, c.Workers, c.Slots, logFlags{LogLevel: "error"}.logger(b), func(w *processor.Worker) {
		w.Register(logcleanup.Name, cleaner)
	})
	defer func() { err = errors.Join(err, stop()) }()
	// A broadcast reaches those that are there when it begins.
	if err := waitWorkers(sig.first, local{p.server}, o.def().App, c.Workers); err != nil {
		if sig.first.Err() != nil {
			return nil, context.Cause(sig.first)
		}
		return nil, err
	}

	began := time.Now()
	_, reply, err := drive(sig.first, sig.second, local{p.server}, o, b)
	if err != nil {
		return nil, err
	}
	res = &demoResult{took: time.Since(began), workers: c.Workers, root: paramText(o, "root")}
	return res, res.read(reply)
}

func paramText(o *order, name string) (s string) {
	_ = json.Unmarshal(o.params[name], &s) // demoOrder has encoded it
	return s
}

// read takes the result out of the nodes.
func (r *demoResult) read(reply *api.StatusReply) error {
	if reply.Status != "succeeded" {
		text := "the workflow " + reply.Status
		if reply.Text != "" {
			text += ": " + reply.Text
		}
		for _, n := range reply.Nodes {
			if n.Error != "" {
				text += fmt.Sprintf("\n  node %s %s: %s", n.Node, n.Status, n.Error)
			}
		}
		return errors.New(text)
	}
	for _, n := range reply.Nodes {
		r.subTasks += n.Total
		var err error
		switch {
		case n.Node == "count":
			err = json.Unmarshal(n.Result, &r.totals)
		case n.Node == "clean":
			err = json.Unmarshal(n.Result, &r.clean)
		case n.Node == "report" && n.Status == "succeeded":
			var report struct {
				Rank wordReport `json:"rank"`
			}
			err = json.Unmarshal(n.Result, &report)
			r.rows = report.Rank.Rows
		}
		if err != nil {
			return fmt.Errorf("read the result of node %s: %w", n.Node, err)
		}
	}
	return nil
}

// checkClean holds the clean-up to what it was to do, by the folder and by its own report.
func (r *demoResult) checkClean() error {
	wrong, err := r.logs.check()
	if err != nil {
		return err
	}
	if c := r.clean; c.Files != int64(r.logs.old()) || c.Workers != int64(r.workers) || c.Failed+c.Errors > 0 {
		wrong = append(wrong, fmt.Sprintf("the report has %d files on %d workers with %d failures, want %d on %d with none",
			c.Files, c.Workers, c.Failed+c.Errors, r.logs.old(), r.workers))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("checked: the logs are NOT as they should be:\n  %s", strings.Join(wrong, "\n  "))
	}
	return nil
}

// String is the result as a table.
func (r *demoResult) String() string {
	t := r.totals
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe words of %s\n\n", r.root)
	b.WriteString(table([][]string{
		{"files", thousands(t.Files)},
		{"bytes", size(t.Bytes)},
		{"words", thousands(t.Words)},
		{"distinct words", thousands(t.Distinct)},
		{"old logs removed", fmt.Sprintf("%d of %d", r.clean.Files, r.logs.made)},
		{"bytes freed", size(r.clean.Bytes)},
		{"sub-tasks", thousands(r.subTasks)},
		{"workers", strconv.Itoa(r.workers)},
		{"time", short(r.took)},
	}, 1))
	if len(r.rows) == 0 {
		b.WriteString("\nThere are too few words for a ranking.\n")
		return b.String()
	}
	rows := [][]string{{"#", "WORD", "COUNT", "SHARE"}}
	for _, row := range r.rows {
		rows = append(rows, []string{strconv.Itoa(row.Rank), row.Word, thousands(row.Count), strconv.FormatFloat(row.Percent, 'f', 2, 64) + " %"})
	}
	b.WriteString("\n" + table(rows, 0, 2, 3))
	return b.String()
}

// demoRoot is the tree to count: dir, or the Go source tree of the machine.
func demoRoot(dir string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", invalid("--root %s: there is no such directory", dir)
		}
		return filepath.Abs(dir)
	}
	return goSources(askGo, runtime.GOROOT) //nolint:staticcheck // the last resort where no go command is found
}

// goSources is the source tree of the first root that has one.
func goSources(roots ...func() string) (string, error) {
	for _, goroot := range roots {
		src := filepath.Join(goroot(), "src")
		if info, err := os.Stat(src); filepath.IsAbs(src) && err == nil && info.IsDir() {
			// The tree itself, and not a link to it, which a walk would not follow.
			return filepath.EvalSymlinks(src)
		}
	}
	return "", invalid("no Go source tree was found on this machine: the go command is not in PATH, or it has no sources; name another tree of files with --root DIR")
}

// askGo is GOROOT as the go command knows it, or empty.
func askGo() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}
