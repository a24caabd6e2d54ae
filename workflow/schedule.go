package workflow

// ScheduleType says how fire times follow from a Schedule.
type ScheduleType string

// The schedule types.
const (
	ScheduleCron  ScheduleType = "cron"           // by Cron
	ScheduleRate  ScheduleType = "fixed_rate"     // every Every, from an anchor on
	ScheduleDelay ScheduleType = "fixed_delay"    // Every after the last run has ended
	ScheduleDaily ScheduleType = "daily_interval" // every Every inside a window of the day
	ScheduleOnce  ScheduleType = "once"           // at At
	ScheduleNone  ScheduleType = "none"           // by call only
)

// Misfire says what becomes of fires that were missed: the server was away, or the schedule
// was paused.
type Misfire string

// The misfire policies.
const (
	MisfireOnce Misfire = "once" // the newest missed fire runs; the default
	MisfireSkip Misfire = "skip" // none runs
	MisfireAll  Misfire = "all"  // the newest MisfireMax missed fires run
)

// Overlap says what a fire does that finds MaxRunning runs of its job under way.
type Overlap string

// The overlap policies.
const (
	OverlapSkip    Overlap = "skip"    // it does not run; the default
	OverlapAllow   Overlap = "allow"   // it runs beside them
	OverlapQueue   Overlap = "queue"   // it waits for them, if fewer than QueueMax wait already
	OverlapReplace Overlap = "replace" // they are stopped, it runs
	OverlapFail    Overlap = "fail"    // it is a failed instance
)

// Gap says what a fixed-hour schedule does with a local time that a clock change leaves out.
type Gap string

// The gap policies.
const (
	GapAfter Gap = "after" // at the first instant after the gap; the default
	GapSkip  Gap = "skip"
)

// Repeat says what a fixed-hour schedule does with a local time that a clock change repeats.
type Repeat string

// The repeat policies.
const (
	RepeatFirst Repeat = "first" // at its first pass only; the default
	RepeatBoth  Repeat = "both"
)

// Schedule says when a job or workflow fires by itself, and what happens to a fire that
// cannot run as planned. The zero value never fires. engine/schedule gives it its meaning
// and checks it.
type Schedule struct {
	// Type may be left out: cron if Cron is set, once if At is, daily_interval if From or To
	// is, fixed_rate if Every is, else none.
	Type ScheduleType `json:"type,omitempty"`
	// Cron has 5 fields (Vixie), or 6 or 7 (Quartz, seconds first, year last).
	Cron string `json:"cron,omitempty"`
	// Every is the period of fixed_rate and daily_interval, the pause of fixed_delay; from
	// 100 ms.
	Every Duration `json:"every,omitempty"`
	// At is the one time of once: RFC 3339, or a local time in Zone (2006-01-02T15:04:05).
	At string `json:"at,omitempty"`
	// From and To are the window of daily_interval, 15:04 or 15:04:05; both ends belong to it.
	// A window that ends before it begins goes over midnight.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Weekdays (mon … sun) are the days on which a daily_interval window begins; default all.
	Weekdays []string `json:"weekdays,omitempty"`

	// Zone is an IANA time zone; default UTC.
	Zone string `json:"zone,omitempty"`
	// DSTGap and DSTOverlap are for fixed-hour schedules; others follow real time.
	DSTGap     Gap    `json:"dst_gap,omitempty"`
	DSTOverlap Repeat `json:"dst_overlap,omitempty"`
	// Jitter spreads fires by up to so much after their scheduled time, the same for the same
	// job and time; at most an hour.
	Jitter Duration `json:"jitter,omitempty"`
	// Start and End bound the scheduled times, both included; RFC 3339 or local in Zone.
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
	// Calendars are names of the app's calendars. A fire runs only on a day that none of them
	// excludes.
	Calendars []string `json:"calendars,omitempty"`

	// Misfire is about fires that are later than MisfireAfter, default 3 s; MisfireMax bounds
	// "all", default 100, at most 10 000.
	Misfire      Misfire  `json:"misfire,omitempty"`
	MisfireAfter Duration `json:"misfire_after,omitempty"`
	MisfireMax   int      `json:"misfire_max,omitempty"`
	// Overlap is about fires that find MaxRunning runs under way. QueueMax bounds those that
	// wait with "queue"; default 100, at most 10 000.
	Overlap  Overlap `json:"overlap,omitempty"`
	QueueMax int     `json:"queue_max,omitempty"`

	// After are jobs of the same app whose runs must have ended before this fires.
	After []Dependency `json:"after,omitempty"`
}

// Dependency is another job that a fire waits for.
type Dependency struct {
	Job string `json:"job"`
	// Weak only waits; else a fire is skipped if the last run of Job did not succeed.
	Weak bool `json:"weak,omitempty"`
}

// Zero tells whether nothing is set: it never fires, by the defaults.
func (s *Schedule) Zero() bool {
	return s.Type == "" && s.Cron == "" && s.Every == 0 && s.At == "" && s.From == "" && s.To == ""
}
