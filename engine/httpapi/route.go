package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

const (
	prefix    = "/api/v1"
	smallBody = 16 << 10 // of what comes from somebody unknown, or is about the caller
)

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
	// guessing: who comes without credentials could try many, so each address has few.
	guessing bool
}

// route adds a route. Before anything of the request's body is read the caller is looked at:
// what the table of permissions does not allow ends here. A permission on apps is asked for
// the app of the path; a handler whose object is named by an id alone asks by itself, with
// mayIn, and one that does not ask answers nothing.
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
	for _, t := range []reflect.Type{reflect.TypeFor[I](), reflect.TypeFor[O]()} {
		for f := range t.Fields() {
			if f.Anonymous && !f.IsExported() {
				fail("%s, embedded in its input or output, is not exported: its fields would be passed over", f.Name)
				return
			}
		}
	}
	a.perms[o.id] = o.perm
	named := strings.Contains(o.path, "{app}")
	limit := a.cfg.BodyLimit
	if o.perm == access.Public || o.perm == access.SelfManage {
		limit = min(limit, smallBody)
	}
	operation := huma.Operation{
		OperationID: o.id, Method: o.method, Path: prefix + o.path, Summary: o.title, Description: o.about, DefaultStatus: o.status,
		MaxBodyBytes: limit + 1, BodyReadTimeout: readTimeout, Tags: []string{o.tag}, Extensions: map[string]any{"x-permission": string(o.perm)},
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity},
	}
	if o.guessing {
		operation.Errors = append(operation.Errors, http.StatusTooManyRequests)
	}
	if o.perm != access.Public {
		operation.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	}
	operation.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		app := ""
		if named {
			app = ctx.Param("app")
		}
		r, w := humago.Unwrap(ctx)
		err := a.admit(ctx.Context(), &o, app, named)
		if err == nil {
			err = plain(r.URL)
		}
		if err == nil {
			err = bound(r, limit)
		}
		if err != nil {
			a.write(ctx.Context(), w, err)
			return
		}
		next(ctx)
	}}
	huma.Register(a.huma, operation, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		if o.perm.OfApp() && !requestOf(ctx).checked {
			return nil, a.problem(ctx, fmt.Errorf("route %s asked for %s in no app", o.id, o.perm))
		}
		return out, nil
	})
}

// admit tells whether the caller may use the route, as far as its path tells.
func (a *API) admit(ctx context.Context, o *op, app string, named bool) error {
	q := requestOf(ctx)
	if o.guessing {
		if wait := a.guesses.take(network(q.from), a.clock()); wait > 0 {
			return &waitError{wait: wait, text: "too many tries from your address"}
		}
	}
	if o.perm.OfApp() && !named {
		if !q.principal.Known() {
			return a.cfg.Policy.Allow(q.principal, access.SelfRead, "")
		}
		return nil
	}
	if err := a.cfg.Policy.Allow(q.principal, o.perm, app); err != nil {
		a.denied(ctx, o.perm, app, err)
		return err
	}
	if named {
		id, err := a.appID(ctx, app)
		if err != nil {
			return err
		}
		q.app, q.checked = id, true
	}
	return nil
}

// mayIn is for handlers whose object is named by an id alone: it tells whether the caller has
// the permission in the app that the object turned out to belong to. What one may not see is
// not there.
func (a *API) mayIn(ctx context.Context, perm access.Permission, app string, id int64) error {
	q := requestOf(ctx)
	if err := a.cfg.Policy.Allow(q.principal, perm, app); err != nil {
		a.denied(ctx, perm, app, err)
		return err
	}
	q.app, q.checked = id, true
	return nil
}

// gone is the one answer for what is not there and for what the caller may not know of.
func gone(what, text string, err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("%s %s: %w", what, text, engine.ErrNotFound)
	}
	return err
}
