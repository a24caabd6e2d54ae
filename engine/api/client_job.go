package api

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// Apps are those that the caller may see.
func (c *Client) Apps(ctx context.Context) iter.Seq2[App, error] {
	return pages[App](ctx, c, "/apps", nil, "")
}

// App is one app.
func (c *Client) App(ctx context.Context, name string) (*App, error) {
	out := &App{}
	_, err := c.get(ctx, path("/apps/%s", name), nil, out)
	return out, err
}

// CreateApp makes an app; one that is there stays as it is.
func (c *Client) CreateApp(ctx context.Context, name string) (*App, error) {
	out := &App{}
	_, err := c.do(ctx, &call{method: http.MethodPost, path: "/apps", in: map[string]string{"name": name}, out: out})
	return out, err
}

// Workers are those of an app.
func (c *Client) Workers(ctx context.Context, app string) iter.Seq2[Worker, error] {
	return pages[Worker](ctx, c, path("/apps/%s/workers", app), nil, "")
}

// SetMaintenance has a worker get nothing new, or work again.
func (c *Client) SetMaintenance(ctx context.Context, app, worker string, on bool) error {
	_, err := c.do(ctx, &call{method: http.MethodPut, path: path("/apps/%s/workers/%s/maintenance", app, worker), in: map[string]bool{"on": on}})
	return err
}

// Servers are the live ones.
func (c *Client) Servers(ctx context.Context) iter.Seq2[Server, error] {
	return pages[Server](ctx, c, "/servers", nil, "")
}

// Metrics are the counters of the server that answers, as Prometheus reads them.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	var b []byte
	_, err := c.get(ctx, "/metrics", nil, &b)
	return string(b), err
}

// Jobs are those of an app, by name.
func (c *Client) Jobs(ctx context.Context, app string) iter.Seq2[Job, error] {
	return pages[Job](ctx, c, path("/apps/%s/jobs", app), large(), "after")
}

// Job is a job as it is now, or at a version that is not 0.
func (c *Client) Job(ctx context.Context, app, name string, version int32) (*Job, error) {
	out, q := &Job{}, url.Values{}
	number(q, "version", int64(version))
	_, err := c.get(ctx, path("/apps/%s/jobs/%s", app, name), q, out)
	return out, err
}

// SaveJob makes or changes a job. With a version that is not 0 it is changed only if that is
// the one it still has; ErrConflict otherwise.
func (c *Client) SaveJob(ctx context.Context, app, name string, job SaveJob, version int32) (*Job, error) {
	out := &Job{}
	q := &call{method: http.MethodPut, path: path("/apps/%s/jobs/%s", app, name), in: job, out: out}
	q.header, q.once = ifMatch(version)
	_, err := c.do(ctx, q)
	return out, err
}

// Trigger starts a run of a job and returns its id. Under the same key it is started once, as
// long as the same server answers; with key "" one is made up, so that a lost answer starts no
// second run.
func (c *Client) Trigger(ctx context.Context, app, job string, t Trigger, key string) (int64, error) {
	var out Started
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/apps/%s/jobs/%s/trigger", app, job), header: once(key), in: t, out: &out})
	return out.ID, err
}

// CancelKey ends the runs of a job that have a business key, and says how many there were.
func (c *Client) CancelKey(ctx context.Context, app, job, key string) (int, error) {
	var out CancelKeyReply
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/apps/%s/jobs/%s/cancel", app, job), in: map[string]string{"key": key}, out: &out, once: true})
	return out.Count, err
}
