package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Bounds of the values that expressions see.
const (
	// MaxValue is the largest single value an expression may read, encoded, in bytes.
	MaxValue = 1 << 20
	// maxValues bounds all values one evaluation reads, encoded, in bytes.
	maxValues = 4 << 20
)

// decodeValue reads JSON into plain data: nil, bool, string, int, float64, []any and
// map[string]any. A whole number beyond int64, or a number beyond float64, stays a
// json.Number: it passes through unchanged, but cannot be calculated with.
func decodeValue(raw json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	if len(raw) > MaxValue {
		return nil, fmt.Errorf("value has %d bytes, an expression can read at most %d", len(raw), MaxValue)
	}
	if err := checkDepth(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("value is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("value is not JSON: there is more after its end")
	}
	return plain(v), nil
}

func checkDepth(raw []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return fmt.Errorf("value nests deeper than %d", maxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

func number(n json.Number) any {
	if !strings.ContainsAny(string(n), ".eE") {
		if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
			return int(i)
		}
		return n
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return n
	}
	return f
}

// kindOf names the type of plain data as its author would.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case string:
		return "string"
	case int:
		return "int"
	case float64:
		return "number"
	case json.Number:
		return "number too large to calculate with"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	}
	return fmt.Sprintf("%T", v)
}

// encodeValue writes plain data as JSON, refusing more than limit bytes before it builds
// them: literals of an expression may hold one large value many times.
func encodeValue(v any, limit int) (json.RawMessage, error) {
	left := limit
	if !fits(v, &left, 0) {
		return nil, fmt.Errorf("result has more than %d bytes or nests deeper than %d", limit, maxDepth)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("result cannot be written as JSON: %w", err)
	}
	if len(b) > limit {
		return nil, fmt.Errorf("result has %d bytes, the limit is %d", len(b), limit)
	}
	return b, nil
}

// fits takes a lower bound of the encoded size of v from left.
func fits(v any, left *int, depth int) bool {
	*left--
	if *left < 0 || depth > maxDepth {
		return false
	}
	switch v := v.(type) {
	case string:
		*left -= len(v)
	case json.Number:
		*left -= len(v)
	case []any:
		for _, item := range v {
			if !fits(item, left, depth+1) {
				return false
			}
		}
	case map[string]any:
		for k, item := range v {
			*left -= len(k)
			if !fits(item, left, depth+1) {
				return false
			}
		}
	}
	return *left >= 0
}

// choiceOf is the choice a plain value stands for.
func choiceOf(v any) (Choice, error) {
	switch v := v.(type) {
	case bool:
		return Choice(strconv.FormatBool(v)), nil
	case string:
		if len(v) > MaxExpr {
			return "", fmt.Errorf("a choice has %d bytes, the limit is %d", len(v), MaxExpr)
		}
		return quoteChoice(v), nil
	case int:
		return Choice(strconv.Itoa(v)), nil
	case float64:
		// 3.0 and 3 are the same choice, as far as a float64 is exact.
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return Choice(strconv.FormatInt(int64(v), 10)), nil
		}
		b, err := json.Marshal(v)
		return Choice(b), err
	}
	return "", fmt.Errorf("a choice must be a bool, a string or a number, not %s", kindOf(v))
}

func quoteChoice(s string) Choice { return Choice(appendText(nil, s)) }
