package httpapi_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
)

// The same key and body start one run, however many ask at the same time.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["SQLite"](t), nil)
	ann := w.setup()
	w.estate(ann, "shop")
	const path = "/apps/shop/jobs/work/trigger"
	keyed := ann.with("Idempotency-Key", "order-7")
	var mu sync.Mutex
	ids := map[string]int{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			a := keyed.post(path, api.Trigger{Key: "7"}).is(http.StatusCreated)
			mu.Lock()
			defer mu.Unlock()
			ids[string(a.body)]++
		})
	}
	all.Wait()
	require.Len(t, ids, 1)
	keyed.post(path, api.Trigger{Key: "8"}).is(http.StatusConflict)
	one := func(c *caller, path string, in any) (out string) {
		return string(c.post(path, in).is(http.StatusCreated).body)
	}
	// Another route, another caller or another key is something else.
	require.NotContains(t, ids, one(keyed, "/apps/shop/workflows/flow/start", api.StartWorkflow{}))
	bob := w.person(ann, "bob", role(engine.RoleOperator, "shop"))
	require.NotContains(t, ids, one(bob.with("Idempotency-Key", "order-7"), path, api.Trigger{Key: "7"}))
	require.NotContains(t, ids, one(ann.with("Idempotency-Key", "order-8"), path, api.Trigger{Key: "7"}))
	// What failed may be tried again.
	missing := ann.with("Idempotency-Key", "later")
	missing.post("/apps/shop/jobs/late/trigger", api.Trigger{}).is(http.StatusNotFound)
	ann.put("/apps/shop/jobs/late", map[string]any{"spec": map[string]any{"processor": "p"}}).is(http.StatusOK)
	missing.post("/apps/shop/jobs/late/trigger", api.Trigger{}).is(http.StatusCreated)
}
