package api

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// Kinds of what has a schedule, as paths have them.
const (
	KindJobs      = "jobs"
	KindWorkflows = "workflows"
)

func schedulePath(app, kind, name string) string {
	return path("/apps/%s/schedules/%s/%s", app, kind, name)
}

// Schedule is how a job or workflow stands; kind is KindJobs or KindWorkflows.
func (c *Client) Schedule(ctx context.Context, app, kind, name string) (*ScheduleReply, error) {
	out := &ScheduleReply{}
	_, err := c.get(ctx, schedulePath(app, kind, name), nil, out)
	return out, err
}

// OrderSchedule pauses or resumes a schedule; order is pause or resume.
func (c *Client) OrderSchedule(ctx context.Context, app, kind, name, order string) (*ScheduleReply, error) {
	out := &ScheduleReply{}
	_, err := c.do(ctx, &call{method: http.MethodPost, path: schedulePath(app, kind, name), in: Order{Order: order}, out: out})
	return out, err
}

// SetEnabled enables or disables a job or workflow.
func (c *Client) SetEnabled(ctx context.Context, app, kind, name string, on bool) (*ScheduleReply, error) {
	out := &ScheduleReply{}
	_, err := c.do(ctx, &call{method: http.MethodPut, path: schedulePath(app, kind, name) + "/enabled", in: map[string]bool{"on": on}, out: out})
	return out, err
}

func span(from, to int64) url.Values {
	q := url.Values{}
	number(q, "from", from)
	number(q, "to", to)
	return q
}

// Ledger is what fired and what did not, from..to, epoch ms; to 0 is now, limit 0 is 500.
func (c *Client) Ledger(ctx context.Context, app, kind, name string, from, to int64, limit int) (*LedgerReply, error) {
	out, q := &LedgerReply{}, span(from, to)
	number(q, "limit", int64(limit))
	_, err := c.get(ctx, schedulePath(app, kind, name)+"/ledger", q, out)
	return out, err
}

// Verify compares what should have fired with what did, from..to, epoch ms; to 0 is now.
func (c *Client) Verify(ctx context.Context, app, kind, name string, from, to int64) (*VerifyReply, error) {
	out := &VerifyReply{}
	_, err := c.get(ctx, schedulePath(app, kind, name)+"/verify", span(from, to), out)
	return out, err
}

// Backfill fires a job for scheduled times that have passed; those that have run are left out,
// so it may be asked twice. Its answer is then what the last one did.
func (c *Client) Backfill(ctx context.Context, app, job string, from, to int64, most int, dryRun bool) (*BackfillReply, error) {
	in := map[string]any{"from": from, "to": to, "dry_run": dryRun}
	if most != 0 {
		in["max"] = most
	}
	out := &BackfillReply{}
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/apps/%s/jobs/%s/backfill", app, job), in: in, out: out})
	return out, err
}

// Preview is what a schedule fires next, and why it does not.
func (c *Client) Preview(ctx context.Context, app string, p Preview) ([]PreviewFire, error) {
	var out page[PreviewFire]
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/apps/%s/preview", app), in: p, out: &out})
	return out.Items, err
}

// Calendars are those of an app, by name.
func (c *Client) Calendars(ctx context.Context, app string) iter.Seq2[Calendar, error] {
	return pages[Calendar](ctx, c, path("/apps/%s/calendars", app), large(), "after")
}

// Calendar is one calendar.
func (c *Client) Calendar(ctx context.Context, app, name string) (*Calendar, error) {
	out := &Calendar{}
	_, err := c.get(ctx, path("/apps/%s/calendars/%s", app, name), nil, out)
	return out, err
}

// SaveCalendar makes or changes a calendar: schedule.Calendar as JSON.
func (c *Client) SaveCalendar(ctx context.Context, app, name string, calendar json.RawMessage) (*Calendar, error) {
	out := &Calendar{}
	_, err := c.do(ctx, &call{method: http.MethodPut, path: path("/apps/%s/calendars/%s", app, name), in: map[string]any{"calendar": calendar}, out: out})
	return out, err
}
