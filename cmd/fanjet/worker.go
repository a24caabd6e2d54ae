package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/processor"
)

type workerCmd struct {
	App          string   `required:"" env:"FANJET_APP" help:"The app to work for."`
	URL          string   `default:"nats://127.0.0.1:4222" env:"FANJET_URL" help:"Where the broker is: nats://host:port, several separated by commas."`
	Token        string   `env:"FANJET_TOKEN" help:"The broker's token, if it asks for one."`
	Creds        string   `env:"FANJET_CREDS" type:"path" help:"A credentials file of NATS."`
	Name         string   `help:"Name of the worker; default host, process and a random part."`
	Slots        int      `help:"How many chunks run at once; default twice the processors of the machine, at least 4."`
	Tags         []string `help:"Pools to serve besides any, separated by commas."`
	builtinFlags `group:"Built-in processors, none by default:"`
	logFlags
}

// Help says what the worker can run.
func (workerCmd) Help() string {
	return `The worker has the processors of the demo: demo-list (the size of a tree of files), demo-count
(MapReduce: counts their words) and demo-report. Workers of your own are Go programs that register
processors with package processor; see examples/.

More are there for those who ask: each of these flags lets jobs do something on this machine, so none
is on by itself. --exec starts one program for each task that runs at once, and speaks JSON lines with
it; the protocol is one page, processor/builtin/exec/PROTOCOL.md. It is one command, without && or |.

It waits for a broker and a server that are not there yet. SIGTERM and Ctrl-C drain it: what runs is
finished, the rest is given back.`
}

// Run works until it is told to end.
func (c *workerCmd) Run(con *console) error {
	if err := checkURL("--url", c.URL); err != nil {
		return err
	}
	if c.Slots < 0 {
		return invalid("--slots must be positive")
	}
	more, err := c.check()
	if err != nil {
		return err
	}
	defer more.close()
	sig := catchInterrupts()
	defer sig.forget()
	log := c.logger(con.err)
	if err := more.start(sig.first, c.Exec, c.Slots, log); err != nil {
		if sig.first.Err() != nil {
			return context.Cause(sig.first)
		}
		return err
	}
	w := registerDemo(processor.NewWorker(processor.Config{
		App: c.App, Name: c.Name, URL: c.URL, Token: c.Token, CredsFile: c.Creds, Slots: c.Slots, Tags: c.Tags, Logger: log.Logger,
	}))
	more.register(w)
	log.Info("worker looks for its broker", "app", c.App, "worker", w.Name(), "broker", redactURL(c.URL))
	if err := w.Run(sig.first); err != nil {
		return fmt.Errorf("worker of app %s: %w", c.App, err)
	}
	return nil
}

// startWorkers runs n workers of the demo in this process, each with a connection of its
// own and more processors by register. stop drains them and returns their errors.
func startWorkers(sig *interrupts, app, url string, n, slots int, log *logger, register func(*processor.Worker)) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, n)
	for i := range n {
		w := registerDemo(processor.NewWorker(processor.Config{
			App: app, Name: fmt.Sprintf("%s-%d", app, i+1), URL: url, Slots: slots,
			DrainTimeout: stopPatience, Logger: log.Logger,
		}))
		register(w)
		go func() {
			err := w.Run(ctx)
			if err != nil {
				sig.cancel(fmt.Errorf("worker %s: %w", w.Name(), err))
			}
			ended <- err
		}()
	}
	return func() error {
		cancel()
		var errs []error
		for range n {
			errs = append(errs, <-ended)
		}
		return errors.Join(errs...)
	}
}
