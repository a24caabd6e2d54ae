package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// What is wrong in any file is told with its place, and nothing is sent.
func TestApply_Broken(t *testing.T) {
	t.Parallel()
	out, errs, code := command("apply", "-f", "testdata/broken_apply", "-f", "testdata/broken_apply/empty", "-f", "testdata/none.yaml", "--server", "nats://127.0.0.1:1")
	require.Equal(t, exitInvalid, code)
	require.Empty(t, out)
	require.Contains(t, errs, "fanjet: nothing was sent:\n")
	golden(t, "testdata/broken_apply/golden.txt", errs)
}

func TestApply_DryRun(t *testing.T) {
	t.Parallel()
	out, errs, code := command("apply", "-f", "testdata/apply", "--dry-run")
	require.Zero(t, code, errs)
	require.Equal(t, `app shop: nothing to send
calendar shop/holidays: would be sent
job shop/import: would be sent
job shop/tick: would be sent
job shop/nightly: would be sent
workflow shop/week: would be sent
workflow shop/month: would be sent
`, out)
	_, errs, code = command("apply", "-f", "testdata/apply", "--dry-run", "--app", "other")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, errs, `testdata/apply/shop.yaml:3:6: Workflow "month" is of app "shop", but --app is "other"`)
	_, errs, code = command("apply", "-f", "testdata/apply")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, errs, "--server (or FANJET_URL) is missing")
}

func TestApply_StandardInput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := applyCmd{Files: []string{"-"}, App: "shop", DryRun: true, in: strings.NewReader("kind: Job\nname: a\nprocessor: p\n")}
	c.Output = "json"
	require.NoError(t, c.Run(&console{&out, &out}))
	var got []applied
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Equal(t, []applied{{Kind: "Job", App: "shop", Name: "a", File: "-", Line: 1, Result: "would be sent"}}, got)
	c.in = strings.NewReader("kind: Job\nname: [\n")
	require.ErrorContains(t, c.Run(&console{&out, &out}), "-:3:1: not valid YAML")
}

func TestValidate_Documents(t *testing.T) {
	t.Parallel()
	out, errs, code := command("validate", "testdata/apply")
	require.Zero(t, code, errs)
	require.Equal(t, "testdata/apply/calendar.yml: ok, 1 document\ntestdata/apply/more/jobs.ndjson: ok, 2 documents\ntestdata/apply/shop.yaml: ok, 4 documents\n", out)
	out, _, code = command("validate", "testdata/broken_apply/schedules.yaml")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, out, "testdata/broken_apply/schedules.yaml:6:9: schedule.cron: column 3: ")
}

func TestLoadCalendar(t *testing.T) {
	t.Parallel()
	set := readDocuments([]string{"testdata/apply/calendar.yml"}, "", nil)
	set.check()
	require.Empty(t, set.problems)
	c := set.calendars[[2]string{"shop", "holidays"}]
	require.True(t, c.IsOff(2026, 12, 25), "of the file")
	require.True(t, c.IsOff(2026, 12, 31), "of the document")
	require.True(t, c.IsOff(2026, 12, 20), "a Sunday")
	require.False(t, c.IsOff(2026, 12, 24))
}

// The document language has every field of a calendar, and no other.
func TestCalendarFields(t *testing.T) {
	t.Parallel()
	var same func(a, b reflect.Type)
	same = func(a, b reflect.Type) {
		fields := func(of reflect.Type) map[string]reflect.Type {
			out := map[string]reflect.Type{}
			for _, f := range reflect.VisibleFields(of) {
				if tag := f.Tag.Get("json"); tag != "" {
					out[tag] = f.Type
				}
			}
			return out
		}
		left, right := fields(a), fields(b)
		require.Len(t, right, len(left), a)
		for tag, l := range left {
			r, ok := right[tag]
			require.True(t, ok, "%v has no field %q", b, tag)
			require.Equal(t, l.Kind(), r.Kind(), tag)
			if l.Kind() == reflect.Slice && l.Elem().Kind() == reflect.Struct {
				same(l.Elem(), r.Elem())
			}
		}
	}
	same(reflect.TypeFor[workflow.Calendar](), reflect.TypeFor[schedule.Calendar]())
}

func TestInSendingOrder_Cycle(t *testing.T) {
	t.Parallel()
	docs, err := workflow.ParseAll("x", []byte(`
{kind: Job, app: a, name: x, processor: p, schedule: {after: [{job: y}]}}
---
{kind: Job, app: a, name: y, processor: p, schedule: {after: [{job: x}, {job: z}]}}
---
{kind: Job, app: a, name: z, processor: p}
`))
	require.NoError(t, err)
	var names string
	for _, d := range inSendingOrder(docs) {
		names += d.Name
	}
	require.Equal(t, "zyx", names)
}
