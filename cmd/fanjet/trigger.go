package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/workflow"
)

// triggerMost is how many instances one call makes at most.
const triggerMost = 100_000

// jobFlags name a job.
type jobFlags struct {
	App string `required:"" env:"FANJET_APP" help:"The app."`
	Job string `required:"" help:"The job."`
}

type triggerCmd struct {
	serverFlags
	jobFlags
	Params string        `placeholder:"JSON" help:"Params in place of the job's."`
	Key    string        `help:"A business key, to find or cancel it by."`
	Delay  time.Duration `help:"Start it so much later."`
	Count  int           `default:"1" help:"How many instances."`
	Lane   string        `enum:"high,normal,bulk," default:"" placeholder:"LANE" help:"high, normal or bulk; default the job's."`
	outputFlag
}

// triggered is the answer of trigger.
type triggered struct {
	IDs []string `json:"ids"`
}

// Run makes the instances and does not wait for their end.
func (c *triggerCmd) Run(con *console) error {
	switch {
	case c.Params != "" && !json.Valid([]byte(c.Params)):
		return invalid("--params %s: it is not JSON; a text needs quotes of its own", clip(c.Params, 100))
	case len(c.Params) > workflow.MaxParams:
		return invalid("--params: %d bytes, the limit is %d", len(c.Params), workflow.MaxParams)
	case c.Delay < 0:
		return invalid("--delay %v: must not be negative", c.Delay)
	case c.Count < 1 || c.Count > triggerMost:
		return invalid("--count %d: 1 to %d", c.Count, triggerMost)
	}
	var reply api.StartReply
	err := c.ask(con, api.CallTrigger, api.TriggerRequest{
		App: c.App, Job: c.Job, Params: json.RawMessage(c.Params), Key: c.Key, Count: c.Count, DelayMS: c.Delay.Milliseconds(), Lane: c.Lane,
	}, &reply)
	if err != nil {
		return err
	}
	// What was made is told even if the rest was refused.
	if len(reply.IDs) > 0 {
		err = c.write(con.out, triggered{reply.IDs}, func(w io.Writer) {
			if n := len(reply.IDs); n > 1 {
				fmt.Fprintf(w, "%s of job %s/%s: %s … %s\n", plural(int64(n), "instance"), c.App, c.Job, reply.IDs[0], reply.IDs[n-1])
				return
			}
			fmt.Fprintf(w, "instance %s of job %s/%s\n", reply.IDs[0], c.App, c.Job)
		})
	}
	return errors.Join(err, refusal(reply.Error))
}

type cancelCmd struct {
	serverFlags
	jobFlags
	Key string `required:"" help:"The business key."`
	outputFlag
}

// canceled is the answer of cancel.
type canceled struct {
	Count int `json:"count"`
}

// Run cancels what waits under the key, and stops what runs.
func (c *cancelCmd) Run(con *console) error {
	var reply api.CancelKeyReply
	if err := c.ask(con, api.CallCancelKey, api.CancelKeyRequest{App: c.App, Job: c.Job, Key: c.Key}, &reply); err != nil {
		return err
	}
	if err := refusal(reply.Error); err != nil {
		return err
	}
	return c.write(con.out, canceled{reply.Count}, func(w io.Writer) {
		if reply.Count == 0 {
			fmt.Fprintf(w, "nothing of job %s/%s waits or runs under key %s\n", c.App, c.Job, c.Key)
			return
		}
		fmt.Fprintf(w, "%s of job %s/%s told to end\n", plural(int64(reply.Count), "instance"), c.App, c.Job)
	})
}
