package main

import (
	"context"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// callPatience bounds one call; the server gives up on it before.
const callPatience = 15 * time.Second

// serverFlags say which server is asked.
type serverFlags struct {
	Server string `required:"" env:"FANJET_URL" placeholder:"URL" help:"The broker of the server, nats://host:4222."`
	Token  string `env:"FANJET_TOKEN" help:"The broker's token, if it asks for one."`
}

// with connects to the server for as long as do runs; an interrupt ends do's context.
func (f *serverFlags) with(con *console, name string, do func(ctx context.Context, r remote) error) error {
	if err := checkURL("--server", f.Server); err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	dial, cancel := context.WithTimeout(sig.first, dialPatience)
	defer cancel()
	client, err := broker.Dial(dial, broker.Options{URL: f.Server, Token: f.Token, Name: "fanjet " + name, Logger: warnings(con.err).Logger})
	if err == nil {
		defer client.Close()
		err = do(sig.first, remote{client})
	} else {
		err = unreachable(err, f.Server, "is a server running there, and the token right?")
	}
	if err != nil && sig.first.Err() != nil {
		return context.Cause(sig.first)
	}
	return err
}

// ask makes one call over a connection of its own.
func (f *serverFlags) ask(con *console, name string, ask, answer any) error {
	return f.with(con, name, func(ctx context.Context, r remote) error { return r.ask(ctx, name, ask, answer) })
}

// ask is call with a bound on its time.
func (r remote) ask(ctx context.Context, name string, ask, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return r.call(ctx, name, ask, answer)
}
