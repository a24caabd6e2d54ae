package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/workflow"
)

// XXLJob reads the tables xxl_job_info and, for the names of apps, xxl_job_group.
func XXLJob(data []byte, o Options) (*Result, error) {
	rows, err := readRows(data, "xxl_job_info", "xxl_job_group")
	if err != nil {
		return nil, err
	}
	x := &xxl{Options: o, apps: map[string]string{}}
	for _, g := range rows["xxl_job_group"] {
		if app, _ := slug(g.get("app_name", "appname")); app != "" {
			x.apps[g.get("id")] = app
		}
	}
	r := &Result{Notes: []string{
		"XXL-JOB blocks runs on each executor; max_running holds over all workers of the app.",
	}}
	o.zoneNote(r, "XXL-JOB")
	jobs := rows["xxl_job_info"]
	for _, j := range jobs {
		r.Jobs = append(r.Jobs, x.job(j))
	}
	unique(r.Jobs, func(i int) string { return jobs[i].get("id") })
	return r, nil
}

type xxl struct {
	Options
	apps map[string]string // by the id of the group
}

func (x *xxl) job(r row) Job {
	id := r.get("id")
	j := Job{Source: fmt.Sprintf("XXL-JOB job %s: %s", orElse(id, "without id"), r.get("job_desc"))}
	d := &j.Definition
	*d = workflow.JobDefinition{Kind: workflow.KindJob, App: x.apps[r.get("job_group")], Title: clip(oneLine(r.get("job_desc")), 250), Disabled: r.get("trigger_status") == "0"}
	if d.App == "" {
		if d.App = x.App; d.App == "" {
			d.App = "group-" + orElse(r.get("job_group"), "0")
		}
	}
	d.Name, _ = slug(r.get("executor_handler"))
	if d.Name == "" {
		d.Name = "job-" + orElse(id, "0")
	}
	x.code(&j, r)
	x.schedule(&j, r)
	x.policies(&j, r)
	return j
}

// code is what runs.
func (x *xxl) code(j *Job, r row) {
	d := &j.Definition
	d.Processor = clip(r.get("executor_handler"), 80)
	d.Params = params(r["executor_param"])
	switch glue := strings.ToUpper(r.get("glue_type")); glue {
	case "", "BEAN":
	case "GLUE_SHELL":
		d.Processor = "shell"
		d.Params = shellParams(r["glue_source"], r["executor_param"])
		j.note("the script runs on workers that serve the processor shell: fanjet worker --shell; its $2 and $3 (shard and shards) are $FANJET_SHARD and $FANJET_SHARDS")
	default:
		d.Processor = strings.ToLower(strings.ReplaceAll(glue, "_", "-"))
		d.Disabled = true
		j.note("the code of %s is in XXL-JOB's table; make a processor of it and enable the job", glue)
	}
}

func (x *xxl) schedule(j *Job, r row) {
	s := &j.Definition.Schedule
	conf := r.get("schedule_conf")
	kind := strings.ToUpper(r.get("schedule_type"))
	if kind == "" && r.get("job_cron") != "" { // before version 2.3
		kind, conf = "CRON", r.get("job_cron")
	}
	every := row{"n": conf}.int("n")
	switch kind {
	case "CRON":
		s.Cron = questioned(conf)
	case "FIX_RATE":
		s.Type, s.Every = workflow.ScheduleRate, seconds(every)
	case "FIX_DELAY":
		s.Type, s.Every = workflow.ScheduleDelay, seconds(every)
	case "", "NONE":
		return
	default:
		j.note("schedule type %s has no counterpart", kind)
		return
	}
	x.zoned(s)
	switch m := strings.ToUpper(r.get("misfire_strategy")); m {
	case "FIRE_ONCE_NOW":
		s.Misfire = workflow.MisfireOnce
	case "", "DO_NOTHING":
		s.Misfire = workflow.MisfireSkip
	default:
		s.Misfire = workflow.MisfireSkip
		j.note("misfire strategy %s has no counterpart; skip is written", m)
	}
	s.MisfireAfter = workflow.Duration(5 * time.Second)
}

func (x *xxl) policies(j *Job, r row) {
	d := &j.Definition
	switch b := strings.ToUpper(r.get("executor_block_strategy")); b {
	case "", "SERIAL_EXECUTION":
		d.Schedule.Overlap = workflow.OverlapQueue
	case "DISCARD_LATER":
		d.Schedule.Overlap = workflow.OverlapSkip
	case "COVER_EARLY":
		d.Schedule.Overlap = workflow.OverlapReplace
	default:
		d.Schedule.Overlap = workflow.OverlapSkip
		j.note("blocking strategy %s has no counterpart; skip is written", b)
	}
	d.MaxRunning = 1
	if d.Schedule.Zero() {
		d.Schedule = workflow.Schedule{} // a policy for fires that never come
	}
	switch route := strings.ToUpper(r.get("executor_route_strategy")); route {
	case "", "FAILOVER", "BUSYOVER": // workers that are alive and free take the work themselves
	case "FIRST", "LAST":
		j.note("routing %s has no counterpart; whichever worker is free runs it. See pool, and designated", route)
	case "ROUND":
		d.Routing = workflow.RoutingRoundRobin
	case "RANDOM":
		d.Routing = workflow.RoutingRandom
	case "CONSISTENT_HASH":
		d.Routing, d.RoutingKey = workflow.RoutingHash, orElse(r.get("id"), d.Name)
	case "LEAST_FREQUENTLY_USED", "LEAST_RECENTLY_USED":
		d.Routing = workflow.RoutingLeast
		j.note("routing %s has no counterpart; least_loaded is written", route)
	case "SHARDING_BROADCAST":
		d.Mode = workflow.Broadcast
	default:
		j.note("routing %s has no counterpart", route)
	}
	d.Timeout = seconds(max(r.int("executor_timeout"), 0))
	d.Retry = retry(r.int("executor_fail_retry_count"))
	if children := r.get("child_jobid", "child_job_id"); children != "" {
		j.note("when it succeeded, jobs %s were started; make a workflow of them", children)
	}
	if mail := r.get("alarm_email"); mail != "" {
		j.note("failures were mailed to %s", mail)
	}
}

// retry is at most n further attempts, ten seconds apart.
func retry(n int64) workflow.Retry {
	if n <= 0 {
		return workflow.Retry{}
	}
	return workflow.Retry{Max: int(min(n, workflow.MaxRetries)), Delay: workflow.Duration(10 * time.Second), Backoff: 1}
}

// shellParams are the params of the processor shell; what was given to the job is an argument.
func shellParams(script, argument string) []byte {
	p := `{"script":` + string(quoted(script))
	if strings.TrimSpace(argument) != "" {
		p += `,"args":[` + string(quoted(argument)) + `]`
	}
	return slices.Concat([]byte(p), []byte("}"))
}
