package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// holds tells what of the expectation does not hold, or is nil. cut says that the body goes on.
func (e *Expectation) holds(body []byte, cut bool) error {
	beyond := ""
	if cut {
		beyond = fmt.Sprintf(" (only its first %d bytes were read)", len(body))
	}
	if e.Contains != "" && !bytes.Contains(body, []byte(e.Contains)) {
		return fmt.Errorf("the body does not contain %q%s", e.Contains, beyond)
	}
	if e.Pointer == nil {
		return nil
	}
	got, err := decode(body)
	if err != nil {
		return fmt.Errorf("the body is not JSON%s", beyond)
	}
	if got, err = follow(got, *e.Pointer); err != nil {
		return err
	}
	if e.Equals == nil {
		return nil
	}
	want, err := decode(e.Equals)
	if err != nil {
		return fmt.Errorf("equals: %w", err)
	}
	if !same(got, want) {
		return fmt.Errorf("the value at %q is not %s", *e.Pointer, e.Equals)
	}
	return nil
}

// decode keeps numbers as they are written.
func decode(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// follow finds the value a JSON pointer (RFC 6901) points to.
func follow(v any, pointer string) (any, error) {
	if pointer == "" {
		return v, nil
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = unescape.Replace(part)
		var ok bool
		switch x := v.(type) {
		case map[string]any:
			v, ok = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if ok = err == nil && i >= 0 && i < len(x) && strconv.Itoa(i) == part; ok {
				v = x[i]
			}
		}
		if !ok {
			return nil, fmt.Errorf("the body has no value at %q", pointer)
		}
	}
	return v, nil
}

// same compares numbers by their value.
func same(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok || x == y {
			return ok
		}
		f, err1 := x.Float64()
		g, err2 := y.Float64()
		return errors.Join(err1, err2) == nil && f == g
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !same(v, w) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
