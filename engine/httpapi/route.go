package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fanjet/fanjet/engine/access"
)

const prefix = "/api/v1"

// op describes a route.
type op struct {
	id     string // lower case with dashes: what a client's method is called
	method string
	path   string // behind /api/v1
	title  string
	about  string
	perm   access.Permission
	status int // of success; default 200, or 204 without a body
	tag    string
}

// inApp is an input that names the app it is about, in its path.
type inApp interface{ app() string }

// route adds a route. Before the handler runs the caller is looked at: what the table of
// permissions does not allow ends here. A permission on apps is asked for the app of the input;
// a handler whose object is named by an id alone looks by itself, with mayIn.
func route[I, O any](a *API, o op, handler func(ctx context.Context, in *I) (*O, error)) {
	fail := func(format string, args ...any) {
		a.err = append(a.err, fmt.Errorf("route %s %s: "+format, append([]any{o.method, o.path}, args...)...))
	}
	switch {
	case o.perm == "" || !slices.Contains(access.Permissions(), o.perm):
		fail("it declares no permission that exists: %q", string(o.perm))
		return
	case o.id == "" || a.perms[o.id] != "":
		fail("its id %q is missing or taken", o.id)
		return
	}
	a.perms[o.id] = o.perm
	operation := huma.Operation{
		OperationID: o.id, Method: o.method, Path: prefix + o.path, Summary: o.title, Description: o.about, DefaultStatus: o.status,
		MaxBodyBytes: a.cfg.BodyLimit, Tags: []string{o.tag}, Extensions: map[string]any{"x-permission": string(o.perm)},
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound},
	}
	if o.perm != access.Public {
		operation.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	}
	huma.Register(a.huma, operation, func(ctx context.Context, in *I) (*O, error) {
		app := ""
		named, ok := any(in).(inApp)
		if ok {
			app = named.app()
		}
		if ok || !o.perm.OfApp() {
			if err := a.cfg.Policy.Allow(principalOf(ctx), o.perm, app); err != nil {
				return nil, a.refused(ctx, o.perm, app, err)
			}
		} else if p := principalOf(ctx); !p.Known() {
			return nil, a.problem(ctx, a.cfg.Policy.Allow(p, access.SelfRead, ""))
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return out, nil
	})
}

// mayIn is for handlers whose object is named by an id alone: it tells whether the caller has
// the permission in the app that the object turned out to belong to. What one may not see is
// not there.
func (a *API) mayIn(ctx context.Context, perm access.Permission, app string) error {
	return a.cfg.Policy.Allow(principalOf(ctx), perm, app)
}
