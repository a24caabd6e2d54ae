package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// EventFilter picks events of an app; the zero value picks all.
type EventFilter struct {
	Workflow int64  // of this run of a workflow, its nodes and their runs
	Instance int64  // of this run
	Job      string // of runs of this job
	After    string // id of the last event that came: what was told since is told first
}

// Events are what moves in an app, until ctx ends or the caller stops. A stream that breaks is
// begun again where it was; EventGap then says that something may be missing: read again what
// you show. EventOpen comes once. It ends with an error when the server refuses, such as
// ErrUnauthenticated when the token is revoked, and with ctx's when that ends.
func (c *Client) Events(ctx context.Context, app string, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		q := url.Values{}
		number(q, "workflow_instance", f.Workflow)
		number(q, "instance", f.Instance)
		if f.Job != "" {
			q.Set("job", f.Job)
		}
		s := &eventStream{c: c, q: &call{method: http.MethodGet, path: path("/apps/%s/events", app), query: q}, last: f.After, yield: yield}
		for {
			err := s.read(ctx)
			switch {
			case s.stopped:
				return
			case ctx.Err() != nil:
				yield(Event{}, context.Cause(ctx))
				return
			}
			wait, again := again(err, s.failed)
			s.failed++
			if !again {
				yield(Event{}, err)
				return
			}
			if err := pause(ctx, wait); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}

type eventStream struct {
	c       *Client
	q       *call
	last    string // id of the last event
	open    bool   // the caller was told so
	failed  int    // tries without a word
	stopped bool   // by the caller
	yield   func(Event, error) bool
}

// read reads one connection to its end.
func (s *eventStream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(s.c.silence, cancel)
	defer silence.Stop()
	s.q.header = http.Header{"Accept": {"text/event-stream"}}
	if s.last != "" {
		s.q.header.Set("Last-Event-ID", s.last)
	}
	r, err := s.c.request(ctx, s.q, nil)
	if err != nil {
		return err
	}
	a, err := s.c.http.Do(r)
	if err != nil {
		return &connectionError{err}
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(a.Body, 1<<20))
		if err != nil {
			return &connectionError{err}
		}
		return problemOf(a, b)
	}
	if kind := a.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%s: the answer is %q and no stream of events; is this the address of a Fanjet server?", s.q.path, kind)
	}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(make([]byte, 0, 4096), 1<<20)
	var id, kind, data string
	for lines.Scan() {
		silence.Reset(s.c.silence)
		s.failed = 0
		line := lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data += value
		}
		if line != "" {
			continue
		}
		if data == "" && id != "" {
			s.last = id // of a heartbeat: what was passed over is not asked for again
		} else if data != "" {
			if err := s.tell(id, kind, data); err != nil || s.stopped {
				return err
			}
		}
		kind, data = "", ""
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF // a stream has no end
	}
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s: an event of more than 1 MiB: %w", s.q.path, err)
	}
	return &connectionError{err}
}

func (s *eventStream) tell(id, kind, data string) error {
	var e Event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return fmt.Errorf("%s: an event that is not what it should be: %w", s.q.path, err)
	}
	e.ID, e.Kind = id, kind
	s.last = id
	if kind == EventOpen {
		if s.open {
			return nil
		}
		s.open = true
	}
	s.stopped = !s.yield(e, nil)
	return nil
}
