package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

// InDefinition names a job or a workflow of an app.
type InDefinition struct {
	InApp
	Kind string `path:"kind" enum:"jobs,workflows"`
	Name string `path:"name" maxLength:"63"`
}

func (in *InDefinition) definition() server.Definition {
	if in.Kind == "jobs" {
		return server.Definition{App: in.App, Job: in.Name}
	}
	return server.Definition{App: in.App, Workflow: in.Name}
}

// target is what the audit log calls it.
func (in *InDefinition) target() string {
	return strings.TrimSuffix(in.Kind, "s") + ":" + in.App + "/" + in.Name
}

// InSpan is a range of scheduled times, epoch ms, both included.
type InSpan struct {
	From int64 `query:"from" minimum:"0"`
	To   int64 `query:"to" minimum:"0" doc:"Now if left out."`
}

func (a *API) scheduleRoutes() {
	const path = "/apps/{app}/schedules/{kind}/{name}"
	route(a, op{
		id: "get-schedule", method: http.MethodGet, path: path, title: "How a job or workflow stands: its next fire, what is under way, how its runs ended",
		perm: access.SchedulesRead, tag: "schedules",
	}, func(ctx context.Context, in *InDefinition) (*bodyOf[api.ScheduleReply], error) {
		return a.standing(ctx, in.definition())
	})
	route(a, op{
		id: "order-schedule", method: http.MethodPost, path: path, title: "Pause or resume a schedule",
		about: "What was due while it was paused is for its misfire policy.", perm: access.SchedulesPause, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		InDefinition
		Body struct {
			Order string `json:"order" enum:"pause,resume"`
		}
	},
	) (*bodyOf[api.ScheduleReply], error) {
		do := a.cfg.Server.PauseSchedule
		if in.Body.Order == "resume" {
			do = a.cfg.Server.ResumeSchedule
		}
		if err := do(ctx, in.definition()); err != nil {
			return nil, err
		}
		a.done(ctx, access.SchedulesPause, in.target(), nil, in.Body)
		return a.standing(ctx, in.definition())
	})
	route(a, op{
		id: "set-enabled", method: http.MethodPut, path: path + "/enabled", title: "Enable or disable a job or workflow", perm: access.JobsWrite, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		InDefinition
		Body struct {
			On bool `json:"on"`
		}
	},
	) (*bodyOf[api.ScheduleReply], error) {
		if in.Kind == "workflows" {
			if err := a.mayIn(ctx, access.WorkflowsWrite, in.App, requestOf(ctx).app); err != nil {
				return nil, err
			}
		}
		if err := a.cfg.Server.SetEnabled(ctx, in.definition(), in.Body.On); err != nil {
			return nil, err
		}
		a.done(ctx, access.JobsWrite, in.target(), nil, in.Body)
		return a.standing(ctx, in.definition())
	})
	route(a, op{
		id: "get-ledger", method: http.MethodGet, path: path + "/ledger", title: "What fired and what did not, and why", perm: access.SchedulesRead, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		InDefinition
		InSpan
		Limit int `query:"limit" minimum:"1" maximum:"10000" default:"500"`
	},
	) (*bodyOf[api.LedgerReply], error) {
		entries, more, err := a.cfg.Server.Ledger(ctx, in.definition(), in.From, in.To, in.Limit)
		if err != nil {
			return nil, err
		}
		return body(server.LedgerBody(entries, more)), nil
	})
	route(a, op{
		id: "verify-schedule", method: http.MethodGet, path: path + "/verify", title: "Compare what should have fired with what did", perm: access.SchedulesRead, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		InDefinition
		InSpan
	},
	) (*bodyOf[api.VerifyReply], error) {
		v, err := a.cfg.Server.Verify(ctx, in.definition(), in.From, in.To)
		if err != nil {
			return nil, err
		}
		return body(server.VerifyBody(v)), nil
	})
	route(a, op{
		id: "backfill-job", method: http.MethodPost, path: "/apps/{app}/jobs/{name}/backfill", title: "Fire a job for scheduled times that have passed",
		perm: access.InstancesTrigger, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		Named
		Body struct {
			From   int64 `json:"from"`
			To     int64 `json:"to"`
			Max    int   `json:"max,omitempty" minimum:"1" maximum:"10000"`
			DryRun bool  `json:"dry_run,omitempty"`
		}
	},
	) (*bodyOf[api.BackfillReply], error) {
		times, existed, err := a.cfg.Server.Backfill(ctx, server.Backfill{
			App: in.App, Job: in.Name, From: in.Body.From, To: in.Body.To, Max: in.Body.Max, DryRun: in.Body.DryRun,
		})
		if err != nil {
			return nil, err
		}
		if !in.Body.DryRun {
			a.done(ctx, access.InstancesTrigger, "job:"+in.App+"/"+in.Name, nil, map[string]any{"backfill": in.Body, "runs": len(times)})
		}
		return body(api.BackfillReply{Times: times, Existed: existed}), nil
	})
	route(a, op{
		id: "preview-schedule", method: http.MethodPost, path: "/apps/{app}/preview", title: "What a schedule fires next, and why it does not", perm: access.SchedulesRead, tag: "schedules",
	}, func(ctx context.Context, in *struct {
		InApp
		Body api.Preview
	},
	) (*bodyOf[list[api.PreviewFire]], error) {
		var spec workflow.Schedule
		if err := strict("schedule", in.Body.Schedule, &spec); err != nil {
			return nil, err
		}
		fires, err := a.cfg.Server.Preview(ctx, in.App, spec, in.Body.From, in.Body.Count)
		if err != nil {
			return nil, err
		}
		return body(pageOf(fires, len(fires), func(*schedule.Fire) string { return "" }, func(f *schedule.Fire) api.PreviewFire {
			return api.PreviewFire{At: f.At, Local: f.Local, Skipped: f.Skipped, Reason: string(f.Reason), Note: f.Note}
		})), nil
	})
}

func (a *API) standing(ctx context.Context, d server.Definition) (*bodyOf[api.ScheduleReply], error) {
	st, err := a.cfg.Server.Schedule(ctx, d)
	if err != nil {
		return nil, err
	}
	out, err := server.ScheduleBody(st)
	return body(out), err
}

func (a *API) calendarRoutes() {
	calendar := func(c *engine.Calendar) api.Calendar {
		return api.Calendar{Name: c.Name, Version: c.Version, UpdatedAt: c.UpdatedAt}
	}
	route(a, op{
		id: "list-calendars", method: http.MethodGet, path: "/apps/{app}/calendars", title: "The business calendars of an app", perm: access.CalendarsRead, tag: "calendars",
	}, func(ctx context.Context, in *struct {
		InApp
		ByName
	},
	) (*bodyOf[list[api.Calendar]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		rows, err := a.cfg.Store.Calendars(ctx, app.ID, in.After, in.Limit+1)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, in.Limit, func(c *engine.Calendar) string { return c.Name }, calendar)), nil
	})
	route(a, op{
		id: "get-calendar", method: http.MethodGet, path: "/apps/{app}/calendars/{name}", title: "A business calendar", perm: access.CalendarsRead, tag: "calendars",
	}, func(ctx context.Context, in *Named) (*versioned[api.Calendar], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		c, err := a.cfg.Store.CalendarByName(ctx, app.ID, in.Name)
		if err != nil {
			return nil, err
		}
		out := calendar(c)
		out.Calendar = c.Body
		return &versioned[api.Calendar]{ETag: etag(c.Version), Body: out}, nil
	})
	route(a, op{
		id: "save-calendar", method: http.MethodPut, path: "/apps/{app}/calendars/{name}", title: "Make or change a business calendar", perm: access.CalendarsWrite, tag: "calendars",
	}, func(ctx context.Context, in *struct {
		Named
		Body struct {
			Calendar json.RawMessage `json:"calendar"`
		}
	},
	) (*versioned[api.Calendar], error) {
		old, err := a.cfg.Store.CalendarByName(ctx, requestOf(ctx).app, in.Name)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return nil, err
		}
		c, err := a.cfg.Server.SaveCalendar(ctx, in.App, in.Name, in.Body.Calendar)
		if err != nil {
			return nil, err
		}
		out := calendar(c)
		out.Calendar = c.Body
		var before any
		if old != nil {
			before = json.RawMessage(old.Body)
		}
		a.done(ctx, access.CalendarsWrite, "calendar:"+in.App+"/"+in.Name, before, out)
		return &versioned[api.Calendar]{ETag: etag(c.Version), Body: out}, nil
	})
}
