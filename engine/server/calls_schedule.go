package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
)

func (s *Server) callSaveCalendar(ctx context.Context, q api.SaveCalendarRequest) api.SaveCalendarReply {
	c, err := s.SaveCalendar(ctx, q.App, q.Name, q.Calendar)
	if err != nil {
		return api.SaveCalendarReply{Error: apiError(err)}
	}
	return api.SaveCalendarReply{ID: c.ID, Version: c.Version}
}

func (s *Server) callSchedule(ctx context.Context, q api.ScheduleRequest) api.ScheduleReply {
	d := Definition{App: q.App, Job: q.Job, Workflow: q.Workflow}
	var err error
	switch q.Order {
	case "":
	case "pause":
		err = s.PauseSchedule(ctx, d)
	case "resume":
		err = s.ResumeSchedule(ctx, d)
	case "enable", "disable":
		err = s.SetEnabled(ctx, d, q.Order == "enable")
	default:
		err = fmt.Errorf("order %q: it must be pause, resume, enable or disable: %w", q.Order, engine.ErrInvalid)
	}
	if err != nil {
		return api.ScheduleReply{Error: apiError(err)}
	}
	st, err := s.Schedule(ctx, d)
	if err != nil {
		return api.ScheduleReply{Error: apiError(err)}
	}
	out, err := ScheduleBody(st)
	if err != nil {
		return api.ScheduleReply{Error: apiError(err)}
	}
	return out
}

// ScheduleBody is a standing as the contract has it.
func ScheduleBody(st *Standing) (api.ScheduleReply, error) {
	spec, err := json.Marshal(st.Spec)
	if err != nil {
		return api.ScheduleReply{}, fmt.Errorf("encode the schedule: %w", err)
	}
	out := api.ScheduleReply{
		Kind: st.Kind.String(), ID: st.ID, Version: st.Version, Enabled: st.Enabled, Schedule: spec, NextAt: st.NextAt, Open: st.Open,
		Runs: st.Runs, Succeeded: st.Succeeded, Failed: st.Failed, LastID: st.LastID, LastStart: st.LastStart, LastEnd: st.LastEnd,
		P50MS: st.P50, P95MS: st.P95, Window: st.Window,
	}
	if st.Paused() {
		out.PausedAt, out.NextAt = st.PausedAt, 0
	}
	if st.LastStatus != 0 {
		out.LastStatus = st.LastStatus.String()
	}
	return out, nil
}

func (s *Server) callLedger(ctx context.Context, q api.LedgerRequest) api.LedgerReply {
	entries, more, err := s.Ledger(ctx, Definition{App: q.App, Job: q.Job, Workflow: q.Workflow}, q.From, q.To, q.Limit)
	if err != nil {
		return api.LedgerReply{Error: apiError(err)}
	}
	return LedgerBody(entries, more)
}

// LedgerBody are entries of the ledger as the contract has them.
func LedgerBody(entries []LedgerEntry, more bool) api.LedgerReply {
	out := api.LedgerReply{Entries: make([]api.LedgerEntry, 0, len(entries)), More: more}
	for _, e := range entries {
		if f := e.Fired; f != nil {
			out.Entries = append(out.Entries, api.LedgerEntry{
				From: f.At, To: f.At, Count: 1, Instance: f.Instance, FiredAt: f.FiredAt, LateMS: f.FiredAt - f.At, Status: f.Status.String(),
			})
			continue
		}
		k := e.Skip
		out.Entries = append(out.Entries, api.LedgerEntry{From: k.From, To: k.To, Count: k.Count, Skipped: string(k.Reason)})
	}
	return out
}

func (s *Server) callVerify(ctx context.Context, q api.LedgerRequest) api.VerifyReply {
	v, err := s.Verify(ctx, Definition{App: q.App, Job: q.Job, Workflow: q.Workflow}, q.From, q.To)
	if err != nil {
		return api.VerifyReply{Error: apiError(err)}
	}
	return VerifyBody(v)
}

// VerifyBody is a verification as the contract has it.
func VerifyBody(v *Verification) api.VerifyReply {
	return api.VerifyReply{
		From: v.From, To: v.To, Expected: v.Expected, Fired: v.Fired, Skipped: v.Skipped,
		Missing:    api.Times{Count: v.MissingCount, First: v.Missing},
		Doubled:    api.Times{Count: v.DoubledCount, First: v.Doubled},
		Unexpected: api.Times{Count: v.UnexpectedCount, First: v.Unexpected},
		MaxLateMS:  v.MaxLate, P99LateMS: v.P99Late,
	}
}

func (s *Server) callBackfill(ctx context.Context, q api.BackfillRequest) api.BackfillReply {
	times, existed, err := s.Backfill(ctx, Backfill{App: q.App, Job: q.Job, From: q.From, To: q.To, Max: q.Max, DryRun: q.DryRun})
	return api.BackfillReply{Times: times, Existed: existed, Error: apiError(err)}
}

func (s *Server) callCancelKey(ctx context.Context, q api.CancelKeyRequest) api.CancelKeyReply {
	n, err := s.CancelKey(ctx, q.App, q.Job, q.Key)
	return api.CancelKeyReply{Count: n, Error: apiError(err)}
}
