package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// setupTTL is how long a setup code is good for.
const setupTTL = 24 * time.Hour

// SetupCode makes a code by which the first user is made, once. There is none where there is a
// user already: ok is false then.
func (a *API) SetupCode(ctx context.Context) (code access.Credential, ok bool, err error) {
	there, err := a.cfg.Store.AnyUser(ctx)
	if err != nil || there {
		return code, false, err
	}
	code, err = a.code(ctx, engine.CodeSetup, 0, setupTTL)
	return code, err == nil, err
}

func (a *API) setupRoutes() {
	route(a, op{
		id: "get-setup", method: http.MethodGet, path: "/setup", title: "Whether there is no user yet", perm: access.Public, tag: "identity",
	}, func(ctx context.Context, _ *nothing) (*bodyOf[api.SetupState], error) {
		there, err := a.cfg.Store.AnyUser(ctx)
		return body(api.SetupState{Needed: !there}), err
	})
	route(a, op{
		id: "setup", method: http.MethodPost, path: "/setup", title: "Make the first user, with the code that the server has printed, and log in",
		perm: access.Public, tag: "identity", guessing: true, status: http.StatusCreated,
	}, func(ctx context.Context, in *struct{ Body api.Setup }) (*withCookie[api.Me], error) {
		u, err := a.setup(ctx, in.Body)
		if err != nil {
			if errors.Is(err, access.ErrUnauthenticated) {
				a.append(ctx, a.record(ctx, doSetup, "", engine.OutcomeFailed, nil, nil))
			}
			return nil, err
		}
		return a.enter(ctx, u, doLogin)
	})
}

func (a *API) setup(ctx context.Context, in api.Setup) (*engine.User, error) {
	there, err := a.cfg.Store.AnyUser(ctx)
	if err != nil {
		return nil, err
	}
	if there {
		return nil, fmt.Errorf("there is a user already: log in, or ask whoever manages users: %w", engine.ErrConflict)
	}
	c, err := access.ParseCredential(in.Code)
	if err != nil || c.Kind() != access.KindSetup {
		return nil, errCode
	}
	if err := engine.CheckUserName(in.Name); err != nil {
		return nil, err
	}
	if err := a.cfg.Passwords.CheckPassword(in.Password, in.Name); err != nil {
		return nil, err
	}
	encoded, err := a.hash(ctx, in.Password)
	if err != nil {
		return nil, err
	}
	id, err := a.cfg.Server.NewID()
	if err != nil {
		return nil, err
	}
	now := a.now()
	role := engine.RoleSystemAdmin
	if a.cfg.Policy.SeparateDuties {
		role = engine.RoleSecurityAdmin // who makes the others
	}
	u := engine.User{
		ID: id, Name: in.Name, Title: in.Title, Kind: engine.UserPerson, Password: encoded, PasswordAt: now, CreatedAt: now, UpdatedAt: now,
	}
	made, err := a.cfg.Store.FirstUser(ctx, c.ID(), c.Hash(), u, []engine.RoleBinding{{Role: role, At: now}}, now,
		a.recorded(ctx, doSetup, userTarget(u.Name), nil, map[string]any{"name": u.Name, "role": role}))
	return made, wrongCode(err)
}
