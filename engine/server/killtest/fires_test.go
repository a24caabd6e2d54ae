//go:build unix

package killtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/storage"
)

// fires is what fires by itself while processes die.
type fires struct {
	w    *world
	db   *storage.DB
	app  int64
	list []fire
}

// fire is a job or a workflow with a schedule.
type fire struct {
	name string
	kind engine.DefKind
	id   int64
	// all tells that every fire must run, however late.
	all bool
}

// solo is a job of which one run may be under way, whoever started it.
const solo = "solo"

// ticks are jobs that lie in several shards.
const ticks = 12

// scheduled uses a job in a shard that is not the job's.
const scheduled = `
kind: Workflow
name: scheduled
app: kill
schedule: {every: 1s, overlap: allow, misfire: all, misfire_max: 10000}
nodes:
  - {id: first, processor: one, params: {key: wf, ms: 10}}
  - {id: alone, job: solo, needs: [first]}
  - {id: last, processor: one, needs: [alone], params: {key: wf, ms: 10}}
`

func newFires(w *world) *fires {
	f := &fires{w: w}
	const all = `,"misfire":"all","misfire_max":10000}`
	job := func(name, spec, schedule string) {
		q := api.SaveJobRequest{App: app, Name: name, Spec: json.RawMessage(spec), Schedule: json.RawMessage(schedule)}
		got, _, err := call(w, api.CallSaveJob, q, func(a api.SaveJobReply) *api.Error { return a.Error })
		require.NoError(w.t, err)
		f.list = append(f.list, fire{name, engine.KindJob, got.ID, strings.HasSuffix(schedule, all) && strings.Contains(schedule, "allow")})
	}
	one := func(ms int, more string) string {
		return fmt.Sprintf(`{"processor":"one","params":{"key":"fired","ms":%d}%s}`, ms, more)
	}
	job(solo, one(40, `,"max_running":1`), `{"every":"300ms","overlap":"queue","queue_max":20}`)
	for i := range ticks {
		job(fmt.Sprintf("tick-%d", i), one(20, ""), `{"every":"500ms","overlap":"allow"`+all)
	}
	job("fast", one(5, ""), `{"every":"100ms","overlap":"allow"`+all)
	job("second", one(10, ""), `{"cron":"* * * * * ?","overlap":"allow"`+all)
	job("skipping", one(250, ""), `{"every":"100ms","overlap":"skip"}`)
	job("queueing", one(100, `,"max_running":1`), `{"every":"500ms","overlap":"queue","queue_max":50`+all)
	job("pausing", one(30, ""), `{"type":"fixed_delay","every":"200ms"}`)
	job("sums", `{"processor":"sum","mode":"map_reduce","params":{"key":"fired","n":200,"ms":4},"task_retry":{"max":3,"delay":"50ms"}}`, `{"every":"5s","overlap":"queue","queue_max":20}`)
	got, _, err := call(w, api.CallSaveWorkflow, api.SaveWorkflowRequest{Document: scheduled, File: "scheduled.yaml"}, func(a api.SaveWorkflowReply) *api.Error { return a.Error })
	require.NoError(w.t, err)
	f.list = append(f.list, fire{"scheduled", engine.KindWorkflow, got.ID, true})
	return f
}

// verify compares what fired with what should have, as `fanjet verify` does.
func (f *fires) verify(from, to int64) {
	t := f.w.t
	for _, one := range f.list {
		q := api.LedgerRequest{App: app, From: from, To: to}
		if one.kind == engine.KindJob {
			q.Job = one.name
		} else {
			q.Workflow = one.name
		}
		v, _, err := call(f.w, api.CallVerify, q, func(a api.VerifyReply) *api.Error { return a.Error })
		require.NoError(t, err, one.name)
		t.Logf("%-10s %4d expected, %4d fired, %4d skipped, late %d ms at most, p99 %d ms", one.name, v.Expected, v.Fired, v.Skipped, v.MaxLateMS, v.P99LateMS)
		if !v.Clean() {
			for _, list := range []api.Times{v.Missing, v.Doubled, v.Unexpected} {
				for _, at := range list.First[:min(len(list.First), 3)] {
					f.around(q, at)
				}
			}
		}
		require.True(t, v.Clean(), "%s: missing %+v, doubled %+v, unexpected %+v", one.name, v.Missing, v.Doubled, v.Unexpected)
		require.Equal(t, to, v.To, one.name)
		require.Positive(t, v.Fired, one.name)
		require.Equal(t, v.Expected, v.Fired+v.Skipped, one.name)
		if one.all {
			require.Zero(t, v.Skipped, "%s skipped", one.name)
		}
	}
}

// around shows the ledger near a moment.
func (f *fires) around(q api.LedgerRequest, at int64) {
	q.From, q.To, q.Limit = at-3000, at+3000, 200
	got, _, err := call(f.w, api.CallLedger, q, func(a api.LedgerReply) *api.Error { return a.Error })
	require.NoError(f.w.t, err)
	f.w.t.Logf("the ledger of %s%s around %.3f:", q.Job, q.Workflow, f.w.at(at*1e6))
	for _, e := range got.Entries {
		f.w.t.Logf("  %.3f to %.3f (%d) skipped %q, instance %d fired %.3f (late %d ms) %s", f.w.at(e.From*1e6), f.w.at(e.To*1e6), e.Count, e.Skipped, e.Instance, f.w.at(e.FiredAt*1e6), e.LateMS, e.Status)
	}
}

// order pauses or resumes every schedule.
func (f *fires) order(order string) {
	for _, one := range f.list {
		q := api.ScheduleRequest{App: app, Order: order}
		if one.kind == engine.KindJob {
			q.Job = one.name
		} else {
			q.Workflow = one.name
		}
		_, _, err := call(f.w, api.CallSchedule, q, func(a api.ScheduleReply) *api.Error { return a.Error })
		require.NoError(f.w.t, err, one.name)
	}
}

// fired reads what fired of each job, by its id.
func (f *fires) fired(from, to int64) map[int64][]engine.Fired {
	out := map[int64][]engine.Fired{}
	for _, one := range f.list {
		for after := int64(0); ; {
			page, err := f.db.Fired(f.w.t.Context(), one.kind, one.id, from, to, after, 500)
			require.NoError(f.w.t, err)
			out[one.id] = append(out[one.id], page...)
			if len(page) < 500 {
				break
			}
			after = page[len(page)-1].Instance
		}
	}
	return out
}

// late are the lateness at most and of the 99th percentile of what was due in a time.
func late(fired map[int64][]engine.Fired, from, to int64) (n int, p99, most int64) {
	var all []int64
	for _, list := range fired {
		for _, f := range list {
			if f.At >= from && f.At < to {
				all = append(all, f.FiredAt-f.At)
			}
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return len(all), all[min(len(all)*99/100, len(all)-1)], all[len(all)-1]
}

// workflows are all instances of the scheduled workflow, each once.
func (f *fires) workflows() []engine.WorkflowInstance {
	var out []engine.WorkflowInstance
	id := f.list[len(f.list)-1].id
	for before := int64(0); ; {
		page, err := f.db.WorkflowInstances(f.w.t.Context(), f.app, id, before, 200)
		require.NoError(f.w.t, err)
		out = append(out, page...)
		if len(page) < 200 {
			return out
		}
		before = page[len(page)-1].ID
	}
}

// settled waits until every workflow instance that was fired is final.
func (f *fires) settled(limit time.Duration) {
	f.w.until(limit, func() string {
		for _, wi := range f.workflows() {
			if !wi.Status.Terminal() {
				return fmt.Sprintf("workflow instance %d is %s", wi.ID, wi.Status)
			}
		}
		return ""
	})
}

// open shows, if the test failed, what is not final, the oldest first.
func (f *fires) open() {
	if !f.w.t.Failed() {
		return
	}
	ctx := context.WithoutCancel(f.w.t.Context())
	var list []engine.Instance
	for before := int64(0); ; {
		page, err := f.db.Instances(ctx, f.app, 0, before, 500)
		if err != nil {
			f.w.t.Logf("cannot read the instances: %v", err)
			return
		}
		for _, in := range page {
			if before = in.ID; !in.Status.Terminal() {
				list = append(list, in)
			}
		}
		if len(page) < 500 {
			break
		}
	}
	slices.Reverse(list)
	f.w.t.Logf("%d instances are not final", len(list))
	for _, in := range list[:min(len(list), 40)] {
		f.w.t.Logf("  %d %q of job %d, shard %d, is %s (%s), attempt %d, fired for %.3f, due %.3f, made %.3f", in.ID, in.Key, in.Job, in.Shard, in.Status, in.Reason, in.Attempt,
			f.w.at(in.FireAt*1e6), f.w.at(in.DueAt*1e6), f.w.at(in.CreatedAt*1e6))
	}
}

// waited says for how long the runs of jobs without a limit waited for a worker.
func (f *fires) waited(all map[int64]engine.Instance) {
	var list []engine.Instance
	for _, one := range f.list {
		for _, in := range all {
			if one.all && in.Job == one.id {
				list = append(list, in)
			}
		}
	}
	wait := func(in engine.Instance) int64 { return in.StartedAt - in.CreatedAt }
	slices.SortFunc(list, func(a, b engine.Instance) int { return cmp.Compare(wait(b), wait(a)) })
	longest := list[0]
	f.w.t.Logf("%d runs began %d ms after they were fired at the median, %d ms at p99, %d ms at most: instance %d in shard %d, fired at %.3f", len(list),
		wait(list[len(list)/2]), wait(list[len(list)/100]), wait(longest), longest.ID, longest.Shard, f.w.at(longest.CreatedAt*1e6))
	const each = 5000 // ms
	most := map[int64]int64{}
	for _, in := range list {
		at := (in.CreatedAt - f.w.began.UnixMilli()) / each
		most[at] = max(most[at], wait(in))
	}
	for _, at := range slices.Sorted(maps.Keys(most)) {
		f.w.t.Logf("  of those fired between %d and %d s: %d ms at most", at*each/1000, (at+1)*each/1000, most[at])
	}
}

// span is one run of a task by one process; end 0 is none.
type span struct {
	key taskKey
	pid int
	who string

	begin, end int64
}

// spans pairs the beginnings and the ends of standalone tasks of these instances.
func spans(list []entry, of func(instance int64) bool) []span {
	var out []span
	for _, e := range list {
		if e.kind != 'o' || !of(e.key.instance) {
			continue
		}
		if e.what == 'B' {
			out = append(out, span{key: e.key, pid: e.pid, who: e.who, begin: e.at})
			continue
		}
		for i := len(out) - 1; i >= 0; i-- {
			if out[i].key == e.key && out[i].pid == e.pid && out[i].end == 0 {
				out[i].end = e.at
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	return out
}

// alone checks that no two instances of the job were under way at once: each from its first
// beginning until its first end. What runs on behind that runs a second time, because its
// first process was thought dead, and knows nothing of the other's success yet.
func (w *world) alone(job int64, all map[int64]engine.Instance) {
	list := spans(readLedger(w.t, w.ledger), func(id int64) bool { return all[id].Job == job })
	under := map[int64]*span{}
	for i := range list {
		s := &list[i]
		u := under[s.key.instance]
		switch {
		case u == nil:
			c := *s
			under[s.key.instance] = &c
		case s.end > 0 && (u.end == 0 || s.end < u.end):
			u.end = s.end
		}
	}
	var order []span
	for _, u := range under {
		order = append(order, *u)
	}
	slices.SortFunc(order, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	for i := 1; i < len(order); i++ {
		a, b := order[i-1], order[i]
		require.True(w.t, a.end > 0 && a.end <= b.begin,
			"max_running 1: instance %d (%s, attempt %d) was under way from %.3f to %.3f on %s, and instance %d (%s) began at %.3f on %s",
			a.key.instance, all[a.key.instance].Key, a.key.attempt, w.at(a.begin), w.at(a.end), a.who, b.key.instance, all[b.key.instance].Key, w.at(b.begin), b.who)
	}
	w.t.Logf("max_running 1 held for %d runs of %d instances", len(list), len(order))
}

// verifyAll checks every instance: that it ended as it had to, that it was run, and what it made.
func (f *fires) verifyAll(tickets []ticket, tries map[string]int) {
	w, t := f.w, f.w.t
	all := rows(w, f.db)
	ended := map[int64]bool{}
	for _, e := range readLedger(t, w.ledger) {
		if e.what == 'E' && e.kind != 's' {
			ended[e.key.instance] = true
		}
	}
	byKey := map[string]int{}
	maps := 0
	for id, in := range all {
		if in.Workflow == 0 && in.FireAt == 0 {
			byKey[in.Key]++
		}
		if strings.HasPrefix(in.Key, "stop-") {
			require.Contains(t, []engine.Status{engine.StatusStopped, engine.StatusCanceled}, in.Status, "instance %d %q: %s", id, in.Key, in.Error)
			continue
		}
		require.Equal(t, engine.StatusSucceeded, in.Status, "instance %d %q of job %d, fired for %.3f: %s", id, in.Key, in.Job, w.at(in.FireAt*1e6), in.Error)
		require.True(t, ended[id], "instance %d %q succeeded and was not run", id, in.Key)
		if in.Run > 0 {
			maps++
			p := load{N: 200}
			if len(in.Params) > 0 {
				p = load{}
				require.NoError(t, json.Unmarshal(in.Params, &p))
			}
			runs, err := f.db.MapRuns(t.Context(), id)
			require.NoError(t, err)
			w.verifyMap(in, runs, p)
		}
	}
	for _, k := range tickets {
		if k.job == "flow" {
			wi, err := f.db.WorkflowInstance(t.Context(), k.id)
			require.NoError(t, err)
			w.verifyFlow(f.db, *wi, k.p)
			continue
		}
		require.Equal(t, k.p.Key, all[k.id].Key, "instance %d was acknowledged and is lost", k.id)
		require.LessOrEqual(t, byKey[k.p.Key], 1+tries[k.p.Key], "key %q was asked for once and %d times without an answer", k.p.Key, tries[k.p.Key])
	}
	workflows := f.workflows()
	for _, wi := range workflows {
		require.Equal(t, engine.StatusSucceeded, wi.Status, "workflow instance %d: %s", wi.ID, wi.Error)
		in, err := f.db.InstancesOfWorkflow(t.Context(), wi.ID)
		require.NoError(t, err)
		require.Len(t, in, 3, "a node of workflow instance %d was started twice", wi.ID)
	}
	dead, err := f.db.DeadLetters(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, dead, "dead letters")
	for _, one := range f.list {
		row, err := f.db.Schedule(t.Context(), one.kind, one.id)
		require.NoError(t, err)
		require.Zero(t, row.Open, "%s: everything is final", one.name)
		if one.kind == engine.KindJob {
			permits, err := f.db.Permits(t.Context(), one.id, 10)
			require.NoError(t, err)
			require.Empty(t, permits, "%s: everything is final", one.name)
		}
	}
	t.Logf("%d instances, %d of them maps, and %d fired workflows are right", len(all), maps, len(workflows))
	f.waited(all)
	w.alone(f.list[0].id, all)
}
