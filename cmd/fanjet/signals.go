package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts are the signals that end a command.
type interrupts struct {
	// first ends with errInterrupted at the first signal: stop cleanly.
	first context.Context
	// second ends at the second one: stop waiting for others.
	second context.Context
	// cancel ends first for another cause.
	cancel context.CancelCauseFunc
	// forget gives the signals back.
	forget func()
}

func catchInterrupts() *interrupts {
	first, cancel := context.WithCancelCause(context.Background())
	second, hurry := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	gone := make(chan struct{})
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, act := range []func(){func() { cancel(errInterrupted) }, hurry} {
			select {
			case <-ch:
				act()
			case <-gone:
				return
			}
		}
	}()
	return &interrupts{first, second, cancel, func() {
		signal.Stop(ch)
		close(gone)
		cancel(nil)
		hurry()
	}}
}
