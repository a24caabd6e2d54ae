package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/fanjet/fanjet/engine/api"
)

type ledgerCmd struct {
	serverFlags
	definitionFlags
	rangeFlags
	Limit int `default:"500" help:"How many entries at most, up to 10000."`
	outputFlag
}

// Run shows which fires ran and which did not, and why.
func (c *ledgerCmd) Run(con *console) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Limit < 1 || c.Limit > 10_000 {
		return invalid("--limit %d: 1 to 10000", c.Limit)
	}
	var reply api.LedgerReply
	ask := api.LedgerRequest{App: c.App, Job: c.Job, Workflow: c.Workflow, From: c.From.UnixMilli(), To: c.To.millis(), Limit: c.Limit}
	if err := c.ask(con, api.CallLedger, ask, &reply); err != nil {
		return err
	}
	if err := refusal(reply.Error); err != nil {
		return err
	}
	if reply.More {
		fmt.Fprintf(con.err, "there are more; ask for a shorter range, or for more with --limit\n")
	}
	if reply.Entries == nil {
		reply.Entries = []api.LedgerEntry{}
	}
	return c.write(con.out, &reply, func(w io.Writer) {
		if len(reply.Entries) == 0 {
			fmt.Fprintf(con.err, "%s: nothing fired or was skipped in that range\n", c.definitionFlags.String())
			return
		}
		fmt.Fprint(w, ledgerTable(reply.Entries))
	})
}

func ledgerTable(entries []api.LedgerEntry) string {
	rows := [][]string{{"SCHEDULED", "STATUS", "LATE", "INSTANCE"}}
	for _, e := range entries {
		at := utc(e.From)
		switch {
		case e.Skipped == "":
			rows = append(rows, []string{at, e.Status, short(time.Duration(e.LateMS) * time.Millisecond), strconv.FormatInt(e.Instance, 10)})
			continue
		case e.Count > 1:
			at = fmt.Sprintf("%s … %s, %s", at, utc(e.To), plural(e.Count, "fire"))
		}
		rows = append(rows, []string{at, "skipped: " + e.Skipped, "-", "-"})
	}
	return table(rows)
}
