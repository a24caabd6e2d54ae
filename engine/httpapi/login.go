package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// withCookie is an answer that hands a session out, or takes it back.
type withCookie[T any] struct {
	Cookie string `header:"Set-Cookie"`
	Body   T
}

// maxSessions bounds the sessions of one user: the oldest go.
const maxSessions = 50

// cookie holds a session; an empty one takes it away.
func (a *API) cookie(text string) string {
	c := &http.Cookie{Name: cookieName(a.cfg.Insecure), Value: text, Path: "/", HttpOnly: true, Secure: !a.cfg.Insecure, SameSite: http.SameSiteStrictMode}
	if text == "" {
		c.MaxAge = -1
	}
	return c.String()
}

func (a *API) loginRoutes() {
	route(a, op{
		id: "login", method: http.MethodPost, path: "/login", title: "Log in with a password, and the second factor if there is one",
		about: "The session comes as a cookie. After some logins that failed the next ones wait, see Retry-After.",
		perm:  access.Public, tag: "identity", guessing: true,
	}, func(ctx context.Context, in *struct{ Body api.Login }) (*withCookie[api.Me], error) {
		u, err := a.login(ctx, in.Body)
		if err != nil {
			return nil, err
		}
		return a.enter(ctx, u, doLogin)
	})
	route(a, op{
		id: "login-by-code", method: http.MethodPost, path: "/login/code", title: "Log in with a one-time code", perm: access.Public, tag: "identity", guessing: true,
	}, func(ctx context.Context, in *struct{ Body api.CodeLogin }) (*withCookie[api.Me], error) {
		u, err := a.loginByCode(ctx, in.Body.Code)
		if err != nil {
			if errors.Is(err, access.ErrUnauthenticated) {
				a.append(ctx, a.record(ctx, doLogin, "code", engine.OutcomeFailed, nil, nil))
			}
			return nil, err
		}
		return a.enter(ctx, u, doLogin)
	})
	route(a, op{
		id: "logout", method: http.MethodPost, path: "/logout", title: "End the session that asks", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, _ *nothing) (*struct {
		Cookie string `header:"Set-Cookie"`
	}, error,
	) {
		p := principalOf(ctx)
		err := a.cfg.Store.DeleteSession(ctx, p.User, p.Credential, a.recorded(ctx, doLogout, userTarget(p.Name), nil, nil))
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return nil, err
		}
		return &struct {
			Cookie string `header:"Set-Cookie"`
		}{a.cookie("")}, nil
	})
}

// login finds the user and holds it to its password. The same work is done, and the same
// answer given, whether there is such a user or not.
func (a *API) login(ctx context.Context, in api.Login) (*engine.User, error) {
	u, err := a.cfg.Store.UserByName(ctx, in.Name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		if err = a.strangers.begin(in.Name, a.now()); err == nil {
			err = a.hashing(ctx, func() { _, _ = a.verify(in.Password, "") }) // what it says is known
			if err == nil {
				err = errLogin
			}
		}
	case err == nil:
		u, err = a.prove(ctx, u, proof{password: in.Password, code: in.Code})
	}
	if errors.Is(err, access.ErrUnauthenticated) {
		target := userTarget(in.Name)
		if engine.CheckUserName(in.Name) != nil {
			target = "user" // what is no name may be a password that slipped
		}
		a.append(ctx, a.record(ctx, doLogin, target, engine.OutcomeFailed, nil, nil))
	}
	return u, err
}

func (a *API) loginByCode(ctx context.Context, text string) (*engine.User, error) {
	c, err := access.ParseCredential(text)
	if err != nil || c.Kind() != access.KindLogin {
		return nil, errCode
	}
	code, err := a.cfg.Store.TakeCode(ctx, c.ID(), engine.CodeLogin, c.Hash(), a.now())
	if err != nil {
		return nil, wrongCode(err)
	}
	u, err := a.cfg.Store.User(ctx, code.User)
	if err == nil && (u.Disabled || u.Kind != engine.UserPerson) {
		err = errCode
	}
	return u, err
}

var errCode = &plainError{"the code is wrong, expired or used", access.ErrUnauthenticated}

func wrongCode(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return errCode
	}
	return err
}

// enter begins a session of a user who has shown who it is.
func (a *API) enter(ctx context.Context, u *engine.User, action string) (*withCookie[api.Me], error) {
	id, err := a.cfg.Server.NewID()
	if err != nil {
		return nil, err
	}
	roles, err := a.cfg.Store.RoleBindings(ctx, u.ID)
	if err != nil {
		return nil, err
	}
	now := a.now()
	if err := a.makeRoom(ctx, u.ID, now); err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	s, c := a.cfg.Sessions.NewSession(u, id, random(), q.from, q.agent, now)
	if u.Password != "" && a.cfg.Passwords.Expired(u.PasswordAt, now) {
		u.MustChange = true
	}
	q.principal = access.OfSession(&s, u, roles)
	err = a.cfg.Store.SaveSession(ctx, s, a.recorded(ctx, action, userTarget(u.Name), nil, nil))
	switch {
	case errors.Is(err, engine.ErrConflict):
		return nil, &plainError{"the password or the roles were changed meanwhile: log in again", access.ErrUnauthenticated}
	case errors.Is(err, engine.ErrForbidden):
		return nil, errLogin
	case err != nil:
		return nil, err
	}
	return &withCookie[api.Me]{a.cookie(c.Text()), a.me(q.principal, u, roles)}, nil
}

// makeRoom deletes what has expired, and the oldest sessions of somebody who has too many.
func (a *API) makeRoom(ctx context.Context, user, now int64) error {
	if _, err := a.cfg.Store.DeleteExpired(ctx, now, 100); err != nil {
		return err
	}
	all, err := a.cfg.Store.Sessions(ctx, user)
	if err != nil {
		return err
	}
	for _, s := range all[:max(len(all)-maxSessions+1, 0)] {
		if err := a.cfg.Store.DeleteSession(ctx, user, s.ID, nil); err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
	}
	return nil
}

// LoginCode makes a code by which the user of that name logs in once, within ttl: for the
// command line of a server, whose owner may do everything.
func (a *API) LoginCode(ctx context.Context, name string, ttl time.Duration) (access.Credential, error) {
	u, err := a.cfg.Store.UserByName(ctx, name)
	if err != nil {
		return access.Credential{}, err
	}
	r := engine.AuditRecord{At: a.now(), ActorKind: engine.ActorSystem, Action: doLoginCode, Target: userTarget(name), Outcome: engine.OutcomeDone}
	c, err := a.code(ctx, engine.CodeLogin, u.ID, ttl)
	if err != nil {
		return c, err
	}
	a.append(ctx, r)
	return c, nil
}

// code stores a new one-time code.
func (a *API) code(ctx context.Context, purpose engine.CodePurpose, user int64, ttl time.Duration) (access.Credential, error) {
	id, err := a.cfg.Server.NewID()
	if err != nil {
		return access.Credential{}, err
	}
	stored, c := access.NewCode(purpose, id, user, random(), a.now(), ttl.Milliseconds())
	return c, a.cfg.Store.SaveCode(ctx, stored)
}

func userTarget(name string) string { return "user:" + name }
