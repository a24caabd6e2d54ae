package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fanjet/fanjet/engine/api"
)

type backfillCmd struct {
	serverFlags
	jobFlags
	From   instant `required:"" placeholder:"TIME" help:"First scheduled time: RFC 3339, or how long ago (-24h, -7d)."`
	To     instant `default:"now" placeholder:"TIME" help:"Last scheduled time. Default ${default}."`
	Max    int     `default:"1000" help:"Refuse it if there are more fires; up to 10000."`
	DryRun bool    `help:"Only tell which fires it would be."`
	outputFlag
}

// Run fires a job for the scheduled times of a past range that have not run.
func (c *backfillCmd) Run(con *console) error {
	if err := (&rangeFlags{c.From, c.To}).check(); err != nil {
		return err
	}
	if c.Max < 1 || c.Max > 10_000 {
		return invalid("--max %d: 1 to 10000", c.Max)
	}
	to := c.To.Time
	if c.To.now {
		to = to.Add(-2 * time.Second) // what is due in this moment fires by itself, and clocks differ
	}
	ask := api.BackfillRequest{App: c.App, Job: c.Job, From: c.From.UnixMilli(), To: to.UnixMilli(), Max: c.Max, DryRun: c.DryRun}
	var reply api.BackfillReply
	if err := c.ask(con, api.CallBackfill, ask, &reply); err != nil {
		return err
	}
	// What was made is told even if the rest failed.
	refused := refusal(reply.Error)
	if refused != nil && len(reply.Times) == 0 {
		return refused
	}
	if reply.Times == nil {
		reply.Times = []int64{}
	}
	err := c.write(con.out, &reply, func(w io.Writer) { c.tell(w, &reply) })
	return errors.Join(err, refused)
}

func (c *backfillCmd) tell(w io.Writer, r *api.BackfillReply) {
	verb := "fired"
	if c.DryRun {
		verb = "would be fired"
	}
	for _, at := range r.Times {
		fmt.Fprintf(w, "%s  %s\n", utc(at), verb)
	}
	fmt.Fprintf(w, "%s of job %s/%s %s, %s had run already\n", plural(int64(len(r.Times)), "time"), c.App, c.Job, verb, thousands(r.Existed))
}
