// Lesson 9: a workflow that waits for the world. The waiting costs no worker: the program has
// only the step behind it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/fanjet/fanjet/processor"
)

// Order is what was paid and who approved it.
type Order struct {
	Cents int    `json:"cents"`
	By    string `json:"by"`
}

func ship(_ context.Context, _ *processor.Task, o Order) (string, error) {
	return fmt.Sprintf("shipped for %d cents, approved by %s", o.Cents, o.By), nil
}

func main() {
	w := processor.NewWorker(processor.Config{App: "release"})
	w.Register("ship", processor.Typed(ship))
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
