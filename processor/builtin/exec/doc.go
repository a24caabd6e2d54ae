// Package exec is a built-in processor for programs in any language. The worker starts the program
// and talks to it in JSON lines; PROTOCOL.md has the whole of it on one page.
//
//	pool, err := exec.New(ctx, exec.Config{Command: []string{"python3", "words.py"}})
//	…
//	defer pool.Close() // after the worker has ended
//	pool.Register(w)   // all processors that the program announced
//
// Each task that runs has a program to itself, which is used again for later tasks. A program that
// dies fails its task alone. A task that is stopped, times out or outlives a drain gets a cancel line;
// a program that does not react to it is ended with all its processes.
package exec
