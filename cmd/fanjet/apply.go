package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/workflow"
)

type applyCmd struct {
	Files  []string `short:"f" name:"file" required:"" sep:"none" placeholder:"FILE" help:"A file of definitions, YAML or JSON, a folder of them, or - for the standard input; may be repeated."`
	App    string   `help:"The app of documents that name none; others are refused."`
	DryRun bool     `help:"Check everything, and only tell what would be sent."`
	Server string   `env:"FANJET_URL" placeholder:"URL" help:"The broker of the server, nats://host:4222; needless with --dry-run."`
	Token  string   `env:"FANJET_TOKEN" help:"The broker's token, if it asks for one."`
	outputFlag

	in io.Reader
}

// What apply does with a document.
const (
	resultCreated   = "created"
	resultUpdated   = "updated"
	resultUnchanged = "unchanged"
	resultSaved     = "saved" // made, changed or as it was: the server does not tell
	resultSend      = "would be sent"
	resultNothing   = "nothing to send" // an app is made with its first definition
	resultRefused   = "refused"
)

// applied is what became of one document.
type applied struct {
	Kind    string `json:"kind"`
	App     string `json:"app"`
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Result  string `json:"result"`
	Version int32  `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Run checks all documents and then saves them. What the server refuses keeps no other
// document from being saved.
func (c *applyCmd) Run(con *console) error {
	set := readDocuments(c.Files, c.App, c.in)
	set.check()
	for i := range set.all {
		if doc := &set.all[i]; c.App != "" && doc.App != c.App {
			set.problems = append(set.problems, doc.Problem("app", "%s %q is of app %q, but --app is %q", doc.Kind, doc.Name, doc.App, c.App))
		}
	}
	if len(set.problems) > 0 {
		return invalid("nothing was sent:\n%w", set.sorted())
	}
	docs := inSendingOrder(set.all)
	if c.DryRun {
		return c.tell(con, pretend(docs), nil)
	}
	if c.Server == "" {
		return invalid("--server (or FANJET_URL) is missing; give the broker of the server, nats://host:4222")
	}
	var done []applied
	server := serverFlags{Server: c.Server, Token: c.Token}
	err := server.with(con, "apply", func(ctx context.Context, r remote) error {
		for _, doc := range docs {
			one, err := set.apply(ctx, r, doc)
			if err != nil {
				return fmt.Errorf("%s: %w", place(doc), err)
			}
			done = append(done, one)
		}
		return followed(ctx, r, con.err, docs)
	})
	if err != nil && len(done) < len(docs) {
		err = fmt.Errorf("%w; %d of %d documents were dealt with, try again for the rest", err, len(done), len(docs))
	}
	return c.tell(con, done, err)
}

// sorted is everything that is wrong, file by file.
func (d *documents) sorted() workflow.Problems {
	var all workflow.Problems
	for _, file := range d.files {
		all = append(all, d.verdict(file).Problems...)
	}
	return all
}

// inSendingOrder puts first what others refer to: apps, calendars, jobs, workflows, and among
// them those that are followed or nested.
func inSendingOrder(all []workflow.Document) []*workflow.Document {
	rank := map[string]int{workflow.KindApp: 0, workflow.KindCalendar: 1, workflow.KindJob: 2, workflow.KindWorkflow: 3}
	docs := make([]*workflow.Document, len(all))
	index := map[[3]string]*workflow.Document{}
	for i := range all {
		docs[i] = &all[i]
		index[[3]string{all[i].Kind, all[i].App, all[i].Name}] = &all[i]
	}
	slices.SortStableFunc(docs, func(a, b *workflow.Document) int { return rank[a.Kind] - rank[b.Kind] })
	var out []*workflow.Document
	seen := map[*workflow.Document]bool{}
	var visit func(doc *workflow.Document)
	visit = func(doc *workflow.Document) {
		if doc == nil || seen[doc] {
			return
		}
		seen[doc] = true
		switch {
		case doc.Job != nil:
			for _, d := range doc.Job.Schedule.After {
				visit(index[[3]string{workflow.KindJob, doc.App, d.Job}])
			}
		case doc.Workflow != nil:
			for _, n := range doc.Workflow.Nodes {
				if n.Workflow != "" {
					visit(index[[3]string{workflow.KindWorkflow, doc.App, n.Workflow}])
				}
			}
		}
		out = append(out, doc)
	}
	for _, doc := range docs {
		visit(doc)
	}
	return out
}

func place(doc *workflow.Document) string {
	return fmt.Sprintf("%s:%d:%d", doc.File, doc.Line, doc.Column)
}

func newApplied(doc *workflow.Document, result string) applied {
	return applied{Kind: doc.Kind, App: doc.App, Name: doc.Name, File: doc.File, Line: doc.Line, Result: result}
}

// pretend is what would be done.
func pretend(docs []*workflow.Document) []applied {
	out := make([]applied, len(docs))
	for i, doc := range docs {
		out[i] = newApplied(doc, resultSend)
		if doc.AppDefinition != nil {
			out[i].Result = resultNothing
		}
	}
	return out
}

// apply saves one document. The error is one of reaching the server; what it refuses is in the
// answer.
func (d *documents) apply(ctx context.Context, r remote, doc *workflow.Document) (applied, error) {
	if doc.AppDefinition != nil {
		return newApplied(doc, resultNothing), nil
	}
	before, err := storedVersion(ctx, r, doc)
	if err != nil {
		return applied{}, err
	}
	version, refused, err := d.save(ctx, r, doc)
	if err == nil && refused != nil && refused.Code == "unavailable" {
		err = refusal(refused)
	}
	if err != nil {
		return applied{}, err
	}
	out := newApplied(doc, resultCreated)
	out.Version = version
	switch {
	case refused != nil:
		out.Result, out.Error = resultRefused, refused.Message
	case doc.Calendar != nil && version == 1:
		out.Result = resultSaved
	case version == before:
		out.Result = resultUnchanged
	case version > 1:
		out.Result = resultUpdated
	}
	return out, nil
}

// followed says which jobs the server does not have although a schedule follows them: it
// fires when they are saved, and until then in silence never.
func followed(ctx context.Context, r remote, w io.Writer, docs []*workflow.Document) error {
	for _, doc := range docs {
		var after []workflow.Dependency
		switch {
		case doc.Job != nil:
			after = doc.Job.Schedule.After
		case doc.Workflow != nil:
			after = doc.Workflow.Schedule.After
		}
		for i, d := range after {
			version, err := storedVersion(ctx, r, &workflow.Document{App: doc.App, Name: d.Job, Job: &workflow.JobDefinition{}})
			if err != nil {
				return err
			}
			if version == 0 {
				p := doc.Problem(fmt.Sprintf("schedule.after[%d].job", i), "note: there is no job %q; %s %q does not fire before it is saved", d.Job, strings.ToLower(doc.Kind), doc.Name)
				fmt.Fprintln(w, p.String())
			}
		}
	}
	return nil
}

// storedVersion is the version of a job or workflow before it is saved; 0 is none.
func storedVersion(ctx context.Context, r remote, doc *workflow.Document) (int32, error) {
	ask := api.ScheduleRequest{App: doc.App}
	switch {
	case doc.Job != nil:
		ask.Job = doc.Name
	case doc.Workflow != nil:
		ask.Workflow = doc.Name
	default:
		return 0, nil
	}
	var reply api.ScheduleReply
	if err := r.ask(ctx, api.CallSchedule, ask, &reply); err != nil {
		return 0, err
	}
	if reply.Error != nil {
		if reply.Error.Code == "not_found" {
			return 0, nil
		}
		return 0, refusal(reply.Error)
	}
	return reply.Version, nil
}

func (d *documents) save(ctx context.Context, r remote, doc *workflow.Document) (version int32, refused *api.Error, err error) {
	switch {
	case doc.Calendar != nil:
		days, err := json.Marshal(d.calendars[[2]string{doc.App, doc.Name}])
		if err != nil {
			return 0, nil, fmt.Errorf("encode the calendar: %w", err)
		}
		var reply api.SaveCalendarReply
		err = r.ask(ctx, api.CallSaveCalendar, api.SaveCalendarRequest{App: doc.App, Name: doc.Name, Calendar: days}, &reply)
		return reply.Version, reply.Error, err
	case doc.Job != nil:
		spec, err := json.Marshal(doc.Job.Spec)
		if err != nil {
			return 0, nil, fmt.Errorf("encode the job: %w", err)
		}
		when, err := json.Marshal(doc.Job.Schedule)
		if err != nil {
			return 0, nil, fmt.Errorf("encode the schedule: %w", err)
		}
		var reply api.SaveJobReply
		err = r.ask(ctx, api.CallSaveJob, api.SaveJobRequest{
			App: doc.App, Name: doc.Name, Spec: spec, Title: doc.Job.Title, Schedule: when, Disabled: doc.Job.Disabled,
		}, &reply)
		return reply.Version, reply.Error, err
	}
	text, err := json.Marshal(doc.Workflow)
	if err != nil {
		return 0, nil, fmt.Errorf("encode the workflow: %w", err)
	}
	var reply api.SaveWorkflowReply
	err = r.ask(ctx, api.CallSaveWorkflow, api.SaveWorkflowRequest{Document: string(text), File: doc.File}, &reply)
	return reply.Version, reply.Error, err
}

// tell writes what was done and fails if something was refused.
func (c *applyCmd) tell(con *console, done []applied, err error) error {
	if done == nil {
		done = []applied{}
	}
	werr := c.write(con.out, done, func(w io.Writer) {
		for _, a := range done {
			name := a.App + "/" + a.Name
			if a.Kind == workflow.KindApp {
				name = a.Name
			}
			text := a.Result
			if a.Version > 0 {
				text += fmt.Sprintf(", version %d", a.Version)
			}
			fmt.Fprintf(w, "%s %s: %s\n", strings.ToLower(a.Kind), name, text)
		}
	})
	var refused []string
	for _, a := range done {
		if a.Error != "" {
			refused = append(refused, fmt.Sprintf("%s:%d: %s", a.File, a.Line, a.Error))
		}
	}
	if len(refused) > 0 {
		err = errors.Join(err, invalid("the server refused %s:\n%s", plural(int64(len(refused)), "document"), strings.Join(refused, "\n")))
	}
	return errors.Join(werr, err)
}
