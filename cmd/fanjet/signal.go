package main

import (
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/engine/api"
)

// callFlags say which workflow instance on which server is meant.
type callFlags struct {
	ID int64 `arg:"" name:"ID" help:"The workflow instance; fanjet run tells it."`
	serverFlags
	By string `help:"Who does it, for the record."`
}

// order makes one call and tells the server's no.
func (f *callFlags) order(con *console, name string, ask any) error {
	var reply api.StopReply
	if err := f.ask(con, name, ask, &reply); err != nil {
		return err
	}
	return refusal(reply.Error)
}

type signalCmd struct {
	callFlags
	Name    string `arg:"" name:"NAME" help:"Of the signal, or the node that waits for it."`
	Payload string `placeholder:"JSON" help:"What becomes the node's result; default null."`
}

// Run sends the signal.
func (c *signalCmd) Run(con *console) error {
	if c.Payload != "" && !json.Valid([]byte(c.Payload)) {
		return invalid("--payload %s: it is not JSON; a text needs quotes of its own", clip(c.Payload, 100))
	}
	err := c.order(con, api.CallSignal, api.SignalRequest{Workflow: c.ID, Name: c.Name, Payload: json.RawMessage(c.Payload), By: c.By})
	if err == nil {
		fmt.Fprintf(con.out, "signal %s is sent\n", c.Name)
	}
	return err
}

type approveCmd struct {
	callFlags
	Node    string   `arg:"" name:"NODE" help:"The approval node."`
	Reject  bool     `help:"Reject it instead: the node fails."`
	Comment string   `help:"Why; kept with the node's result."`
	Role    []string `help:"A role of yours, where the node asks for one; may be repeated."`
}

// Run approves or rejects.
func (c *approveCmd) Run(con *console) error {
	err := c.order(con, api.CallApprove, api.ApproveRequest{Workflow: c.ID, Node: c.Node, Reject: c.Reject, By: c.By, Comment: c.Comment, Roles: c.Role})
	if err == nil {
		fmt.Fprintf(con.out, "node %s is %s\n", c.Node, map[bool]string{false: "approved", true: "rejected"}[c.Reject])
	}
	return err
}
