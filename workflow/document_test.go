package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// readDocuments parses one of the good files.
func readDocuments(t *testing.T, name string) []Document {
	t.Helper()
	data, err := os.ReadFile("testdata/documents/" + name)
	require.NoError(t, err)
	docs, err := ParseAll(name, data)
	require.NoError(t, err)
	return docs
}

func TestParseAll(t *testing.T) {
	t.Parallel()
	docs := readDocuments(t, "every_kind.yaml")
	var got []string
	for _, d := range docs {
		got = append(got, d.Kind+" "+d.App+"/"+d.Name)
	}
	require.Equal(t, []string{"App shop/shop", "Calendar shop/de-holidays", "Job shop/nightly", "Job shop/import", "Workflow shop/month"}, got)
	require.Equal(t, "The shop", docs[0].AppDefinition.Title)

	c := docs[1].Calendar
	require.Equal(t, "holidays.ics", c.File)
	require.Equal(t, []CalendarDay{{Date: "2026-12-25"}, {Date: "2026-12-28", Until: "2026-12-31", Name: "closed"}}, c.Off)
	require.Equal(t, []string{"4thu"}, c.Repeats[1].Weekdays)
	require.Equal(t, []CalendarDay{{Date: "2026-12-19"}}, c.Work)

	j := docs[2].Job
	require.Equal(t, Schedule{
		Cron: "0 30 2 * * ?", Zone: "Europe/Berlin", Calendars: []string{"de-holidays"}, Overlap: OverlapSkip,
		Misfire: MisfireAll, MisfireMax: 3, After: []Dependency{{Job: "import", Weak: true}},
	}, j.Schedule)
	require.Equal(t, Spec{
		Processor: "nightly-report", Params: json.RawMessage(`{"region":"eu"}`), Retry: Retry{Max: 3, Delay: Duration(10 * time.Second)},
		MaxRunning: 1, Labels: map[string]string{"disk": "fast"},
	}, j.Spec)
	require.True(t, docs[3].Job.Disabled)
	require.Equal(t, ScheduleType(""), docs[3].Job.Schedule.Type)
	w := docs[4].Workflow
	require.Equal(t, 2, w.MaxRunning)
	require.Equal(t, "22:00", w.Schedule.From)
	_, err := Build(w)
	require.NoError(t, err)
}

func TestParseAll_JSON(t *testing.T) {
	t.Parallel()
	docs := readDocuments(t, "list.json")
	require.Len(t, docs, 2)
	require.Equal(t, "2027-01-01T00:00:00Z", docs[1].Job.Schedule.At)
	require.Equal(t, []int{3, 3}, []int{docs[1].Line, docs[1].Column})
	docs = readDocuments(t, "lines.ndjson")
	require.Len(t, docs, 3)
	require.Equal(t, "p😀", docs[1].Job.Processor)
	// Without a name that says so it is JSON by its text.
	data, err := os.ReadFile("testdata/documents/lines.ndjson")
	require.NoError(t, err)
	again, err := ParseAll("-", data)
	require.NoError(t, err)
	require.Len(t, again, 3)
}

// What a document is written to reads back as the same.
func TestParseAll_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, d := range readDocuments(t, "every_kind.yaml") {
		for _, v := range []any{d.AppDefinition, d.Calendar, d.Job, d.Workflow} {
			b, err := json.Marshal(v)
			require.NoError(t, err)
			if string(b) == "null" {
				continue
			}
			docs, err := ParseAll("x.json", b)
			require.NoError(t, err, string(b))
			require.Len(t, docs, 1)
			require.Equal(t, []any{d.AppDefinition, d.Calendar, d.Job}, []any{docs[0].AppDefinition, docs[0].Calendar, docs[0].Job})
			again, err := json.Marshal(docs[0].Workflow)
			require.NoError(t, err)
			if d.Workflow != nil {
				require.Equal(t, string(b), string(again))
			}
		}
	}
}

func TestParseAllFor(t *testing.T) {
	t.Parallel()
	const file = "kind: Job\nname: a\nprocessor: p\n---\nkind: Job\nname: b\napp: other\nprocessor: p\n---\nkind: Workflow\nname: c\nnodes: [{id: a, processor: p}]\n"
	docs, err := ParseAllFor("shop", "x", []byte(file))
	require.NoError(t, err)
	require.Equal(t, "shop", docs[0].Job.App)
	require.Equal(t, "other", docs[1].App)
	require.Equal(t, "shop", docs[2].Workflow.App)
	_, err = ParseAll("x", []byte(file))
	require.EqualError(t, err, "x:1:1: app is missing\nx:10:1: app is missing")
}

func TestDocument_Problem(t *testing.T) {
	t.Parallel()
	docs := readDocuments(t, "every_kind.yaml")
	for field, want := range map[string]string{
		"schedule.cron": "every_kind.yaml:29:9: bad", "schedule.calendars": "every_kind.yaml:31:14: bad",
		"schedule.after[0].job": "every_kind.yaml:35:17: bad", "schedule.after[7].job": "every_kind.yaml:35:10: bad",
		"schedule.every": "every_kind.yaml:29:3: bad", "schedule": "every_kind.yaml:29:3: bad",
		"nothing.at[1]": "every_kind.yaml:22:1: bad", "": "every_kind.yaml:22:1: bad",
	} {
		require.Equal(t, want, docs[2].Problem(field, "bad").String(), field)
	}
	require.Equal(t, "every_kind.yaml:14:10: bad", docs[1].Problem("off[1].date", "bad").String())
	require.Equal(t, "every_kind.yaml:13:3: bad", docs[1].Problem("off[0].date", "bad").String())
}

// Every broken file is refused at once, with everything that is wrong in it at its place.
func TestParseAll_Broken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/broken_documents/*.[yjn]*")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	var out strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		start := time.Now()
		_, err = ParseAll(filepath.Base(f), data)
		require.Error(t, err, f)
		require.Less(t, time.Since(start), 5*time.Second, f)
		out.WriteString(err.Error() + "\n\n")
	}
	const golden = "testdata/broken_documents/golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

// What ParseAll takes the schema takes, and it finds what is broken by its form.
func TestDocumentSchema_AgreesWithParseAll(t *testing.T) {
	t.Parallel()
	var root map[string]any
	require.NoError(t, json.Unmarshal(DocumentSchema(), &root))
	check := func(file string) error {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, one := range strings.Split(string(data), "\n---\n") {
			var v any
			require.NoError(t, yaml.Unmarshal([]byte(one), &v))
			if v == nil {
				continue
			}
			raw, err := json.Marshal(v)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &v))
			if err := conforms(root, root, v, ""); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, check("testdata/documents/every_kind.yaml"))
	for file, want := range map[string]string{
		"kinds": "/kind: is none of", "job": "has no processor", "calendar": "/include: is not allowed", "app": "/app: is not allowed", "workflow": "is not allowed",
	} {
		require.ErrorContains(t, check("testdata/broken_documents/"+file+".yaml"), want, file)
	}
}

func FuzzParseAll(f *testing.F) {
	for _, pattern := range []string{"testdata/documents/*", "testdata/broken_documents/*.[yjn]*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := ParseAll("", data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, d := range docs {
			require.NotEmpty(t, d.Kind)
			require.Positive(t, d.Problem("schedule.cron", "x").Line)
		}
	})
}
