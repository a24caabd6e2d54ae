package processor

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fanjet/fanjet/broker"
)

// encode makes an item or a value ready to travel: []byte as it is, the rest by
// encoding/json.
func encode(v any) ([]byte, error) {
	switch x := v.(type) {
	case []byte:
		return x, nil
	case int:
		return strconv.AppendInt(nil, int64(x), 10), nil
	case int64:
		return strconv.AppendInt(nil, x, 10), nil
	}
	return json.Marshal(v)
}

// decode is the other side of encode.
func decode(raw []byte, v any) error {
	switch p := v.(type) {
	case *[]byte:
		*p = raw
		return nil
	case *int:
		if n, err := strconv.Atoi(string(raw)); err == nil {
			*p = n
			return nil
		}
	case *int64:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			*p = n
			return nil
		}
	}
	return json.Unmarshal(raw, v)
}

// encodeValue encodes the value of a sub-task and holds it to its bound.
func encodeValue(v any) ([]byte, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, Cancel(fmt.Errorf("the value (%T) cannot be encoded: %w", v, err))
	}
	if len(raw) > broker.MaxItemBytes {
		return nil, Cancel(fmt.Errorf("the value has %d bytes; at most %d travel", len(raw), broker.MaxItemBytes))
	}
	return raw, nil
}

// encodeResult encodes the result of a whole step, always as JSON.
func encodeResult(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	raw, ok := v.([]byte)
	if !ok || !json.Valid(raw) {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, Cancel(fmt.Errorf("the result (%T) cannot be encoded: %w", v, err))
		}
	}
	if len(raw) > broker.MaxItemBytes {
		return nil, Cancel(fmt.Errorf("the result has %d bytes; at most %d are kept", len(raw), broker.MaxItemBytes))
	}
	return raw, nil
}
