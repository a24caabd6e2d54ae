package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// me is what a caller may know of itself.
func (a *API) me(p access.Principal, u *engine.User, roles []engine.RoleBinding) api.Me {
	out := api.Me{
		User: u.ID, Name: u.Name, Title: u.Title, Email: u.Email, ByToken: byToken(p), MustChange: u.MustChange, SecondFactor: len(u.TOTP) > 0,
		Roles: roleBodies(roles), System: []string{}, Apps: map[string][]string{},
	}
	for _, perm := range access.Permissions() {
		switch {
		case perm == access.Public || perm == access.SelfRead || perm == access.SelfManage:
		case perm.OfApp():
			if scopes := a.cfg.Policy.Scopes(p, perm); len(scopes) > 0 {
				out.Apps[string(perm)] = scopes
			}
		case a.cfg.Policy.Allow(p, perm, "") == nil:
			out.System = append(out.System, string(perm))
		}
	}
	return out
}

func byToken(p access.Principal) bool {
	var r engine.AuditRecord
	p.Actor(&r)
	return r.ActorKind == engine.ActorToken
}

func roleBodies(roles []engine.RoleBinding) []api.RoleBinding {
	out := make([]api.RoleBinding, 0, len(roles))
	for _, r := range roles {
		out = append(out, api.RoleBinding{Role: string(r.Role), Scope: r.Scope, Since: r.At})
	}
	return out
}

// self is the caller as stored.
func (a *API) self(ctx context.Context) (*engine.User, error) {
	return a.cfg.Store.User(ctx, principalOf(ctx).User)
}

// person is the caller in a session; tokens have no password and no sessions.
func (a *API) person(ctx context.Context) (*engine.User, error) {
	u, err := a.self(ctx)
	if err == nil && u.Issuer != "" {
		err = fmt.Errorf("you log in at %s: change it there: %w", u.Issuer, engine.ErrConflict)
	}
	return u, err
}

func (a *API) meRoutes() {
	route(a, op{
		id: "get-me", method: http.MethodGet, path: "/me", title: "Who the caller is, and what it may do", perm: access.SelfRead, tag: "identity",
	}, func(ctx context.Context, _ *nothing) (*bodyOf[api.Me], error) {
		u, err := a.self(ctx)
		if err != nil {
			return nil, err
		}
		roles, err := a.cfg.Store.RoleBindings(ctx, u.ID)
		return body(a.me(principalOf(ctx), u, roles)), err
	})
	route(a, op{
		id: "change-password", method: http.MethodPut, path: "/me/password", title: "Change the own password",
		about: "All sessions end; the caller gets a new one.", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *struct{ Body api.ChangePassword }) (*withCookie[api.Me], error) {
		u, err := a.person(ctx)
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Passwords.CheckPassword(in.Body.New, u.Name); err != nil {
			return nil, err
		}
		if u, err = a.prove(ctx, u, proof{password: in.Body.Old, code: in.Body.Code, noPassword: true}); err != nil {
			return nil, a.unproved(ctx, doPassword, err)
		}
		if in.Body.New == in.Body.Old {
			return nil, fmt.Errorf("the new password is the old one: %w", engine.ErrInvalid)
		}
		encoded, err := a.hash(ctx, in.Body.New)
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Store.SetPassword(ctx, u.ID, encoded, false, a.now(), a.recorded(ctx, doPassword, userTarget(u.Name), nil, nil)); err != nil {
			return nil, err
		}
		if u, err = a.self(ctx); err != nil {
			return nil, err
		}
		return a.enter(ctx, u, doLogin)
	})
	route(a, op{
		id: "list-own-sessions", method: http.MethodGet, path: "/me/sessions", title: "The own sessions", perm: access.SelfRead, tag: "identity",
	}, func(ctx context.Context, _ *nothing) (*bodyOf[list[api.Session]], error) {
		p := principalOf(ctx)
		rows, err := a.cfg.Store.Sessions(ctx, p.User)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, len(rows), nil, func(s *engine.Session) api.Session {
			return api.Session{
				ID: s.ID, Current: s.ID == p.Credential && !byToken(p), From: s.From, Agent: s.Agent,
				CreatedAt: s.CreatedAt, SeenAt: s.SeenAt, ExpiresAt: s.ExpiresAt,
			}
		})), nil
	})
	route(a, op{
		id: "end-own-session", method: http.MethodDelete, path: "/me/sessions/{id}", title: "End one of the own sessions", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *InID) (*nothing, error) {
		n, err := id("session", in.ID)
		if err != nil {
			return nil, err
		}
		p := principalOf(ctx)
		return nil, gone("session", in.ID, a.cfg.Store.DeleteSession(ctx, p.User, n, a.recorded(ctx, doSessions, "session:"+in.ID, nil, nil)))
	})
	route(a, op{
		id: "end-own-sessions", method: http.MethodDelete, path: "/me/sessions", title: "End all own sessions, this one too", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, _ *nothing) (*nothing, error) {
		p := principalOf(ctx)
		return nil, a.cfg.Store.DeleteSessions(ctx, p.User, a.now(), a.recorded(ctx, doSessions, userTarget(p.Name), nil, nil))
	})
}

// unproved records that somebody in a session could not show who it is.
func (a *API) unproved(ctx context.Context, action string, err error) error {
	if status(err) != http.StatusUnauthorized {
		return err
	}
	p := principalOf(ctx)
	a.append(ctx, a.record(ctx, action, userTarget(p.Name), engine.OutcomeFailed, nil, nil))
	if errors.Is(err, errLogin) {
		return &plainError{"the password is wrong", engine.ErrForbidden} // the session goes on
	}
	return &plainError{err.Error(), engine.ErrForbidden}
}
