package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine/api"
)

type verifyCmd struct {
	serverFlags
	definitionFlags
	rangeFlags
	outputFlag
}

// verified is the answer of verify -o json.
type verified struct {
	Clean bool `json:"clean"`
	*api.VerifyReply
}

// Run compares what should have fired with the ledger; success is that both agree.
func (c *verifyCmd) Run(con *console) error {
	if err := c.check(); err != nil {
		return err
	}
	var reply api.VerifyReply
	ask := api.LedgerRequest{App: c.App, Job: c.Job, Workflow: c.Workflow, From: c.From.UnixMilli(), To: c.To.millis()}
	if err := c.ask(con, api.CallVerify, ask, &reply); err != nil {
		return err
	}
	if err := refusal(reply.Error); err != nil {
		return err
	}
	err := c.write(con.out, verified{reply.Clean(), &reply}, func(w io.Writer) { fmt.Fprint(w, c.compared(&reply)) })
	if err != nil || reply.Clean() {
		return err
	}
	return errors.New(c.unclean(&reply))
}

// compared is what was found, for people.
func (c *verifyCmd) compared(v *api.VerifyReply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s to %s: %s expected, %s fired, %s skipped\n",
		c.definitionFlags.String(), utc(v.From), utc(v.To), thousands(v.Expected), thousands(v.Fired), thousands(v.Skipped))
	if v.Fired > 0 {
		fmt.Fprintf(&b, "late by %s at most, %s at p99\n", short(time.Duration(v.MaxLateMS)*time.Millisecond), short(time.Duration(v.P99LateMS)*time.Millisecond))
	}
	for _, t := range []struct {
		what  string
		times api.Times
	}{{"missed", v.Missing}, {"fired twice", v.Doubled}, {"fired at a time of no version", v.Unexpected}} {
		for _, at := range t.times.First {
			fmt.Fprintf(&b, "  %s  %s\n", utc(at), t.what)
		}
		if more := t.times.Count - int64(len(t.times.First)); more > 0 {
			fmt.Fprintf(&b, "  and %s more %s\n", thousands(more), t.what)
		}
	}
	if v.Clean() {
		b.WriteString("clean\n")
	}
	return b.String()
}

// unclean says what is wrong and what to do.
func (c *verifyCmd) unclean(v *api.VerifyReply) string {
	var wrong []string
	add := func(n int64, what string) {
		if n > 0 {
			wrong = append(wrong, fmt.Sprintf("%s %s", plural(n, "fire"), what))
		}
	}
	add(v.Missing.Count, "missed")
	add(v.Doubled.Count, "doubled")
	add(v.Unexpected.Count, "that no version names")
	text := fmt.Sprintf("%s is not clean: %s", c.definitionFlags.String(), strings.Join(wrong, ", "))
	if v.Missing.Count > 0 && c.Job != "" {
		text += fmt.Sprintf("; run what was missed with fanjet backfill %s --from %s --to %s", c.flags(), utc(v.From), utc(v.To))
	}
	return text
}
