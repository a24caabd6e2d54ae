// Lesson 7: the built-in log-cleanup as a broadcast. Give the folder of the logs; the program
// makes some that look old, so that there is something to clean.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
)

// makeLogs makes files that were written 0, 5, 10, 15 and 20 days ago.
func makeLogs(root string) error {
	for _, service := range []string{"shop", "audit"} {
		for i := range 5 {
			file := filepath.Join(root, service, service+".log")
			if i > 0 {
				file += fmt.Sprintf(".%d", i)
			}
			then := time.Now().AddDate(0, 0, -5*i)
			err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte("a line\n"), 0o640), os.Chtimes(file, then, then))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Params name the folder to list.
type Params struct {
	Logs string `json:"logs"`
}

func listLogs(_ context.Context, _ *processor.Task, p Params) (map[string]any, error) {
	shop, err1 := fs.Glob(os.DirFS(p.Logs), "shop/*")
	audit, err2 := fs.Glob(os.DirFS(p.Logs), "audit/*")
	return map[string]any{"shop": shop, "audit": len(audit)}, errors.Join(err1, err2)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("give the folder of the logs")
	}
	root := os.Args[1]
	if err := makeLogs(root); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Three workers that share this disk, so that each file is removed by one of them. What may
	// be cleaned is said here: no job can reach beyond these roots.
	var ended sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		w := processor.NewWorker(processor.Config{App: "tidy", Name: fmt.Sprintf("tidy-%d", i+1)})
		w.Register(logcleanup.Name, logcleanup.New(logcleanup.Config{Roots: []string{root}}))
		w.Register("list-logs", processor.Typed(listLogs))
		ended.Go(func() { errs[i] = w.Run(ctx) })
	}
	ended.Wait()
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}
