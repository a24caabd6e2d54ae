package schedule

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/fanjet/fanjet/workflow"
)

// Bounds of a schedule.
const (
	MinEvery        = 100 * time.Millisecond
	MaxEvery        = 10 * 366 * 24 * time.Hour
	MaxJitter       = time.Hour
	MaxMisfireAfter = 24 * time.Hour
	MaxMisfireMax   = 10_000
	MaxQueue        = 10_000
	MaxCalendars    = 20
	MaxAfter        = 100
)

// Defaults of a schedule.
const (
	DefaultMisfireAfter = 3 * time.Second
	DefaultMisfireMax   = 100
	DefaultQueueMax     = 100
)

// Compile checks a schedule and gives it its defaults. calendars are those of its app, by name.
// The error joins a FieldError for everything that is wrong.
func Compile(s workflow.Schedule, calendars map[string]*Calendar) (*Schedule, error) {
	c := &compiler{Schedule: &Schedule{spec: s, start: minTime, end: maxTime}}
	spec := &c.spec
	spec.Weekdays, spec.Calendars, spec.After = slices.Clone(s.Weekdays), slices.Clone(s.Calendars), slices.Clone(s.After)
	c.defaults()
	var err error
	if c.zone, err = loadZone(spec.Zone); err != nil {
		c.fail("zone", "%v", err)
		c.zone = zone{time.UTC, true}
	}
	if spec.Start != "" {
		c.start = c.instant("start", spec.Start)
	}
	if spec.End != "" {
		c.end = c.instant("end", spec.End)
	}
	if c.end < c.start {
		c.fail("end", "%s is before start %s", spec.End, spec.Start)
	}
	c.belongs()
	c.typed()
	c.policies()
	c.days(calendars)
	c.dependencies()
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return c.Schedule, nil
}

// compiler is a Schedule in the making.
type compiler struct {
	*Schedule
	errs []error
}

func (c *compiler) fail(field, format string, args ...any) {
	c.errs = append(c.errs, fieldError("schedule."+field, format, args...))
}

func (c *compiler) defaults() {
	spec := &c.spec
	if spec.Type == "" {
		switch {
		case spec.Cron != "":
			spec.Type = workflow.ScheduleCron
		case spec.At != "":
			spec.Type = workflow.ScheduleOnce
		case spec.From != "" || spec.To != "":
			spec.Type = workflow.ScheduleDaily
		case spec.Every != 0:
			spec.Type = workflow.ScheduleRate
		default:
			spec.Type = workflow.ScheduleNone
		}
	}
	fill(&spec.Zone, "UTC")
	fill(&spec.DSTGap, workflow.GapAfter)
	fill(&spec.DSTOverlap, workflow.RepeatFirst)
	fill(&spec.Misfire, workflow.MisfireOnce)
	fill(&spec.MisfireAfter, workflow.Duration(DefaultMisfireAfter))
	fill(&spec.MisfireMax, DefaultMisfireMax)
	fill(&spec.Overlap, workflow.OverlapSkip)
	fill(&spec.QueueMax, DefaultQueueMax)
}

func fill[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// belongs refuses what says when something fires and is of another type: one of the two would
// be a mistake that nobody sees.
func (c *compiler) belongs() {
	const (
		cron  = workflow.ScheduleCron
		rate  = workflow.ScheduleRate
		delay = workflow.ScheduleDelay
		daily = workflow.ScheduleDaily
		once  = workflow.ScheduleOnce
	)
	for _, f := range []struct {
		name  string
		set   bool
		types []workflow.ScheduleType
	}{
		{"cron", c.spec.Cron != "", []workflow.ScheduleType{cron}},
		{"every", c.spec.Every != 0, []workflow.ScheduleType{rate, delay, daily}},
		{"at", c.spec.At != "", []workflow.ScheduleType{once}},
		{"from", c.spec.From != "", []workflow.ScheduleType{daily}},
		{"to", c.spec.To != "", []workflow.ScheduleType{daily}},
		{"weekdays", len(c.spec.Weekdays) > 0, []workflow.ScheduleType{daily}},
	} {
		if f.set && !slices.Contains(f.types, c.spec.Type) {
			c.fail(f.name, "it has no meaning for type %s; leave it out, or change the type", clip(string(c.spec.Type)))
		}
	}
}

// typed compiles what belongs to the type.
func (c *compiler) typed() {
	spec := &c.spec
	switch spec.Type {
	case workflow.ScheduleCron:
		expr, err := parseCron(spec.Cron)
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		c.rule = &cronRule{expr, c.zone, spec.DSTGap, spec.DSTOverlap}
	case workflow.ScheduleRate, workflow.ScheduleDelay:
		r := rate{every: c.every(), start: math.MinInt64, delay: spec.Type == workflow.ScheduleDelay}
		if spec.Start != "" {
			r.start = c.start
		}
		c.rule = r
	case workflow.ScheduleDaily:
		c.daily()
	case workflow.ScheduleOnce:
		if spec.At == "" {
			c.fail("at", "it is missing; write a time such as 2006-01-02T15:04:05Z")
			return
		}
		c.rule = once(c.instant("at", spec.At))
	case workflow.ScheduleNone:
	default:
		c.fail("type", "%q: write cron, fixed_rate, fixed_delay, daily_interval, once or none", clip(string(spec.Type)))
	}
}

func (c *compiler) every() int64 {
	every := time.Duration(c.spec.Every)
	switch {
	case every == 0:
		c.fail("every", "it is missing; write a duration such as 30s")
	case every < MinEvery || every > MaxEvery:
		c.fail("every", "%v: must be %v to %v", every, MinEvery, MaxEvery)
	case every%time.Millisecond != 0:
		c.fail("every", "%v: must be whole milliseconds", every)
	default:
		return every.Milliseconds()
	}
	return 1000
}

func (c *compiler) daily() {
	d := &daily{zone: c.zone, every: c.every()}
	d.from = c.timeOfDay("from", c.spec.From)
	d.to = c.timeOfDay("to", c.spec.To)
	d.whole = c.spec.To == ""
	if !d.whole {
		if d.to == d.from && d.to >= 0 {
			c.fail("to", "%s is from too, so that the window is empty; leave out to for a window until midnight", c.spec.To)
		}
		if d.to < d.from {
			d.to += daySeconds
		}
	}
	var err error
	if d.weekdays, err = parseWeekdays("schedule.weekdays", c.spec.Weekdays); err != nil {
		c.errs = append(c.errs, err)
	}
	if d.weekdays == 0 {
		d.weekdays = 1<<7 - 1
	}
	c.rule = d
}

func (c *compiler) timeOfDay(field, text string) int64 {
	if text == "" {
		return 0
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil && len(text) == len(layout) {
			return int64(t.Hour()*3600 + t.Minute()*60 + t.Second())
		}
	}
	c.fail(field, "%q: write a time of day from 00:00 to 23:59:59, as in 08:30", clip(text))
	return -1
}

// instant reads RFC 3339 or a local time. A local time that a clock change leaves out is the
// first instant after the gap, one that comes twice is its first pass.
func (c *compiler) instant(field, text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return c.year(field, text, t, t.UnixMilli())
	}
	if t, ok := localTime(text); ok {
		ms := int64(t.Nanosecond() / int(time.Millisecond))
		return c.year(field, text, t, c.zone.first(t.Unix())*1000+ms)
	}
	c.fail(field, "%q: write 2006-01-02T15:04:05Z or, local to the zone, 2006-01-02T15:04:05", clip(text))
	return 0
}

// localTime reads a time without a zone, as if it were of UTC.
func localTime(text string) (time.Time, bool) {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// localSeconds is localTime as a local second.
func localSeconds(text string) (int64, bool) {
	t, ok := localTime(text)
	return t.Unix(), ok
}

func (c *compiler) year(field, text string, t time.Time, at int64) int64 {
	if t.Year() < firstYear {
		c.fail(field, "%s: the year must be %d to 9999", text, firstYear)
	}
	return at
}

func (c *compiler) policies() {
	spec := &c.spec
	choice(c, "dst_gap", spec.DSTGap, workflow.GapAfter, workflow.GapSkip)
	choice(c, "dst_overlap", spec.DSTOverlap, workflow.RepeatFirst, workflow.RepeatBoth)
	choice(c, "misfire", spec.Misfire, workflow.MisfireOnce, workflow.MisfireSkip, workflow.MisfireAll)
	choice(c, "overlap", spec.Overlap, workflow.OverlapSkip, workflow.OverlapAllow, workflow.OverlapQueue, workflow.OverlapReplace, workflow.OverlapFail)
	if d := time.Duration(spec.Jitter); d < 0 || d > MaxJitter {
		c.fail("jitter", "%v: must be 0s to %v", d, MaxJitter)
	}
	if d := time.Duration(spec.MisfireAfter); d < time.Millisecond || d > MaxMisfireAfter {
		c.fail("misfire_after", "%v: must be 1ms to %v", d, MaxMisfireAfter)
	}
	if spec.MisfireMax < 1 || spec.MisfireMax > MaxMisfireMax {
		c.fail("misfire_max", "%d: must be 1 to %d", spec.MisfireMax, MaxMisfireMax)
	}
	if spec.QueueMax < 1 || spec.QueueMax > MaxQueue {
		c.fail("queue_max", "%d: must be 1 to %d", spec.QueueMax, MaxQueue)
	}
}

func choice[T ~string](c *compiler, field string, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	list := ""
	for i, a := range allowed {
		switch {
		case i == 0:
		case i == len(allowed)-1:
			list += " or "
		default:
			list += ", "
		}
		list += string(a)
	}
	c.fail(field, "%q: write %s", clip(string(v)), list)
}

func (c *compiler) days(calendars map[string]*Calendar) {
	if len(c.spec.Calendars) > MaxCalendars {
		c.fail("calendars", "%d of them; at most %d", len(c.spec.Calendars), MaxCalendars)
		return
	}
	for i, name := range c.spec.Calendars {
		cal := calendars[name]
		switch {
		case slices.Contains(c.spec.Calendars[:i], name):
			c.fail("calendars", "%q is named twice", clip(name))
		case cal == nil:
			c.fail("calendars", "the app has no calendar %q", clip(name))
		default:
			if err := cal.Check(); err != nil {
				c.errs = append(c.errs, fmt.Errorf("schedule.calendars: calendar %q: %w", name, err))
				continue
			}
			c.calendars = append(c.calendars, cal)
		}
	}
}

var jobName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (c *compiler) dependencies() {
	if len(c.spec.After) > MaxAfter {
		c.fail("after", "%d jobs; at most %d", len(c.spec.After), MaxAfter)
		return
	}
	for i, d := range c.spec.After {
		field := fmt.Sprintf("after[%d].job", i)
		switch {
		case !jobName.MatchString(d.Job):
			c.fail(field, "%q is not the name of a job: [a-z0-9][a-z0-9_-]{0,62}", clip(d.Job))
		case slices.ContainsFunc(c.spec.After[:i], func(o workflow.Dependency) bool { return o.Job == d.Job }):
			c.fail(field, "%q is named twice", d.Job)
		}
	}
}
