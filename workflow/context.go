package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MergeContext adds what a node appended to the context of a run: both are JSON objects, an
// empty one is {}. Keys of added replace those of context, whole: the last writer of a key
// wins, and no other key is touched. A result over ContextBound, in bytes, is an error that
// states the sizes, and the context stays as it was; nothing is ever cut or dropped. Adding
// nothing gives context back.
func (d *Definition) MergeContext(context, added json.RawMessage) (json.RawMessage, error) {
	var have, more map[string]json.RawMessage
	if len(bytes.TrimSpace(added)) == 0 {
		return context, nil
	}
	if err := json.Unmarshal(added, &more); err != nil || more == nil {
		return nil, errors.New("what is added to the context must be a JSON object")
	}
	if len(more) == 0 {
		return context, nil
	}
	if len(bytes.TrimSpace(context)) > 0 {
		if err := json.Unmarshal(context, &have); err != nil {
			return nil, fmt.Errorf("read the context: %w", err)
		}
	}
	if have == nil {
		have = make(map[string]json.RawMessage, len(more))
	}
	for k, v := range more {
		have[k] = v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the bound counts the bytes that were given
	if err := enc.Encode(have); err != nil {
		return nil, fmt.Errorf("write the context: %w", err)
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if int64(len(out)) > d.ContextBound() {
		return nil, fmt.Errorf("the context would have %d bytes with the %d added, the limit is %d; pass large results by params, or raise context_limit",
			len(out), len(added), d.ContextBound())
	}
	return out, nil
}
