package schedule

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// vector is one of testdata/cron_vectors.json, which is the specification.
type vector struct {
	ID           string          `json:"id"`
	Expr         string          `json:"expr"`
	Zone         string          `json:"zone"`
	From         string          `json:"from"`
	Next         []string        `json:"next"`
	Why          string          `json:"why"`
	Alternatives json.RawMessage `json:"alternatives"`
}

type vectorFile struct {
	Count   int      `json:"count"`
	Vectors []vector `json:"vectors"`
	Finite  []vector `json:"finite"`
	Never   []vector `json:"never"`
	Reject  []vector `json:"reject"`
}

func vectors(t testing.TB) vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/cron_vectors.json")
	require.NoError(t, err)
	var f vectorFile
	require.NoError(t, json.Unmarshal(data, &f))
	require.Len(t, f.Vectors, f.Count)
	return f
}

func ms(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UnixMilli()
}

func compile(t testing.TB, s workflow.Schedule) *Schedule {
	t.Helper()
	c, err := Compile(s, nil)
	require.NoError(t, err)
	return c
}

// walk is the next n fires after from, as RFC 3339 in the schedule's zone.
func walk(t testing.TB, s *Schedule, from string, n int) []string {
	t.Helper()
	out := []string{}
	for after := ms(t, from); len(out) < n; {
		at, ok := s.Next(after, after)
		if !ok {
			break
		}
		require.Greater(t, at, after)
		out = append(out, time.UnixMilli(at).In(s.zone.loc).Format(time.RFC3339Nano))
		after = at
	}
	return out
}

func inZone(t testing.TB, zone string, times []string) []string {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	out := []string{}
	for _, text := range times {
		out = append(out, time.UnixMilli(ms(t, text)).In(loc).Format(time.RFC3339Nano))
	}
	return out
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t).Vectors {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			s := compile(t, workflow.Schedule{Cron: v.Expr, Zone: v.Zone})
			want := inZone(t, v.Zone, v.Next)
			if v.ID == "C068" { // later years are a forecast of the zone data
				want = want[:1]
			}
			require.Equal(t, want, walk(t, s, v.From, len(want)), v.Why)

			// The other directions agree.
			from, last := ms(t, v.From), ms(t, v.Next[len(want)-1])
			require.EqualValues(t, len(want), s.count(from, last, 0))
			for i := len(want) - 1; i >= 0; i-- {
				at, ok := s.prev(last, 0)
				require.True(t, ok)
				require.Equal(t, ms(t, v.Next[i]), at)
				last = at - 1
			}
			at, ok := s.prev(last, 0)
			require.True(t, !ok || at <= from)
		})
	}
}

// The other policies are among the alternatives of the vectors.
func TestVectors_OtherPolicies(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, v := range vectors(t).Vectors {
		var others map[string]any
		if v.Alternatives == nil {
			continue
		}
		require.NoError(t, json.Unmarshal(v.Alternatives, &others))
		for name, policy := range map[string]workflow.Schedule{
			"gap_skipped":         {DSTGap: workflow.GapSkip},
			"overlap_both_passes": {DSTOverlap: workflow.RepeatBoth},
		} {
			list, ok := others[name].([]any)
			if !ok {
				continue
			}
			var next []string
			for _, text := range list {
				next = append(next, text.(string))
			}
			if v.ID == "C068" {
				next = next[:2]
			}
			tried++
			policy.Cron, policy.Zone = v.Expr, v.Zone
			require.Equal(t, inZone(t, v.Zone, next), walk(t, compile(t, policy), v.From, len(next)), "%s %s", v.ID, name)
		}
	}
	require.Equal(t, 15, tried)
}

func TestVectors_Finite(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t).Finite {
		s := compile(t, workflow.Schedule{Cron: v.Expr, Zone: v.Zone})
		require.Equal(t, inZone(t, v.Zone, v.Next), walk(t, s, v.From, 5), v.Why)
	}
}

func TestVectors_Never(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t).Never {
		for _, zone := range []string{"UTC", "America/New_York"} {
			s := compile(t, workflow.Schedule{Cron: v.Expr, Zone: zone})
			at, ok := s.Next(ms(t, "2026-01-01T00:00:00Z"), 0)
			require.False(t, ok, v.Why)
			require.Zero(t, at)
			require.Zero(t, s.count(0, maxTime, 0))
		}
	}
}

func TestVectors_Reject(t *testing.T) {
	t.Parallel()
	for i, v := range vectors(t).Reject {
		_, err := Compile(workflow.Schedule{Cron: v.Expr}, nil)
		var field *FieldError
		require.ErrorAs(t, err, &field, strconv.Itoa(i)+" "+v.Expr)
		require.Equal(t, "schedule.cron", field.Field)
		require.NotEmpty(t, field.Message)
	}
}

// Every error says which field, and where in the expression.
func TestCronErrors(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"* * * *":           "schedule.cron: 4 fields: write 5 (minute hour day-of-month month day-of-week), or 6 or 7 (second first, year last)",
		"@daily":            "schedule.cron: 1 fields: write 5 (minute hour day-of-month month day-of-week), or 6 or 7 (second first, year last); write out what an @ name stands for, or use type fixed_rate",
		"0 25 * * *":        `schedule.cron: column 3: hour "25": must be 0 to 23`,
		"*/90 * * * *":      `schedule.cron: column 1: minute "*/90": the step must be 1 to 59, for cron begins anew in every field; for a longer period use type fixed_rate`,
		"*/0 * * * *":       `schedule.cron: column 1: minute "*/0": the step must be 1 to 59`,
		"0  0  1,,2 * *":    `schedule.cron: column 7: day-of-month "1,,2": a value is missing beside a comma`,
		"0 0 1 jan,foo *":   `schedule.cron: column 11: month "foo": must be 1 to 12, or a name JAN to DEC`,
		"0 0 * * MONDAYS":   `schedule.cron: column 9: day-of-week "MONDAYS": must be 0 to 7, or a name SUN to SAT`,
		"0 0 ? * 1":         `schedule.cron: column 5: day-of-month "?": ? belongs to expressions of 6 or 7 fields; write *`,
		"0 0 12 1 * 2":      `schedule.cron: column 12: day-of-month "1" and day-of-week "2": write ? in exactly one of them`,
		"0 0 12 ? * ?":      `schedule.cron: column 12: day-of-month and day-of-week are both ?; one of them must say which days`,
		"0 0 12 L-31 * ?":   `schedule.cron: column 8: day-of-month "L-31": behind L- must be 1 to 30`,
		"0 0 12 ? * 6#6":    `schedule.cron: column 12: day-of-week "6#6": behind # must be 1 to 5`,
		"0 0 0 1 1 ? 1969":  `schedule.cron: column 13: year "1969": must be 1970 to 2199`,
		"0 0 0 1 1 ? 30-29": `schedule.cron: column 13: year "30-29": must be 1970 to 2199`,
		"1- * * * *":        `schedule.cron: column 1: minute "1-": a value is missing`,
		"1/x * * * *":       `schedule.cron: column 1: minute "1/x": the step "x" must be a number`,
		"5 4 * * é":         `schedule.cron: column 9: day-of-week "é": must be 0 to 7, or a name SUN to SAT`,
	} {
		_, err := Compile(workflow.Schedule{Cron: expr}, nil)
		require.EqualError(t, err, want, expr)
	}
}
