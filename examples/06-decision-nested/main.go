// Lesson 6: a decision among several ways, and a workflow inside a workflow. The steps know
// of neither.
package main

import (
	"context"
	"log"

	"github.com/fanjet/fanjet/processor"
)

// Parcel is what is sent.
type Parcel struct {
	Kg float64 `json:"kg"`
}

func weigh(_ context.Context, _ *processor.Task, p Parcel) (map[string]bool, error) {
	return map[string]bool{"heavy": p.Kg > 30}, nil
}

// Trip is one way of a vehicle.
type Trip struct {
	Vehicle string `json:"vehicle"`
	Cents   int    `json:"cents"`
}

func load(_ context.Context, _ *processor.Task, t Trip) (map[string]string, error) {
	return map[string]string{"loaded": t.Vehicle}, nil
}

func drive(_ context.Context, task *processor.Task, t Trip) (Trip, error) {
	task.Logger().Info("driving", "vehicle", t.Vehicle)
	return t, nil
}

// Bill is what the parcel costs.
type Bill struct {
	Trip Trip `json:"trip"`
}

func bill(_ context.Context, _ *processor.Task, b Bill) (map[string]any, error) {
	return map[string]any{"due": b.Trip.Cents, "for": "a ride by " + b.Trip.Vehicle}, nil
}

func main() {
	w := processor.NewWorker(processor.Config{App: "parcels"})
	w.Register("weigh", processor.Typed(weigh))
	w.Register("load", processor.Typed(load))
	w.Register("drive", processor.Typed(drive))
	w.Register("bill", processor.Typed(bill))
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
