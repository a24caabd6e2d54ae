package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// InApp names the app in the path.
type InApp struct {
	App string `path:"app" maxLength:"63"`
}

// names keeps the names of apps, which do not change, and their ids.
type names struct {
	mu  sync.Mutex
	m   map[int64]string
	ids map[string]int64
}

// appID is the id of the app of that name, ErrNotFound if there is none.
func (a *API) appID(ctx context.Context, name string) (int64, error) {
	a.names.mu.Lock()
	id, ok := a.names.ids[name]
	a.names.mu.Unlock()
	if ok {
		return id, nil
	}
	app, err := a.cfg.Store.AppByName(ctx, name)
	if err != nil {
		return 0, gone("app", name, err)
	}
	a.names.mu.Lock()
	defer a.names.mu.Unlock()
	if a.names.ids == nil || len(a.names.ids) > 10_000 {
		a.names.ids = map[string]int64{}
	}
	a.names.ids[name] = app.ID
	return app.ID, nil
}

// appName is the name of an app.
func (a *API) appName(ctx context.Context, id int64) (string, error) {
	a.names.mu.Lock()
	name, ok := a.names.m[id]
	a.names.mu.Unlock()
	if ok {
		return name, nil
	}
	app, err := a.cfg.Store.App(ctx, id)
	if err != nil {
		return "", fmt.Errorf("app %d: %w", id, err)
	}
	a.names.mu.Lock()
	defer a.names.mu.Unlock()
	if a.names.m == nil || len(a.names.m) > 10_000 {
		a.names.m = map[int64]string{}
	}
	a.names.m[id] = app.Name
	return app.Name, nil
}

type bodyOf[T any] struct{ Body T }

func body[T any](v T) *bodyOf[T] { return &bodyOf[T]{v} }

func (a *API) appRoutes() {
	route(a, op{
		id: "list-apps", method: http.MethodGet, path: "/apps", title: "The apps that the caller may see", perm: access.SelfRead, tag: "apps",
	}, func(ctx context.Context, _ *nothing) (*bodyOf[list[api.App]], error) {
		all, err := a.cfg.Store.Apps(ctx)
		if err != nil {
			return nil, err
		}
		scopes := a.cfg.Policy.Scopes(principalOf(ctx), access.AppsRead)
		out := list[api.App]{Items: []api.App{}}
		for _, app := range all {
			for _, s := range scopes {
				if access.InScope(s, app.Name) {
					out.Items = append(out.Items, api.App{ID: app.ID, Name: app.Name, CreatedAt: app.CreatedAt})
					break
				}
			}
		}
		return body(out), nil
	})
	route(a, op{
		id: "create-app", method: http.MethodPost, path: "/apps", title: "Make an app", perm: access.AppsCreate, tag: "apps", status: http.StatusCreated,
	}, func(ctx context.Context, in *struct {
		Body struct {
			Name string `json:"name" maxLength:"63"`
		}
	},
	) (*bodyOf[api.App], error) {
		app, err := a.cfg.Server.EnsureApp(ctx, in.Body.Name)
		if err != nil {
			return nil, err
		}
		requestOf(ctx).app = app.ID
		a.done(ctx, access.AppsCreate, "app:"+app.Name, nil, nil)
		return body(api.App{ID: app.ID, Name: app.Name, CreatedAt: app.CreatedAt}), nil
	})
	route(a, op{
		id: "get-app", method: http.MethodGet, path: "/apps/{app}", title: "An app", perm: access.AppsRead, tag: "apps",
	}, func(ctx context.Context, in *InApp) (*bodyOf[api.App], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		return body(api.App{ID: app.ID, Name: app.Name, CreatedAt: app.CreatedAt}), nil
	})
	route(a, op{
		id: "list-workers", method: http.MethodGet, path: "/apps/{app}/workers", title: "The workers of an app", perm: access.WorkersRead, tag: "workers",
	}, func(ctx context.Context, in *InApp) (*bodyOf[list[api.Worker]], error) {
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		known, err := a.cfg.Store.Workers(ctx, app.ID)
		if err != nil {
			return nil, err
		}
		out := list[api.Worker]{Items: make([]api.Worker, 0, len(known))}
		busy := map[string]int{}
		live := map[string]bool{}
		for _, b := range a.cfg.Server.Workers(in.App) {
			busy[b.Worker], live[b.Worker] = b.Busy, true
		}
		for _, w := range known {
			out.Items = append(out.Items, api.Worker{
				Name: w.Name, Host: w.Host, Version: w.Version, Pools: w.Pools, Labels: w.Labels, Processors: w.Processors, Slots: w.Slots,
				Busy: busy[w.Name], Drain: w.Maintenance, FirstSeen: w.FirstSeen, LastSeen: w.LastSeen, Live: live[w.Name],
			})
		}
		return body(out), nil
	})
	route(a, op{
		id: "set-maintenance", method: http.MethodPut, path: "/apps/{app}/workers/{worker}/maintenance", title: "Give a worker nothing new, or work again",
		perm: access.WorkersDrain, tag: "workers", status: http.StatusNoContent,
	}, func(ctx context.Context, in *struct {
		InApp
		Worker string `path:"worker" maxLength:"255"`
		Body   struct {
			On bool `json:"on"`
		}
	},
	) (*nothing, error) {
		if err := a.cfg.Server.SetMaintenance(ctx, in.App, in.Worker, in.Body.On); err != nil {
			return nil, err
		}
		a.done(ctx, access.WorkersDrain, "worker:"+in.App+"/"+in.Worker, nil, in.Body)
		return nil, nil
	})
	route(a, op{
		id: "list-servers", method: http.MethodGet, path: "/servers", title: "The live servers and their shards", perm: access.ServersRead, tag: "system",
	}, func(ctx context.Context, _ *nothing) (*bodyOf[list[api.Server]], error) {
		servers, err := a.cfg.Store.LiveServers(ctx)
		if err != nil {
			return nil, err
		}
		shards, err := a.cfg.Store.ShardOwners(ctx)
		if err != nil {
			return nil, err
		}
		owned := map[int16]int{}
		for _, s := range shards {
			owned[s.Owner]++
		}
		out := list[api.Server]{Items: make([]api.Server, 0, len(servers))}
		for _, s := range servers {
			out.Items = append(out.Items, api.Server{Number: s.Number, Name: s.Name, Shards: owned[s.Number], StartedAt: s.StartedAt, Until: s.Until})
		}
		return body(out), nil
	})
}
