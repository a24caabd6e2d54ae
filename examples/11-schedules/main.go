// Lesson 11: schedules. A job fires every 200 ms and does not overlap, a nightly one is
// previewed over a weekend and a holiday, orders expire unless they are paid, and the ledger
// tells what fired and what did not.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/storage"
	"github.com/fanjet/fanjet/workflow"
)

//go:embed jobs.yaml
var documents []byte

const app = "schedules"

// Order is what expires.
type Order struct {
	ID string `json:"id"`
}

func main() {
	dir, err := os.MkdirTemp("", "fanjet-schedules-") // a real program keeps its data
	if err == nil {
		err = errors.Join(run(context.Background(), dir), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	quiet := slog.New(slog.DiscardHandler)
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

	free := make(chan struct{}) // holds the first runs up, so that fires find one under way
	w := processor.NewWorker(processor.Config{App: app, URL: nats.ClientURL(), Logger: quiet})
	w.Register("poll", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
		select {
		case <-free:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}))
	w.Register("expire-order", processor.Typed(func(_ context.Context, _ *processor.Task, o Order) (string, error) {
		return "order " + o.ID + " has expired", nil
	}))

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
	nightly, err := save(running, s)
	if err != nil {
		return err
	}
	return errors.Join(preview(running, s, nightly), orders(running, s), poll(running, s, sync.OnceFunc(func() { close(free) })))
}

// save stores the calendars and jobs of the file; it returns the schedule of nightly.
func save(ctx context.Context, s *server.Server) (nightly workflow.Schedule, err error) {
	docs, err := workflow.ParseAll("jobs.yaml", documents)
	if err != nil {
		return nightly, err
	}
	for _, doc := range docs {
		switch {
		case doc.Calendar != nil:
			days, err := json.Marshal(doc.Calendar.Calendar)
			if err != nil {
				return nightly, err
			}
			if _, err := s.SaveCalendar(ctx, doc.App, doc.Name, days); err != nil {
				return nightly, err
			}
		case doc.Job != nil:
			j := server.JobDef{App: doc.App, Name: doc.Name, Title: doc.Job.Title, Spec: doc.Job.Spec, Schedule: doc.Job.Schedule, Disabled: doc.Job.Disabled}
			if _, err := s.SaveJobDef(ctx, j); err != nil {
				return nightly, err
			}
			if doc.Name == "nightly" {
				nightly = doc.Job.Schedule
			}
		}
	}
	return nightly, nil
}

// preview shows the nightly fires around a weekend in which New York's clocks go forward.
func preview(ctx context.Context, s *server.Server, nightly workflow.Schedule) error {
	from := time.Date(2027, 3, 12, 0, 0, 0, 0, time.UTC)
	fires, err := s.Preview(ctx, app, nightly, from.UnixMilli(), 4)
	if err != nil {
		return err
	}
	fmt.Println("nightly:")
	for _, f := range fires {
		line := "  " + f.Local + " " + f.UTC
		if f.Skipped {
			line += fmt.Sprintf(" %d skipped, %s", f.Count, f.Note)
		}
		fmt.Println(line)
	}
	return nil
}

// orders expire after a while, each a waiting instance under its own key; a payment cancels it.
func orders(ctx context.Context, s *server.Server) error {
	ids := map[string]int64{}
	for order, after := range map[string]time.Duration{"1001": time.Second, "1002": time.Hour} {
		params, err := json.Marshal(Order{ID: order})
		if err != nil {
			return err
		}
		ids[order], err = s.Trigger(ctx, server.Trigger{App: app, Job: "expire-order", Key: order, Params: params, Delay: after})
		if err != nil {
			return err
		}
	}
	canceled, err := s.CancelKey(ctx, app, "expire-order", "1002") // it has been paid
	if err != nil {
		return err
	}
	fmt.Println("canceled by its key:", canceled)
	for _, order := range []string{"1001", "1002"} {
		end, err := s.WaitInstance(ctx, ids[order])
		if err != nil {
			return err
		}
		fmt.Printf("  %s: %s\n", order, end.Status)
	}
	return nil
}

// poll lets the job run freely once fires were skipped, shows how its ledger begins, and
// compares all of it with what should have fired.
func poll(ctx context.Context, s *server.Server, free func()) error {
	job := server.Definition{App: app, Job: "poll"}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	var lines []string
	for len(lines) < 3 {
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var err error
		if lines, err = ledger(ctx, s, job); err != nil {
			return err
		}
		if slices.Contains(lines, "skipped: overlap") {
			free()
		}
	}
	fmt.Println("poll:")
	for _, line := range lines[:3] {
		fmt.Println("  " + line)
	}
	v, err := s.Verify(ctx, job, 0, 0)
	if err != nil {
		return err
	}
	fmt.Println("expected, and fired or skipped:", v.Expected > 0 && v.Expected == v.Fired+v.Skipped)
	fmt.Println("missed, doubled, unexpected:", v.MissingCount, v.DoubledCount, v.UnexpectedCount)
	return nil
}

// ledger is what became of the fires in turn, the same said once; runs that are under way are
// left out.
func ledger(ctx context.Context, s *server.Server, job server.Definition) ([]string, error) {
	entries, _, err := s.Ledger(ctx, job, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range entries {
		switch {
		case e.Skip != nil:
			lines = append(lines, "skipped: "+string(e.Skip.Reason))
		case e.Fired.Status.Terminal():
			lines = append(lines, e.Fired.Status.String())
		}
	}
	return slices.Compact(lines), nil
}
