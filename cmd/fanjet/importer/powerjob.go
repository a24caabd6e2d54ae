package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/workflow"
)

// PowerJob reads the tables job_info and, for the names of apps, app_info; or what exportJob
// gives.
func PowerJob(data []byte, o Options) (*Result, error) {
	rows, err := readRows(data, "job_info", "app_info")
	if err != nil {
		return nil, err
	}
	p := &power{Options: o, apps: map[string]string{}}
	for _, a := range rows["app_info"] {
		if app, _ := slug(a.get("app_name")); app != "" {
			p.apps[a.get("id")] = app
		}
	}
	r := &Result{}
	o.zoneNote(r, "PowerJob")
	deleted := 0
	var ids []string
	for _, j := range rows["job_info"] {
		if j.get("status") == "99" {
			deleted++
			continue
		}
		r.Jobs = append(r.Jobs, p.job(j))
		ids = append(ids, j.get("id"))
	}
	if deleted > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("Deleted jobs are left out: %d.", deleted))
	}
	unique(r.Jobs, func(i int) string { return ids[i] })
	return r, nil
}

type power struct {
	Options
	apps map[string]string // by id
}

// word is an enum of PowerJob, which tables hold as a number and JSON as a name.
func (r row) word(column string, names map[string]string) string {
	v := strings.ToUpper(r.get(column))
	if name, ok := names[v]; ok {
		return name
	}
	return v
}

func (p *power) job(r row) Job {
	id := r.get("id")
	title := r.get("job_name")
	j := Job{Source: fmt.Sprintf("PowerJob job %s: %s", orElse(id, "without id"), title)}
	d := &j.Definition
	*d = workflow.JobDefinition{Kind: workflow.KindJob, App: p.apps[r.get("app_id")], Disabled: r.get("status") == "2" || r.get("enable") == "false"}
	if d.App == "" {
		if d.App = p.App; d.App == "" {
			d.App = "app-" + orElse(r.get("app_id"), "0")
		}
	}
	var whole bool
	if d.Name, whole = slug(title); !whole || d.Name == "" {
		d.Title = clip(oneLine(title), 250)
	}
	if d.Name == "" {
		d.Name = "job-" + orElse(id, "0")
	}
	p.code(&j, r)
	p.schedule(&j, r)
	p.limits(&j, r)
	p.placement(&j, r)
	for _, lost := range []struct{ column, say string }{
		{"job_description", "description"},
		{"alarm_config", "alarms"},
		{"notify_user_ids", "who was notified"},
		{"extra", "extra"},
		{"tag", "tag"},
		{"log_config", "log settings"},
	} {
		if v := r.get(lost.column); v != "" && v != "{}" && v != "[]" {
			j.note("%s: %s", lost.say, v)
		}
	}
	return j
}

const officialShell = "tech.powerjob.official.processors.impl.script.ShellProcessor"

// code is what runs.
func (p *power) code(j *Job, r row) {
	d := &j.Definition
	info := r.get("processor_info")
	d.Processor = clip(info, 250)
	d.Params = params(r["job_params"])
	kind := r.word("processor_type", map[string]string{"1": "BUILT_IN", "2": "SHELL", "3": "PYTHON", "4": "EXTERNAL"})
	switch {
	case kind == "SHELL":
		d.Processor, d.Params = "shell", shellParams(r["processor_info"], r["job_params"])
	case info == officialShell:
		d.Processor, d.Params = "shell", shellParams(r["job_params"], "")
	case kind == "PYTHON", kind == "EXTERNAL":
		j.note("%s has no counterpart: %s; make a processor of it and enable the job", strings.ToLower(kind), info)
		d.Processor, d.Disabled = strings.ToLower(kind), true
	case strings.HasPrefix(info, "tech.powerjob.official."):
		j.note("processor %s is PowerJob's own; see fanjet worker --help for the built-in ones", info)
	}
	if d.Processor == "shell" {
		j.note("the script runs on workers that serve the processor shell: fanjet worker --shell")
	}
	mode := r.word("execute_type", map[string]string{"1": "STANDALONE", "2": "BROADCAST", "3": "MAP_REDUCE", "4": "MAP"})
	switch mode {
	case "", "STANDALONE":
	case "BROADCAST":
		d.Mode = workflow.Broadcast
	case "MAP_REDUCE":
		d.Mode = workflow.MapReduce
	case "MAP":
		d.Mode = workflow.Map
	default:
		j.note("execute type %s has no counterpart", mode)
	}
}

func (p *power) schedule(j *Job, r row) {
	s := &j.Definition.Schedule
	expression := r.get("time_expression")
	kind := r.word("time_expression_type", map[string]string{
		"1": "API", "2": "CRON", "3": "FIXED_RATE", "4": "FIXED_DELAY", "5": "WORKFLOW", "11": "DAILY_TIME_INTERVAL",
	})
	every := row{"n": expression}.int("n")
	switch kind {
	case "CRON":
		s.Cron = questioned(expression)
	case "FIXED_RATE":
		s.Type, s.Every = workflow.ScheduleRate, millis(every)
	case "FIXED_DELAY":
		s.Type, s.Every = workflow.ScheduleDelay, millis(every)
	case "DAILY_TIME_INTERVAL":
		p.daily(j, expression)
	case "", "API":
		return
	case "WORKFLOW":
		j.note("it ran as a step of workflows only; name it in the nodes of a workflow")
		return
	default:
		j.note("time expression type %s has no counterpart", kind)
		return
	}
	p.zoned(s)
	p.lifecycle(j, r.get("lifecycle", "life_cycle"))
}

// questioned writes a cron expression of both day fields with the ? that one of them needs.
func questioned(cron string) string {
	f := strings.Fields(cron)
	if len(f) != 6 && len(f) != 7 || f[3] == "?" || f[5] == "?" {
		return cron
	}
	switch {
	case f[5] == "*":
		f[5] = "?"
	case f[3] == "*":
		f[3] = "?"
	}
	return strings.Join(f, " ")
}

// daily reads the JSON of a daily interval.
func (p *power) daily(j *Job, text string) {
	s := &j.Definition.Schedule
	s.Type = workflow.ScheduleDaily
	var e struct {
		Interval json.Number `json:"interval"`
		Unit     string      `json:"intervalUnit"`
		Start    string      `json:"startTimeOfDay"`
		End      string      `json:"endTimeOfDay"`
		Days     []int       `json:"daysOfWeek"`
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		j.note("the interval %s is not understood", text)
		return
	}
	n, _ := strconv.ParseInt(string(e.Interval), 10, 64) // 0 is refused with the schedule
	n = max(min(n, math.MaxInt32), 0)
	unit := map[string]time.Duration{"": time.Second, "MILLISECONDS": time.Millisecond, "SECONDS": time.Second, "MINUTES": time.Minute, "HOURS": time.Hour, "DAYS": 24 * time.Hour}[strings.ToUpper(e.Unit)]
	s.Every = millis(n * unit.Milliseconds())
	if s.From = e.Start; s.From == "" {
		s.From = "00:00"
	}
	s.To = e.End
	names := []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	for _, day := range e.Days {
		if day >= 1 && day <= 7 {
			s.Weekdays = append(s.Weekdays, names[day-1])
		}
	}
}

func (p *power) lifecycle(j *Job, text string) {
	if text == "" {
		return
	}
	var l struct {
		Start, End *int64
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		j.note("the life cycle %s is not understood", text)
		return
	}
	write := func(ms *int64) string {
		if ms == nil || *ms <= 0 || *ms > 253402300799000 {
			return ""
		}
		return time.UnixMilli(*ms).UTC().Format(time.RFC3339)
	}
	j.Definition.Schedule.Start, j.Definition.Schedule.End = write(l.Start), write(l.End)
}

// limits are about how many run, how long and how often.
func (p *power) limits(j *Job, r row) {
	d := &j.Definition
	s := &d.Schedule
	d.MaxRunning = int(min(max(r.int("max_instance_num"), 0), math.MaxInt32))
	frequent := s.Type == workflow.ScheduleRate || s.Type == workflow.ScheduleDelay
	switch {
	case frequent:
		d.MaxRunning, s.Overlap = 1, workflow.OverlapSkip
	case s.Zero():
	case d.MaxRunning == 0:
		s.Overlap = workflow.OverlapAllow
	case waits(r.get("advanced_runtime_config")):
		s.Overlap = workflow.OverlapQueue
	default:
		s.Overlap = workflow.OverlapFail
	}
	d.Timeout = millis(max(r.int("instance_time_limit"), 0))
	d.Retry = retry(r.int("instance_retry_num"))
	tasks := min(max(r.int("task_retry_num"), 0), workflow.MaxRetries)
	switch {
	case tasks == 0:
	case d.Mode != "":
		d.TaskRetry = retry(tasks)
	case d.Retry.Max == 0:
		d.Retry = retry(tasks)
		j.note("task_retry_num %d is written as the retry of the job", tasks)
	default:
		j.note("task_retry_num %d, further tries within each attempt, has no counterpart", tasks)
	}
	if n := r.int("concurrency"); n != 5 && n > 0 && d.Mode != "" {
		j.note("each worker ran %d sub-tasks of it at once; workers have slots: fanjet worker --slots", n)
	}
}

// waits tells whether instances over the limit wait.
func waits(config string) bool {
	var c struct {
		InstanceLimitStrategy any `json:"instanceLimitStrategy"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return false
	}
	return fmt.Sprint(c.InstanceLimitStrategy) == "1" || fmt.Sprint(c.InstanceLimitStrategy) == "WAIT"
}

// placement is about which workers run it.
func (p *power) placement(j *Job, r row) {
	d := &j.Definition
	d.MaxWorkers = int(min(max(r.int("max_worker_count"), 0), math.MaxInt32))
	d.MinCPU = max(r.float("min_cpu_cores"), 0)
	d.MinMemory, d.MinDisk = gigabytes(r.float("min_memory_space")), gigabytes(r.float("min_disk_space"))
	switch workers := r.get("designated_workers"); {
	case workers == "":
	case strings.ContainsAny(workers, ",:"):
		j.note("it ran on the workers %s only; give those a tag, and the job that pool", workers)
	default:
		d.Pool = clip(workers, 80)
	}
	switch s := r.word("dispatch_strategy", map[string]string{"1": "HEALTH_FIRST", "2": "RANDOM", "11": "SPECIFY"}); s {
	case "", "HEALTH_FIRST": // workers that are free take the work themselves
	case "RANDOM":
		d.Routing = workflow.RoutingRandom
	default:
		j.note("dispatch strategy %s %s has no counterpart", s, r.get("dispatch_strategy_config"))
	}
}

func gigabytes(n float64) int64 {
	return int64(max(min(n, 1<<20), 0) * (1 << 30))
}
