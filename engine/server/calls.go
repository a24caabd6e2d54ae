package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/internal/commit"
	"github.com/fanjet/fanjet/workflow"
)

const triggerMost = 100_000

// calls are what a client may ask through the broker.
func (s *Server) calls() map[string]func(context.Context, []byte) []byte {
	return map[string]func(context.Context, []byte) []byte{
		api.CallStart:   call(s.callStart),
		api.CallTrigger: call(s.callTrigger),
		api.CallSaveJob: call(s.callSaveJob),
		api.CallStatus:  call(s.callStatus),
		api.CallStop:    call(s.callStop),

		api.CallSaveWorkflow: call(s.callSaveWorkflow),
		api.CallSignal:       call(s.callSignal),
		api.CallApprove:      call(s.callApprove),
		api.CallWorkflow:     call(s.callWorkflow),

		api.CallSaveCalendar: call(s.callSaveCalendar),
		api.CallSchedule:     call(s.callSchedule),
		api.CallLedger:       call(s.callLedger),
		api.CallVerify:       call(s.callVerify),
		api.CallBackfill:     call(s.callBackfill),
		api.CallCancelKey:    call(s.callCancelKey),
	}
}

// call decodes the question and encodes the answer.
func call[Q, A any](h func(context.Context, Q) A) func(context.Context, []byte) []byte {
	return func(ctx context.Context, payload []byte) []byte {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		var q Q
		var answer any
		if err := json.Unmarshal(payload, &q); err != nil {
			answer = map[string]*api.Error{"error": {Code: "invalid", Message: "the request is not the JSON it should be: " + err.Error()}}
		} else {
			answer = h(ctx, q)
		}
		b, err := json.Marshal(answer)
		if err != nil {
			b = []byte(`{"error":{"code":"internal","message":"the answer does not encode"}}`)
		}
		return b
	}
}

// kinds maps errors of the engine to the words of the contract.
var kinds = []struct {
	err  error
	code string
}{
	{engine.ErrInvalid, "invalid"},
	{engine.ErrNotFound, "not_found"},
	{engine.ErrConflict, "conflict"},
	{engine.ErrForbidden, "forbidden"},
	{engine.ErrTooLarge, "too_large"},
	{engine.ErrUnavailable, "unavailable"},
	{engine.ErrFenced, "unavailable"},
	{commit.ErrBroken, "unavailable"},
	{commit.ErrStopped, "unavailable"},
	{context.DeadlineExceeded, "unavailable"},
	{context.Canceled, "unavailable"}, // the server stops: whether it was stored is not known
	{broker.ErrUnavailable, "unavailable"},
	{broker.ErrNoResponders, "unavailable"},
}

func apiError(err error) *api.Error {
	if err == nil {
		return nil
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &api.Error{Code: k.code, Message: err.Error()}
		}
	}
	return &api.Error{Code: "internal", Message: err.Error()}
}

func (s *Server) callStart(ctx context.Context, q api.StartRequest) api.StartReply {
	d, err := workflow.Parse(q.File, []byte(q.Document))
	if err != nil {
		return api.StartReply{Error: &api.Error{Code: "invalid", Message: err.Error()}}
	}
	id, err := s.StartWorkflow(ctx, Start{App: q.App, Definition: d, Params: q.Params, Key: q.Key})
	return api.StartReply{ID: id, Error: apiError(err)}
}

func (s *Server) callTrigger(ctx context.Context, q api.TriggerRequest) api.StartReply {
	n := max(q.Count, 1)
	if n > triggerMost {
		return api.StartReply{Error: apiError(fmt.Errorf("count %d: at most %d: %w", n, triggerMost, engine.ErrInvalid))}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first error
	ids := make([]string, n)
	for i := range n {
		wg.Add(1)
		err := s.TriggerAsync(ctx, Trigger{App: q.App, Job: q.Job, Params: q.Params, Key: q.Key, Delay: time.Duration(q.DelayMS) * time.Millisecond, Lane: workflow.Lane(q.Lane)}, func(id int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ids[i] = strconv.FormatInt(id, 10)
			case first == nil:
				first = err
			}
			wg.Done()
		})
		if err != nil {
			wg.Done()
			mu.Lock()
			first = err
			mu.Unlock()
			break
		}
	}
	wg.Wait()
	// Those that are stored are named even if others are not, so that a caller who tries
	// again asks only for the rest.
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	out := api.StartReply{IDs: ids, Error: apiError(first)}
	if len(ids) > 0 {
		out.ID, _ = strconv.ParseInt(ids[0], 10, 64) // written a moment ago
	}
	return out
}

func (s *Server) callSaveJob(ctx context.Context, q api.SaveJobRequest) api.SaveJobReply {
	var spec workflow.Spec
	if err := json.Unmarshal(q.Spec, &spec); err != nil {
		return api.SaveJobReply{Error: &api.Error{Code: "invalid", Message: "spec: " + err.Error()}}
	}
	var when workflow.Schedule
	if len(q.Schedule) > 0 {
		if err := strictJSON(q.Schedule, &when); err != nil {
			return api.SaveJobReply{Error: &api.Error{Code: "invalid", Message: "schedule: " + err.Error()}}
		}
	}
	job, err := s.SaveJobDef(ctx, JobDef{App: q.App, Name: q.Name, Title: q.Title, Spec: spec, Schedule: when, Disabled: q.Disabled})
	if err != nil {
		return api.SaveJobReply{Error: apiError(err)}
	}
	return api.SaveJobReply{ID: job.ID, Version: job.Version}
}

func (s *Server) callStop(ctx context.Context, q api.StopRequest) api.StopReply {
	if q.Workflow != 0 {
		return api.StopReply{Error: apiError(s.StopWorkflow(ctx, q.Workflow))}
	}
	return api.StopReply{Error: apiError(s.StopInstance(ctx, q.Instance))}
}

func (s *Server) callSaveWorkflow(ctx context.Context, q api.SaveWorkflowRequest) api.SaveWorkflowReply {
	d, err := workflow.Parse(q.File, []byte(q.Document))
	if err != nil {
		return api.SaveWorkflowReply{Error: &api.Error{Code: "invalid", Message: err.Error()}}
	}
	w, err := s.SaveWorkflow(ctx, d)
	if err != nil {
		return api.SaveWorkflowReply{Error: apiError(err)}
	}
	return api.SaveWorkflowReply{ID: w.ID, Version: w.Version}
}

func (s *Server) callSignal(ctx context.Context, q api.SignalRequest) api.StopReply {
	return api.StopReply{Error: apiError(s.Signal(ctx, q.Workflow, Signal{Name: q.Name, Payload: q.Payload, By: q.By, Request: q.Request}))}
}

func (s *Server) callApprove(ctx context.Context, q api.ApproveRequest) api.StopReply {
	return api.StopReply{Error: apiError(s.Approve(ctx, q.Workflow, Approval{
		Node: q.Node, Reject: q.Reject, By: q.By, Comment: q.Comment, Roles: q.Roles, Request: q.Request,
	}))}
}

func (s *Server) callWorkflow(ctx context.Context, q api.WorkflowRequest) api.StopReply {
	var err error
	switch q.Order {
	case "pause":
		err = s.PauseWorkflow(ctx, q.Workflow)
	case "resume":
		err = s.ResumeWorkflow(ctx, q.Workflow)
	case "retry":
		err = s.RetryWorkflow(ctx, q.Workflow)
	default:
		err = fmt.Errorf("order %q: it must be pause, resume or retry: %w", q.Order, engine.ErrInvalid)
	}
	return api.StopReply{Error: apiError(err)}
}

func (s *Server) callStatus(ctx context.Context, q api.StatusRequest) api.StatusReply {
	switch {
	case q.Workflow != 0:
		return s.workflowStatus(ctx, q.Workflow)
	case q.Instance != 0:
		in, err := s.cfg.Store.Instance(ctx, q.Instance)
		if err != nil {
			return api.StatusReply{Error: apiError(err)}
		}
		return api.StatusReply{Status: in.Status.String(), Text: in.Error, Result: in.Result}
	default:
		app, err := s.cfg.Store.AppByName(ctx, q.App)
		if err != nil {
			return api.StatusReply{Error: apiError(err)}
		}
		counts, err := s.cfg.Store.CountInstances(ctx, app.ID)
		if err != nil {
			return api.StatusReply{Error: apiError(err)}
		}
		out := api.StatusReply{Counts: map[string]int64{}}
		for st, n := range counts {
			out.Counts[st.String()] = n
		}
		return out
	}
}

func (s *Server) workflowStatus(ctx context.Context, id int64) api.StatusReply {
	w, err := s.cfg.Store.WorkflowInstance(ctx, id)
	if err != nil {
		return api.StatusReply{Error: apiError(err)}
	}
	out := api.StatusReply{Status: w.Status.String(), Text: w.Error, Result: w.Result}
	nodes, err := s.cfg.Store.Nodes(ctx, id)
	if err != nil {
		return api.StatusReply{Error: apiError(err)}
	}
	for i, n := range nodes {
		if i+1 < len(nodes) && nodes[i+1].Node == n.Node {
			continue // an earlier attempt of it
		}
		ns := api.NodeStatus{
			Node: n.Node, Status: n.Status.String(), Attempt: n.Attempt, Instance: n.Instance, Nested: n.Child, DueAt: n.DueAt, Error: n.Error, Result: n.Result,
		}
		if n.Instance != 0 {
			runs, err := s.cfg.Store.MapRuns(ctx, n.Instance)
			if err != nil {
				return api.StatusReply{Error: apiError(err)}
			}
			if len(runs) > 0 {
				r := runs[len(runs)-1]
				ns.Total, ns.Done, ns.Failed = r.Total, r.Succeeded, r.Failed
			}
		}
		out.Nodes = append(out.Nodes, ns)
	}
	return out
}
