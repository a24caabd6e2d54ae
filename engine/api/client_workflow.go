package api

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Workflows are those of an app, by name.
func (c *Client) Workflows(ctx context.Context, app string) iter.Seq2[Workflow, error] {
	return pages[Workflow](ctx, c, path("/apps/%s/workflows", app), large(), "after")
}

// Workflow is a workflow as it is now, or at a version that is not 0.
func (c *Client) Workflow(ctx context.Context, app, name string, version int32) (*Workflow, error) {
	out, q := &Workflow{}, url.Values{}
	number(q, "version", int64(version))
	_, err := c.get(ctx, path("/apps/%s/workflows/%s", app, name), q, out)
	return out, err
}

// SaveWorkflow makes or changes a workflow, from its document. With a version that is not 0 it
// is changed only if that is the one it still has; ErrConflict otherwise.
func (c *Client) SaveWorkflow(ctx context.Context, app, name string, doc Document, version int32) (*Workflow, error) {
	out := &Workflow{}
	q := &call{method: http.MethodPut, path: path("/apps/%s/workflows/%s", app, name), in: doc, out: out}
	q.header, q.once = ifMatch(version)
	_, err := c.do(ctx, q)
	return out, err
}

// StartWorkflow starts a run of a saved workflow and returns its id. The key is as for
// Trigger.
func (c *Client) StartWorkflow(ctx context.Context, app, name string, s StartWorkflow, key string) (int64, error) {
	var out Started
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/apps/%s/workflows/%s/start", app, name), header: once(key), in: s, out: &out})
	return out.ID, err
}

// WorkflowInstances are the runs of an app's workflows, or of one of them, newest first.
func (c *Client) WorkflowInstances(ctx context.Context, app, workflow string) iter.Seq2[WorkflowInstance, error] {
	q := large()
	if workflow != "" {
		q.Set("workflow", workflow)
	}
	return pages[WorkflowInstance](ctx, c, path("/apps/%s/workflow-instances", app), q, "before")
}

// WorkflowInstance is a run of a workflow.
func (c *Client) WorkflowInstance(ctx context.Context, id int64) (*WorkflowInstance, error) {
	out := &WorkflowInstance{}
	_, err := c.get(ctx, path("/workflow-instances/%s", itoa(id)), nil, out)
	return out, err
}

// WaitWorkflow returns the run of a workflow once it is final.
func (c *Client) WaitWorkflow(ctx context.Context, id int64) (*WorkflowInstance, error) {
	for wait := firstPause; ; wait = min(wait*3/2, 2*time.Second) {
		out, err := c.WorkflowInstance(ctx, id)
		if err != nil || Final(out.Status) {
			return out, err
		}
		if err := pause(ctx, wait); err != nil {
			return out, err
		}
	}
}

// Nodes are how the nodes of a workflow's run stand.
func (c *Client) Nodes(ctx context.Context, id int64) iter.Seq2[Node, error] {
	return pages[Node](ctx, c, path("/workflow-instances/%s/nodes", itoa(id)), nil, "")
}

// OrderWorkflow stops, pauses, resumes or retries a run of a workflow.
func (c *Client) OrderWorkflow(ctx context.Context, id int64, order string) error {
	_, err := c.do(ctx, &call{
		method: http.MethodPost, path: path("/workflow-instances/%s", itoa(id)), in: Order{Order: order}, once: order == "retry",
	})
	return err
}

// SendSignal sends a signal to a run of a workflow. With a Request it is sent once, however
// often it is asked.
func (c *Client) SendSignal(ctx context.Context, id int64, s SendSignal) error {
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/workflow-instances/%s/signals", itoa(id)), in: s, once: s.Request == ""})
	return err
}

// Decide approves or rejects what a run of a workflow waits for.
func (c *Client) Decide(ctx context.Context, id int64, node string, d Decide) error {
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/workflow-instances/%s/approvals/%s", itoa(id), node), in: d, once: d.Request == ""})
	return err
}
