// Package importer reads the jobs of other schedulers and writes them as documents of Fanjet: a
// crontab, and the tables of XXL-JOB and PowerJob from a MySQL dump or as JSON. What has no
// counterpart becomes a comment beside its job. It is pure, apart from what it is given, and
// bounded; the command line calls it.
package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// Bounds of what is read.
const (
	// MaxInput is the largest file, in bytes.
	MaxInput = 64 << 20
	// MaxRows bounds the rows and JSON objects of all tables, and the jobs of a crontab.
	MaxRows = 100_000
)

// Options say what a source does not.
type Options struct {
	// App is the app of jobs whose source names none.
	App string
	// Zone is the time zone of the other scheduler, IANA; it is not in its data. Empty is UTC,
	// with a comment.
	Zone string
}

// Result is what was read.
type Result struct {
	// Notes are about the whole source.
	Notes []string
	// Jobs are in the order of the source.
	Jobs []Job
}

// Job is a job and what of it could not be translated.
type Job struct {
	// Source names it as its scheduler does.
	Source string
	// Definition is its document. It is checked by YAML.
	Definition workflow.JobDefinition
	// Notes are what has no counterpart, for a person to decide.
	Notes []string
}

func (j *Job) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// YAML writes the documents. A schedule that is none, and a job that is none, are comments;
// everything else is read by workflow.ParseAll and compiles. jobs is how many documents there
// are.
func (r *Result) YAML() (text []byte, jobs int) {
	var b strings.Builder
	for _, note := range r.Notes {
		comment(&b, note)
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		j.checkSchedule()
		document, err := j.document()
		if b.Len() > 0 {
			b.WriteString("---\n")
		}
		comment(&b, j.Source)
		for _, note := range j.Notes {
			comment(&b, "! "+note)
		}
		if err != nil {
			comment(&b, "! not translated: "+err.Error())
			continue
		}
		jobs++
		b.Write(document)
	}
	return []byte(b.String()), jobs
}

// checkSchedule takes out a schedule that means nothing here.
func (j *Job) checkSchedule() {
	s := j.Definition.Schedule
	if _, err := schedule.Compile(s, nil); err != nil {
		j.note("schedule %s: %s; left out", orElse(s.Cron, string(s.Type)), oneLine(err.Error()))
		j.Definition.Schedule = workflow.Schedule{}
	}
}

// document is the job as YAML that reads back.
func (j *Job) document() ([]byte, error) {
	text, err := workflow.EncodeYAML(&j.Definition)
	if err != nil {
		return nil, err
	}
	if _, err := workflow.ParseAll("", text); err != nil {
		var ps workflow.Problems
		if errors.As(err, &ps) {
			return nil, errors.New(ps[0].Message)
		}
		return nil, err
	}
	return text, nil
}

// comment writes a line that YAML does not read.
func comment(b *strings.Builder, text string) {
	b.WriteString(strings.TrimRight("# "+oneLine(text), " ") + "\n")
}

// oneLine keeps a text of somebody else on a line, and what a terminal would obey out of it.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffd' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return clip(strings.Join(strings.Fields(text), " "), 500)
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// slug makes a name of a text: what may not be in one becomes a dash. It is empty if nothing is
// left; whole tells that nothing was lost but capitals.
func slug(text string) (name string, whole bool) {
	whole = true
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', (r == '_' || r == '-') && b.Len() > 0:
			b.WriteRune(r)
		default:
			whole = false
			if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
				b.WriteByte('-')
			}
		}
	}
	name = b.String()
	if len(name) > 63 {
		name, whole = name[:63], false
	}
	trimmed := strings.TrimRight(name, "-")
	return trimmed, whole && trimmed == name
}

// unique gives jobs of the same app and name a number, or what id says, behind it.
func unique(jobs []Job, id func(i int) string) {
	count := map[[2]string]int{}
	for i := range jobs {
		count[[2]string{jobs[i].Definition.App, jobs[i].Definition.Name}]++
	}
	taken, next := map[[2]string]bool{}, map[[2]string]int{}
	for i := range jobs {
		d := &jobs[i].Definition
		if count[[2]string{d.App, d.Name}] > 1 {
			d.Name = suffixed(d.Name, id(i))
		}
		base := [2]string{d.App, d.Name}
		for taken[[2]string{d.App, d.Name}] {
			next[base]++
			d.Name = suffixed(base[1], strconv.Itoa(next[base]+1))
		}
		taken[[2]string{d.App, d.Name}] = true
	}
}

// suffixed puts a suffix behind a name, which may be at most 63 characters.
func suffixed(name, suffix string) string {
	if suffix, _ = slug(clip(suffix, 30)); suffix == "" {
		return name
	}
	return name[:min(len(name), 62-len(suffix))] + "-" + suffix
}

// zoned puts the zone of the source into a schedule that has local times.
func (o Options) zoned(s *workflow.Schedule) {
	if s.Cron != "" || s.From != "" || s.To != "" || s.Type == workflow.ScheduleDaily {
		s.Zone = o.Zone
	}
}

// zoneNote is for the head of a file whose zone was not given.
func (o Options) zoneNote(r *Result, where string) {
	if o.Zone == "" {
		r.Notes = append(r.Notes, fmt.Sprintf("Times are taken for UTC; %s ran in its own time zone: give it with --zone.", where))
	}
}

// params is the text of a job's params: JSON that is an object or a list as it is, else a text.
func params(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil
	}
	if (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	return quoted(text)
}

func quoted(text string) json.RawMessage {
	b, _ := json.Marshal(text) // a text always encodes
	return b
}

// seconds is a duration that never overflows.
func seconds(n int64) workflow.Duration { return millis(min(n, 1<<40) * 1000) }

func millis(n int64) workflow.Duration {
	const most = int64(10 * 366 * 24 * time.Hour / time.Millisecond)
	return workflow.Duration(time.Duration(max(min(n, most), -most)) * time.Millisecond)
}
