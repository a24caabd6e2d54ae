//go:build unix

package killtest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/storage"
)

// rows reads every instance of the app.
func rows(w *world, db *storage.DB) map[int64]engine.Instance {
	ctx := w.t.Context()
	a, err := db.AppByName(ctx, app)
	require.NoError(w.t, err)
	out := map[int64]engine.Instance{}
	for before := int64(0); ; {
		page, err := db.Instances(ctx, a.ID, 0, before, 500)
		require.NoError(w.t, err)
		for _, in := range page {
			out[in.ID], before = in, in.ID
		}
		if len(page) < 500 {
			return out
		}
	}
}

// verify checks what is stored: what was acknowledged is there, every row of a key ended
// well, and nobody is counted twice. No server runs.
func (w *world) verify(tickets []ticket, tries map[string]int) {
	t, ctx := w.t, w.t.Context()
	db, err := storage.Open(ctx, storage.Config{URL: w.dbURL})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	all := rows(w, db)
	byKey := map[string]int{}
	for _, in := range all {
		if in.Workflow == 0 {
			byKey[in.Key]++
		}
		require.Equal(t, engine.StatusSucceeded, in.Status, "instance %d %q: %s", in.ID, in.Key, in.Error)
	}
	maps := 0
	for _, k := range tickets {
		if k.job == "flow" {
			wi, err := db.WorkflowInstance(ctx, k.id)
			require.NoError(t, err)
			w.verifyFlow(db, *wi, k.p)
			continue
		}
		in, ok := all[k.id]
		require.True(t, ok, "instance %d of %q was acknowledged and is lost", k.id, k.p.Key)
		require.Equal(t, k.p.Key, in.Key)
		require.GreaterOrEqual(t, byKey[k.p.Key], 1)
		require.LessOrEqual(t, byKey[k.p.Key], 1+tries[k.p.Key], "key %q was asked for once and %d times without an answer", k.p.Key, tries[k.p.Key])
		if k.p.N == 0 {
			require.EqualValues(t, 1+k.p.Fails, in.Attempt, "attempts of %q", k.p.Key)
		}
	}
	for _, in := range all {
		var p load
		require.NoError(t, json.Unmarshal(in.Params, &p), "params of instance %d", in.ID)
		if runs, err := db.MapRuns(ctx, in.ID); len(runs) > 0 {
			require.NoError(t, err)
			maps++
			w.verifyMap(in, runs, p)
			continue
		}
		var got load
		require.NoError(t, json.Unmarshal(in.Result, &got))
		require.Equal(t, p, got, "result of %q", in.Key)
	}
	dead, err := db.DeadLetters(ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, dead, "dead letters")
	w.verifyRuns(all)
	t.Logf("%d instances, %d of them maps, are right", len(all), maps)
}

func (w *world) verifyMap(in engine.Instance, runs []engine.MapRun, p load) {
	last := runs[len(runs)-1]
	require.Equal(w.t, p.N, last.Total, "sub-tasks of %q", in.Key)
	require.Equal(w.t, p.N, last.Succeeded, "succeeded sub-tasks of %q", in.Key)
	require.Zero(w.t, last.Failed, "failed sub-tasks of %q", in.Key)
	var got total
	require.NoError(w.t, json.Unmarshal(in.Result, &got))
	require.Equal(w.t, p.expected(), got, "what %q was reduced to", in.Key)
}

func (w *world) verifyFlow(db *storage.DB, wi engine.WorkflowInstance, p load) {
	require.Equal(w.t, engine.StatusSucceeded, wi.Status, "workflow %q: %s", p.Key, wi.Error)
	nodes, err := db.Nodes(w.t.Context(), wi.ID)
	require.NoError(w.t, err)
	require.Len(w.t, nodes, 4)
	instances, err := db.InstancesOfWorkflow(w.t.Context(), wi.ID)
	require.NoError(w.t, err)
	require.Len(w.t, instances, 4, "a node of %q was started twice", p.Key)
	for _, n := range nodes {
		require.Equal(w.t, engine.StatusSucceeded, n.Status, "node %q of %q: %s", n.Node, p.Key, n.Error)
		if n.Node == "last" {
			var got load
			require.NoError(w.t, json.Unmarshal(n.Result, &got))
			require.Equal(w.t, p.N, got.N)
			require.Equal(w.t, fmt.Sprintf("%s-%d", p.Key, load{N: p.N}.expected().Sum), got.Key)
		}
	}
}

// verifyRuns checks that what succeeded was run.
func (w *world) verifyRuns(all map[int64]engine.Instance) {
	ended := map[taskKey]bool{}
	for _, e := range readLedger(w.t, w.ledger) {
		if e.what == 'E' {
			ended[taskKey{instance: e.key.instance, number: e.key.number, kind: e.kind}] = true
		}
	}
	for id, in := range all {
		var p load
		require.NoError(w.t, json.Unmarshal(in.Params, &p))
		kind := 'o'
		if in.Run > 0 {
			kind = 'r'
			require.True(w.t, ended[taskKey{instance: id, kind: 'd'}], "the reduce of %q did not run", in.Key)
			for n := range p.N {
				require.True(w.t, ended[taskKey{instance: id, number: n + 1, kind: 's'}], "sub-task %d of %q did not run", n+1, in.Key)
			}
		}
		require.True(w.t, ended[taskKey{instance: id, kind: kind}], "%q did not run", in.Key)
	}
}

// wakes is how long a worker may need to go on with what it had when it was frozen.
const wakes = time.Second

// window is how long a worker that is well may hold what it has ended: until the broker
// has its report.
const window = 5 * time.Second

// explain counts what was run more than once, and finds what it is due to: the first run's
// worker was killed or frozen, or the broker was, so that the run could not be reported or
// its worker seemed dead. Nothing else may repeat a run.
func (w *world) explain(s setup) {
	t := w.t
	type run struct{ begin, end entry }
	runs := map[taskKey][]run{}
	for _, e := range readLedger(t, w.ledger) {
		list := runs[e.key]
		if e.what == 'B' {
			runs[e.key] = append(list, run{begin: e})
			continue
		}
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].begin.pid == e.pid && list[i].end.at == 0 {
				list[i].end = e
				break
			}
		}
	}
	var total, finished, both, unexplained int
	var first string
	for key, list := range runs {
		for i := 1; i < len(list); i++ {
			total++
			before, again := list[i-1], list[i]
			if before.end.at > 0 && before.end.at < again.begin.at {
				finished++
			} else if before.end.at > 0 {
				both++
			}
			if !w.explained(before.begin, before.end, again.begin, s) {
				unexplained++
				if first == "" {
					first = fmt.Sprintf("%c %+v: began at %.3f on %s (%d), ended at %.3f, again at %.3f on %s (%d)", key.kind, key, w.at(before.begin.at), before.begin.who, before.begin.pid, w.at(before.end.at), w.at(again.begin.at), again.begin.who, again.begin.pid)
				}
			}
		}
	}
	workers := 0
	for _, h := range w.hits {
		if h.kind == "worker" {
			workers++
		}
	}
	t.Logf("%d tasks, %d repetitions (%d of runs that had ended, %d of runs that went on) after %d hits, %d of them on workers", len(runs), total, finished, both, len(w.hits), workers)
	require.Zero(t, unexplained, "tasks were repeated for no reason, such as %s", first)
	// What a worker holds is a chunk a slot, of about 50 ms of work, and what it has not reported.
	require.LessOrEqual(t, total, (len(w.hits)+1)*s.slots*s.workers*64, "repetitions")
}

// at is a moment in seconds since the test began, as the log of the kills has it.
func (w *world) at(ns int64) float64 {
	if ns == 0 {
		return 0
	}
	return time.Unix(0, ns).Sub(w.began).Seconds()
}

func (w *world) explained(begin, end, again entry, s setup) bool {
	from, to := begin.at, again.at
	if end.at > 0 {
		to = min(to, end.at+int64(window))
	}
	for _, h := range w.hits {
		broken := h.kind == "broker" || h.kind == "server" && !s.apart
		mine := h.kind == "worker" && h.pid == begin.pid
		if (broken || mine) && h.from <= to && h.to+int64(window) >= from {
			return true
		}
		// It was frozen when it had been given the task and had not begun it.
		if h.what == "freeze" && h.pid == again.pid && h.to <= again.at && again.at <= h.to+int64(wakes) {
			return true
		}
	}
	return false
}

// drained waits until the broker holds nothing of what is final.
func (w *world) drained() {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := broker.Connect(ctx, broker.Config{Options: broker.Options{URL: w.url, Name: "observer"}})
	require.NoError(t, err)
	defer b.Close()
	set := broker.SetFor(app, w.procs[0].role.Replicas)
	ids := map[int64]bool{}
	for _, e := range readLedger(t, w.ledger) {
		ids[e.key.instance] = true
	}
	since := time.Now()
	w.until(30*time.Second, func() string {
		for id := range ids {
			stage, results, tasks, err := b.RunCounts(ctx, app, set, id)
			if err != nil {
				return err.Error()
			}
			if stage+results+tasks > 0 {
				return fmt.Sprintf("instance %d is final and the broker still has %d messages in the stage, %d results, %d chunks", id, stage, results, tasks)
			}
			delete(ids, id)
		}
		return ""
	})
	t.Logf("the broker holds nothing of %v after", time.Since(since).Round(10*time.Millisecond))
}

// quiet starts everything again: nothing of what is final may run.
func (w *world) quiet() {
	t := w.t
	before := readLedger(t, w.ledger)
	for _, p := range w.procs {
		require.NoError(t, p.start())
	}
	c := &callers{w: w, keys: map[string]int{}}
	c.ones("probe", 3*oneJobs)
	tickets := c.acknowledged()
	c.settled(tickets, time.Minute)
	probes := map[int64]bool{}
	for _, k := range tickets {
		probes[k.id] = true
		got, ok := c.status(api.StatusRequest{Instance: k.id})
		require.True(t, ok)
		require.Equal(t, "succeeded", got.Status, got.Text)
	}
	w.termAll()
	for _, e := range readLedger(t, w.ledger)[len(before):] {
		require.True(t, probes[e.key.instance], "task %+v ran again after everything had ended", e.key)
	}
}
