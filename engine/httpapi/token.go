package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

func tokenBody(t *engine.Token) api.Token {
	return api.Token{
		ID: t.ID, User: t.User, Name: t.Name, Permissions: t.Permissions, Apps: t.Apps,
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, UsedAt: t.UsedAt, RevokedAt: t.RevokedAt,
	}
}

// ByNumber pages through what is listed by id, oldest first.
type ByNumber struct {
	After string `query:"after" maxLength:"20" doc:"The last id of the page before."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

func (p ByNumber) after() (int64, error) {
	if p.After == "" {
		return 0, nil
	}
	return id("after", p.After)
}

func (a *API) listTokens(ctx context.Context, user int64, p ByNumber) (*bodyOf[list[api.Token]], error) {
	after, err := p.after()
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Store.Tokens(ctx, user, after, p.Limit+1)
	if err != nil {
		return nil, err
	}
	return body(pageOf(rows, p.Limit, func(t *engine.Token) string { return strconv.FormatInt(t.ID, 10) }, tokenBody)), nil
}

// newToken makes a token of the user and shows it.
func (a *API) newToken(ctx context.Context, u *engine.User, in api.NewToken) (*bodyOf[api.Token], error) {
	days := in.Days
	if days == 0 {
		days = 90
	}
	if days < 0 || days > 3660 {
		return nil, fmt.Errorf("days %d: 1 to 366, unless the server says otherwise: %w", days, engine.ErrInvalid)
	}
	id, err := a.cfg.Server.NewID()
	if err != nil {
		return nil, err
	}
	now := a.now()
	t, c, err := a.cfg.Tokens.NewToken(u, principalOf(ctx).User, in.Name, in.Permissions, in.Apps, id, random(), now, now+int64(days)*(24*time.Hour).Milliseconds())
	if err != nil {
		return nil, err
	}
	out := tokenBody(&t)
	// Nothing that is about a token is masked for the name of its noun.
	if err := a.cfg.Store.SaveToken(ctx, t, a.recorded(ctx, doNewToken, tokenTarget(t.ID), nil, map[string]any{
		"user": u.Name, "name": t.Name, "permissions": t.Permissions, "apps": t.Apps, "expires_at": t.ExpiresAt,
	})); err != nil {
		return nil, err
	}
	out.Secret = c.Text()
	return body(out), nil
}

func tokenTarget(id int64) string { return "token:" + strconv.FormatInt(id, 10) }

func (a *API) tokenRoutes() {
	route(a, op{
		id: "list-own-tokens", method: http.MethodGet, path: "/me/tokens", title: "The own tokens", perm: access.SelfRead, tag: "identity",
	}, func(ctx context.Context, in *ByNumber) (*bodyOf[list[api.Token]], error) {
		return a.listTokens(ctx, principalOf(ctx).User, *in)
	})
	route(a, op{
		id: "create-own-token", method: http.MethodPost, path: "/me/tokens", title: "Make a token; its secret is shown this once",
		about: "A token may what its user may, as far as its permissions and apps go, and never gives rights away.",
		perm:  access.SelfManage, tag: "identity", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct{ Body api.NewToken }) (*bodyOf[api.Token], error) {
		u, err := a.self(ctx)
		if err != nil {
			return nil, err
		}
		if u.MustChange {
			return nil, fmt.Errorf("change your password first: %w", engine.ErrForbidden)
		}
		return a.newToken(ctx, u, in.Body)
	})
	route(a, op{
		id: "revoke-own-token", method: http.MethodDelete, path: "/me/tokens/{id}", title: "Revoke one of the own tokens", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *InID) (*nothing, error) {
		return nil, a.revoke(ctx, in.ID, principalOf(ctx).User)
	})
	route(a, op{
		id: "list-tokens", method: http.MethodGet, path: "/tokens", title: "Everybody's tokens", perm: access.TokensManage, tag: "users",
	}, func(ctx context.Context, in *struct {
		ByNumber
		User string `query:"user" maxLength:"128" doc:"Of this user only, by name."`
	},
	) (*bodyOf[list[api.Token]], error) {
		of := int64(0)
		if in.User != "" {
			u, err := a.cfg.Store.UserByName(ctx, in.User)
			if err != nil {
				return nil, gone("user", in.User, err)
			}
			of = u.ID
		}
		return a.listTokens(ctx, of, in.ByNumber)
	})
	route(a, op{
		id: "create-token", method: http.MethodPost, path: "/users/{user}/tokens", title: "Make a token of a service; its secret is shown this once",
		perm: access.TokensManage, tag: "users", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct {
		InUser
		Body api.NewToken
	},
	) (*bodyOf[api.Token], error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		if u.Kind != engine.UserService {
			return nil, fmt.Errorf("%s is a person: people make their own tokens: %w", u.Name, engine.ErrForbidden)
		}
		return a.newToken(ctx, u, in.Body)
	})
	route(a, op{
		id: "revoke-token", method: http.MethodDelete, path: "/tokens/{id}", title: "Revoke anybody's token", perm: access.TokensManage, tag: "users",
	}, func(ctx context.Context, in *InID) (*nothing, error) {
		return nil, a.revoke(ctx, in.ID, 0)
	})
}

// revoke ends a token, of that user if it is not 0.
func (a *API) revoke(ctx context.Context, text string, of int64) error {
	n, err := id("token", text)
	if err != nil {
		return err
	}
	t, err := a.cfg.Store.Token(ctx, n)
	if err == nil && of != 0 && t.User != of {
		err = engine.ErrNotFound
	}
	if err != nil {
		return gone("token", text, err)
	}
	return a.cfg.Store.RevokeToken(ctx, n, a.now(), a.recorded(ctx, doRevoke, tokenTarget(n), nil, nil))
}
