package httpapi

import (
	"context"

	"github.com/fanjet/fanjet/engine/access"
)

type ctxKey struct{}

// request is what is known of a request besides what it asks for. It is of one goroutine.
type request struct {
	id, from, agent string
	principal       access.Principal
	byCookie        bool
	app             int64 // that it turned out to be about, for the audit log
	checked         bool  // the permission was asked for in that app
}

// requestOf is the request that the context is of; outside of one, it is a request of nobody.
func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(ctxKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// principalOf is who asks; nobody if no credentials came.
func principalOf(ctx context.Context) access.Principal { return requestOf(ctx).principal }
