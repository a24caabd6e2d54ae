// Package processor is the SDK of Fanjet: write a Processor, register it with a Worker, run.
//
//	w := processor.NewWorker(processor.Config{App: "reports"})
//	w.Register("greet", processor.Func(func(ctx context.Context, task *processor.Task) (any, error) {
//		return "hello " + task.Key(), nil
//	}))
//	err := w.RunUntilSignal(ctx)
//
// A Processor gets one Task at a time and returns a result, which travels as JSON. Everything
// else is optional and found by the methods the value has: a Reducer makes it fit for
// MapReduce, a Combiner makes that cheaper, a PreProcessor and a PostProcessor frame a
// broadcast. Typed and MapReduce are the same with types; TaskMap needs no interface:
// any Processor may call task.Map in the modes map and map_reduce.
//
// # What a processor may rely on
//
// A task runs at least once. It runs again when its worker died, or when an attempt failed and
// attempts are left; so its effects should bear repetition. Task.Instance, Task.Number and
// Task.Key make good idempotency keys. What is accounted is exactly once: one result of one run.
//
// The context of a task ends when the task returns, when its timeout passes, when the instance is
// stopped and when the worker gave up draining; context.Cause tells which. A panic fails the task
// with its stack and harms nobody else.
//
// # What it never does
//
// It decides nothing about the fate of an instance: it reports what happened and obeys. It holds
// no database and listens on no port; one connection dials out to the broker.
package processor
