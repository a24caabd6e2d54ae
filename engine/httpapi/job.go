package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// jobIn names a job of an app.
type jobIn struct {
	App  string `path:"app" maxLength:"63"`
	Name string `path:"name" maxLength:"63"`
}

func (in *jobIn) app() string { return in.App }

type jobOut struct {
	ETag string `header:"ETag"`
	Body api.Job
}

// etag is the version of a definition, as HTTP writes it.
func etag(version int32) string { return strconv.Quote(strconv.Itoa(int(version))) }

func (a *API) jobRoutes() {
	route(a, op{
		id: "get-job", method: http.MethodGet, path: "/apps/{app}/jobs/{name}", title: "A job", perm: access.JobsRead, tag: "jobs",
	}, func(ctx context.Context, in *jobIn) (*jobOut, error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		job, err := a.cfg.Store.JobByName(ctx, app.ID, in.Name)
		if err != nil {
			return nil, err
		}
		body, err := jobBody(job, in.App)
		if err != nil {
			return nil, err
		}
		return &jobOut{ETag: etag(job.Version), Body: body}, nil
	})
}

func jobBody(j *engine.Job, app string) (api.Job, error) {
	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return api.Job{}, err
	}
	when, err := json.Marshal(j.Schedule)
	if err != nil {
		return api.Job{}, err
	}
	return api.Job{
		ID: j.ID, App: app, Name: j.Name, Title: j.Title, Version: j.Version, Enabled: j.Enabled, Spec: spec, Schedule: when,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
	}, nil
}
