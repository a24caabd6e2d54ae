// Lesson 5: a workflow. The graph is in workflow.yaml; the steps are small processors that
// know nothing of each other: what one returns, the file hands to the next.
package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/fanjet/fanjet/processor"
)

// Order is what a customer wants.
type Order struct {
	Items []Item `json:"items"`
}

// Item is one line of an Order; the price is in cents.
type Item struct {
	Name  string `json:"name"`
	Price int    `json:"price"`
}

func total(_ context.Context, _ *processor.Task, o Order) (map[string]int, error) {
	if len(o.Items) == 0 {
		return nil, processor.Cancel(errors.New("the order is empty")) // final: no retry helps
	}
	sum := 0
	for _, item := range o.Items {
		sum += item.Price
	}
	return map[string]int{"total": sum, "items": len(o.Items)}, nil
}

// Price is what the payment steps get.
type Price struct {
	Total   int `json:"total"`
	Percent int `json:"percent"`
}

func discount(_ context.Context, _ *processor.Task, p Price) (map[string]int, error) {
	return map[string]int{"total": p.Total * (100 - p.Percent) / 100}, nil
}

func reserve(_ context.Context, task *processor.Task) (any, error) {
	if task.Attempt() == 1 { // the warehouse is busy: come back later
		return nil, processor.RetryAfter(50*time.Millisecond, errors.New("the warehouse is busy"))
	}
	return map[string]any{"reserved": true, "attempt": task.Attempt()}, nil
}

func invoice(_ context.Context, _ *processor.Task, p Price) (map[string]int, error) {
	return map[string]int{"due": p.Total}, nil
}

func main() {
	w := processor.NewWorker(processor.Config{App: "shop"})
	w.Register("total", processor.Typed(total))
	w.Register("discount", processor.Typed(discount))
	w.Register("reserve", processor.Func(reserve))
	w.Register("invoice", processor.Typed(invoice))
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
