// Lesson 1: a worker with one processor. A processor is a function that gets a task and
// returns a result; the result travels as JSON.
package main

import (
	"context"
	"log"

	"github.com/fanjet/fanjet/processor"
)

// Params are what the workflow hands over.
type Params struct {
	Name string `json:"name"`
}

// Greeting is the result.
type Greeting struct {
	Text string `json:"text"`
}

func greet(_ context.Context, task *processor.Task, p Params) (Greeting, error) {
	// What is logged here is kept with the instance, wherever this worker runs.
	task.Logger().Info("greeting", "name", p.Name)
	return Greeting{Text: "Hello, " + p.Name + "!"}, nil
}

func main() {
	// The worker finds the broker by FANJET_URL. It dials out and listens on no port; start
	// as many of them as you like.
	w := processor.NewWorker(processor.Config{App: "hello"})
	w.Register("greet", processor.Typed(greet))
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
