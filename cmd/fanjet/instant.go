package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// instant is a time on the command line.
type instant struct {
	time.Time
	now bool // it was written as now: the server's clock says when that is
}

// UnmarshalText reads RFC 3339, now, or how long ago: -24h, -7d.
func (i *instant) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "now" {
		*i = instant{time.Now(), true}
		return nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		*i = instant{t, false}
		return nil
	}
	if back, ok := strings.CutPrefix(s, "-"); ok {
		ago, err := time.ParseDuration(back)
		if days, isDays := strings.CutSuffix(back, "d"); err != nil && isDays {
			var n int
			if n, err = strconv.Atoi(days); err == nil && n > 100_000 {
				err = strconv.ErrRange
			}
			ago = time.Duration(n) * 24 * time.Hour
		}
		if err == nil && ago >= 0 {
			*i = instant{time.Now().Add(-ago), false}
			return nil
		}
	}
	return fmt.Errorf("%q is no time; write it as 2006-01-02T15:04:05Z, as how long ago (-24h, -7d), or as now", clip(s, 60))
}

// millis is the time in epoch milliseconds; now is 0, for the server to tell.
func (i *instant) millis() int64 {
	if i.now {
		return 0
	}
	return i.UnixMilli()
}

// rangeFlags are the scheduled times that are meant.
type rangeFlags struct {
	From instant `default:"-24h" placeholder:"TIME" help:"First scheduled time: RFC 3339, or how long ago (-24h, -7d). Default ${default}."`
	To   instant `default:"now" placeholder:"TIME" help:"Last scheduled time. Default ${default}."`
}

func (f *rangeFlags) check() error {
	if f.To.Before(f.From.Time) {
		return invalid("--from %s is after --to %s", utc(f.From.UnixMilli()), utc(f.To.UnixMilli()))
	}
	return nil
}

// definitionFlags name a job or a workflow.
type definitionFlags struct {
	App      string `required:"" env:"FANJET_APP" help:"The app."`
	Job      string `xor:"definition" required:"" help:"The job."`
	Workflow string `xor:"definition" required:"" help:"Or the workflow."`
}

// String is the definition as people read it.
func (f *definitionFlags) String() string {
	if f.Workflow != "" {
		return "workflow " + f.App + "/" + f.Workflow
	}
	return "job " + f.App + "/" + f.Job
}

// flags are those that name the definition on another command line.
func (f *definitionFlags) flags() string {
	if f.Workflow != "" {
		return "--app " + f.App + " --workflow " + f.Workflow
	}
	return "--app " + f.App + " --job " + f.Job
}

// joinNegative writes `--from -24h` as `--from=-24h`: no flag begins with a digit.
func joinNegative(args []string) []string {
	var out []string
	for i, arg := range args {
		if n := len(out); n > 0 && len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' &&
			strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "=") {
			out[n-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}
