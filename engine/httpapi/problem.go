package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/schedule"
)

// statuses maps errors to what HTTP calls them; the first that fits counts.
var statuses = []struct {
	err    error
	status int
}{
	{access.ErrUnauthenticated, http.StatusUnauthorized},
	{engine.ErrForbidden, http.StatusForbidden},
	{engine.ErrNotFound, http.StatusNotFound},
	{engine.ErrLimit, http.StatusTooManyRequests},
	{engine.ErrConflict, http.StatusConflict},
	{engine.ErrTooLarge, http.StatusRequestEntityTooLarge},
	{engine.ErrInvalid, http.StatusUnprocessableEntity},
	{engine.ErrUnavailable, http.StatusServiceUnavailable},
	{engine.ErrFenced, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
}

// status is the HTTP status of an error; what nobody thought of is the server's fault.
func status(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

// problem turns an error into what the caller gets (RFC 9457). What is the server's fault is
// logged with the request's id, and that is all the caller is told.
func (a *API) problem(ctx context.Context, err error) error {
	if se := huma.StatusError(nil); errors.As(err, &se) {
		return err
	}
	code := status(err)
	if code == http.StatusInternalServerError {
		id := requestOf(ctx).id
		a.cfg.Log.ErrorContext(ctx, "a request failed", "request", id, "err", err)
		return huma.NewError(code, "something went wrong here; the server's log says what, under request "+id)
	}
	var details []error
	if field := (*schedule.FieldError)(nil); errors.As(err, &field) {
		details = append(details, &huma.ErrorDetail{Message: err.Error(), Location: field.Field})
	}
	out := huma.NewError(code, err.Error(), details...)
	wait := time.Duration(0)
	if locked := (*access.LockedError)(nil); errors.As(err, &locked) {
		wait = locked.Wait
	}
	if often := (*waitError)(nil); errors.As(err, &often) {
		wait = often.wait
	}
	if wait > 0 {
		return huma.ErrorWithHeaders(out, http.Header{"Retry-After": {strconv.Itoa(int(wait.Seconds()) + 1)}})
	}
	if code == http.StatusUnauthorized {
		return huma.ErrorWithHeaders(out, http.Header{"Www-Authenticate": {`Bearer realm="fanjet"`}})
	}
	return out
}

// writeProblem writes an error where no route does.
func writeProblem(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var se huma.StatusError
	if errors.As(err, &se) {
		code = se.GetStatus()
	}
	var he huma.HeadersError
	if errors.As(err, &he) {
		for k, v := range he.GetHeaders() {
			w.Header()[k] = v
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(se) // the caller is gone, or gets it
}
