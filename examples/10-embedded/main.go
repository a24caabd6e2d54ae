// Lesson 10: the whole engine inside a program of your own: database, broker, server and
// worker, without another process. More workers may connect from elsewhere at any time.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

//go:embed workflow.yaml
var document []byte

// Params are what the workflow hands over.
type Params struct {
	Name string `json:"name"`
}

func greet(_ context.Context, _ *processor.Task, p Params) (string, error) {
	return "Hello from inside, " + p.Name + "!", nil
}

func main() {
	dir, err := os.MkdirTemp("", "fanjet-embedded-") // a real program keeps its data
	if err == nil {
		err = errors.Join(run(context.Background(), dir), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	quiet := slog.New(slog.DiscardHandler)
	def, err := workflow.Parse("workflow.yaml", document)
	if err != nil {
		return err
	}
	db, err := storage.Open(ctx, storage.Config{URL: "sqlite:" + filepath.Join(dir, "fanjet.db"), Logger: quiet})
	if err != nil {
		return err
	}
	defer db.Close()
	nats, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Port: -1, Logger: quiet})
	if err != nil {
		return err
	}
	defer nats.Shutdown()
	b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: nats.ClientURL(), Logger: quiet}})
	if err != nil {
		return err
	}
	defer b.Close()
	s, err := server.New(server.Config{Store: db, Broker: b, Log: quiet})
	if err != nil {
		return err
	}
	w := processor.NewWorker(processor.Config{App: "embedded", URL: nats.ClientURL(), Logger: quiet})
	w.Register("greet", processor.Typed(greet))

	var parts sync.WaitGroup
	running, stop := context.WithCancelCause(ctx)
	parts.Go(func() { stop(s.Run(running)) }) // the end of one is the end of all
	parts.Go(func() { stop(w.Run(running)) })
	defer func() { stop(nil); parts.Wait() }() // before the broker and the database close
	select {
	case <-s.Ready():
	case <-running.Done():
		return context.Cause(running)
	}
	id, err := s.StartWorkflow(running, server.Start{Definition: def})
	if err != nil {
		return err
	}
	end, err := s.WaitWorkflow(running, id)
	if err == nil {
		fmt.Println(end.Status, string(end.Result))
	}
	return err
}
