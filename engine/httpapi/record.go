package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

// What is done to who one is has words of its own; all else is called by its permission.
const (
	doLogin     = "login"
	doLogout    = "logout"
	doSetup     = "setup"
	doPassword  = "password.change"
	doFactor    = "second-factor.set"
	doNoFactor  = "second-factor.remove"
	doNewToken  = "tokens.create"
	doRevoke    = "tokens.revoke"
	doNewUser   = "users.create"
	doSaveUser  = "users.change"
	doResetUser = "users.reset"
	doRoles     = "roles.set"
	doSessions  = "sessions.end"
	doLoginCode = "login-code.create"
)

// record is an audit record of what the caller does, with what was before and is after.
func (a *API) record(ctx context.Context, action, target string, outcome engine.Outcome, before, after any) engine.AuditRecord {
	q := requestOf(ctx)
	r := engine.AuditRecord{
		At: a.now(), Action: action, App: q.app, Target: target, Outcome: outcome, From: q.from, Request: q.id,
		Before: a.masked(before), After: a.masked(after),
	}
	q.principal.Actor(&r)
	return r
}

// masked is a value as JSON, with what may be secret masked; nil for nil.
func (a *API) masked(v any) []byte {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil { // what came as JSON, or goes as JSON, is JSON
		return []byte(`"` + access.Mask + `"`)
	}
	return new(access.Masker).JSON(b)
}

// recorded is the record of a change, for the transaction of the change.
func (a *API) recorded(ctx context.Context, action, target string, before, after any) engine.AuditFunc {
	return access.Chain(a.record(ctx, action, target, engine.OutcomeDone, before, after))
}

// done records a change that the server has stored.
func (a *API) done(ctx context.Context, perm access.Permission, target string, before, after any) {
	a.append(ctx, a.record(ctx, string(perm), target, engine.OutcomeDone, before, after))
}

// append adds a record of its own. The log has what the audit log has not.
func (a *API) append(ctx context.Context, r engine.AuditRecord) {
	// What was done is done, whether the caller still waits or not.
	if _, err := a.cfg.Store.AppendAudit(context.WithoutCancel(ctx), access.Chain(r)); err != nil {
		a.cfg.Log.ErrorContext(ctx, "a record of the audit log was lost", "action", r.Action, "target", r.Target, "outcome", r.Outcome, "actor", r.ActorName, "err", err)
	}
}

// denied records what a known caller may not do, a few times a minute.
func (a *API) denied(ctx context.Context, perm access.Permission, app string, err error) {
	p := principalOf(ctx)
	if !p.Known() || errors.Is(err, access.ErrUnauthenticated) || a.denials.take(strconv.FormatInt(p.User, 10), a.clock()) > 0 {
		return
	}
	target := ""
	if app != "" {
		target = "app:" + engine.CutText(app, engine.MaxName)
	}
	a.append(ctx, a.record(ctx, string(perm), target, engine.OutcomeDenied, nil, nil))
}
