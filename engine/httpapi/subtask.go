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

func (a *API) subTaskRoutes() {
	route(a, op{
		id: "get-subtasks", method: http.MethodGet, path: "/instances/{id}/subtasks", title: "How the sub-tasks of a run stand, in numbers", perm: access.InstancesRead, tag: "instances",
	}, func(ctx context.Context, in *struct {
		InID
		Buckets int `query:"buckets" minimum:"1" maximum:"1024" default:"256" doc:"Of the heat strip, at most."`
	},
	) (*bodyOf[api.SubTasks], error) {
		row, _, err := a.instance(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		st, err := a.cfg.Server.SubTasks(ctx, row, in.Buckets)
		if err != nil {
			return nil, err
		}
		return body(subTasksBody(st)), nil
	})
	route(a, op{
		id: "list-failed-subtasks", method: http.MethodGet, path: "/instances/{id}/subtasks/failed",
		title: "The sub-tasks of a run that have failed or wait for their next attempt, by number", perm: access.InstancesRead, tag: "instances",
	}, func(ctx context.Context, in *struct {
		InID
		From  int64 `query:"from" minimum:"0" doc:"The first number."`
		To    int64 `query:"to" minimum:"0" doc:"The last number; to the end if left out."`
		Limit int   `query:"limit" minimum:"1" maximum:"500" default:"100"`
	},
	) (*bodyOf[list[api.SubTask]], error) {
		row, _, err := a.instance(ctx, in.ID, access.InstancesRead)
		if err != nil {
			return nil, err
		}
		rows, next, err := a.cfg.Server.FailedSubTasks(ctx, row.ID, in.From, in.To, in.Limit)
		if err != nil {
			return nil, err
		}
		out := pageOf(rows, len(rows), nil, func(t *engine.Task) api.SubTask {
			return api.SubTask{
				Number: t.Number, Status: t.Status.String(), Attempt: t.Attempt, Lost: t.Lost, Worker: t.Worker, NextTryAt: t.NextTryAt,
				Error: t.Error, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
			}
		})
		if next != 0 {
			out.Next = strconv.FormatInt(next, 10)
		}
		return body(out), nil
	})
}

func subTasksBody(st *server.SubTasks) api.SubTasks {
	out := api.SubTasks{
		Run: st.Run, Closed: st.Closed, Total: st.Total, Succeeded: st.Succeeded, Failed: st.Failed, Retrying: st.Retrying,
		InFlight: st.InFlight, Growing: st.Growing, Rate: st.Rate, Errors: make([]api.ErrorGroup, 0, len(st.Errors)),
		Heat: api.Heat{Size: st.Heat.Size, Succeeded: st.Heat.Succeeded, Failed: st.Heat.Failed},
	}
	if st.Left >= 0 {
		out.LeftMS = &st.Left
	}
	for _, g := range st.Errors {
		out.Errors = append(out.Errors, api.ErrorGroup(g))
	}
	return out
}
