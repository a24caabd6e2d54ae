package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// firstLoginTTL is how long a new or reset user has to log in.
const firstLoginTTL = 72 * time.Hour

// InUser names a user in the path.
type InUser struct {
	User string `path:"user" maxLength:"128" doc:"The user's name."`
}

func userBody(u *engine.User) api.User {
	return api.User{
		ID: u.ID, Name: u.Name, Title: u.Title, Email: u.Email, Kind: string(u.Kind), Disabled: u.Disabled, MustChange: u.MustChange,
		SecondFactor: len(u.TOTP) > 0, LoginAt: u.LoginAt, Version: u.Version, CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt,
	}
}

func (a *API) userNamed(ctx context.Context, name string) (*engine.User, error) {
	u, err := a.cfg.Store.UserByName(ctx, name)
	return u, gone("user", engine.CutText(name, engine.MaxUserName), err)
}

func (a *API) userRoutes() {
	route(a, op{
		id: "list-users", method: http.MethodGet, path: "/users", title: "All users, by name", perm: access.UsersRead, tag: "users",
	}, func(ctx context.Context, in *struct {
		After string `query:"after" maxLength:"128" doc:"The last name of the page before."`
		Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
	},
	) (*bodyOf[list[api.User]], error) {
		rows, err := a.cfg.Store.Users(ctx, in.After, in.Limit+1)
		if err != nil {
			return nil, err
		}
		return body(pageOf(rows, in.Limit, func(u *engine.User) string { return u.Name }, userBody)), nil
	})
	route(a, op{
		id: "create-user", method: http.MethodPost, path: "/users", title: "Make a user, without roles",
		about: "A person gets the password, to be changed at the first login, or a one-time login code, shown this once. A service logs in by tokens alone.",
		perm:  access.UsersManage, tag: "users", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct{ Body api.NewUser }) (*bodyOf[api.User], error) {
		return a.createUser(ctx, in.Body)
	})
	route(a, op{
		id: "get-user", method: http.MethodGet, path: "/users/{user}", title: "A user", perm: access.UsersRead, tag: "users",
	}, func(ctx context.Context, in *InUser) (*versioned[api.User], error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		return &versioned[api.User]{ETag: etag(u.Version), Body: userBody(u)}, nil
	})
	route(a, op{
		id: "save-user", method: http.MethodPut, path: "/users/{user}", title: "Change a user, or disable it", about: "Disabling ends the sessions; tokens are good no more.",
		perm: access.UsersManage, tag: "users",
	}, func(ctx context.Context, in *struct {
		InUser
		IfMatch string `header:"If-Match"`
		Body    api.ChangeUser
	},
	) (*versioned[api.User], error) {
		u, err := a.userAt(ctx, in.User, in.IfMatch)
		if err != nil {
			return nil, err
		}
		before := userBody(u)
		u.Title, u.Email, u.Disabled, u.UpdatedAt = in.Body.Title, in.Body.Email, in.Body.Disabled, a.now()
		saved, err := a.cfg.Store.SaveUser(ctx, *u, a.cfg.Policy.CheckHolders, a.recorded(ctx, doSaveUser, userTarget(u.Name), changeOf(&before), in.Body))
		if err != nil {
			return nil, err
		}
		return &versioned[api.User]{ETag: etag(saved.Version), Body: userBody(saved)}, nil
	})
	route(a, op{
		id: "reset-user", method: http.MethodPost, path: "/users/{user}/reset", title: "Take away what a user logs in with, and make a one-time login code",
		about: "The password and the second factor go, all sessions end, all tokens are revoked.", perm: access.UsersManage, tag: "users",
	}, func(ctx context.Context, in *InUser) (*bodyOf[api.User], error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		return a.resetUser(ctx, u)
	})
	route(a, op{
		id: "end-sessions", method: http.MethodDelete, path: "/users/{user}/sessions", title: "End all sessions of a user", perm: access.UsersManage, tag: "users",
	}, func(ctx context.Context, in *InUser) (*nothing, error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		return nil, a.cfg.Store.DeleteSessions(ctx, u.ID, a.now(), a.recorded(ctx, doSessions, userTarget(u.Name), nil, nil))
	})
	route(a, op{
		id: "get-roles", method: http.MethodGet, path: "/users/{user}/roles", title: "The roles of a user", perm: access.UsersRead, tag: "users",
	}, func(ctx context.Context, in *InUser) (*versioned[api.SetRoles], error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		roles, err := a.cfg.Store.RoleBindings(ctx, u.ID)
		return &versioned[api.SetRoles]{ETag: etag(u.Version), Body: api.SetRoles{Roles: roleBodies(roles)}}, err
	})
	route(a, op{
		id: "set-roles", method: http.MethodPut, path: "/users/{user}/roles", title: "Set all roles of a user", about: "The user's sessions end.",
		perm: access.RolesManage, tag: "users",
	}, func(ctx context.Context, in *struct {
		InUser
		IfMatch string `header:"If-Match"`
		Body    api.SetRoles
	},
	) (*versioned[api.SetRoles], error) {
		u, err := a.userAt(ctx, in.User, in.IfMatch)
		if err != nil {
			return nil, err
		}
		version, roles, err := a.bind(ctx, u, func([]engine.RoleBinding) []engine.RoleBinding { return bindings(u.ID, in.Body.Roles, a.now()) })
		return &versioned[api.SetRoles]{ETag: etag(version), Body: api.SetRoles{Roles: roleBodies(roles)}}, err
	})
}

// changeOf is what of a user is changed by save-user.
func changeOf(u *api.User) api.ChangeUser {
	return api.ChangeUser{Title: u.Title, Email: u.Email, Disabled: u.Disabled}
}

// userAt is the user of that name, at the version that the caller has seen if it says so.
func (a *API) userAt(ctx context.Context, name, ifMatch string) (*engine.User, error) {
	version, err := expected(ifMatch)
	if err != nil {
		return nil, err
	}
	u, err := a.userNamed(ctx, name)
	if err == nil && version != 0 && u.Version != version {
		err = fmt.Errorf("user %s is at version %d, not %d: read it again: %w", u.Name, u.Version, version, engine.ErrConflict)
	}
	return u, err
}

func (a *API) createUser(ctx context.Context, in api.NewUser) (*bodyOf[api.User], error) {
	if err := engine.CheckUserName(in.Name); err != nil {
		return nil, err
	}
	now := a.now()
	id, err := a.cfg.Server.NewID()
	if err != nil {
		return nil, err
	}
	u := engine.User{ID: id, Name: in.Name, Title: in.Title, Email: in.Email, Kind: engine.UserPerson, MustChange: true, CreatedAt: now, UpdatedAt: now}
	switch {
	case in.Service && in.Password != "":
		return nil, fmt.Errorf("a service has no password: %w", engine.ErrInvalid)
	case in.Service:
		u.Kind, u.MustChange = engine.UserService, false
	case in.Password != "":
		if err := a.cfg.Passwords.CheckPassword(in.Password, in.Name); err != nil {
			return nil, err
		}
		if u.Password, err = a.hash(ctx, in.Password); err != nil {
			return nil, err
		}
		u.PasswordAt = now
	}
	saved, err := a.cfg.Store.SaveUser(ctx, u, nil, a.recorded(ctx, doNewUser, userTarget(u.Name), nil,
		map[string]any{"name": u.Name, "title": u.Title, "email": u.Email, "kind": u.Kind}))
	if err != nil {
		return nil, err
	}
	out := userBody(saved)
	if !in.Service && in.Password == "" {
		c, err := a.code(ctx, engine.CodeLogin, saved.ID, firstLoginTTL)
		if err != nil {
			return nil, err
		}
		out.Code = c.Text()
	}
	return body(out), nil
}

func (a *API) resetUser(ctx context.Context, u *engine.User) (*bodyOf[api.User], error) {
	if u.Kind != engine.UserPerson || u.Issuer != "" {
		return nil, fmt.Errorf("%s does not log in here: %w", u.Name, engine.ErrConflict)
	}
	now := a.now()
	if len(u.TOTP) > 0 {
		if err := a.cfg.Store.SetTOTP(ctx, u.ID, nil, u.TOTPStep, now, a.recorded(ctx, doNoFactor, userTarget(u.Name), nil, nil)); err != nil {
			return nil, err
		}
	}
	if err := a.cfg.Store.SetPassword(ctx, u.ID, "", true, now, a.recorded(ctx, doResetUser, userTarget(u.Name), nil, nil)); err != nil {
		return nil, err
	}
	for after := int64(0); ; {
		tokens, err := a.cfg.Store.Tokens(ctx, u.ID, after, 500)
		if err != nil {
			return nil, err
		}
		for _, t := range tokens {
			if t.RevokedAt == 0 {
				if err := a.cfg.Store.RevokeToken(ctx, t.ID, now, a.recorded(ctx, doRevoke, tokenTarget(t.ID), nil, nil)); err != nil {
					return nil, err
				}
			}
			after = t.ID
		}
		if len(tokens) < 500 {
			break
		}
	}
	c, err := a.code(ctx, engine.CodeLogin, u.ID, firstLoginTTL)
	if err != nil {
		return nil, err
	}
	saved, err := a.cfg.Store.User(ctx, u.ID)
	if err != nil {
		return nil, err
	}
	out := userBody(saved)
	out.Code = c.Text()
	return body(out), nil
}

// bindings are roles as somebody asks for them.
func bindings(user int64, roles []api.RoleBinding, at int64) []engine.RoleBinding {
	out := make([]engine.RoleBinding, 0, len(roles))
	for _, r := range roles {
		out = append(out, engine.RoleBinding{User: user, Role: engine.Role(r.Role), Scope: strings.TrimSpace(r.Scope), At: at})
	}
	return out
}

// bind brings the roles of a user to what change makes of them, if the caller may.
func (a *API) bind(ctx context.Context, u *engine.User, change func([]engine.RoleBinding) []engine.RoleBinding) (int32, []engine.RoleBinding, error) {
	old, err := a.cfg.Store.RoleBindings(ctx, u.ID)
	if err != nil {
		return 0, nil, err
	}
	fresh := change(old)
	for i := range fresh { // since when somebody has a role does not change by having it still
		for _, o := range old {
			if o.Role == fresh[i].Role && o.Scope == fresh[i].Scope {
				fresh[i].At = o.At
			}
		}
	}
	p := principalOf(ctx)
	if err := a.cfg.Policy.MayBind(p, u.ID, old, fresh); err != nil {
		return 0, nil, err
	}
	version, err := a.cfg.Store.SetRoleBindings(ctx, u.ID, u.Version, fresh, a.now(), a.cfg.Policy.CheckHolders,
		a.recorded(ctx, doRoles, userTarget(u.Name), roleBodies(old), roleBodies(fresh)))
	return version, fresh, err
}
