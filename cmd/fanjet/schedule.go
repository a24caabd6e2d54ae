package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/workflow"
)

type scheduleCmd struct {
	Order string `arg:"" name:"WHAT" enum:"show,pause,resume,enable,disable" help:"One of ${enum}."`
	serverFlags
	definitionFlags
	outputFlag
}

// Run gives the order, if there is one, and shows how the schedule stands then.
func (c *scheduleCmd) Run(con *console) error {
	ask := api.ScheduleRequest{App: c.App, Job: c.Job, Workflow: c.Workflow}
	if c.Order != "show" {
		ask.Order = c.Order
	}
	var reply api.ScheduleReply
	if err := c.ask(con, api.CallSchedule, ask, &reply); err != nil {
		return err
	}
	if err := refusal(reply.Error); err != nil {
		return err
	}
	return c.write(con.out, &reply, func(w io.Writer) { fmt.Fprint(w, standing(c.String(), &reply, time.Now())) })
}

// standing is how a schedule stands, for people.
func standing(name string, r *api.ScheduleReply, now time.Time) string {
	var s workflow.Schedule
	_ = json.Unmarshal(r.Schedule, &s) // one that does not read is shown as none
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		zone = time.UTC
	}
	local := func(ms int64) string {
		return time.UnixMilli(ms).In(zone).Format("2006-01-02 15:04:05 MST")
	}
	head := fmt.Sprintf("version %d, enabled", r.Version)
	if !r.Enabled {
		head = fmt.Sprintf("version %d, disabled", r.Version)
	}
	rows := [][]string{{name, head}, {"schedule", describe(&s)}}
	switch {
	case r.PausedAt != 0:
		rows = append(rows, []string{"next fire", "none: paused since " + local(r.PausedAt)})
	case r.NextAt == 0:
		rows = append(rows, []string{"next fire", "none"})
	default:
		in := time.UnixMilli(r.NextAt).Sub(now)
		when := "in " + short(in)
		if in < 0 {
			when = "late by " + short(-in)
		}
		rows = append(rows, []string{"next fire", fmt.Sprintf("%s (%s), %s", local(r.NextAt), utc(r.NextAt), when)})
	}
	rows = append(rows,
		[]string{"open", thousands(int64(r.Open))},
		[]string{"runs", fmt.Sprintf("%s ended: %s succeeded, %s failed", thousands(r.Runs), thousands(r.Succeeded), thousands(r.Failed))},
	)
	if r.LastStatus != "" {
		rows = append(rows, []string{"last run", fmt.Sprintf("%d %s at %s, took %s", r.LastID, r.LastStatus, local(r.LastEnd), took(r.LastStart, r.LastEnd))})
	}
	if r.Window > 0 {
		rows = append(rows, []string{"run time", fmt.Sprintf("p50 %s, p95 %s of the newest %s that succeeded",
			short(time.Duration(r.P50MS)*time.Millisecond), short(time.Duration(r.P95MS)*time.Millisecond), plural(int64(r.Window), "run"))})
	}
	return table(rows)
}

func took(start, end int64) string {
	if start == 0 {
		return "0s"
	}
	return short(time.Duration(end-start) * time.Millisecond)
}

// describe is a schedule in a line.
func describe(s *workflow.Schedule) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case s.Cron != "":
		add("cron %q", s.Cron)
	case s.At != "":
		add("once at %s", s.At)
	case s.From != "" || s.To != "" || s.Type == workflow.ScheduleDaily:
		add("every %v from %s to %s", time.Duration(s.Every), orElse(s.From, "00:00"), orElse(s.To, "24:00"))
		if len(s.Weekdays) > 0 {
			add("on %s", strings.Join(s.Weekdays, " "))
		}
	case s.Type == workflow.ScheduleDelay:
		add("%v after each run", time.Duration(s.Every))
	case s.Every != 0:
		add("every %v", time.Duration(s.Every))
	default:
		return "none: by call only"
	}
	if s.Zone != "" {
		add("zone %s", s.Zone)
	}
	if len(s.Calendars) > 0 {
		add("calendars %s", strings.Join(s.Calendars, " "))
	}
	add("overlap %s", orElse(string(s.Overlap), string(workflow.OverlapSkip)))
	add("misfire %s", orElse(string(s.Misfire), string(workflow.MisfireOnce)))
	return strings.Join(parts, ", ")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
