// Lesson 2: a map. The root task emits items; each becomes a sub-task that any worker of
// the app may run. Here: one HTML page for each chapter, then a list of what was written.
package main

import (
	"context"
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"

	"github.com/fanjet/fanjet/processor"
)

// Params say how many chapters there are and where the pages go.
type Params struct {
	Chapters int    `json:"chapters"`
	Dir      string `json:"dir"`
}

func pages(_ context.Context, task *processor.Task) (any, error) {
	var p Params
	if err := task.Params(&p); err != nil {
		return nil, err
	}
	if task.IsRoot() {
		chapters := make([]int, p.Chapters)
		for i := range chapters {
			chapters[i] = i + 1
		}
		// A mapper may run again, after a crash; it must emit the same items then.
		return nil, task.Map("page", chapters)
	}
	var chapter int
	if err := task.Item(&chapter); err != nil {
		return nil, err
	}
	page := fmt.Sprintf("<h1>%s</h1>\n", html.EscapeString(fmt.Sprintf("Chapter %d", chapter)))
	// Writing the same file twice does no harm: a task may run more than once.
	return nil, os.WriteFile(filepath.Join(p.Dir, fmt.Sprintf("page-%02d.html", chapter)), []byte(page), 0o644)
}

// Listing is what the second node found.
type Listing struct {
	Pages int    `json:"pages"`
	Last  string `json:"last"`
}

func index(_ context.Context, _ *processor.Task, p Params) (Listing, error) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "page-*.html"))
	if err != nil || len(files) == 0 {
		return Listing{}, err
	}
	return Listing{Pages: len(files), Last: filepath.Base(files[len(files)-1])}, nil
}

func main() {
	w := processor.NewWorker(processor.Config{App: "pages"})
	w.Register("pages", processor.Func(pages))
	w.Register("index", processor.Typed(index))
	if err := w.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
