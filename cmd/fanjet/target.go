package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

// order is a workflow to be run.
type order struct {
	graph    *workflow.Graph
	file     string // its name, for messages
	document []byte
	params   map[string]json.RawMessage
	nested   []*order // saved before it starts
	url      string   // where its signals may be sent, without credentials; empty is nowhere
}

func (o *order) def() *workflow.Definition { return o.graph.Definition() }

// target is where a workflow runs: the server in this process, or another one.
type target interface {
	// save saves a workflow for others to nest.
	save(ctx context.Context, o *order) error
	start(ctx context.Context, o *order) (id int64, err error)
	// watch shows the workflow on b until it is final (nil) or ctx ends (its error).
	watch(ctx context.Context, id int64, o *order, b *board) error
	status(ctx context.Context, id int64) (*api.StatusReply, error)
	stop(ctx context.Context, id int64) error
}

// stopPatience bounds how long a stopped workflow may take to end.
const stopPatience = 5 * time.Second

// drive runs the workflow to its end and returns how it stands then. When ctx ends first
// the workflow is stopped, and the cause of ctx is the error; hurry ends the waiting.
func drive(ctx, hurry context.Context, t target, o *order, b *board) (int64, *api.StatusReply, error) {
	id, err := begin(ctx, t, o)
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		return 0, nil, err
	}
	if hint := o.signalHint(id); hint != "" {
		b.say("%s", hint)
	}
	ids := make([]string, o.graph.Len())
	for at, i := range o.graph.Order() {
		ids[at] = o.graph.Node(i).ID
	}
	b.start(ids)
	defer b.finish()
	err = t.watch(ctx, id, o, b)
	if err == nil {
		return finished(ctx, t, id, b)
	}
	if ctx.Err() == nil {
		return id, nil, err
	}
	cause := context.Cause(ctx)
	b.say("stopping: %v", cause)
	last, cancel := context.WithTimeout(hurry, stopPatience)
	defer cancel()
	if err := t.stop(last, id); err != nil {
		return id, nil, errors.Join(cause, fmt.Errorf("stop the workflow: %w", err))
	}
	if err := t.watch(last, id, o, b); err != nil {
		return id, nil, errors.Join(cause, fmt.Errorf("the workflow did not stop within %v: %w", stopPatience, err))
	}
	_, reply, err := finished(last, t, id, b)
	return id, reply, errors.Join(cause, err)
}

// begin saves what the workflow nests, and starts it.
func begin(ctx context.Context, t target, o *order) (int64, error) {
	for _, nested := range o.nested {
		if err := t.save(ctx, nested); err != nil {
			return 0, fmt.Errorf("save workflow %q: %w", nested.def().Name, err)
		}
	}
	id, err := t.start(ctx, o)
	if err != nil {
		hint := ""
		if missing := o.missing(); len(missing) > 0 && ctx.Err() == nil {
			hint = "; give the file of workflow " + strings.Join(missing, ", ") + " with --with FILE"
		}
		return 0, fmt.Errorf("start workflow %q: %w%s", o.def().Name, err, hint)
	}
	return id, nil
}

// signalHint says how to send what its nodes wait for; empty if they wait for nothing.
func (o *order) signalHint(id int64) string {
	var say []string
	for _, n := range o.def().Nodes {
		switch {
		case o.url == "" || n.Disabled:
		case n.Kind() == workflow.TypeSignal:
			say = append(say, fmt.Sprintf("fanjet signal %d %s --server %s", id, n.ID, o.url))
		case n.Kind() == workflow.TypeApproval:
			say = append(say, fmt.Sprintf("fanjet approve %d %s --server %s", id, n.ID, o.url))
		}
	}
	const most = 5
	if len(say) == 0 {
		return ""
	}
	if more := len(say) - most; more > 0 {
		say = append(say[:most], fmt.Sprintf("and %d more", more))
	}
	return "it waits for " + strings.Join(say, "; ")
}

// missing are the workflows that it nests and that were not given with it.
func (o *order) missing() (names []string) {
	for _, n := range o.def().Nodes {
		given := slices.ContainsFunc(o.nested, func(with *order) bool { return with.def().Name == n.Workflow })
		if n.Kind() == workflow.TypeWorkflow && !given && !slices.Contains(names, n.Workflow) {
			names = append(names, n.Workflow)
		}
	}
	return names
}

// finished reads how it ended, even if it was interrupted in that moment.
func finished(ctx context.Context, t target, id int64, b *board) (int64, *api.StatusReply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	reply, err := t.status(ctx, id)
	if err != nil {
		return id, nil, err
	}
	for _, n := range reply.Nodes {
		b.update(n)
	}
	return id, reply, nil
}

// local is the server in this process.
type local struct{ *server.Server }

func (l local) save(ctx context.Context, o *order) error {
	_, err := l.SaveWorkflow(ctx, o.def())
	return err
}

func (l local) start(ctx context.Context, o *order) (int64, error) {
	return l.StartWorkflow(ctx, server.Start{Definition: o.def(), Params: o.params})
}

func (l local) stop(ctx context.Context, id int64) error { return l.StopWorkflow(ctx, id) }

func (l local) watch(ctx context.Context, id int64, o *order, b *board) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events := l.Watch(watching, id)
	// What happened before is no event any more.
	if now, err := l.status(ctx, id); err == nil {
		for _, n := range now.Nodes {
			b.update(n)
		}
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		l.show(events, newHints(o), b)
	}()
	_, err := l.WaitWorkflow(ctx, id)
	cancel()
	<-shown
	return err
}

// show takes the events until there are no more, and tells meanwhile why nodes wait.
func (l local) show(events <-chan server.Event, why *hints, b *board) {
	look := time.NewTicker(hintAfter)
	defer look.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			if e.Node != "" {
				b.update(statusOf(e))
			}
		case <-look.C:
			for _, hint := range why.about(b.waiting(), l.Workers(why.app)) {
				b.say("%s", hint)
			}
		}
	}
}

func statusOf(e server.Event) api.NodeStatus {
	n := api.NodeStatus{Node: e.Node, Instance: e.Instance, Error: e.Error, Total: e.Total, Done: e.Done, Failed: e.Failed}
	if e.Kind == server.EventNode {
		n.Status = e.Status.String()
	}
	return n
}

func (l local) status(ctx context.Context, id int64) (*api.StatusReply, error) {
	store := l.Store()
	w, err := store.WorkflowInstance(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the workflow instance: %w", err)
	}
	nodes, err := store.Nodes(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the nodes: %w", err)
	}
	reply := &api.StatusReply{Status: w.Status.String(), Text: w.Error, Result: w.Result}
	for _, n := range latest(nodes) {
		s := api.NodeStatus{Node: n.Node, Status: n.Status.String(), Instance: n.Instance, Error: n.Error, Result: n.Result}
		if n.Instance != 0 {
			runs, err := store.MapRuns(ctx, n.Instance)
			if err != nil {
				return nil, fmt.Errorf("read the map run of node %s: %w", n.Node, err)
			}
			if len(runs) > 0 {
				r := runs[len(runs)-1]
				s.Total, s.Done, s.Failed = r.Total, r.Succeeded, r.Failed
			}
		}
		reply.Nodes = append(reply.Nodes, s)
	}
	return reply, nil
}

// latest is the last attempt of each node, in the order they came.
func latest(nodes []engine.Node) []engine.Node {
	at := map[string]int{}
	var out []engine.Node
	for _, n := range nodes {
		i, ok := at[n.Node]
		switch {
		case !ok:
			at[n.Node] = len(out)
			out = append(out, n)
		case n.Attempt > out[i].Attempt:
			out[i] = n
		}
	}
	return out
}
