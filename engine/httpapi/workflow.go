package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

func workflowBody(w *engine.WorkflowDef, app string) api.Workflow {
	return api.Workflow{
		ID: w.ID, App: app, Name: w.Name, Title: w.Title, Version: w.Version, Enabled: w.Enabled, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
}

func (a *API) workflowRoutes() {
	route(a, op{
		id: "list-workflows", method: http.MethodGet, path: "/apps/{app}/workflows", title: "The workflows of an app, by name", perm: access.WorkflowsRead, tag: "workflows",
	}, func(ctx context.Context, in *struct {
		InApp
		ByName
	},
	) (*bodyOf[list[api.Workflow]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.Workflows(ctx, app.ID, in.After, in.Limit+1)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, in.Limit, func(w *engine.WorkflowDef) string { return w.Name },
			func(w *engine.WorkflowDef) api.Workflow { return workflowBody(w, in.App) })), nil
	})
	route(a, op{
		id: "get-workflow", method: http.MethodGet, path: "/apps/{app}/workflows/{name}", title: "A workflow, now or at a version", perm: access.WorkflowsRead, tag: "workflows",
	}, func(ctx context.Context, in *struct {
		Named
		Version int32 `query:"version" minimum:"1"`
	},
	) (*versioned[api.Workflow], error) {
		w, err := a.workflow(ctx, in.App, in.Name)
		if err == nil && in.Version != 0 {
			w, err = a.cfg.Store.WorkflowVersion(ctx, w.ID, in.Version)
		}
		if err != nil {
			return nil, err
		}
		out := workflowBody(w, in.App)
		out.Definition = w.Definition
		return &versioned[api.Workflow]{ETag: etag(w.Version), Body: out}, nil
	})
	route(a, op{
		id: "save-workflow", method: http.MethodPut, path: "/apps/{app}/workflows/{name}", title: "Make or change a workflow, from its document",
		about: "Saving what is there makes no new version.", perm: access.WorkflowsWrite, tag: "workflows",
	}, func(ctx context.Context, in *struct {
		Named
		IfMatch string `header:"If-Match"`
		Body    api.Document
	},
	) (*versioned[api.Workflow], error) {
		d, err := workflow.Parse(in.Body.File, []byte(in.Body.Document))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, engine.ErrInvalid)
		}
		if d.App != in.App || d.Name != in.Name {
			return nil, fmt.Errorf("the document is of workflow %q of app %q, the path names %q of %q: %w", d.Name, d.App, in.Name, in.App, engine.ErrInvalid)
		}
		version, err := expected(in.IfMatch)
		if err != nil {
			return nil, err
		}
		old, err := a.workflow(ctx, in.App, in.Name)
		switch {
		case errors.Is(err, engine.ErrNotFound) && version == 0:
		case err != nil:
			return nil, err
		case version != 0 && old.Version != version:
			return nil, fmt.Errorf("workflow %q is at version %d, not %d: read it again: %w", in.Name, old.Version, version, engine.ErrConflict)
		}
		w, err := a.cfg.Server.SaveWorkflow(ctx, d)
		if err != nil {
			return nil, err
		}
		out := workflowBody(w, in.App)
		out.Definition = w.Definition
		if old == nil || old.Version != w.Version {
			var before any
			if old != nil {
				was := workflowBody(old, in.App)
				was.Definition = old.Definition
				before = was
			}
			a.done(ctx, access.WorkflowsWrite, "workflow:"+in.App+"/"+in.Name, before, out)
		}
		return &versioned[api.Workflow]{ETag: etag(w.Version), Body: out}, nil
	})
	route(a, op{
		id: "start-workflow", method: http.MethodPost, path: "/apps/{app}/workflows/{name}/start", title: "Start a run of a saved workflow",
		perm: access.WorkflowsTrigger, tag: "workflows", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct {
		Named
		Once
		Body api.StartWorkflow
	},
	) (*bodyOf[api.Started], error) {
		w, err := a.workflow(ctx, in.App, in.Name)
		if err != nil {
			return nil, err
		}
		d, err := workflow.Parse(w.Name, w.Definition)
		if err != nil {
			return nil, fmt.Errorf("workflow %q as stored: %w", in.Name, err)
		}
		n, err := a.started(ctx, "start-workflow/"+in.App+"/"+in.Name, in.IdempotencyKey, in.Body, func(ctx context.Context) (int64, error) {
			n, err := a.cfg.Server.StartWorkflow(ctx, server.Start{Definition: d, Params: in.Body.Params, Key: in.Body.Key})
			if err == nil {
				a.done(ctx, access.WorkflowsTrigger, "workflow_instance:"+strconv.FormatInt(n, 10), nil, in.Body)
			}
			return n, err
		})
		return body(api.Started{ID: n}), err
	})
	a.executionRoutes()
}

func (a *API) workflow(ctx context.Context, app, name string) (*engine.WorkflowDef, error) {
	row, err := a.cfg.Store.AppByName(ctx, app)
	if err != nil {
		return nil, err
	}
	return a.cfg.Store.WorkflowByName(ctx, row.ID, name)
}
