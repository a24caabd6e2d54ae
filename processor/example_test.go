package processor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/processortest"
)

// A function is enough.
func ExampleFunc() {
	greet := processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		return "hello " + task.Key(), nil
	})

	out := processortest.Execute(context.Background(), greet, processortest.Task{Key: "world"})
	fmt.Println(string(out.Result), out.Err)
	// Output: "hello world" <nil>
}

// Params come decoded, and a wrong one is an error that says so.
func ExampleTyped() {
	type invoice struct {
		Customer string
		Cents    int
	}
	bill := processor.Typed(func(_ context.Context, _ *processor.Task, p invoice) (string, error) {
		if p.Cents <= 0 {
			return "", processor.Cancel(errors.New("nothing to pay"))
		}
		return fmt.Sprintf("%s pays %d.%02d", p.Customer, p.Cents/100, p.Cents%100), nil
	})

	for _, params := range []any{invoice{"Ada", 1250}, invoice{"Bob", 0}, "what?"} {
		out := processortest.Execute(context.Background(), bill, processortest.Task{Params: params})
		fmt.Println(string(out.Result), out.Err)
	}
	// Output:
	// "Ada pays 12.50" <nil>
	//  root: nothing to pay
	//  root: decode params as *processor_test.invoice: json: cannot unmarshal string into Go value of type processor_test.invoice
}

// The longest word of some lines: each line is a sub-task that any worker may run.
func ExampleMapReduce() {
	longest := processor.MapReduce[[]string, string, string]{
		Split: func(_ context.Context, _ *processor.Task, lines []string, emit func(string) error) error {
			for _, line := range lines {
				if err := emit(line); err != nil {
					return err
				}
			}
			return nil
		},
		Work: func(_ context.Context, _ *processor.Task, line string) (string, error) {
			return longer(strings.Fields(line)), nil
		},
		Combine: func(_ context.Context, words []string) string { return longer(words) },
		Reduce: func(_ context.Context, _ *processor.Task, words *processor.Values[string]) (any, error) {
			best := ""
			for w := range words.All() {
				best = longer([]string{best, w})
			}
			return best, nil
		},
	}

	out := processortest.Execute(context.Background(), longest, processortest.Task{
		Mode:   processor.ModeMapReduce,
		Params: []string{"the quick brown fox", "jumps over", "something lazy"},
	})
	fmt.Println(string(out.Result), out.SubTasks)
	// Output: "something" 3
}

func longer(words []string) (best string) {
	for _, w := range words {
		if len(w) > len(best) {
			best = w
		}
	}
	return best
}

// Any processor can map, in as many steps as it likes.
func ExampleTask_Map() {
	tree := processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		if task.IsRoot() {
			return nil, task.Map("branch", []string{"a", "b"})
		}
		var at string
		if err := task.Item(&at); err != nil {
			return nil, err
		}
		if task.Name() == "branch" {
			return nil, task.Map("leaf", []string{at + "1", at + "2"})
		}
		task.Logger().Info("reached", "leaf", at)
		return nil, nil
	})

	out := processortest.Execute(context.Background(), tree, processortest.Task{Mode: processor.ModeMap})
	fmt.Println(out.SubTasks, out.Err)
	fmt.Println(strings.Join(out.Lines, "\n"))
	// Output:
	// 6 <nil>
	// reached leaf=a1
	// reached leaf=a2
	// reached leaf=b1
	// reached leaf=b2
}

type cleanup struct{}

func (cleanup) Process(_ context.Context, task *processor.Task) (any, error) {
	index, total := task.Shard()
	return fmt.Sprintf("cleaned part %d of %d", index+1, total), nil
}

func (cleanup) PostProcess(_ context.Context, _ *processor.Task, shares *processor.Shares) (any, error) {
	for s := range shares.All() {
		fmt.Println(s.Worker, string(s.Result))
	}
	return shares.Total(), nil
}

// A broadcast runs once on every worker; PostProcess sees all results.
func ExamplePostProcessor() {
	out := processortest.Execute(context.Background(), cleanup{}, processortest.Task{Mode: processor.ModeBroadcast, Workers: 2})
	fmt.Println(string(out.Result), out.Err)
	// Output:
	// worker-0 "cleaned part 1 of 2"
	// worker-1 "cleaned part 2 of 2"
	// 2 <nil>
}

// A checkpoint survives the attempt that made it.
func ExampleTask_Checkpoint() {
	copyRows := processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
		row := 0
		if _, err := task.Checkpointed(&row); err != nil {
			return nil, err
		}
		fmt.Println("from row", row)
		if err := task.Checkpoint(row + 500); err != nil {
			return nil, err
		}
		if task.TaskAttempt() == 1 {
			return nil, processor.RetryAfter(time.Minute, errors.New("connection lost"))
		}
		return "copied", nil
	})

	out := processortest.Execute(context.Background(), copyRows, processortest.Task{Attempts: 2})
	fmt.Println(string(out.Result), out.Err)
	// Output:
	// from row 0
	// from row 500
	// "copied" <nil>
}

// A worker dials out to the broker and runs until the process is told to end.
func ExampleWorker() {
	w := processor.NewWorker(processor.Config{App: "reports", Slots: 8, Tags: []string{"gpu"}}).
		Register("greet", processor.Func(func(_ context.Context, task *processor.Task) (any, error) {
			return "hello " + task.Key(), nil
		}))

	ctx, stop := context.WithCancel(context.Background())
	stop() // or w.RunUntilSignal(context.Background())
	fmt.Println(w.Run(ctx))
	// Output: <nil>
}
