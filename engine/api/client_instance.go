package api

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Final tells whether a status is one that stays.
func Final(status string) bool {
	switch status {
	case "succeeded", "failed", "timed_out", "stopped", "canceled", "skipped":
		return true
	}
	return false
}

// Instances are the runs of an app, or of one job of it, newest first. With a business key,
// which needs a job, they are those that have it.
func (c *Client) Instances(ctx context.Context, app, job, key string) iter.Seq2[Instance, error] {
	q := large()
	if job != "" {
		q.Set("job", job)
	}
	if key != "" {
		q.Set("key", key)
		return pages[Instance](ctx, c, path("/apps/%s/instances", app), q, "")
	}
	return pages[Instance](ctx, c, path("/apps/%s/instances", app), q, "before")
}

// Instance is a run.
func (c *Client) Instance(ctx context.Context, id int64) (*Instance, error) {
	out := &Instance{}
	_, err := c.get(ctx, path("/instances/%s", itoa(id)), nil, out)
	return out, err
}

// WaitInstance returns the run once it is final.
func (c *Client) WaitInstance(ctx context.Context, id int64) (*Instance, error) {
	for wait := firstPause; ; wait = min(wait*3/2, 2*time.Second) {
		out, err := c.Instance(ctx, id)
		if err != nil || Final(out.Status) {
			return out, err
		}
		if err := pause(ctx, wait); err != nil {
			return out, err
		}
	}
}

// Attempts are the tries of a run that ended without success, before the last.
func (c *Client) Attempts(ctx context.Context, id int64) iter.Seq2[Attempt, error] {
	return pages[Attempt](ctx, c, path("/instances/%s/attempts", itoa(id)), nil, "")
}

// StopInstance stops a run, or cancels it before it has begun.
func (c *Client) StopInstance(ctx context.Context, id int64) error {
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/instances/%s/stop", itoa(id))})
	return err
}

// SubTasks is how the sub-tasks of a run stand, with a heat strip of at most buckets, 1024 at
// most; 0 is 256.
func (c *Client) SubTasks(ctx context.Context, id int64, buckets int) (*SubTasks, error) {
	out, q := &SubTasks{}, url.Values{}
	number(q, "buckets", int64(buckets))
	_, err := c.get(ctx, path("/instances/%s/subtasks", itoa(id)), q, out)
	return out, err
}

// FailedSubTasks are the sub-tasks of a run, with numbers from..to, that have failed or wait
// for their next attempt; to 0 is the end.
func (c *Client) FailedSubTasks(ctx context.Context, id, from, to int64) iter.Seq2[SubTask, error] {
	q := large()
	number(q, "from", from)
	number(q, "to", to)
	return pages[SubTask](ctx, c, path("/instances/%s/subtasks/failed", itoa(id)), q, "from")
}

// Logs are the lines that the tasks of a run have logged, from the one behind skip on.
func (c *Client) Logs(ctx context.Context, id int64, skip int) iter.Seq2[LogLine, error] {
	q := large()
	number(q, "skip", int64(skip))
	return pages[LogLine](ctx, c, path("/instances/%s/logs", itoa(id)), q, "skip")
}
