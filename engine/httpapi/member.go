package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

func (a *API) memberRoutes() {
	route(a, op{
		id: "list-members", method: http.MethodGet, path: "/apps/{app}/members", title: "Who holds which role in an app",
		about: "Roles over the whole system reach every app and are not listed.", perm: access.MembersRead, tag: "members",
	}, func(ctx context.Context, in *struct {
		InApp
		ByNumber
	},
	) (*bodyOf[list[api.Member]], error) {
		after, err := in.after()
		if err != nil {
			return nil, err
		}
		return a.members(ctx, in.App, after, in.Limit)
	})
	route(a, op{
		id: "set-member", method: http.MethodPut, path: "/apps/{app}/members/{user}", title: "Set the roles that a user holds in just this app",
		about: "Roles in wider scopes stay. No role at all takes the user out. The user's sessions end.", perm: access.MembersManage, tag: "members",
	}, func(ctx context.Context, in *struct {
		InApp
		InUser
		Body struct {
			Roles []string `json:"roles" maxItems:"4" enum:"viewer,operator,editor,app-admin"`
		}
	},
	) (*bodyOf[api.Member], error) {
		u, err := a.userNamed(ctx, in.User)
		if err != nil {
			return nil, err
		}
		_, roles, err := a.bind(ctx, u, func(old []engine.RoleBinding) []engine.RoleBinding {
			fresh := slices.DeleteFunc(slices.Clone(old), func(b engine.RoleBinding) bool { return b.Scope == in.App })
			for _, role := range in.Body.Roles {
				fresh = append(fresh, engine.RoleBinding{User: u.ID, Role: engine.Role(role), Scope: in.App, At: a.now()})
			}
			return fresh
		})
		if err != nil {
			return nil, err
		}
		scopes := access.ScopesOf(in.App)
		roles = slices.DeleteFunc(roles, func(b engine.RoleBinding) bool { return !slices.Contains(scopes, b.Scope) })
		return body(api.Member{User: u.ID, Name: u.Name, Title: u.Title, Roles: roleBodies(roles)}), nil
	})
}

// members lists users by id, each with its roles that reach the app.
func (a *API) members(ctx context.Context, app string, after int64, limit int) (*bodyOf[list[api.Member]], error) {
	scopes := access.ScopesOf(app)
	out := list[api.Member]{Items: []api.Member{}}
	from := engine.RoleBinding{User: after + 1}
	for {
		rows, err := a.cfg.Store.RoleBindingsIn(ctx, scopes, from, 500)
		if err != nil {
			return nil, err
		}
		for _, b := range rows {
			last := len(out.Items) - 1
			if last < 0 || out.Items[last].User != b.User {
				if len(out.Items) == limit {
					out.Next = strconv.FormatInt(out.Items[last].User, 10)
					return body(out), nil
				}
				u, err := a.cfg.Store.User(ctx, b.User)
				if err != nil {
					return nil, err
				}
				out.Items = append(out.Items, api.Member{User: u.ID, Name: u.Name, Title: u.Title})
				last++
			}
			out.Items[last].Roles = append(out.Items[last].Roles, roleBodies([]engine.RoleBinding{b})...)
			from = b
		}
		if len(rows) < 500 {
			return body(out), nil
		}
	}
}
