package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/workflow"
)

// The next fire, each from the last one.
func BenchmarkNext(b *testing.B) {
	calendars := map[string]*Calendar{"office": {Weekdays: []string{"sat", "sun"}, Off: []Day{{Date: "2026-12-25"}}}}
	for name, spec := range map[string]workflow.Schedule{
		"every second":           {Cron: "* * * * * ?"},
		"every minute, New York": {Cron: "* * * * *", Zone: "America/New_York"},
		"daily, New York":        {Cron: "0 30 2 * * ?", Zone: "America/New_York"},
		"last working day":       {Cron: "0 0 5 LW * ?", Zone: "Europe/Berlin"},
		"29 February":            {Cron: "0 0 29 2 *", Zone: "Europe/Berlin"},
		"daily, office days":     {Cron: "0 9 * * *", Zone: "Europe/Berlin", Calendars: []string{"office"}},
		"fixed rate":             {Every: workflow.Duration(100 * time.Millisecond)},
		"window of the day":      {Every: workflow.Duration(30 * time.Minute), From: "22:00", To: "02:00", Zone: "Europe/Berlin"},
		"never":                  {Cron: "0 0 31 2 *", Zone: "Europe/Berlin"},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := Compile(spec, calendars)
			require.NoError(b, err)
			b.ReportAllocs()
			start := ms(b, "2026-01-01T00:00:00Z")
			at := start
			for b.Loop() {
				next, ok := s.Next(at, start)
				if at = next; !ok || at > start+20*366*daySeconds*1000 {
					at = start
				}
			}
		})
	}
}

// What a year of absence asks for.
func BenchmarkPlan_Year(b *testing.B) {
	calendars := map[string]*Calendar{"office": {Weekdays: []string{"sat", "sun"}}}
	for name, spec := range map[string]workflow.Schedule{
		"every second, New York": {Cron: "* * * * * ?", Zone: "America/New_York"},
		"fixed rate 100ms":       {Every: workflow.Duration(100 * time.Millisecond)},
		"window of the day":      {Every: workflow.Duration(time.Second), From: "22:00", To: "02:00", Zone: "Europe/Berlin"},
		"minutes, office days":   {Cron: "* * * * *", Zone: "Europe/Berlin", Calendars: []string{"office"}},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := Compile(spec, calendars)
			require.NoError(b, err)
			b.ReportAllocs()
			after, now := ms(b, "2025-01-01T00:00:00Z"), ms(b, "2026-01-01T00:00:00Z")
			for b.Loop() {
				s.Plan(after, now, after)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(workflow.Schedule{Cron: "0 0/15 8-18 ? * MON-FRI", Zone: "Europe/Berlin"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
