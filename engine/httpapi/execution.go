package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
)

func executionBody(w *engine.WorkflowInstance, app string) api.WorkflowInstance {
	return api.WorkflowInstance{
		ID: w.ID, App: app, Workflow: w.Workflow, Version: w.Version, Status: w.Status.String(), Reason: string(w.Reason), Attempt: w.Attempt,
		Key: w.Key, Error: w.Error, Parent: w.Parent, ParentNode: w.ParentNode, FireAt: w.FireAt,
		CreatedAt: w.CreatedAt, StartedAt: w.StartedAt, FinishedAt: w.FinishedAt,
	}
}

// executionOf reads a run of a workflow that the caller may have something to do with.
func (a *API) executionOf(ctx context.Context, text string, perm access.Permission) (*engine.WorkflowInstance, string, error) {
	return found(ctx, a, "workflow instance", text, perm, a.cfg.Store.WorkflowInstance, func(w *engine.WorkflowInstance) int64 { return w.App })
}

// executionRoutes are those of runs of workflows.
func (a *API) executionRoutes() {
	route(a, op{
		id: "list-workflow-instances", method: http.MethodGet, path: "/apps/{app}/workflow-instances", title: "Runs of an app's workflows, newest first",
		perm: access.InstancesRead, tag: "workflow instances",
	}, func(ctx context.Context, in *struct {
		InApp
		ByID
		Workflow string `query:"workflow" maxLength:"63" doc:"Of this workflow only."`
	},
	) (*bodyOf[list[api.WorkflowInstance]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		of := int64(0)
		if in.Workflow != "" {
			w, err := a.cfg.Store.WorkflowByName(ctx, app.ID, in.Workflow)
			if err != nil {
				return nil, err
			}
			of = w.ID
		}
		before, err := in.before()
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.WorkflowInstances(ctx, app.ID, of, before, in.Limit+1)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, in.Limit, func(w *engine.WorkflowInstance) string { return strconv.FormatInt(w.ID, 10) },
			func(w *engine.WorkflowInstance) api.WorkflowInstance { return executionBody(w, in.App) })), nil
	})
	route(a, op{
		id: "get-workflow-instance", method: http.MethodGet, path: "/workflow-instances/{id}", title: "A run of a workflow", perm: access.InstancesRead, tag: "workflow instances",
	}, func(ctx context.Context, in *InID) (*bodyOf[api.WorkflowInstance], error) {
		w, app, err := a.executionOf(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		out := executionBody(w, app)
		out.Params, out.Context, out.Result = w.Params, w.Context, w.Result
		return body(out), nil
	})
	route(a, op{
		id: "list-nodes", method: http.MethodGet, path: "/workflow-instances/{id}/nodes", title: "How the nodes of a run stand", perm: access.InstancesRead, tag: "workflow instances",
	}, func(ctx context.Context, in *InID) (*bodyOf[list[api.Node]], error) {
		w, _, err := a.executionOf(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.Nodes(ctx, w.ID)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, len(rows), nil, func(n *engine.Node) api.Node {
			return api.Node{
				Node: n.Node, Attempt: n.Attempt, Status: n.Status.String(), Reason: n.Reason, Instance: n.Instance, Nested: n.Child, DueAt: n.DueAt,
				Choice: n.Choice, Result: n.Result, Error: n.Error, StartedAt: n.StartedAt, FinishedAt: n.FinishedAt,
			}
		})), nil
	})
	route(a, op{
		id: "order-workflow-instance", method: http.MethodPost, path: "/workflow-instances/{id}", title: "Stop, pause, resume or retry a run of a workflow",
		about: "A retry keeps what has succeeded.", perm: access.WorkflowsStop, tag: "workflow instances", status: http.StatusAccepted,
	}, func(ctx context.Context, in *struct {
		InID
		Body struct {
			Order string `json:"order" enum:"stop,pause,resume,retry"`
		}
	},
	) (*nothing, error) {
		perm := access.WorkflowsStop
		if in.Body.Order == "retry" {
			perm = access.WorkflowsRetry
		}
		w, _, err := a.executionOf(ctx, in.ID, perm)
		if err != nil {
			return nil, err
		}
		s := a.cfg.Server
		do := map[string]func(context.Context, int64) error{
			"stop": s.StopWorkflow, "pause": s.PauseWorkflow, "resume": s.ResumeWorkflow, "retry": s.RetryWorkflow,
		}[in.Body.Order]
		if err := do(ctx, w.ID); err != nil {
			return nil, err
		}
		a.done(ctx, perm, "workflow_instance:"+in.ID, nil, in.Body)
		return nil, nil
	})
	route(a, op{
		id: "send-signal", method: http.MethodPost, path: "/workflow-instances/{id}/signals", title: "Send a signal to a run of a workflow", perm: access.SignalsSend, tag: "workflow instances",
		status: http.StatusAccepted,
	}, func(ctx context.Context, in *struct {
		InID
		Body api.SendSignal
	},
	) (*nothing, error) {
		w, _, err := a.executionOf(ctx, in.ID, access.SignalsSend)
		if err != nil {
			return nil, err
		}
		p := principalOf(ctx)
		err = a.cfg.Server.Signal(ctx, w.ID, server.Signal{Name: in.Body.Name, Payload: in.Body.Payload, By: p.Name, Request: in.Body.Request})
		if err != nil {
			return nil, err
		}
		a.done(ctx, access.SignalsSend, "workflow_instance:"+in.ID, nil, in.Body)
		return nil, nil
	})
	route(a, op{
		id: "decide-approval", method: http.MethodPost, path: "/workflow-instances/{id}/approvals/{node}", title: "Approve or reject what a run of a workflow waits for",
		about: "The node may name roles; the caller must hold one of them in the app, whatever it claims.", perm: access.ApprovalsDecide, tag: "workflow instances",
		status: http.StatusAccepted,
	}, func(ctx context.Context, in *struct {
		InID
		Node string `path:"node" maxLength:"128"`
		Body api.Decide
	},
	) (*nothing, error) {
		w, app, err := a.executionOf(ctx, in.ID, access.ApprovalsDecide)
		if err != nil {
			return nil, err
		}
		p := principalOf(ctx)
		var roles []string
		for _, r := range access.Roles() {
			if a.cfg.Policy.MayDecide(p, []engine.Role{r}, app) == nil {
				roles = append(roles, string(r))
			}
		}
		err = a.cfg.Server.Approve(ctx, w.ID, server.Approval{
			Node: in.Node, Reject: in.Body.Reject, By: p.Name, Comment: in.Body.Comment, Roles: roles, Request: in.Body.Request,
		})
		if err != nil {
			return nil, err
		}
		a.done(ctx, access.ApprovalsDecide, "workflow_instance:"+in.ID+":"+in.Node, nil, in.Body)
		return nil, nil
	})
}
