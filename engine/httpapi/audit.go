package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

func auditBody(r *engine.AuditRecord) api.AuditRecord {
	return api.AuditRecord{
		Seq: r.Seq, At: r.At, ActorKind: string(r.ActorKind), Actor: r.Actor, ActorName: r.ActorName, Credential: r.Credential, Action: r.Action,
		App: r.App, Target: r.Target, Outcome: string(r.Outcome), From: r.From, Request: r.Request, Before: string(r.Before), After: string(r.After),
		Prev: hex.EncodeToString(r.Prev[:]), Hash: hex.EncodeToString(r.Hash[:]),
	}
}

// InAudit picks records of the audit log.
type InAudit struct {
	ByID
	Target string `query:"target" maxLength:"255" doc:"Such as user:ann or job:billing/import."`
	Action string `query:"action" maxLength:"63"`
	From   int64  `query:"from" minimum:"0" doc:"Epoch ms."`
	To     int64  `query:"to" minimum:"0" doc:"Epoch ms, included."`
}

func (a *API) auditPage(ctx context.Context, in InAudit, actor, app int64) (*bodyOf[list[api.AuditRecord]], error) {
	before, err := in.before()
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Store.AuditRecords(ctx, engine.AuditQuery{
		Before: before, Actor: actor, App: app, Target: in.Target, Action: in.Action, From: in.From, To: in.To, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	return body(pageOf(rows, in.Limit, func(r *engine.AuditRecord) string { return strconv.FormatInt(r.Seq, 10) }, auditBody)), nil
}

func (a *API) auditRoutes() {
	route(a, op{
		id: "list-audit", method: http.MethodGet, path: "/audit", title: "The audit log, newest first", perm: access.AuditRead, tag: "audit",
	}, func(ctx context.Context, in *struct {
		InAudit
		Actor string `query:"actor" maxLength:"128" doc:"What this user did, by name."`
		App   string `query:"app" maxLength:"63" doc:"What was done to this app."`
	},
	) (*bodyOf[list[api.AuditRecord]], error) {
		var actor, app int64
		if in.Actor != "" {
			u, err := a.userNamed(ctx, in.Actor)
			if err != nil {
				return nil, err
			}
			actor = u.ID
		}
		if in.App != "" {
			var err error
			if app, err = a.appID(ctx, in.App); err != nil {
				return nil, err
			}
		}
		return a.auditPage(ctx, in.InAudit, actor, app)
	})
	route(a, op{
		id: "list-app-audit", method: http.MethodGet, path: "/apps/{app}/audit", title: "What was done to an app, newest first", perm: access.AppAuditRead, tag: "audit",
	}, func(ctx context.Context, in *struct {
		InApp
		InAudit
	},
	) (*bodyOf[list[api.AuditRecord]], error) {
		return a.auditPage(ctx, in.InAudit, 0, requestOf(ctx).app)
	})
	route(a, op{
		id: "verify-audit", method: http.MethodGet, path: "/audit/verify", title: "Check the chain of the audit log",
		about: "Give the hash of a record that you kept elsewhere, and the log is checked to hold that very record.", perm: access.AuditRead, tag: "audit",
	}, func(ctx context.Context, in *struct {
		From  string `query:"from" maxLength:"20" doc:"The first record to check; all if left out."`
		Limit int    `query:"limit" minimum:"1" maximum:"1000000" default:"100000"`
		Pin   string `query:"pin" maxLength:"20" doc:"The number of a record that you know."`
		Hash  string `query:"hash" maxLength:"64" doc:"Its hash, hex."`
	},
	) (*bodyOf[api.AuditCheck], error) {
		first := int64(1)
		if in.From != "" {
			var err error
			if first, err = id("from", in.From); err != nil {
				return nil, err
			}
		}
		var pins []access.AuditPin
		if in.Pin != "" {
			seq, err := id("pin", in.Pin)
			if err != nil {
				return nil, err
			}
			hash, err := hex.DecodeString(in.Hash)
			if err != nil || len(hash) != 32 {
				return nil, fmt.Errorf("hash: the hash of record %d is 64 hexadecimal digits: %w", seq, engine.ErrInvalid)
			}
			pins = append(pins, access.AuditPin{Seq: seq, Hash: [32]byte(hash)})
		}
		return a.verifyAudit(ctx, first, in.Limit, pins)
	})
}

// verifyAudit checks at most limit records from the first on.
func (a *API) verifyAudit(ctx context.Context, first int64, limit int, pins []access.AuditPin) (*bodyOf[api.AuditCheck], error) {
	var start engine.AuditRecord
	if first > 1 {
		// The record before is taken as it is; what it holds of others is not looked at.
		rows, err := a.cfg.Store.AuditAfter(ctx, first-2, 1)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 || rows[0].Seq != first-1 {
			return nil, fmt.Errorf("audit record %d: %w", first-1, engine.ErrNotFound)
		}
		start = rows[0]
	}
	out := api.AuditCheck{From: first}
	last, err := access.VerifyAudit(a.auditFrom(ctx, first-1, limit, &out.More), start, pins...)
	broken := (*access.BrokenError)(nil)
	if err != nil && !errors.As(err, &broken) {
		return nil, err
	}
	out.OK, out.To, out.Hash = err == nil, last.Seq, hex.EncodeToString(last.Hash[:])
	if broken != nil && !(out.More && broken.Seq > last.Seq && broken.Seq > first+int64(limit)-1) {
		out.Broken, out.What = broken.Seq, broken.What
	} else if broken != nil {
		out.OK, out.What = true, "the record that you know lies behind those that were looked at: check more"
	}
	return body(out), nil
}

// auditFrom reads records in their order, at most limit of them; more is set if there are others.
func (a *API) auditFrom(ctx context.Context, after int64, limit int, more *bool) iter.Seq2[engine.AuditRecord, error] {
	return func(yield func(engine.AuditRecord, error) bool) {
		for left := limit; ; {
			rows, err := a.cfg.Store.AuditAfter(ctx, after, min(left+1, 500))
			if err != nil {
				yield(engine.AuditRecord{}, err)
				return
			}
			for _, r := range rows {
				if left == 0 {
					*more = true
					return
				}
				if !yield(r, nil) {
					return
				}
				after = r.Seq
				left--
			}
			if len(rows) == 0 {
				return
			}
		}
	}
}
