package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/fanjet/fanjet/engine/access"
)

type textOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// metricRoutes are those for machines that watch this one.
func (a *API) metricRoutes() {
	route(a, op{
		id: "get-metrics", method: http.MethodGet, path: "/metrics", title: "Counters of this server, as Prometheus reads them", perm: access.ServersRead, tag: "system",
	}, func(context.Context, *nothing) (*textOut, error) {
		return &textOut{ContentType: "text/plain; version=0.0.4; charset=utf-8", Body: a.metrics()}, nil
	})
}

// metrics is the text exposition format, version 0.0.4.
func (a *API) metrics() []byte {
	s := a.cfg.Server.Stats()
	var b bytes.Buffer
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"stale_reports_total", "counter", "Reports that told of something that had moved on.", s.Stale},
		{"repeated_tasks_total", "counter", "Tasks that ran again after their worker died or their message was lost.", s.Repeated},
		{"refused_chunks_total", "counter", "Chunks that went to a worker that could not run them.", s.Refused},
		{"late_results_total", "counter", "Successes that came after their instance was final.", s.Late},
		{"republished_chunks_total", "counter", "Chunks that had vanished from the broker.", s.Republished},
		{"dead_letters_total", "counter", "Reports that could not be decoded or decided.", s.DeadLetters},
		{"active_instances", "gauge", "Instances in memory.", s.Active},
		{"commits_total", "counter", "Transactions that were committed.", int64(s.Commits)},
		{"committed_rows_total", "counter", "Rows that were written by them.", int64(s.Rows)},
		{"fired_total", "counter", "Runs that schedules have made.", s.Fired},
		{"skipped_fires_total", "counter", "Fires that did not run, with their reason in the ledger.", s.Skipped},
		{"retained_rows_total", "counter", "Rows that were deleted for their age.", s.Retained},
	} {
		fmt.Fprintf(&b, "# HELP fanjet_%s %s\n# TYPE fanjet_%s %s\nfanjet_%s %d\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
	return b.Bytes()
}
