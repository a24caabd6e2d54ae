// Lesson 3: MapReduce, with types. Split emits ranges, Work counts the primes in one,
// Combine adds up what one worker found before it travels, Reduce makes the result.
package main

import (
	"context"
	"log"

	"github.com/fanjet/fanjet/processor"
)

// Params are the bound of the search and the size of one sub-task.
type Params struct {
	Below int `json:"below"`
	Step  int `json:"step"`
}

// Range is the item of one sub-task: the numbers From to To-1.
type Range struct{ From, To int }

func split(_ context.Context, _ *processor.Task, p Params, emit func(Range) error) error {
	for from := 2; from < p.Below; from += p.Step {
		if err := emit(Range{from, min(from+p.Step, p.Below)}); err != nil {
			return err
		}
	}
	return nil
}

func work(_ context.Context, _ *processor.Task, r Range) (int, error) {
	primes := 0
	for n := r.From; n < r.To; n++ {
		if isPrime(n) {
			primes++
		}
	}
	return primes, nil
}

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

func add(_ context.Context, counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func reduce(_ context.Context, _ *processor.Task, counts *processor.Values[int]) (any, error) {
	primes := 0
	for n := range counts.All() { // read as they come, never all in memory
		primes += n
	}
	return map[string]int{"primes": primes}, nil
}

func main() {
	w := processor.NewWorker(processor.Config{App: "primes"})
	w.Register("primes", processor.MapReduce[Params, Range, int]{Split: split, Work: work, Combine: add, Reduce: reduce})
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
