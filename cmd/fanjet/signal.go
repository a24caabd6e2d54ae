package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/api"
)

// callFlags say which workflow instance on which server is meant.
type callFlags struct {
	ID     int64  `arg:"" name:"ID" help:"The workflow instance; fanjet run tells it."`
	Server string `required:"" env:"FANJET_URL" placeholder:"URL" help:"The broker of the server, nats://host:4222."`
	Token  string `env:"FANJET_TOKEN" help:"The broker's token, if it asks for one."`
	By     string `help:"Who does it, for the record."`
}

// call makes one call and tells the server's no.
func (f *callFlags) call(con *console, name string, ask any) error {
	if err := checkURL("--server", f.Server); err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	ctx, cancel := context.WithTimeout(sig.first, dialPatience)
	defer cancel()
	client, err := broker.Dial(ctx, broker.Options{URL: f.Server, Token: f.Token, Name: "fanjet " + name, Logger: warnings(con.err).Logger})
	if err != nil {
		return unreachable(err, f.Server, "is a server running there, and the token right?")
	}
	defer client.Close()
	var reply api.StopReply
	if err := (remote{client}).call(ctx, name, ask, &reply); err != nil {
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
	err := c.call(con, api.CallSignal, api.SignalRequest{Workflow: c.ID, Name: c.Name, Payload: json.RawMessage(c.Payload), By: c.By})
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
	err := c.call(con, api.CallApprove, api.ApproveRequest{Workflow: c.ID, Node: c.Node, Reject: c.Reject, By: c.By, Comment: c.Comment, Roles: c.Role})
	if err == nil {
		fmt.Fprintf(con.out, "node %s is %s\n", c.Node, map[bool]string{false: "approved", true: "rejected"}[c.Reject])
	}
	return err
}
