package httpapi

import (
	"context"
	"net/http"

	"github.com/fanjet/fanjet/engine/access"
)

// routes adds all routes; each file has those of its noun.
func (a *API) routes() {
	a.systemRoutes()
	a.setupRoutes()
	a.loginRoutes()
	a.meRoutes()
	a.factorRoutes()
	a.userRoutes()
	a.memberRoutes()
	a.tokenRoutes()
	a.auditRoutes()
	a.appRoutes()
	a.jobRoutes()
	a.scheduleRoutes()
	a.calendarRoutes()
	a.instanceRoutes()
	a.workflowRoutes()
	a.eventRoutes()
	a.subTaskRoutes()
	a.metricRoutes()
}

type nothing struct{}

type healthOut struct {
	Body struct {
		Status  string `json:"status" enum:"ok"`
		Version string `json:"version"`
		Now     int64  `json:"now" doc:"The database's clock, epoch ms."`
	}
}

func (a *API) systemRoutes() {
	route(a, op{
		id: "get-health", method: http.MethodGet, path: "/health", title: "Whether the server answers", perm: access.Public, tag: "system",
	}, func(context.Context, *nothing) (*healthOut, error) {
		out := &healthOut{}
		out.Body.Status, out.Body.Version, out.Body.Now = "ok", a.cfg.Version, a.now()
		return out, nil
	})
	a.mux.HandleFunc("GET /api", a.browse)
	a.mux.HandleFunc("GET "+prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(a.doc) // the caller is gone, or gets it
	})
}
