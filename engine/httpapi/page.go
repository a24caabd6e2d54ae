package httpapi

import (
	"fmt"
	"strconv"

	"github.com/fanjet/fanjet/engine"
)

// ByName pages through what is listed by name.
type ByName struct {
	After string `query:"after" maxLength:"63" doc:"The last name of the page before."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

// ByID pages through history, newest first. There are no totals: counting history is what it
// would cost.
type ByID struct {
	Before string `query:"before" maxLength:"20" doc:"The last id of the page before; the newest if left out."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

func (p ByID) before() (int64, error) {
	if p.Before == "" {
		return 0, nil
	}
	return id("before", p.Before)
}

// id reads an id of a path or query.
func id(what, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s %q: an id is a number: %w", what, engine.CutText(text, 20), engine.ErrInvalid)
	}
	return n, nil
}

// list is a page of something. Next is what to ask for the page behind it: the after or before
// of the next call; empty at the end.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// pageOf makes a page of what was read, one more than the limit.
func pageOf[N, T any](rows []N, limit int, position func(*N) string, item func(*N) T) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), limit))}
	for i := range rows {
		if i == limit {
			out.Next = position(&rows[i-1])
			break
		}
		out.Items = append(out.Items, item(&rows[i]))
	}
	return out
}
