package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/fanjet/fanjet/cmd/fanjet/importer"
)

type importCmd struct {
	Crontab importCrontabCmd `cmd:"" help:"From a crontab; commands become jobs of the processor shell."`
	XXLJob  importXXLCmd     `cmd:"" name:"xxl-job" help:"From XXL-JOB: a MySQL dump of xxl_job_info (and xxl_job_group for the names of apps), or its rows as JSON."`
	Power   importPowerCmd   `cmd:"" name:"powerjob" help:"From PowerJob: a MySQL dump of job_info (and app_info for the names of apps), its rows as JSON, or what exportJob gives."`
}

// importFlags are what the other scheduler's data does not say.
type importFlags struct {
	File string `arg:"" name:"FILE" help:"The file; - is the standard input."`
	Zone string `placeholder:"ZONE" help:"The time zone of the other scheduler, such as Asia/Shanghai; default UTC."`

	in io.Reader
}

var appPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// run writes the documents and counts them.
func (f *importFlags) run(con *console, app string, read func([]byte, importer.Options) (*importer.Result, error)) error {
	if app != "" && !appPattern.MatchString(app) {
		return invalid("--app %s: 1 to 63 of a-z, 0-9, _ and -, and a letter or a digit first", app)
	}
	if _, err := time.LoadLocation(f.Zone); err != nil || f.Zone == "Local" {
		return invalid("--zone %s: not an IANA time zone; write one such as Europe/Berlin", f.Zone)
	}
	data, err := f.read()
	if err != nil {
		return invalid("%s: %w", f.File, err)
	}
	result, err := read(data, importer.Options{App: app, Zone: f.Zone})
	if err != nil {
		return invalid("%s: %w", f.File, err)
	}
	text, jobs := result.YAML()
	if _, err := con.out.Write(text); err != nil {
		return fmt.Errorf("write the documents: %w", err)
	}
	marked := 0
	for _, j := range result.Jobs {
		if len(j.Notes) > 0 {
			marked++
		}
	}
	fmt.Fprintf(con.err, "%s of %d written, %d with comments (# !) to look at; then fanjet apply -f FILE\n", plural(int64(jobs), "job"), len(result.Jobs), marked)
	if jobs == 0 {
		return fmt.Errorf("%s: no job could be translated; the comments say why", f.File)
	}
	return nil
}

// read takes one byte more than may be: the importer says that it is too much.
func (f *importFlags) read() ([]byte, error) {
	in := f.in
	switch {
	case f.File != "-":
		file, err := os.Open(f.File)
		if err != nil {
			return nil, unreadable(err)
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	case in == nil:
		in = os.Stdin
	}
	data, err := io.ReadAll(io.LimitReader(in, importer.MaxInput+1))
	return data, unreadable(err)
}

type importCrontabCmd struct {
	importFlags
	App    string `required:"" env:"FANJET_APP" help:"The app of the jobs."`
	System bool   `help:"It is /etc/crontab or a file of /etc/cron.d: a user stands before each command."`
}

// Run imports a crontab.
func (c *importCrontabCmd) Run(con *console) error {
	return c.run(con, c.App, func(data []byte, o importer.Options) (*importer.Result, error) {
		return importer.Crontab(data, c.System, o)
	})
}

type importXXLCmd struct {
	importFlags
	App string `help:"The app of jobs whose group is not in the file."`
}

// Run imports jobs of XXL-JOB.
func (c *importXXLCmd) Run(con *console) error { return c.run(con, c.App, importer.XXLJob) }

type importPowerCmd struct {
	importFlags
	App string `help:"The app of jobs whose app is not in the file."`
}

// Run imports jobs of PowerJob.
func (c *importPowerCmd) Run(con *console) error { return c.run(con, c.App, importer.PowerJob) }
