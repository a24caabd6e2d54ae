package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/schedule"
)

// TestNext_Shown are command lines with what they show.
func TestNext_Shown(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, line := range []string{
		"--cron '0 30 2 * * ?' --zone America/New_York --from 2026-03-07T12:00:00Z -n 3",
		"--cron '0 30 2 * * ?' --zone America/New_York --from 2026-03-08T00:00:00Z -n 2 --dst-gap skip",
		"--cron '0/15 2 * * *' --zone Europe/Berlin --from 2026-03-29T00:00:00Z -n 2",
		"--cron '30 1 * * *' --zone America/New_York --from 2026-11-01T00:00:00Z -n 2",
		"--cron '30 1 * * *' --zone America/New_York --from 2026-11-01T00:00:00Z -n 2 --dst-overlap both",
		"--cron '*/30 * * * *' --zone America/New_York --from 2026-11-01T05:00:00Z -n 3",
		"--cron '0 0 0 1 1 ? 2030' --from 2026-01-01T00:00:00Z",
		"--cron '0 0 31 2 *' --from 2026-01-01T00:00:00Z",
		"--cron '0 9 * * *' --from 2026-05-01T00:00:00Z --start 2026-05-03T00:00:00 --end 2026-05-04T12:00:00",
		"--cron '0 9 * * *' --from 2026-05-01T00:00:00Z --end 2026-04-01T00:00:00Z",
		"--cron '* * * * *' --from 2026-09-30T23:58:00Z -n 2 --zone UTC --calendar testdata/next/china.csv",
		"--cron '0 9 * * *' --from 2026-12-23T00:00:00Z -n 3 --zone Europe/Berlin --calendar testdata/next/office.json --calendar testdata/next/fairs.ics",
		"--every 250ms --from 2026-05-01T00:00:00Z -n 2",
		"--rate 24h --start 2026-05-01T06:00:00 --zone Asia/Kolkata --jitter 1m --from 2026-05-10T00:00:00Z -n 2",
		"--delay 90s --from 2026-05-01T00:00:00Z -n 2",
		"--daily --every 30m --from-time 18:00 --to-time 19:10 --zone Asia/Shanghai --from 2026-05-01T09:50:00Z -n 4",
		"--every 2h --from-time 22:00 --to-time 02:00 --weekdays fri,sat --from 2026-05-01T00:00:00Z -n 4",
		"--at 2026-03-29T02:30:00 --zone Europe/Berlin --from 2026-01-01T00:00:00Z",
		"--at 2020-01-01T00:00:00Z --from 2026-01-01T00:00:00Z",
		"-f testdata/next/jobs.yaml --from 2026-12-24T00:00:00Z -n 2",
	} {
		out, errs, code := command(append([]string{"next"}, split(line)...)...)
		fmt.Fprintf(&b, "$ fanjet next %s\n%s%s", line, out, errs)
		if code != 0 {
			fmt.Fprintf(&b, "exit code %d\n", code)
		}
		b.WriteByte('\n')
	}
	golden(t, "testdata/next/next.golden", b.String())
}

// split takes a line apart at blanks that are not between quotes.
func split(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

func TestNext_JSON(t *testing.T) {
	t.Parallel()
	out, errs, code := command("next", "-o", "json", "--cron", "30 2 * * *", "--zone", "America/New_York", "--from", "2026-03-07T12:00:00Z", "-n", "1", "--dst-gap", "skip")
	require.Zero(t, code)
	require.Empty(t, errs)
	var previews []preview
	require.NoError(t, json.Unmarshal([]byte(out), &previews))
	require.Len(t, previews, 1)
	p := previews[0]
	require.False(t, p.Never)
	require.Equal(t, "America/New_York", p.Schedule.Zone)
	require.Equal(t, "2026-03-07T12:00:00Z", p.From)
	require.Equal(t, []schedule.Fire{
		{
			At: 1772953200000, Last: 1772953200000, Count: 1, Local: "2026-03-08T03:00:00-04:00", UTC: "2026-03-08T07:00:00Z",
			Skipped: true, Reason: schedule.ReasonGap, Note: "02:30 does not exist on 2026-03-08",
		},
		{At: 1773037800000, Last: 1773037800000, Count: 1, Local: "2026-03-09T02:30:00-04:00", UTC: "2026-03-09T06:30:00Z"},
	}, p.Fires)

	out, errs, code = command("next", "-o", "json", "--cron", "0 0 31 2 *", "--from", "2026-01-01T00:00:00Z")
	require.Equal(t, exitFailed, code)
	require.Equal(t, "fanjet: it never fires after 2026-01-01T00:00:00Z: there is no such time\n", errs)
	require.NoError(t, json.Unmarshal([]byte(out), &previews))
	require.True(t, previews[0].Never)
	require.Contains(t, out, `"fires": []`)
}

func TestNext_Refusals(t *testing.T) {
	t.Parallel()
	big := filepath.Join(t.TempDir(), "big.json")
	require.NoError(t, os.WriteFile(big, make([]byte, 5<<20), 0o600))
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "say when it fires: --cron, --every, --delay, --daily, --at, or -f FILE; see fanjet next --help"},
		{"--zone Europe/Berlin", "say when it fires"},
		{"--cron '* * * * *' --every 5s", "--cron and --every can't be used together; see fanjet next --help"},
		{"--cron '0 25 * * *'", `--cron: column 3: hour "25": must be 0 to 23`},
		{"--cron '0 9 * * *' --zone Berlin", `--zone: "Berlin" is not an IANA time zone; write one such as Europe/Berlin`},
		{"--cron '0 9 * * *' --from-time 08:00", "--from-time: it has no meaning for type cron"},
		{"--cron '0 9 * * *' --dst-gap before", `--dst-gap: "before": write after or skip`},
		{"--cron '0 9 * * *' -n 0", "-n 0: 1 to 1000"},
		{"--cron '0 9 * * *' --from yesterday", `--from: "yesterday" is no time`},
		{"--every 5ms", "--every: 5ms: must be 100ms to"},
		{"--delay 5ms", "--delay: 5ms: must be 100ms to"},
		{"--daily", "--every: it is missing"},
		{"--every 1h --from-time 8", `--from-time: "8": write a time of day`},
		{"--every 1h --to-time 24:00", `--to-time: "24:00": write a time of day`},
		{"--every 1h --daily --weekdays montag", `--weekdays: "montag" is not a weekday`},
		{"--every 1h --start 2026-02-01T00:00:00Z --end 2026-01-01T00:00:00Z", "--end: 2026-01-01T00:00:00Z is before start"},
		{"--at tomorrow", `--at: "tomorrow": write 2006-01-02T15:04:05Z`},
		{"--cron '0 9 * * *' --calendar testdata/next/none.ics", "--calendar testdata/next/none.ics: there is no such file; check the path"},
		{"--cron '0 9 * * *' --calendar testdata/good.yaml", "--calendar testdata/good.yaml: the name must end in .ics, .csv or .json"},
		{"--cron '0 9 * * *' --calendar " + big, "the file is larger than 4194304 bytes"},
		{"--cron '0 9 * * *' --calendar testdata/next/office.json --calendar testdata/next/office.json", `there is a calendar "office" already`},
		{"-f testdata/next/none.yaml", "none.yaml: there is no such file; check the path"},
		{"-f testdata/next/jobs.yaml --zone UTC", "-f: what fires when is in the file; leave out the flags that say it too"},
		{"-f testdata/next/borrowed.yaml", `the calendar "office" is not in the file; give it by --calendar office.ics, .csv or .json`},
		{"-f testdata/broken/cycle.yaml", "the definitions are not right:\ntestdata/broken/cycle.yaml:6:10: "},
	} {
		out, errs, code := command(append([]string{"next"}, split(c.args)...)...)
		require.Equal(t, exitInvalid, code, c.args)
		require.Empty(t, out, c.args)
		require.Contains(t, errs, c.want, c.args)
	}
	_, errs, code := command("next", "-f", "testdata/good.yaml")
	require.Equal(t, exitFailed, code)
	require.Equal(t, "fanjet: testdata/good.yaml: no job or workflow in it has a schedule: they run by call only\n", errs)
	out, _, code := command("next", "-f", "testdata/next/borrowed.yaml", "--calendar", "testdata/next/office.json", "--from", "2026-12-24T12:00:00Z", "-n", "1")
	require.Zero(t, code)
	require.Contains(t, out, "Mon 2026-12-28 09:00:00 +00:00")
}

func TestNext_InHelp(t *testing.T) {
	t.Parallel()
	out, _, code := command()
	require.Zero(t, code)
	require.Contains(t, out, "\n  next ")
}
