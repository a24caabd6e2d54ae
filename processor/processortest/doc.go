// Package processortest runs a Processor without a broker or a server: a whole instance in the
// process of the test, with sub-tasks, combine and reduce, or with the shares of a broadcast, with
// retries, logs and checkpoints.
//
//	out := processortest.Run(t, myProcessor, processortest.Task{
//		Mode: processor.ModeMapReduce, Params: map[string]any{"dir": "/data"},
//	})
//	require.NoError(t, out.Err)
//
// The bounds and the encoding are those of a Worker. What it does not imitate is time: retries
// follow at once, and nothing is scheduled.
package processortest
