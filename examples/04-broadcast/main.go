// Lesson 4: a broadcast. Every live worker runs one share; here each empties its own
// cache. PreProcess runs once before, PostProcess once after with the results of all.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/fanjet/fanjet/processor"
)

// cache is what one worker keeps to itself.
type cache struct {
	mu    sync.Mutex
	pages map[string]string
}

// PreProcess could check that now is a good time; its error would end the broadcast.
func (c *cache) PreProcess(context.Context, *processor.Task) error { return nil }

// Process is the share of one worker.
func (c *cache) Process(_ context.Context, task *processor.Task) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped := len(c.pages)
	clear(c.pages)
	index, total := task.Shard()
	task.Logger().Info("cache is empty now", "share", index, "of", total, "dropped", dropped)
	return dropped, nil
}

// PostProcess sees how every share ended.
func (c *cache) PostProcess(_ context.Context, _ *processor.Task, shares *processor.Shares) (any, error) {
	dropped := 0
	for share := range shares.All() {
		var n int
		if err := share.Decode(&n); err != nil {
			return nil, err
		}
		dropped += n
	}
	return map[string]int64{"workers": shares.Total(), "failed": shares.Failed(), "dropped": int64(dropped)}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Three workers in one program, each with a connection, a name and a cache of its own.
	var ended sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		w := processor.NewWorker(processor.Config{App: "caches", Name: fmt.Sprintf("cache-%d", i+1)})
		w.Register("empty-cache", &cache{pages: map[string]string{"/": "home", "/about": "about us"}})
		ended.Go(func() { errs[i] = w.Run(ctx) })
	}
	ended.Wait()
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}
