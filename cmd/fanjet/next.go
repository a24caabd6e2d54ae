package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

type nextCmd struct {
	File  []string      `short:"f" xor:"schedule" sep:"none" placeholder:"FILE" help:"Show the schedules of a file of definitions, a folder, or - for the standard input."`
	Cron  string        `xor:"schedule" help:"5 fields (minute first), or 6 or 7 (second first, year last)."`
	Every time.Duration `aliases:"rate" xor:"schedule" placeholder:"DURATION" help:"The period of a fixed rate, or with --daily of a window of the day; from 100ms."`
	Delay time.Duration `xor:"schedule" placeholder:"DURATION" help:"A pause after every run; shown as if runs took no time."`
	At    string        `xor:"schedule" placeholder:"TIME" help:"One time: RFC 3339, or local to the zone."`

	Daily    bool     `help:"Fire inside a window of the day, every --every."`
	FromTime string   `placeholder:"15:04" help:"When the window begins; default 00:00."`
	ToTime   string   `placeholder:"15:04" help:"When it ends, that time included; default the end of the day."`
	Weekdays []string `placeholder:"mon,tue" help:"The days on which the window begins; default all."`

	Zone       string        `help:"IANA time zone; default UTC."`
	Start      string        `placeholder:"TIME" help:"First time at which it may fire."`
	End        string        `placeholder:"TIME" help:"Last time at which it may fire."`
	Jitter     time.Duration `placeholder:"DURATION" help:"How much later a fire may be, by its job."`
	DSTGap     string        `name:"dst-gap" placeholder:"after|skip" help:"What becomes of a local time that a clock change leaves out."`
	DSTOverlap string        `name:"dst-overlap" placeholder:"first|both" help:"What becomes of one that it repeats."`
	Calendar   []string      `sep:"none" placeholder:"FILE" help:"A calendar, .ics, .csv or .json, named after its file; may be repeated. With -f, one that the file does not have."`

	From  instant `default:"now" placeholder:"TIME" help:"Show what fires after this: RFC 3339, or how long ago (-24h, -7d). Default ${default}."`
	Count int     `short:"n" default:"5" help:"How many fires, 1 to 1000. Default ${default}."`
	outputFlag

	in io.Reader
}

// preview is what next says about one schedule.
type preview struct {
	Kind     string            `json:"kind,omitempty"`
	App      string            `json:"app,omitempty"`
	Name     string            `json:"name,omitempty"`
	Schedule workflow.Schedule `json:"schedule"`
	From     string            `json:"from"`
	// Never tells that none of Fires runs.
	Never bool            `json:"never"`
	Fires []schedule.Fire `json:"fires"`

	ends bool // fewer run than were asked for
}

// Run shows what fires next, and fails if a schedule never does.
func (c *nextCmd) Run(con *console) error {
	if c.Count < 1 || c.Count > schedule.MaxPreview {
		return invalid("-n %d: 1 to %d", c.Count, schedule.MaxPreview)
	}
	given, names, err := c.calendars()
	if err != nil {
		return err
	}
	var previews []preview
	if len(c.File) > 0 {
		previews, err = c.ofFiles(given)
	} else {
		previews, err = c.ofFlags(given, names)
	}
	if err != nil {
		return err
	}
	if err := c.write(con.out, previews, func(w io.Writer) {
		for i := range previews {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprint(w, previews[i].text())
		}
	}); err != nil {
		return err
	}
	var never []error
	for i := range previews {
		if p := &previews[i]; p.Never {
			never = append(never, errors.New(p.never()))
		}
	}
	return errors.Join(never...)
}

// schedule is what the flags say, without calendars.
func (c *nextCmd) schedule() workflow.Schedule {
	s := workflow.Schedule{
		Cron: c.Cron, Every: workflow.Duration(c.Every), At: c.At, From: c.FromTime, To: c.ToTime, Weekdays: c.Weekdays,
		Zone: c.Zone, Start: c.Start, End: c.End, Jitter: workflow.Duration(c.Jitter),
		DSTGap: workflow.Gap(c.DSTGap), DSTOverlap: workflow.Repeat(c.DSTOverlap),
	}
	switch {
	case c.Delay != 0:
		s.Type, s.Every = workflow.ScheduleDelay, workflow.Duration(c.Delay)
	case c.Daily:
		s.Type = workflow.ScheduleDaily
	}
	return s
}

// ofFlags shows the schedule that the flags are.
func (c *nextCmd) ofFlags(calendars map[string]*schedule.Calendar, names []string) ([]preview, error) {
	spec := c.schedule()
	if spec.Zero() {
		return nil, invalid("say when it fires: --cron, --every, --delay, --daily, --at, or -f FILE; see fanjet next --help")
	}
	spec.Calendars = names
	s, err := schedule.Compile(spec, calendars)
	if err != nil {
		return nil, invalid("%s", c.asFlags(err))
	}
	return []preview{c.preview(s)}, nil
}

// asFlags tells what is wrong with a schedule by the names of the flags.
func (c *nextCmd) asFlags(err error) string {
	every := "--every: "
	if c.Delay != 0 {
		every = "--delay: "
	}
	return strings.NewReplacer(
		"schedule.from: ", "--from-time: ", "schedule.to: ", "--to-time: ", "schedule.every: ", every,
		"schedule.dst_gap: ", "--dst-gap: ", "schedule.dst_overlap: ", "--dst-overlap: ", "schedule.calendars: ", "--calendar: ",
		"schedule.", "--",
	).Replace(err.Error())
}

// ofFiles shows the schedules of jobs and workflows.
func (c *nextCmd) ofFiles(given map[string]*schedule.Calendar) ([]preview, error) {
	if !reflect.DeepEqual(c.schedule(), workflow.Schedule{}) {
		return nil, invalid("-f: what fires when is in the file; leave out the flags that say it too")
	}
	set := readDocuments(c.File, "", c.in)
	set.check()
	if len(set.problems) > 0 {
		return nil, invalid("the definitions are not right:\n%w", set.sorted())
	}
	var previews []preview
	for i := range set.all {
		doc := &set.all[i]
		var spec workflow.Schedule
		switch {
		case doc.Job != nil:
			spec = doc.Job.Schedule
		case doc.Workflow != nil:
			spec = doc.Workflow.Schedule
		}
		if spec.Zero() {
			continue
		}
		calendars := map[string]*schedule.Calendar{}
		for _, name := range spec.Calendars {
			if calendars[name] = set.calendars[[2]string{doc.App, name}]; calendars[name] == nil {
				calendars[name] = given[name]
			}
			if calendars[name] == nil {
				return nil, invalid("%s: the calendar %q is not in the file; give it by --calendar %s.ics, .csv or .json", place(doc), name, name)
			}
		}
		s, err := schedule.Compile(spec, calendars)
		if err != nil {
			return nil, invalid("%s: %w", place(doc), err)
		}
		p := c.preview(s)
		p.Kind, p.App, p.Name = doc.Kind, doc.App, doc.Name
		previews = append(previews, p)
	}
	if len(previews) == 0 {
		return nil, fmt.Errorf("%s: no job or workflow in it has a schedule: they run by call only", strings.Join(c.File, ", "))
	}
	return previews, nil
}

// calendars reads the files of --calendar; names are in their order.
func (c *nextCmd) calendars() (byName map[string]*schedule.Calendar, names []string, err error) {
	byName = map[string]*schedule.Calendar{}
	for _, file := range c.Calendar {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if byName[name] != nil {
			return nil, nil, invalid("--calendar %s: there is a calendar %q already", file, name)
		}
		if byName[name], err = calendarFile(file); err != nil {
			return nil, nil, invalid("--calendar %s: %w", file, err)
		}
		names = append(names, name)
	}
	return byName, names, nil
}

// calendarFile reads a calendar by the ending of its file's name.
func calendarFile(file string) (*schedule.Calendar, error) {
	var read func(r io.Reader) (*schedule.Calendar, error)
	switch strings.ToLower(filepath.Ext(file)) {
	case ".ics":
		read = schedule.ParseICalendar
	case ".csv":
		read = schedule.ParseCSV
	case ".json":
		read = calendarJSON
	default:
		return nil, errors.New("the name must end in .ics, .csv or .json")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return read(f)
}

func calendarJSON(r io.Reader) (*schedule.Calendar, error) {
	data, err := io.ReadAll(io.LimitReader(r, schedule.MaxCalendarSize+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if len(data) > schedule.MaxCalendarSize {
		return nil, fmt.Errorf("the file is larger than %d bytes", schedule.MaxCalendarSize)
	}
	var c schedule.Calendar
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("it is not the JSON of a calendar: %w", err)
	}
	return &c, c.Check()
}

func (c *nextCmd) preview(s *schedule.Schedule) preview {
	from := c.From.UnixMilli()
	p := preview{Schedule: s.Spec(), From: utc(from), Fires: s.Preview(from, from, c.Count)}
	runs := 0
	for _, f := range p.Fires {
		if !f.Skipped {
			runs++
		}
	}
	p.Never, p.ends = runs == 0, runs < c.Count
	if p.Fires == nil {
		p.Fires = []schedule.Fire{}
	}
	return p
}

// name is the definition's, empty for a schedule of flags.
func (p *preview) name() string {
	if p.Kind == "" {
		return ""
	}
	return strings.ToLower(p.Kind) + " " + p.App + "/" + p.Name
}

// never says that the schedule does not fire.
func (p *preview) never() string {
	text := "it never fires after " + p.From
	if name := p.name(); name != "" {
		text = name + " never fires after " + p.From
	}
	if len(p.Fires) == 0 {
		return text + ": there is no such time"
	}
	return text + ": every fire is skipped"
}

// text is the preview for people.
func (p *preview) text() string {
	var b strings.Builder
	if name := p.name(); name != "" {
		fmt.Fprintf(&b, "%s: %s\n", name, describe(&p.Schedule))
	}
	if len(p.Fires) > 0 {
		rows := [][]string{{"LOCAL, " + p.Schedule.Zone, "UTC", "NOTE"}}
		for _, f := range p.Fires {
			rows = append(rows, []string{localText(f.Local), f.UTC, p.note(f)})
		}
		b.WriteString(table(rows))
	}
	if jitter := time.Duration(p.Schedule.Jitter); jitter > 0 && !p.Never {
		fmt.Fprintf(&b, "Each is up to %v later, by its job.\n", jitter)
	}
	if p.ends && !p.Never && p.Fires[len(p.Fires)-1].Reason != schedule.ReasonValidity {
		b.WriteString("It does not fire again.\n")
	}
	return b.String()
}

// note says what is special about a fire.
func (p *preview) note(f schedule.Fire) string {
	note := f.Note
	if f.Skipped {
		note = "skipped: " + note
		if f.Last != f.At {
			zone, err := time.LoadLocation(p.Schedule.Zone)
			if err != nil {
				zone = time.UTC
			}
			note += fmt.Sprintf("; %s to %s", plural(f.Count, "fire"), localText(time.UnixMilli(f.Last).In(zone).Format(time.RFC3339)))
		}
	}
	return note
}

// localText writes RFC 3339 as Mon 2006-01-02 15:04:05 -07:00.
func localText(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return t.Format("Mon 2006-01-02 15:04:05.999 -07:00")
}
