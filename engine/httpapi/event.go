package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

const (
	streamPage  = 256              // events of one write
	streamWrite = 15 * time.Second // that a reader may take for one
)

// InStream says what of an app's events a stream is to have.
type InStream struct {
	InApp
	Workflow    string `query:"workflow_instance" maxLength:"20" doc:"Of this run of a workflow, its nodes and their runs."`
	Instance    string `query:"instance" maxLength:"20" doc:"Of this run."`
	Job         string `query:"job" maxLength:"63" doc:"Of runs of this job."`
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that came: what was told since is told first, or a gap if that is not known."`
}

// eventRoutes are those of what moves.
func (a *API) eventRoutes() {
	streams := newFeeds(a.cfg.Server, a.cfg.Live)
	route(a, op{
		id: "stream-events", method: http.MethodGet, path: "/apps/{app}/events", title: "What moves in an app, as server-sent events",
		about: "The first event is open. A gap says that something was not told: read again what you show. Each object is told its newest state; " +
			"there is no promise that all that were between are told.",
		perm: access.InstancesRead, tag: "events",
	}, func(ctx context.Context, in *InStream) (*huma.StreamResponse, error) {
		fits, err := a.fits(ctx, in)
		if err != nil {
			return nil, err
		}
		app, err := a.cfg.Store.AppByName(ctx, in.App)
		if err != nil {
			return nil, err
		}
		f, leave, err := streams.enter(app, principalOf(ctx).User)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer leave()
			r, w := humago.Unwrap(hc)
			s := &stream{a: a, feed: f, c: streams.c, app: in.App, r: r, w: w, rc: http.NewResponseController(w), fits: fits}
			s.run(ctx, in.LastEventID)
		}}, nil
	})
}

// fits makes the filter of a stream. What it names must be of the app.
func (a *API) fits(ctx context.Context, in *InStream) (func(*api.Event) bool, error) {
	var execution, instance, job int64
	app := requestOf(ctx).app
	if in.Workflow != "" {
		w, _, err := a.executionOf(ctx, in.Workflow, access.InstancesRead)
		if err == nil && w.App != app {
			err = fmt.Errorf("workflow instance %s: %w", in.Workflow, engine.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		execution = w.ID
	}
	if in.Instance != "" {
		row, _, err := a.instance(ctx, in.Instance, access.InstancesRead)
		if err == nil && row.App != app {
			err = fmt.Errorf("instance %s: %w", in.Instance, engine.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		instance = row.ID
	}
	if in.Job != "" {
		j, err := a.cfg.Store.JobByName(ctx, app, in.Job)
		if err != nil {
			return nil, err
		}
		job = j.ID
	}
	return func(e *api.Event) bool {
		return e.Kind == api.EventGap ||
			(execution == 0 || e.Workflow == execution) && (instance == 0 || e.Instance == instance) && (job == 0 || e.Job == job)
	}, nil
}

// stream is one reader of a feed.
type stream struct {
	a    *API
	feed *feed
	c    Live
	app  string
	r    *http.Request
	w    http.ResponseWriter
	rc   *http.ResponseController
	fits func(*api.Event) bool
	buf  bytes.Buffer
}

// run writes until the reader is gone, may no longer read, or the server stops.
func (s *stream) run(ctx context.Context, last string) {
	// The server's bounds on time are for requests that end.
	_ = s.rc.SetReadDeadline(time.Time{})
	woken, next, stop := s.feed.subscribe()
	defer stop()
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // of a proxy that would hold events back
	at, known := s.feed.at(last)
	if known {
		next = at
	}
	s.put(api.Event{ID: s.feed.id(next - 1), Kind: api.EventOpen})
	if last != "" && !known {
		s.put(api.Event{ID: s.feed.id(next - 1), Kind: api.EventGap})
	}
	beat := time.NewTicker(s.c.Heartbeat)
	defer beat.Stop()
	check := time.NewTicker(s.c.Recheck)
	defer check.Stop()
	var events []api.Event
	for {
		for more := true; more; {
			var gap, ended bool
			events, next, gap, more, ended = s.feed.read(events[:0], next, streamPage, s.fits)
			if gap {
				s.put(api.Event{ID: s.feed.id(next - 1), Kind: api.EventGap})
			}
			for i := range events {
				s.put(events[i])
			}
			if !s.flush() || ended && !more {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-beat.C:
			// What did not fit need not be asked for again.
			fmt.Fprintf(&s.buf, ": alive\nid: %s\n\n", s.feed.id(next-1))
		case <-check.C:
			if s.allowed(ctx) != nil {
				return
			}
		}
	}
}

// allowed looks again whether the caller is who it was, and still may.
func (s *stream) allowed(ctx context.Context) error {
	p, _, err := s.a.authenticate(ctx, s.r)
	if err != nil {
		return err
	}
	return s.a.cfg.Policy.Allow(p, access.InstancesRead, s.app)
}

// put adds an event to what is written next.
func (s *stream) put(e api.Event) {
	data, err := json.Marshal(&e)
	if err != nil {
		return // texts and numbers always encode
	}
	fmt.Fprintf(&s.buf, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, data)
}

// flush writes what was put; false if the reader is gone, or too slow to take it.
func (s *stream) flush() bool {
	if s.buf.Len() == 0 {
		return true
	}
	if err := s.rc.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return false
	}
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return false
	}
	return s.rc.Flush() == nil
}
