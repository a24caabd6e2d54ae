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

// InID names a run by its id. Which app it belongs to is found out, and looked at.
type InID struct {
	ID string `path:"id" maxLength:"20"`
}

func instanceBody(in *engine.Instance, app string) api.Instance {
	return api.Instance{
		ID: in.ID, App: app, Job: in.Job, JobVersion: in.JobVersion, Workflow: in.Workflow, Node: in.Node, Status: in.Status.String(),
		Reason: string(in.Reason), Attempt: in.Attempt, Lane: string(in.Lane), Pool: in.Pool, Key: in.Key, FireAt: in.FireAt, DueAt: in.DueAt,
		CreatedAt: in.CreatedAt, StartedAt: in.StartedAt, FinishedAt: in.FinishedAt, Error: in.Error, Worker: in.Worker,
	}
}

// found reads what an id alone names, and tells which app it belongs to, if the caller has the
// permission there. What is of an app that the caller may not know of is not there.
func found[T any](ctx context.Context, a *API, what, text string, perm access.Permission, read func(context.Context, int64) (*T, error), of func(*T) int64) (*T, string, error) {
	n, err := id(what, text)
	if err != nil {
		return nil, "", err
	}
	row, err := read(ctx, n)
	if err != nil {
		return nil, "", gone(what, text, err)
	}
	app, err := a.appName(ctx, of(row))
	if err == nil {
		err = a.mayIn(ctx, perm, app, of(row))
	}
	return row, app, gone(what, text, err)
}

// instance reads a run that the caller may have something to do with.
func (a *API) instance(ctx context.Context, text string, perm access.Permission) (*engine.Instance, string, error) {
	return found(ctx, a, "instance", text, perm, a.cfg.Store.Instance, func(in *engine.Instance) int64 { return in.App })
}

func (a *API) instanceRoutes() {
	route(a, op{
		id: "list-instances", method: http.MethodGet, path: "/apps/{app}/instances", title: "Runs of an app's jobs, newest first", perm: access.InstancesRead, tag: "instances",
	}, func(ctx context.Context, in *struct {
		InApp
		ByID
		Job string `query:"job" maxLength:"63" doc:"Of this job only."`
		Key string `query:"key" maxLength:"255" doc:"With this business key; needs job."`
	},
	) (*bodyOf[list[api.Instance]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		job := int64(0)
		if in.Job != "" {
			j, err := a.cfg.Store.JobByName(ctx, app.ID, in.Job)
			if err != nil {
				return nil, err
			}
			job = j.ID
		}
		before, err := in.before()
		if err != nil {
			return nil, err
		}
		var rows []engine.Instance
		switch {
		case in.Key != "" && job == 0:
			return nil, &plainError{"key: name the job too, as keys are unique within one", engine.ErrInvalid}
		case in.Key != "":
			rows, err = a.cfg.Store.ByKey(ctx, job, in.Key, false, in.Limit)
		default:
			rows, err = a.cfg.Store.Instances(ctx, app.ID, job, before, in.Limit+1)
		}
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, in.Limit, func(r *engine.Instance) string { return strconv.FormatInt(r.ID, 10) },
			func(r *engine.Instance) api.Instance { return instanceBody(r, in.App) })), nil
	})
	route(a, op{
		id: "get-instance", method: http.MethodGet, path: "/instances/{id}", title: "A run", perm: access.InstancesRead, tag: "instances",
	}, func(ctx context.Context, in *InID) (*bodyOf[api.Instance], error) {
		row, app, err := a.instance(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		out := instanceBody(row, app)
		out.Params, out.Result, out.Late = row.Params, row.Result, row.Late
		runs, err := a.cfg.Store.MapRuns(ctx, row.ID)
		if err != nil {
			return nil, err
		}
		if n := len(runs); n > 0 {
			out.Map = &api.MapRun{Total: runs[n-1].Total, Succeeded: runs[n-1].Succeeded, Failed: runs[n-1].Failed}
		}
		return body(out), nil
	})
	route(a, op{
		id: "list-attempts", method: http.MethodGet, path: "/instances/{id}/attempts", title: "The tries of a run that ended without success", perm: access.InstancesRead, tag: "instances",
	}, func(ctx context.Context, in *InID) (*bodyOf[list[api.Attempt]], error) {
		row, _, err := a.instance(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.Attempts(ctx, row.ID)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, len(rows), nil, func(t *engine.Attempt) api.Attempt {
			return api.Attempt{Attempt: t.Attempt - 1, Status: t.Status.String(), Error: t.Error, Worker: t.Worker, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt}
		})), nil
	})
	route(a, op{
		id: "stop-instance", method: http.MethodPost, path: "/instances/{id}/stop", title: "Stop a run, or cancel it before it has begun", perm: access.InstancesStop, tag: "instances",
		status: http.StatusAccepted,
	}, func(ctx context.Context, in *InID) (*nothing, error) {
		row, _, err := a.instance(ctx, in.ID, access.InstancesStop)
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Server.StopInstance(ctx, row.ID); err != nil {
			return nil, err
		}
		a.done(ctx, access.InstancesStop, "instance:"+in.ID, nil, nil)
		return nil, nil
	})
	route(a, op{
		id: "get-logs", method: http.MethodGet, path: "/instances/{id}/logs", title: "What the tasks of a run have logged", perm: access.LogsRead, tag: "instances",
	}, func(ctx context.Context, in *struct {
		InID
		Skip  int `query:"skip" minimum:"0" doc:"Lines to leave out at the begin."`
		Limit int `query:"limit" minimum:"1" maximum:"10000" default:"1000"`
	},
	) (*bodyOf[list[api.LogLine]], error) {
		row, _, err := a.instance(ctx, in.ID, access.LogsRead)
		if err != nil {
			return nil, err
		}
		out := list[api.LogLine]{Items: []api.LogLine{}}
		seen := 0
		err = a.cfg.Server.LogLines(ctx, row.ID, func(l server.LogLine) error {
			if seen++; seen <= in.Skip {
				return nil
			}
			if len(out.Items) == in.Limit {
				out.Next = strconv.Itoa(seen - 1)
				return errEnough
			}
			out.Items = append(out.Items, api.LogLine{At: l.At, Level: level(l.Level), Message: l.Text, Task: l.Task, Worker: l.Worker})
			return nil
		})
		if err != nil && !isEnough(err) {
			return nil, err
		}
		return body(out), nil
	})
}
