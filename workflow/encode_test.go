package workflow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeYAML(t *testing.T) {
	t.Parallel()
	b, err := EncodeYAML(&JobDefinition{
		Kind: KindJob, Name: "nightly", App: "shop", Title: "Nightly: the report",
		Schedule: Schedule{Cron: "0 30 2 * * ?", Weekdays: []string{"mon"}},
		Spec:     Spec{Processor: "shell", Params: json.RawMessage(`{"script":"df -h\necho done\n","list":[],"n":1.50,"on":"on","date":"2026-12-25","no":null}`)},
	})
	require.NoError(t, err)
	require.Equal(t, `kind: Job
name: nightly
app: shop
title: 'Nightly: the report'
schedule:
  cron: 0 30 2 * * ?
  weekdays:
    - mon
processor: shell
params:
  script: |
    df -h
    echo done
  list: []
  n: 1.50
  on: on
  date: "2026-12-25"
  no: null
`, string(b))
	_, err = EncodeYAML(func() {})
	require.Error(t, err)
}

// Whatever a text is, it reads back as that text.
func TestEncodeYAML_Texts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "true", "~", "null", "12", "1e3", "0x1f", "1_000", ".inf", "2026-12-25", "y", "-", "- a", "? a", "a: b", "a #b", "#a", "&a", "*a", "!a",
		"%a", "@a", "`a", "{a", "[a", "'", `"`, "a\nb", "\n", "\na", "a\n\n", " a\n  b", "a\r\nb", "a\tb", "\t", "\x00\x01\x7f", "\u0085", "\u2028", "\ufeffa", "😀", "日本", "---", "...", "<<", "=",
		"a\n---\nb", "a\n...\nb: c", "  \n a", "a \n", "\u00a0", "\x1b[0m",
	} {
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		raw, err = json.Marshal(map[string]json.RawMessage{"a": raw})
		require.NoError(t, err)
		b, err := EncodeYAML(&JobDefinition{Kind: KindJob, Name: "a", App: "a", Spec: Spec{Processor: "p", Params: raw}})
		require.NoError(t, err, "%q", text)
		docs, err := ParseAll("x", b)
		require.NoError(t, err, "%q\n%s", text, b)
		require.Len(t, docs, 1)
		var got map[string]string
		require.NoError(t, json.Unmarshal(docs[0].Job.Params, &got))
		require.Equal(t, text, got["a"], "%s", b)
	}
}
