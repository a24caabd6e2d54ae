package importer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/workflow"
)

// nicknames are the @words of cron.
var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var assignment = regexp.MustCompile(`^\s*("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$`)

// Crontab reads a crontab; with system it is /etc/crontab or a file of /etc/cron.d, in which a
// user stands before the command. Commands become jobs of the processor shell.
func Crontab(data []byte, system bool, o Options) (*Result, error) {
	if len(data) > MaxInput {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxInput)
	}
	r := &Result{}
	c := &crontab{system: system, zone: o.Zone, env: map[string]string{}, app: o.App, out: r}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, workflow.MaxParams)
	n := 0
	for lines.Scan() {
		n++
		if err := c.line(n, strings.ToValidUTF8(lines.Text(), "")); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	unique(r.Jobs, func(int) string { return "" })
	if c.zone == "" {
		o.zoneNote(r, "cron")
	}
	if len(r.Jobs) > 0 {
		r.Notes = append(r.Notes,
			"Commands are run by workers that serve the processor shell: fanjet worker --shell.",
			"cron starts a command even if the last one still runs, and makes up for nothing it missed: overlap: allow and misfire: skip.")
	}
	return r, nil
}

type crontab struct {
	system bool
	zone   string
	app    string
	env    map[string]string
	out    *Result
}

func (c *crontab) line(n int, line string) error {
	line = strings.Trim(line, " \t\r")
	if line == "" || line[0] == '#' {
		return nil
	}
	if m := assignment.FindStringSubmatch(line); m != nil {
		c.assign(strings.Trim(m[1], `"'`), m[2])
		return nil
	}
	if len(c.out.Jobs) >= MaxRows {
		return fmt.Errorf("line %d: there are more than %d jobs", n, MaxRows)
	}
	j := Job{Source: fmt.Sprintf("line %d: %s", n, line)}
	fields := 5
	if line[0] == '@' {
		fields = 1
	}
	if c.system {
		fields++
	}
	parts, command := cutFields(line, fields)
	if len(parts) < fields || command == "" {
		c.out.Notes = append(c.out.Notes, fmt.Sprintf("Line %d is not understood: %s", n, line))
		return nil
	}
	if c.system {
		j.note("it ran as user %s; scripts run as the worker's user", parts[fields-1])
		parts = parts[:fields-1]
	}
	d := &j.Definition
	*d = workflow.JobDefinition{Kind: workflow.KindJob, App: c.app, Name: commandName(command, n)}
	d.Processor = "shell"
	if err := c.command(&j, command); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	d.Schedule = workflow.Schedule{Cron: strings.Join(parts, " "), Zone: c.zone, Misfire: workflow.MisfireSkip, Overlap: workflow.OverlapAllow}
	if line[0] == '@' {
		cron, ok := nicknames[strings.ToLower(parts[0])]
		if d.Schedule.Cron = cron; !ok {
			j.note("%s has no counterpart; the job is started by call only", parts[0])
			d.Schedule = workflow.Schedule{}
		}
	}
	c.out.Jobs = append(c.out.Jobs, j)
	return nil
}

func (c *crontab) assign(name, value string) {
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	switch name {
	case "CRON_TZ":
		c.zone = value
	case "MAILTO", "MAILFROM":
		c.out.Notes = append(c.out.Notes, fmt.Sprintf("%s=%s: what scripts write is kept as their log; mail is not sent.", name, value))
	default:
		c.env[name] = value
	}
}

// command makes the params of the processor shell.
func (c *crontab) command(j *Job, command string) error {
	script, input, hasInput := cutPercent(command)
	p := map[string]any{"script": script}
	if hasInput {
		p["stdin"] = input
	}
	env := map[string]string{}
	for name, value := range c.env {
		switch name {
		case "SHELL":
			p["interpreter"] = value
			if value != "/bin/sh" {
				j.note("interpreter %s must be allowed by the worker", value)
			}
		case "RANDOM_DELAY":
			j.note("RANDOM_DELAY=%s: see jitter of a schedule", value)
		default:
			env[name] = value
		}
	}
	if len(env) > 0 {
		p["env"] = env
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the params: %w", err)
	}
	j.Definition.Params = raw
	return nil
}

// cutFields takes the first n words off a line.
func cutFields(line string, n int) (words []string, rest string) {
	rest = line
	for len(words) < n && rest != "" {
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			return append(words, rest), ""
		}
		words = append(words, rest[:i])
		rest = strings.TrimLeft(rest[i:], " \t")
	}
	return words, rest
}

// cutPercent takes a command apart as cron does: what stands behind the first % is its input,
// with a line for each further one; \% is a percent sign.
func cutPercent(command string) (script, input string, hasInput bool) {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(command); i++ {
		switch {
		case command[i] == '\\' && i+1 < len(command) && command[i+1] == '%':
			b.WriteByte('%')
			i++
		case command[i] == '%':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(command[i])
		}
	}
	parts = append(parts, b.String())
	if len(parts) == 1 {
		return parts[0], "", false
	}
	return parts[0], strings.Join(parts[1:], "\n") + "\n", true
}

// commandName names a job by its program.
func commandName(command string, line int) string {
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t;&|()<>", r) })
	for i, word := range words {
		folder := i > 0 && words[i-1] == "cd"
		if folder || strings.Contains(word, "=") || slices.Contains([]string{"cd", "test", "[", "exec", "nice"}, word) {
			continue
		}
		if name, _ := slug(path.Base(word)); name != "" {
			return name
		}
	}
	return fmt.Sprintf("line-%d", line)
}
