package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

// maxDelay bounds how much later a run may begin than it was asked for.
const maxDelay = 366 * 24 * time.Hour

// Named names something of an app.
type Named struct {
	InApp
	Name string `path:"name" maxLength:"63"`
}

// etag is the version of a definition, as HTTP writes it.
func etag(version int32) string { return strconv.Quote(strconv.Itoa(int(version))) }

// expected reads If-Match: the version that the caller has seen; 0 if it did not say.
func expected(header string) (int32, error) {
	if header == "" {
		return 0, nil
	}
	text := strings.Trim(strings.TrimPrefix(strings.TrimSpace(header), "W/"), `"`)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf(`If-Match %q: it must be the ETag of the version you have seen, such as "3": %w`, engine.CutText(header, 40), engine.ErrInvalid)
	}
	return int32(n), nil
}

// strict decodes what a body holds as raw JSON: unknown fields are refused, by name.
func strict(what string, raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, engine.ErrInvalid)
	}
	return nil
}

type versioned[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

func jobBody(j *engine.Job, app string) (api.Job, error) {
	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return api.Job{}, fmt.Errorf("encode the spec of job %q: %w", j.Name, err)
	}
	when, err := json.Marshal(j.Schedule)
	if err != nil {
		return api.Job{}, fmt.Errorf("encode the schedule of job %q: %w", j.Name, err)
	}
	return api.Job{
		ID: j.ID, App: app, Name: j.Name, Title: j.Title, Version: j.Version, Enabled: j.Enabled, Spec: spec, Schedule: when,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
	}, nil
}

func (a *API) jobRoutes() {
	route(a, op{
		id: "list-jobs", method: http.MethodGet, path: "/apps/{app}/jobs", title: "The jobs of an app, by name", perm: access.JobsRead, tag: "jobs",
	}, func(ctx context.Context, in *struct {
		InApp
		ByName
	},
	) (*bodyOf[list[api.Job]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.Jobs(ctx, app.ID, in.After, in.Limit+1)
		if err != nil {
			return nil, err
		}
		var failed error
		out := pageOf(rows, in.Limit, func(j *engine.Job) string { return j.Name }, func(j *engine.Job) api.Job {
			b, err := jobBody(j, in.App)
			failed = errors.Join(failed, err)
			return b
		})
		return body(out), failed
	})
	route(a, op{
		id: "get-job", method: http.MethodGet, path: "/apps/{app}/jobs/{name}", title: "A job, now or at a version", perm: access.JobsRead, tag: "jobs",
	}, func(ctx context.Context, in *struct {
		Named
		Version int32 `query:"version" minimum:"1"`
	},
	) (*versioned[api.Job], error) {
		job, err := a.job(ctx, in.App, in.Name)
		if err == nil && in.Version != 0 {
			job, err = a.cfg.Store.JobVersion(ctx, job.ID, in.Version)
		}
		if err != nil {
			return nil, err
		}
		b, err := jobBody(job, in.App)
		return &versioned[api.Job]{ETag: etag(job.Version), Body: b}, err
	})
	route(a, op{
		id: "save-job", method: http.MethodPut, path: "/apps/{app}/jobs/{name}", title: "Make or change a job",
		about: "With If-Match, only if the job still is at that version. Saving what is there makes no new version.",
		perm:  access.JobsWrite, tag: "jobs",
	}, func(ctx context.Context, in *struct {
		Named
		IfMatch string `header:"If-Match"`
		Body    api.SaveJob
	},
	) (*versioned[api.Job], error) {
		d := server.JobDef{App: in.App, Name: in.Name, Title: in.Body.Title, Disabled: in.Body.Disabled}
		if err := errors.Join(strict("spec", in.Body.Spec, &d.Spec), strict("schedule", in.Body.Schedule, &d.Schedule)); err != nil {
			return nil, err
		}
		version, err := expected(in.IfMatch)
		if err != nil {
			return nil, err
		}
		d.Expect = version
		old, err := a.job(ctx, in.App, in.Name)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return nil, err
		}
		job, err := a.cfg.Server.SaveJobDef(ctx, d)
		if err != nil {
			return nil, err
		}
		b, err := jobBody(job, in.App)
		if err == nil && (old == nil || old.Version != job.Version) {
			var before any
			if old != nil {
				if before, err = jobBody(old, in.App); err != nil {
					return nil, err
				}
			}
			a.done(ctx, access.JobsWrite, "job:"+in.App+"/"+in.Name, before, b)
		}
		return &versioned[api.Job]{ETag: etag(job.Version), Body: b}, err
	})
	route(a, op{
		id: "trigger-job", method: http.MethodPost, path: "/apps/{app}/jobs/{name}/trigger", title: "Start a run of a job, now or after a delay",
		perm: access.InstancesTrigger, tag: "jobs", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct {
		Named
		Once
		Body api.Trigger
	},
	) (*bodyOf[api.Started], error) {
		if d := in.Body.DelayMS; d < 0 || d > maxDelay.Milliseconds() {
			return nil, fmt.Errorf("delay_ms %d: 0 to %d: %w", d, maxDelay.Milliseconds(), engine.ErrInvalid)
		}
		id, err := a.started(ctx, "trigger-job/"+in.App+"/"+in.Name, in.IdempotencyKey, in.Body, func(ctx context.Context) (int64, error) {
			id, err := a.cfg.Server.Trigger(ctx, server.Trigger{
				App: in.App, Job: in.Name, Params: in.Body.Params, Key: in.Body.Key, Delay: time.Duration(in.Body.DelayMS) * time.Millisecond,
				Lane: workflow.Lane(in.Body.Lane),
			})
			if err == nil {
				a.done(ctx, access.InstancesTrigger, "instance:"+strconv.FormatInt(id, 10), nil, in.Body)
			}
			return id, err
		})
		return body(api.Started{ID: id}), err
	})
	route(a, op{
		id: "cancel-key", method: http.MethodPost, path: "/apps/{app}/jobs/{name}/cancel", title: "End the runs of a job that have a business key",
		perm: access.InstancesStop, tag: "jobs",
	}, func(ctx context.Context, in *struct {
		Named
		Body struct {
			Key string `json:"key" minLength:"1" maxLength:"255"`
		}
	},
	) (*bodyOf[api.CancelKeyReply], error) {
		n, err := a.cfg.Server.CancelKey(ctx, in.App, in.Name, in.Body.Key)
		if err != nil {
			return nil, err
		}
		a.done(ctx, access.InstancesStop, "job:"+in.App+"/"+in.Name, nil, in.Body)
		return body(api.CancelKeyReply{Count: n}), nil
	})
}

func (a *API) job(ctx context.Context, app, name string) (*engine.Job, error) {
	row, err := a.cfg.Store.AppByName(ctx, app)
	if err != nil {
		return nil, err
	}
	return a.cfg.Store.JobByName(ctx, row.ID, name)
}
