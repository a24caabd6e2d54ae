package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The kinds of Problem, for errors.Is.
var (
	ErrInvalid         = errors.New("invalid")
	ErrUnauthenticated = errors.New("not logged in")
	ErrForbidden       = errors.New("forbidden")
	ErrNotFound        = errors.New("not found")
	ErrConflict        = errors.New("conflict")
	ErrTooLarge        = errors.New("too large")
	ErrTooOften        = errors.New("too often")
	ErrUnavailable     = errors.New("unavailable") // it may pass
	ErrInternal        = errors.New("internal error of the server")
)

// Problem is what a server answered instead of what was asked for (RFC 9457).
type Problem struct {
	Status int            `json:"status"` // of HTTP
	Title  string         `json:"title,omitempty"`
	Detail string         `json:"detail,omitempty"`
	Errors []ProblemField `json:"errors,omitempty"`
	// Request is the id under which the server's log may say more.
	Request string `json:"-"`
	// RetryAfter is how long the server wants to be left alone; 0 if it did not say.
	RetryAfter time.Duration `json:"-"`
}

// ProblemField is one thing that is wrong with what was sent.
type ProblemField struct {
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"` // such as body.spec.timeout
}

// Error is the detail, and each field that it does not name.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Detail)
	if p.Detail == "" {
		b.WriteString(p.Title)
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "the server answered %d %s", p.Status, http.StatusText(p.Status))
	}
	for _, f := range p.Errors {
		if f.Message == "" || strings.Contains(p.Detail, f.Message) {
			continue
		}
		b.WriteString("; ")
		if f.Location != "" {
			b.WriteString(f.Location + ": ")
		}
		b.WriteString(f.Message)
	}
	return b.String()
}

// Is tells whether the problem is of a kind: one of the errors of this package.
func (p *Problem) Is(kind error) bool { return kind == p.kind() }

func (p *Problem) kind() error {
	switch p.Status {
	case http.StatusUnauthorized:
		return ErrUnauthenticated
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return ErrConflict
	case http.StatusRequestEntityTooLarge:
		return ErrTooLarge
	case http.StatusTooManyRequests:
		return ErrTooOften
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrUnavailable
	}
	if p.Status >= http.StatusInternalServerError {
		return ErrInternal
	}
	return ErrInvalid
}
