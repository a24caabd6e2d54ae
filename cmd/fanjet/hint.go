package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/workflow"
)

// hintAfter is how long a node may wait before it is looked at why, and how often.
const hintAfter = 2 * time.Second

// hints tell why nodes wait that nobody can run now, each once.
type hints struct {
	graph *workflow.Graph
	app   string
	said  map[string]bool
}

func newHints(o *order) *hints {
	return &hints{graph: o.graph, app: o.def().App, said: map[string]bool{}}
}

// about looks at the nodes by the ids of those that have started and not begun to run.
func (h *hints) about(waiting []string, workers []broker.Beat) []string {
	var out []string
	say := func(key, text string) {
		if !h.said[key] {
			h.said[key] = true
			out = append(out, text)
		}
	}
	if len(waiting) > 0 && len(workers) == 0 {
		say("", fmt.Sprintf("no worker of app %s is there yet", h.app))
		return out
	}
	known := map[string]bool{}
	for _, w := range workers {
		for _, p := range w.Processors {
			known[p.Name] = true
		}
	}
	for _, id := range waiting {
		i, ok := h.graph.Index(id)
		if !ok {
			continue
		}
		p := h.graph.Node(i).Spec.Processor
		if p == "" || known[p] {
			continue
		}
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, name)
		}
		slices.Sort(names)
		say(id, fmt.Sprintf("node %s waits: no worker of app %s has its processor %q; they have %s. Register it, or correct the name in the file",
			id, h.app, p, clip(strings.Join(names, ", "), 300)))
	}
	return out
}
