//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/processor"
)

// testServer is a whole server in this process, with a worker of app shop if wanted; it
// returns the address of its broker.
func testServer(t *testing.T, worker bool) string {
	t.Helper()
	p, err := startParts(t.Context(), partsConfig{dir: t.TempDir(), port: -1, log: warnings(io.Discard)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	if worker {
		ctx, cancel := context.WithCancelCause(t.Context())
		sig := &interrupts{first: ctx, cancel: cancel}
		stop := startWorkers(sig, "shop", p.url, 1, 4, warnings(io.Discard), func(*processor.Worker) {})
		t.Cleanup(func() { require.NoError(t, stop()) })
	}
	return p.url
}

// answer runs a command that must succeed and reads its JSON.
func answer(t *testing.T, into any, args ...string) {
	t.Helper()
	out, errs, code := command(append(args, "-o", "json")...)
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), into), out)
}

// eventually asks again until the answer is the right one.
func eventually(t *testing.T, right func() bool) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !right() {
		select {
		case <-deadline:
			require.FailNow(t, "it never was right")
		case <-again.C:
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	url := testServer(t, false)
	apply := func(files ...string) string {
		out, errs, code := command(append([]string{"apply", "--server", url}, files...)...)
		require.Zero(t, code, errs)
		return out
	}
	require.Equal(t, `app shop: nothing to send
calendar shop/holidays: saved, version 1
job shop/import: created, version 1
job shop/tick: created, version 1
job shop/nightly: created, version 1
workflow shop/week: created, version 1
workflow shop/month: created, version 1
`, apply("-f", "testdata/apply"))
	require.Contains(t, apply("-f", "testdata/apply"), `job shop/nightly: unchanged, version 1
workflow shop/week: unchanged, version 1
workflow shop/month: unchanged, version 1
`)
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
{kind: Job, app: shop, name: import, processor: other}
---
{kind: Job, app: shop, name: late, processor: p, schedule: {cron: "0 0 * * *", calendars: [elsewhere]}}
---
{kind: Calendar, app: shop, name: holidays, off: [2027-01-01]}
---
{kind: Job, app: shop, name: last, processor: p}
`), 0o644))
	// What the server refuses is told, and the rest is saved.
	out, errs, code := command("apply", "--server", url, "-f", file)
	require.Equal(t, exitInvalid, code)
	require.Equal(t, "calendar shop/holidays: updated, version 2\njob shop/import: updated, version 2\njob shop/late: refused\njob shop/last: created, version 1\n", out)
	require.Contains(t, errs, "the server refused 1 document:\n"+file+":4: ")
	require.Contains(t, errs, `the app has no calendar "elsewhere"`)

	// A job that is followed and not there is told.
	require.NoError(t, os.WriteFile(file, []byte("{kind: Job, app: shop, name: second, processor: p, schedule: {cron: \"0 0 * * *\", after: [{job: last}, {job: first}]}}\n"), 0o644))
	out, errs, code = command("apply", "--server", url, "-f", file)
	require.Zero(t, code, errs)
	require.Equal(t, "job shop/second: created, version 1\n", out)
	require.Contains(t, errs, `jobs.yaml:1:`)
	require.Contains(t, errs, `note: there is no job "first"; job "second" does not fire before it is saved`)
	require.NotContains(t, errs, `"last"`)

	var got []applied
	answer(t, &got, "apply", "--server", url, "-f", "testdata/apply/more")
	require.Equal(t, applied{Kind: "Job", App: "shop", Name: "tick", File: "testdata/apply/more/jobs.ndjson", Line: 2, Result: "unchanged", Version: 1}, got[1])
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	url := testServer(t, true)
	_, errs, code := command("apply", "--server", url, "-f", "testdata/apply")
	require.Zero(t, code, errs)
	nightly := []string{"--server", url, "--app", "shop", "--job", "nightly"}
	schedule := func(order string, more ...string) string {
		out, errs, code := command(append([]string{"schedule", order}, append(more, nightly...)...)...)
		require.Zero(t, code, errs)
		return out
	}
	var st api.ScheduleReply
	eventually(t, func() bool {
		answer(t, &st, append([]string{"schedule", "show"}, nightly...)...)
		return st.NextAt != 0
	})
	require.Equal(t, "job", st.Kind)
	require.True(t, st.Enabled)
	text := schedule("show")
	require.Regexp(t, `(?m)^job shop/nightly +version 1, enabled$`, text)
	require.Regexp(t, `(?m)^schedule +cron "0 30 2 \* \* \?", zone Europe/Berlin, calendars holidays, overlap skip, misfire once$`, text)
	require.Regexp(t, `(?m)^next fire +\d{4}-\d\d-\d\d 02:30:00 CES?T \(\S+Z\), in \S+$`, text)
	require.Regexp(t, `(?m)^next fire +none: paused since `, schedule("pause"))
	require.Regexp(t, `(?m)^next fire +`, schedule("resume"))
	require.Regexp(t, `(?m)^job shop/nightly +version \d, disabled$`, schedule("disable"))
	require.Regexp(t, `(?m)^job shop/nightly +version \d, enabled$`, schedule("enable"))
	out, errs, code := command("schedule", "show", "--server", url, "--app", "shop", "--workflow", "month")
	require.Zero(t, code, errs)
	require.Contains(t, out, `cron "0 4 1 * *"`)
	_, errs, code = command("schedule", "show", "--server", url, "--app", "shop", "--job", "none")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, `fanjet: the server refused: job "none" of app "shop": `)
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	url := testServer(t, true)
	_, errs, code := command("apply", "--server", url, "-f", "testdata/apply")
	require.Zero(t, code, errs)
	job := []string{"--server", url, "--app", "shop", "--job", "import"}
	with := func(name string, more ...string) []string { return append(append([]string{name}, job...), more...) }

	out, errs, code := command(with("trigger")...)
	require.Zero(t, code, errs)
	require.Regexp(t, `^instance \d+ of job shop/import\n$`, out)
	var ids triggered
	answer(t, &ids, with("trigger", "--count", "3", "--lane", "high", "--params", `{"root": "."}`)...)
	require.Len(t, ids.IDs, 3)
	out, _, _ = command(with("trigger", "--count", "2")...)
	require.Regexp(t, `^2 instances of job shop/import: \d+ … \d+\n$`, out)
	var st api.ScheduleReply
	eventually(t, func() bool {
		answer(t, &st, with("schedule", "show")...)
		return st.Succeeded == 6
	})
	out, _, _ = command(with("schedule", "show")...)
	require.Regexp(t, `(?m)^runs +6 ended: 6 succeeded, 0 failed$`, out)
	require.Regexp(t, `(?m)^last run +\d+ succeeded at .*, took \S+$`, out)
	require.Regexp(t, `(?m)^run time +p50 \S+, p95 \S+ of the newest 6 runs that succeeded$`, out)
	require.Regexp(t, `(?m)^schedule +none: by call only$`, out)

	answer(t, &ids, with("trigger", "--delay", "1h", "--key", "order-7")...)
	out, errs, code = command(with("cancel", "--key", "order-7")...)
	require.Zero(t, code, errs)
	require.Equal(t, "1 instance of job shop/import told to end\n", out)
	out, errs, code = command(with("cancel", "--key", "order-8")...)
	require.Zero(t, code, errs)
	require.Equal(t, "nothing of job shop/import waits or runs under key order-8\n", out)

	_, errs, code = command("trigger", "--server", url, "--app", "shop", "--job", "tick")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "disabled")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	url := testServer(t, true)
	dir := t.TempDir()
	file := filepath.Join(dir, "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{kind: Job, app: shop, name: tick, processor: demo-list, params: {root: testdata/apply}, schedule: {cron: \"* * * * * ?\"}}\n"), 0o644))
	began := time.Now().UTC().Format(time.RFC3339)
	_, errs, code := command("apply", "--server", url, "-f", file)
	require.Zero(t, code, errs)
	with := func(name string, more ...string) []string {
		return append([]string{name, "--server", url, "--app", "shop", "--job", "tick", "--from", began}, more...)
	}
	var l api.LedgerReply
	eventually(t, func() bool {
		l = api.LedgerReply{}
		answer(t, &l, with("ledger")...)
		l.Entries = slices.DeleteFunc(l.Entries, func(e api.LedgerEntry) bool { return e.Status != "succeeded" })
		return len(l.Entries) >= 3
	})
	require.NotZero(t, l.Entries[0].Instance)
	out, errs, code := command(with("ledger", "--limit", "1")...)
	require.Zero(t, code, errs)
	require.Regexp(t, `^SCHEDULED +STATUS +LATE +INSTANCE\n\d{4}-\d\d-\d\dT\S+Z +(succeeded|skipped: \w+) +\S+ +\S+\n$`, out)
	require.Contains(t, errs, "there are more")

	var v struct {
		Clean bool `json:"clean"`
		api.VerifyReply
	}
	// It looks no nearer to now than ten seconds.
	eventually(t, func() bool {
		v.VerifyReply = api.VerifyReply{}
		answer(t, &v, with("verify")...)
		return v.Fired > 0
	})
	require.True(t, v.Clean)
	require.Equal(t, v.Expected, v.Fired+v.Skipped)

	// Before the job was made nothing fired: that is what can be backfilled.
	from, to := time.UnixMilli(l.Entries[0].From-5000), time.UnixMilli(l.Entries[0].From)
	fill := []string{"backfill", "--server", url, "--app", "shop", "--job", "tick", "--from", from.UTC().Format(time.RFC3339Nano), "--to", to.UTC().Format(time.RFC3339Nano)}
	out, errs, code = command(append(fill, "--dry-run")...)
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^5 times of job shop/tick would be fired, 1 had run already$`, out)
	var b api.BackfillReply
	answer(t, &b, fill...)
	require.EqualValues(t, 1, b.Existed)
	_, errs, code = command(append(fill, "--max", "1", "--from", "-48h")...)
	require.Equal(t, exitInvalid, code)
	require.Contains(t, errs, "shorter range")
}

func TestVerify_Text(t *testing.T) {
	t.Parallel()
	c := verifyCmd{definitionFlags: definitionFlags{App: "shop", Job: "tick"}}
	v := &api.VerifyReply{
		From: 1_000, To: 61_500, Expected: 61, Fired: 59, Skipped: 1, MaxLateMS: 1500, P99LateMS: 12,
		Missing: api.Times{Count: 3, First: []int64{2_000, 3_500}}, Doubled: api.Times{Count: 1, First: []int64{9_000}},
	}
	require.Equal(t, `job shop/tick from 1970-01-01T00:00:01Z to 1970-01-01T00:01:01.5Z: 61 expected, 59 fired, 1 skipped
late by 1.5s at most, 12ms at p99
  1970-01-01T00:00:02Z  missed
  1970-01-01T00:00:03.5Z  missed
  and 1 more missed
  1970-01-01T00:00:09Z  fired twice
`, c.compared(v))
	require.Equal(t, "job shop/tick is not clean: 3 fires missed, 1 fire doubled; run what was missed with "+
		"fanjet backfill --app shop --job tick --from 1970-01-01T00:00:01Z --to 1970-01-01T00:01:01.5Z", c.unclean(v))
	require.True(t, strings.HasSuffix(c.compared(&api.VerifyReply{From: 1, To: 2}), "clean\n"))
}

func TestLedgerTable(t *testing.T) {
	t.Parallel()
	require.Equal(t, `SCHEDULED                                             STATUS            LATE  INSTANCE
1970-01-01T00:00:01Z                                  succeeded         5ms   7
1970-01-01T00:00:02Z … 1970-01-01T00:00:09Z, 8 fires  skipped: paused   -     -
1970-01-01T00:00:10Z                                  skipped: misfire  -     -
`, ledgerTable([]api.LedgerEntry{
		{From: 1_000, To: 1_000, Count: 1, Status: "succeeded", Instance: 7, LateMS: 5},
		{From: 2_000, To: 9_000, Count: 8, Skipped: "paused"},
		{From: 10_000, To: 10_000, Count: 1, Skipped: "misfire"},
	}))
}

func TestInstant(t *testing.T) {
	t.Parallel()
	var i instant
	require.NoError(t, i.UnmarshalText([]byte("2026-12-01T02:30:00+01:00")))
	require.Equal(t, "2026-12-01T01:30:00Z", utc(i.millis()))
	require.NoError(t, i.UnmarshalText([]byte("now")))
	require.Zero(t, i.millis())
	for text, want := range map[string]time.Duration{"-24h": 24 * time.Hour, "-7d": 7 * 24 * time.Hour, "-90s": 90 * time.Second} {
		require.NoError(t, i.UnmarshalText([]byte(text)))
		require.InDelta(t, want.Seconds(), time.Since(i.Time).Seconds(), patience.Seconds(), text)
	}
	for _, bad := range []string{"", "24h", "-x", "--1h", "-1.5d", "-99999999999d", "tomorrow", "2026-12-01"} {
		require.ErrorContains(t, i.UnmarshalText([]byte(bad)), "is no time; write it as", bad)
	}
	require.Equal(t, []string{"ledger", "--from=-24h", "--to", "now", "-o", "json"}, joinNegative([]string{"ledger", "--from", "-24h", "--to", "now", "-o", "json"}))
	require.Equal(t, []string{"-5", "x", "-5", "--a=b", "-5"}, joinNegative([]string{"-5", "x", "-5", "--a=b", "-5"}))
}
