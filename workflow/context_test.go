package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// B22: under and at the limit are fine, one byte over is an error with the sizes; bytes are
// counted, not characters; adding nothing is no event.
func TestMergeContext_B22(t *testing.T) {
	t.Parallel()
	d := &Definition{ContextLimit: 100}
	value := func(size int) json.RawMessage { // {"k":"…"} of this many bytes, of 4-byte characters
		n := size - len(`{"k":""}`)
		return json.RawMessage(`{"k":"` + strings.Repeat("😀", n/4) + strings.Repeat("x", n%4) + `"}`)
	}
	for _, size := range []int{99, 100} {
		got, err := d.MergeContext(nil, value(size))
		require.NoError(t, err)
		require.Len(t, got, size)
	}
	_, err := d.MergeContext(json.RawMessage("{}"), value(101))
	require.ErrorContains(t, err, "would have 101 bytes with the 101 added, the limit is 100")
	for _, nothing := range []string{"", "{}", " "} {
		got, err := d.MergeContext(value(100), json.RawMessage(nothing))
		require.NoError(t, err)
		require.Equal(t, value(100), got)
	}
	for _, bad := range []string{"[]", "null", "1", "{"} {
		_, err := d.MergeContext(nil, json.RawMessage(bad))
		require.ErrorContains(t, err, "must be a JSON object", bad)
	}
	got, err := (&Definition{}).MergeContext(nil, json.RawMessage(`{"a":"<$(x)\n'\"&>"}`))
	require.NoError(t, err)
	require.Equal(t, `{"a":"<$(x)\n'\"&>"}`, string(got), "a value is data")
}

// B23: nodes that each add a key of their own lose none; of one key the last writer wins.
func TestMergeContext_B23(t *testing.T) {
	t.Parallel()
	d := &Definition{}
	var context json.RawMessage
	for i := range 50 {
		var err error
		context, err = d.MergeContext(context, json.RawMessage(fmt.Sprintf(`{"k%d":%d,"n":%d}`, i, i, i)))
		require.NoError(t, err)
	}
	var got map[string]int
	require.NoError(t, json.Unmarshal(context, &got))
	require.Len(t, got, 51)
	require.Equal(t, 49, got["n"])
}
