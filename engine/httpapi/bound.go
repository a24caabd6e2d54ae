package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fanjet/fanjet/engine"
)

// What a body may be, besides its bytes: reading one takes memory for each value in it.
const (
	maxDepth  = 64
	maxValues = 250_000
)

// plain refuses addresses that hold what no name of ours does, and no log should show.
func plain(u *url.URL) error {
	texts := []string{u.Path}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return huma.NewError(http.StatusBadRequest, "the query cannot be read")
	}
	for key, values := range query {
		texts = append(append(texts, key), values...)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return fmt.Errorf("the address holds a control character, or is not UTF-8: %w", engine.ErrInvalid)
		}
	}
	return nil
}

// bound reads the body of a request, if it is small, plain JSON, before anything is decoded.
func bound(r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return huma.NewError(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Encoding %s: send the body as it is", engine.CutText(enc, 40)))
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over) || int64(len(b)) > limit:
		return fmt.Errorf("the body has more than %d bytes: %w", limit, engine.ErrTooLarge)
	case err != nil:
		return huma.NewError(http.StatusBadRequest, "the body did not come in time, or not whole")
	}
	if len(b) > 0 {
		// Forms, which pages of other sites can send, are none.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return huma.NewError(http.StatusUnsupportedMediaType, "send the body as Content-Type: application/json")
		}
		if err := checkJSON(b); err != nil {
			return err
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

func malformed(format string, args ...any) error {
	return huma.NewError(http.StatusBadRequest, "the body: "+fmt.Sprintf(format, args...))
}

// checkJSON refuses what is no JSON, too deep, of too many values, or names a key of an object
// twice, which readers read differently.
func checkJSON(b []byte) error {
	type level struct {
		keys map[string]struct{} // nil in an array
		key  bool                // the next text is a key
	}
	var stack []level
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for values := 0; ; values++ {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(stack) == 0 && values > 0 {
			return nil
		}
		if err != nil {
			return malformed("no JSON behind byte %d: %v", d.InputOffset(), err)
		}
		if values > maxValues {
			return fmt.Errorf("the body has more than %d values: %w", maxValues, engine.ErrTooLarge)
		}
		top := len(stack) - 1
		delim, _ := token.(json.Delim)
		switch {
		case delim == '}' || delim == ']':
			stack = stack[:top]
			continue
		case top < 0 && values > 0:
			return malformed("more behind its end, at byte %d", d.InputOffset())
		case top >= 0 && stack[top].key:
			name, _ := token.(string)
			if _, twice := stack[top].keys[name]; twice {
				return malformed("key %q is there twice", engine.CutText(name, engine.MaxName))
			}
			stack[top].keys[name] = struct{}{}
			stack[top].key = false
			continue
		}
		if top >= 0 {
			stack[top].key = stack[top].keys != nil
		}
		if delim == 0 {
			continue
		}
		if len(stack) == maxDepth {
			return malformed("more than %d levels deep", maxDepth)
		}
		in := level{}
		if delim == '{' {
			in = level{keys: map[string]struct{}{}, key: true}
		}
		stack = append(stack, in)
	}
}
