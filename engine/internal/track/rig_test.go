package track_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/internal/track"
	"github.com/fanjet/fanjet/workflow"
)

var update = flag.Bool("update", false, "write the golden stories anew")

// crew is a tiny fleet: who is there is what the test says.
type crew struct {
	names    []string
	inc      map[string]uint64
	slots    int
	caps     broker.Caps
	lacking  map[string]bool // workers without the processor
	directed bool
	holders  map[broker.ChunkKey]track.Target
	missing  bool
	beatAt   int64 // two beats without any chunk came from everybody until then
}

func (c *crew) targets() (out []track.Target) {
	for _, n := range c.names {
		if !c.lacking[n] {
			out = append(out, track.Target{Worker: n, Incarnation: c.inc[n]})
		}
	}
	return out
}
func (c *crew) Slots(string, string) int { return c.slots * len(c.names) }
func (c *crew) Has(string, string, string) (some, all bool) {
	return len(c.targets()) > 0, len(c.targets()) == len(c.names)
}
func (c *crew) Caps(string, string) broker.Caps { return c.caps }
func (c *crew) NeedsDirected(_ string, s *workflow.Spec) bool {
	return c.directed || s.Routing != "" && s.Routing != workflow.RoutingLane || len(c.lacking) > 0
}

func (c *crew) Pick(p track.Pick) (track.Target, string) {
	for _, t := range c.targets() {
		if !slices.Contains(p.Exclude, t.Worker) {
			return t, ""
		}
	}
	return track.Target{}, "nobody fits"
}
func (c *crew) Shares(string, *workflow.Spec) []track.Target { return c.targets() }
func (c *crew) Alive(_, worker string, inc uint64) bool {
	return slices.Contains(c.names, worker) && c.inc[worker] == inc
}

func (c *crew) Holder(_ string, k broker.ChunkKey) (track.Target, bool) {
	t, ok := c.holders[k]
	return t, ok
}

func (c *crew) Missing(_, _ string, _ uint64, _ broker.ChunkKey, since int64) bool {
	return c.missing || since < c.beatAt
}

const rigShard = 3

var rigApp = &track.App{ID: 1, Name: "acme"}

// rig drives an owner by hand. It keeps the rows as a database would, and what is to be
// done, for the test to look at and to answer.
type rig struct {
	t      *testing.T
	o      *track.Owner
	crew   *crew
	now    int64
	seq    uint64
	gen    uint32
	epoch  int64
	cfg    track.Config
	specs  map[int64]*workflow.Spec
	rows   map[int64]engine.Instance
	runs   map[int64]engine.MapRun
	tasks  map[engine.TaskKey]engine.Task
	tries  []engine.Attempt
	dead   []engine.DeadLetter
	gone   []int64         // commands
	held   []engine.Permit // as stored when the owner begins
	cursor uint64
	stage  map[int64][]broker.Staged
	staged uint64
	slow   bool           // what is read of the stage is left to the test to answer
	done   []track.Effect // all of them, in order
	fresh  []track.Effect // since the test looked last
	log    strings.Builder
	hooks  []string
}

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, now: 1_000_000, epoch: 1, specs: map[int64]*workflow.Spec{}, rows: map[int64]engine.Instance{},
		runs: map[int64]engine.MapRun{}, tasks: map[engine.TaskKey]engine.Task{}, stage: map[int64][]broker.Staged{},
		crew: &crew{names: []string{"a", "b", "c"}, inc: map[string]uint64{"a": 1, "b": 2, "c": 3}, slots: 4, lacking: map[string]bool{}, holders: map[broker.ChunkKey]track.Target{}},
	}
	r.begin()
	return r
}

// begin is a new owner that takes the shard over from what is stored.
func (r *rig) begin() {
	r.gen++
	r.epoch++
	r.o = track.New(r.cfg, r.crew, r)
	r.load()
}

func (r *rig) load() {
	st := &engine.ShardState{Shard: engine.Shard{Shard: rigShard, Owner: 1, Epoch: r.epoch, Cursor: r.cursor}, Permits: r.held}
	var rows []track.Row
	for _, id := range sorted(r.rows) {
		if in := r.rows[id]; in.Status == engine.StatusDispatched || in.Status == engine.StatusRunning {
			st.Instances = append(st.Instances, in)
			rows = append(rows, r.row(in))
			if run, ok := r.runs[id]; ok && !run.Closed {
				st.Runs = append(st.Runs, run)
			}
			for _, k := range r.keys(id) {
				if t := r.tasks[k]; t.Status != engine.TaskSucceeded || k.Kind == engine.TaskShare {
					st.Tasks = append(st.Tasks, t)
				}
			}
		}
	}
	r.event("gained", track.Gained{State: st, Rows: rows, Gen: r.gen, Number: 1})
}

func (r *rig) keys(id int64) (ks []engine.TaskKey) {
	for k := range r.tasks {
		if k.Instance == id {
			ks = append(ks, k)
		}
	}
	slices.SortFunc(ks, func(a, b engine.TaskKey) int {
		return strings.Compare(fmt.Sprintf("%02d %d %09d", a.Run, a.Kind, a.Number), fmt.Sprintf("%02d %d %09d", b.Run, b.Kind, b.Number))
	})
	return ks
}

func (r *rig) row(in engine.Instance) track.Row {
	row := track.Row{Instance: in, App: rigApp, Spec: r.specs[in.ID], Job: "job"}
	if t, ok := r.tasks[engine.TaskKey{Instance: in.ID, Run: in.Attempt - 1, Kind: engine.TaskRoot}]; ok {
		row.Checkpoint = t.Checkpoint
	}
	return row
}

func (r *rig) InstanceFinal(_ int64, in *engine.Instance) {
	r.hooks = append(r.hooks, fmt.Sprintf("final %d %s", in.ID, in.Status))
}

func (r *rig) InstanceStarted(_ int64, in *engine.Instance) {
	r.hooks = append(r.hooks, fmt.Sprintf("started %d", in.ID))
}

// event hands one event in and stores what comes of it.
func (r *rig) event(what string, ev track.Event) {
	if what != "" {
		fmt.Fprintf(&r.log, "> %s\n", what)
	}
	r.o.Handle(r.now, ev)
	r.settle()
}

// settle takes and stores until nothing more comes; reads are answered at once.
func (r *rig) settle() {
	for range 1000 {
		b := r.o.Take()
		if len(b.Changes) == 0 && len(b.After) == 0 {
			require.NoError(r.t, r.o.Check())
			return
		}
		for i := range b.Changes {
			r.store(&b.Changes[i].Change)
			r.perform(b.Changes[i].Effects)
		}
		r.perform(b.After)
	}
	r.t.Fatal("it does not come to rest")
}

func (r *rig) store(c *engine.Change) {
	line := func(format string, args ...any) { fmt.Fprintf(&r.log, "  "+format+"\n", args...) }
	if c.ResetCursor {
		r.cursor = c.Cursor
	}
	r.cursor = max(r.cursor, c.Cursor)
	for _, in := range slices.Concat(c.NewInstances, c.Instances) {
		old, ok := r.rows[in.ID]
		require.False(r.t, ok && old.Status.Terminal() && old.Status != in.Status, "instance %d: %s after %s", in.ID, in.Status, old.Status)
		r.rows[in.ID] = in
		line("instance %d: %s %s attempt %d run %d worker %q result %q error %q late %q", in.ID, in.Status, in.Reason, in.Attempt, in.Run, in.Worker, in.Result, in.Error, in.Late)
	}
	for _, a := range c.NewAttempts {
		r.tries = append(r.tries, a)
		line("attempt %d of %d follows %s: %s", a.Attempt, a.Instance, a.Status, a.Error)
	}
	for _, m := range slices.Concat(c.NewRuns, c.Runs) {
		r.runs[m.Instance] = m
		line("run %d of %d: total %d succeeded %d failed %d closed %v", m.Run, m.Instance, m.Total, m.Succeeded, m.Failed, m.Closed)
	}
	for _, t := range c.NewTasks {
		_, ok := r.tasks[t.TaskKey]
		require.False(r.t, ok, "task %v is new twice", t.TaskKey)
	}
	for _, t := range slices.Concat(c.NewTasks, c.Tasks) {
		r.tasks[t.TaskKey] = t
		line("task %d of %d kind %d: %s attempt %d worker %q lost %d error %q result %q", t.Number, t.Instance, t.Kind, t.Status, t.Attempt, t.Worker, t.Lost, t.Error, t.Result)
	}
	for _, k := range c.GoneTasks {
		delete(r.tasks, k)
		line("task %d of %d kind %d: gone", k.Number, k.Instance, k.Kind)
	}
	r.dead = append(r.dead, c.DeadLetters...)
	r.gone = append(r.gone, c.GoneCommands...)
}

func (r *rig) perform(es []track.Effect) {
	line := func(format string, args ...any) { fmt.Fprintf(&r.log, "  "+format+"\n", args...) }
	numbers := func(c *broker.Chunk) (ns []int64) {
		for _, t := range c.Tasks {
			ns = append(ns, t.Number)
		}
		return ns
	}
	for _, e := range es {
		r.done, r.fresh = append(r.done, e), append(r.fresh, e)
		switch e := e.(type) {
		case track.Publish:
			line("publish %s to %s/%s: phase %d tasks %v attempt %d", keyOf(e.Chunk.ChunkKey), e.Lane, e.Pool, e.Chunk.Phase, numbers(e.Chunk), e.Chunk.Tasks[0].Attempt)
		case track.Direct:
			line("direct %s to %s: phase %d tasks %v attempt %d", keyOf(e.Chunk.ChunkKey), e.Worker, e.Chunk.Phase, numbers(e.Chunk), e.Chunk.Tasks[0].Attempt)
		case track.Order:
			line("order kind %d instance %d attempt %d", e.Control.Kind, e.Control.Instance, e.Control.Attempt)
		case track.Final:
			line("final %d %s total %d failed %d", e.Instance.ID, e.Instance.Status, e.Total, e.Failed)
		case track.Purge:
			line("purge %d tasks %v run %d", e.Instance, e.Tasks, e.Run)
		case track.Wake:
			if e.Done != nil {
				e.Done(e.Err)
			}
		case track.Answer:
			line("answer %d done %v", e.With.Verdict, e.With.Done)
			e.Reply(e.With)
		case track.ReadStage:
			if r.slow {
				continue
			}
			var out []broker.Staged
			for _, s := range r.stage[e.Instance] {
				if s.Run == e.Run && s.Seq >= e.From && len(out) < e.Max {
					out = append(out, s)
				}
			}
			r.o.Handle(r.now, track.Staged{Instance: e.Instance, Run: e.Run, From: e.From, Max: e.Max, Ask: e.Ask, Messages: out})
		case track.Reread:
			ev := track.Restaged{Instance: e.Instance, Run: e.Run, Seq: e.Seq}
			for _, s := range r.stage[e.Instance] {
				if s.Seq == e.Seq {
					ev.Message = &s
				}
			}
			r.o.Handle(r.now, ev)
		case track.Fetch:
			r.o.Handle(r.now, track.Fetched{Queue: e.Queue, Rows: r.waiting(e), Due: e.Due, Limit: e.Limit})
		case track.Load:
			ev := track.Command{Command: e.Command, Loaded: true}
			if in, ok := r.rows[e.ID]; ok {
				row := r.row(in)
				ev.Row = &row
			}
			r.o.Handle(r.now, ev)
		case track.LoadLate:
			if in, ok := r.rows[e.ID]; ok && in.Attempt == e.Attempt {
				row := r.row(in)
				r.o.Handle(r.now, track.LateLoaded{Row: &row, Result: e.Result})
			}
		default:
		}
	}
}

func (r *rig) waiting(e track.Fetch) (out []track.Row) {
	var ids []int64
	for id, in := range r.rows {
		after := in.DueAt > e.After.DueAt || in.DueAt == e.After.DueAt && id > e.After.ID
		if in.Status == engine.StatusWaiting && in.DueAt <= e.Due && after {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int64) int {
		if d := r.rows[a].DueAt - r.rows[b].DueAt; d != 0 {
			return int(d)
		}
		return int(a - b)
	})
	for _, id := range ids[:min(len(ids), e.Limit)] {
		out = append(out, r.row(r.rows[id]))
	}
	return out
}

func (r *rig) instance(id int64, spec workflow.Spec) engine.Instance {
	if spec.Processor == "" {
		spec.Processor = "p"
	}
	r.specs[id] = &spec
	return engine.Instance{
		ID: id, App: 1, Shard: rigShard, Job: 9, JobVersion: 1, Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny,
		Status: engine.StatusWaiting, Reason: engine.ReasonDue, CreatedAt: r.now, DueAt: r.now,
	}
}

func (r *rig) trigger(id int64, spec workflow.Spec) {
	r.event(fmt.Sprintf("triggered %d", id), track.Triggered{Row: r.row(r.instance(id, spec))})
}

// wait lets time pass; timers and sweeps fire as they are due.
func (r *rig) wait(d time.Duration) {
	if d >= time.Second {
		fmt.Fprintf(&r.log, "> %s pass\n", d)
	}
	for end := r.now + d.Milliseconds(); r.now < end; {
		next := r.o.NextWake()
		if next <= r.now {
			next = r.now + 1
		}
		r.now = min(next, end)
		r.event("", track.Tick{})
	}
}

// report builds what a worker says about the chunk of the last message of that number.
func (r *rig) says(worker string, reps ...broker.Report) {
	r.seq++
	for i := range reps {
		fmt.Fprintf(&r.log, "> %s says kind %d of %s: %v %s\n", worker, reps[i].Kind, keyOf(reps[i].ChunkKey), reps[i].Numbers, reps[i].Error.Message)
	}
	r.event("", track.Reported{Shard: rigShard, Seq: r.seq, Batch: &broker.ReportBatch{App: "acme", Worker: worker, Incarnation: r.crew.inc[worker], Reports: reps}})
}

func (r *rig) chunks() (out []*broker.Chunk) {
	for _, e := range r.done {
		switch e := e.(type) {
		case track.Publish:
			out = append(out, e.Chunk)
		case track.Direct:
			out = append(out, e.Chunk)
		default:
		}
	}
	return out
}

// sent is the last chunk sent of the phase that holds the number.
func (r *rig) sent(id int64, phase broker.Phase, number int64) *broker.Chunk {
	all := r.chunks()
	for _, c := range slices.Backward(all) {
		if c.Instance == id && c.Phase == phase && slices.ContainsFunc(c.Tasks, func(t broker.Task) bool { return t.Number == number }) {
			return c
		}
	}
	r.t.Fatalf("nothing of phase %d with number %d of instance %d was sent\n%s", phase, number, id, r.log.String())
	return nil
}

func started(c *broker.Chunk) broker.Report {
	return broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportStarted, Phase: c.Phase, Emitted: -1}
}

func succeeded(c *broker.Chunk, result string, numbers ...int64) broker.Report {
	return broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportSucceeded, Phase: c.Phase, Emitted: -1, Numbers: numbers, TaskAttempt: c.Tasks[0].Attempt, Result: []byte(result), Duration: time.Millisecond}
}

func failed(c *broker.Chunk, number int64, kind broker.ErrorKind, text string) broker.Report {
	return broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportFailed, Phase: c.Phase, Emitted: -1, Numbers: []int64{number}, TaskAttempt: c.Tasks[0].Attempt, Error: broker.TaskError{Kind: kind, Message: text}}
}

func stored(rep broker.Report, seq uint64) broker.Report {
	rep.ResultSeq, rep.Result = seq, nil
	return rep
}

func mapped(rep broker.Report, emitted int64, token uint64) broker.Report {
	rep.Emitted, rep.Token = emitted, token
	return rep
}

// emits stages items of a mapper and reports it, unless quiet.
func (r *rig) emits(c *broker.Chunk, mapper int64, token uint64, first int64, items ...string) {
	r.staged++
	s := broker.Staged{Seq: r.staged, StageBatch: broker.StageBatch{Instance: c.Instance, Run: c.Run, Mapper: mapper, Token: token, First: first}}
	for _, it := range items {
		s.Items = append(s.Items, []byte(it))
	}
	r.stage[c.Instance] = append(r.stage[c.Instance], s)
	r.says("a", broker.Report{ChunkKey: c.ChunkKey, Kind: broker.ReportEmitted, Phase: c.Phase, Numbers: []int64{mapper}, Emitted: first + int64(len(items)), Token: token})
}

func (r *rig) asks(worker string, c *broker.Chunk) (got *broker.AskReply) {
	q := &broker.AskRequest{Kind: broker.AskRun, ChunkKey: c.ChunkKey, App: "acme", Shard: rigShard, Worker: worker, Incarnation: r.crew.inc[worker]}
	r.event(fmt.Sprintf("%s asks for %s", worker, keyOf(c.ChunkKey)), track.Asked{Request: q, After: r.seq, Reply: func(a *broker.AskReply) { got = a }})
	return got
}

// answer answers the listings that were asked for, with what is present.
func (r *rig) listed(present map[int64][]int64) {
	for _, e := range r.fresh {
		if l, ok := e.(track.List); ok {
			r.fresh = nil
			r.event("listed", track.Listed{App: l.App.ID, Ask: l.Ask, Instances: l.Instances, Present: present, After: map[uint8]uint64{rigShard: r.seq}})
			return
		}
	}
	r.t.Fatal("nothing was to be listed")
}

func (r *rig) status(id int64) string { return r.rows[id].Status.String() }

// golden compares the story so far with testdata/name.txt.
func (r *rig) golden(name string) {
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(r.t, os.MkdirAll("testdata", 0o755))
		require.NoError(r.t, os.WriteFile(path, []byte(r.log.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(r.t, err)
	require.Equal(r.t, string(want), r.log.String())
}
